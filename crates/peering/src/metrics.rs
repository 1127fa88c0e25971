//! The figures of the controller: how many peers there are, in which state.

use ferro_api::discovery::{ForeignCluster, PeeringStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Which peers are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    direction: &'static str,
    state: String,
}

/// The figures.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    peers: Family<Group, Gauge>,
}

impl Metrics {
    /// Makes the figures known.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("peers", "Other clusters, by the state of each direction", metrics.peers.clone());
        metrics
    }

    /// Counts the peers anew.
    pub(crate) fn count<'a>(&self, peers: impl Iterator<Item = &'a ForeignCluster>) {
        self.peers.clear();
        for status in peers.filter_map(|peer| peer.status.as_ref()) {
            self.add("outgoing", status.outgoing.as_ref());
            self.add("incoming", status.incoming.as_ref());
        }
    }

    fn add(&self, direction: &'static str, status: Option<&PeeringStatus>) {
        let state = format!("{:?}", status.map(|status| status.state).unwrap_or_default());
        self.peers.get_or_create(&Group { direction, state }).inc();
    }
}
