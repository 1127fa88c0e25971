//! Waiting until a cluster that was started works, as a user would see it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

/// How long a step may take before the rig gives up on it; a shared machine can be very slow.
const PATIENCE: Duration = Duration::from_mins(4);
const GLANCE: Duration = Duration::from_millis(100);

/// A client for a kubeconfig file.
pub async fn client_for(kubeconfig: &Path) -> Result<Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Waits until the API server answers.
pub(super) async fn await_api(what: &str, client: &Client) -> Result<()> {
    await_true(what, || async {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(client.request_text(request).await.is_ok_and(|text| text == "ok"))
    })
    .await
}

/// Waits until all nodes are Ready.
pub(super) async fn await_nodes(what: &str, client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    await_true(what, || async {
        let list = nodes.list(&ListParams::default()).await;
        Ok(list.is_ok_and(|list| !list.items.is_empty() && list.items.iter().all(is_ready)))
    })
    .await
}

/// Waits until what every cluster has besides its control plane is there.
pub(super) async fn await_addons(what: &str, client: &Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    await_true(what, || async {
        let list = deployments.list(&ListParams::default()).await;
        Ok(list.is_ok_and(|list| list.items.iter().all(is_available)))
    })
    .await
}

/// Waits until the check holds.
pub(super) async fn await_true<F: Future<Output = Result<bool>>>(
    what: &str,
    check: impl Fn() -> F,
) -> Result<()> {
    let wait = async {
        while !check().await? {
            tokio::time::sleep(GLANCE).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .with_context(|| format!("gave up after {} s on {what}", PATIENCE.as_secs()))?
}

/// Repeats what fails only because the kernel has not finished ending a node's processes.
pub(super) async fn retry(step: impl Fn() -> Result<()>) -> Result<()> {
    let mut last = step();
    for _ in 0..100 {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(GLANCE).await;
        last = step();
    }
    last
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_available(deployment: &Deployment) -> bool {
    deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .is_some_and(|replicas| replicas > 0)
}
