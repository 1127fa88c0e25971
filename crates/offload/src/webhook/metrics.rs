//! The figures of the webhook: how often it was asked, and what came of it.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// The pod was good as it was.
    Unchanged,
    /// Something was added to the pod.
    Changed,
    /// The pod was refused.
    Refused,
    /// The policy could not be read, so that somebody has to try again.
    Postponed,
    /// It was no question.
    Malformed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    outcome: Outcome,
}

/// The figures.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<Group, Counter>,
}

impl Metrics {
    /// Makes the figures known.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Pods that API servers showed to the webhook, by what came of it";
        registry.register("webhook_requests", help, metrics.requests.clone());
        metrics
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.requests.get_or_create(&Group { outcome }).inc();
    }
}
