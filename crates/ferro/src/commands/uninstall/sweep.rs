//! Removes everything that carries our label, whoever made it: the chart, a controller, or an earlier version.

use ferro_api::names::labels;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::Client;
use kube::api::{DeleteParams, ListParams};

use crate::chart;
use crate::inventory::{self, Installation, Item, Kind};
use crate::output;

/// Where Kubernetes keeps the signs of life of nodes.
const NODE_LEASES: &str = "kube-node-lease";

/// Everything of ours that is not an object of our own kinds, in the order in which it may go.
pub(super) async fn find(client: &Client) -> anyhow::Result<Vec<Item>> {
    let mut found = Vec::new();
    for kind in inventory::kinds().iter().rev() {
        found.extend(kind.ours(client).await?);
        if kind.is::<Deployment>() {
            found.extend(made_by_controllers(client).await?);
        }
    }
    Ok(found)
}

/// What is not in the chart, because it comes and goes while the controllers run.
async fn made_by_controllers(client: &Client) -> anyhow::Result<Vec<Item>> {
    let mut found = Vec::new();
    for kind in [
        Kind::namespaced::<ConfigMap>(),
        Kind::namespaced::<Secret>(),
        Kind::namespaced::<Lease>(),
        Kind::cluster::<CertificateSigningRequest>(),
    ] {
        found.extend(kind.ours(client).await?);
    }
    let virtual_nodes = ListParams::default().labels(&labels::TYPE_VIRTUAL_NODE.selector());
    found.extend(Kind::cluster::<Node>().list(client, &virtual_nodes).await?);
    Ok(found)
}

/// Removes what is left of an installation.
pub(super) async fn sweep(client: &Client, installation: Option<&Installation>) -> anyhow::Result<()> {
    let how = DeleteParams::background();
    for item in find(client).await?.iter().filter(|item| !item.is_going()) {
        if item.kind.is::<Node>() {
            Item::named::<Lease>(NODE_LEASES, item.name()).delete(client, &how).await?;
        }
        item.delete(client, &how).await?;
        output::line(&format!("{item} removed"))?;
    }
    let Some(Installation { namespace, helm_release, .. }) = installation else { return Ok(()) };
    // Made for the installation by those who do not know its label.
    Item::named::<Lease>(namespace, chart::CONTROLLER).delete(client, &how).await?;
    if let Some(release) = helm_release {
        let records = ListParams::default().labels(&format!("owner=helm,name={release}"));
        for item in Kind::namespaced::<Secret>().list(client, &records).await? {
            if item.meta.namespace.as_ref() == Some(namespace) {
                item.delete(client, &how).await?;
            }
        }
    }
    Ok(())
}
