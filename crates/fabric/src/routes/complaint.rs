//! What does not work on a node, where an operator looks: as Events of the Node, and as a figure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

/// The reason of the Events.
const REASON: &str = "PeerNotReached";
/// What changes all the time is told now and then.
const PAUSE: Duration = Duration::from_secs(10);
/// As much as an Event takes.
const LONGEST: usize = 1000;

/// The figure.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    complaints: Gauge,
}

impl Metrics {
    /// Makes it known.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Reasons for which this node does not reach a network of a peer";
        registry.register("routes_complaints", help, metrics.complaints.clone());
        metrics
    }

    fn set(&self, complaints: usize) {
        self.complaints.set(i64::try_from(complaints).unwrap_or(i64::MAX));
    }
}

/// Tells what is new among the complaints, for ever.
pub(super) async fn complain(
    client: Client,
    nodes: Watched<Node>,
    node: String,
    metrics: Metrics,
    mut heard: watch::Receiver<BTreeSet<String>>,
) -> Result<()> {
    let recorder = Recorder::new(client, Reporter { controller: "ferro-node".into(), instance: None });
    let mut told = BTreeSet::new();
    loop {
        let now = heard.borrow_and_update().clone();
        metrics.set(now.len());
        if let Some(node) = nodes.get(None, &node) {
            for complaint in now.difference(&told) {
                tell(&recorder, &node, complaint).await;
            }
            told = now;
        }
        heard.changed().await.context("nobody looks after the routes any more")?;
        sleep(PAUSE).await;
    }
}

/// An Event that cannot be written is in the log all the same.
async fn tell(recorder: &Recorder, node: &Node, complaint: &str) {
    let event = Event {
        type_: EventType::Warning,
        reason: REASON.into(),
        note: Some(complaint.chars().take(LONGEST).collect()),
        action: "Route".into(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &node.object_ref(&())).await {
        warn!(%error, complaint, "an Event could not be written");
    }
}
