//! The Leases of the nodes that stand for peers: renewed as kubelets do, so that Kubernetes sees their agent alive.

use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::virtual_node::{LEASE_NAMESPACE, lease};
use ferro_runtime::watch::Watched;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::warn;

/// As often as a kubelet.
const PERIOD: Duration = Duration::from_secs(10);

/// Renews them for ever; one that fails is tried again at the next turn.
pub(super) async fn keep(client: Client, mut nodes: Watched<Node>) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let mut turn = tokio::time::interval(PERIOD);
    let mut known = Vec::new();
    loop {
        tokio::select! {
            _ = turn.tick() => known.clear(),
            changed = nodes.changed() => changed?,
        }
        for node in nodes.all().iter().filter(|node| labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata)) {
            if node.metadata.deletion_timestamp.is_none() && !known.contains(&node.name_any()) {
                known.push(node.name_any());
                if let Err(error) = renew(&leases, node).await {
                    warn!(node = node.name_any(), error = format!("{error:#}"), "its Lease is not renewed");
                }
            }
        }
    }
}

async fn renew(leases: &Api<Lease>, node: &Node) -> Result<()> {
    let (name, lease) = (node.name_any(), lease(node, Timestamp::now()));
    let patch = json!({"spec": {"renewTime": lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref())}});
    let renewed = match leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            leases.create(&PostParams::default(), &lease).await
        }
        renewed => renewed,
    };
    renewed.map(drop).with_context(|| format!("cannot write the Lease {LEASE_NAMESPACE}/{name}"))
}
