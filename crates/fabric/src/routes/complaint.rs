//! What does not work on a node, where an operator looks: as Events of the Node, and as a figure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_runtime::events::Teller;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, Resource as _};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::sleep;

/// The reason of the Events.
const REASON: &str = "PeerNotReached";
/// What changes all the time is told now and then.
const PAUSE: Duration = Duration::from_secs(10);

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
    let teller = Teller::new(client, "ferro-node", "Route");
    let mut told = BTreeSet::new();
    loop {
        let now = heard.borrow_and_update().clone();
        metrics.set(now.len());
        if let Some(node) = nodes.get(None, &node) {
            for complaint in now.difference(&told) {
                teller.tell(&node.object_ref(&()), true, REASON, complaint).await;
            }
            told = now;
        }
        heard.changed().await.context("nobody looks after the routes any more")?;
        sleep(PAUSE).await;
    }
}
