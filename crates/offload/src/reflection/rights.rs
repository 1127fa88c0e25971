//! What this cluster's own controller may read: Secrets and Ingresses of the namespaces that are offloaded, and of no
//! others.
//!
//! It binds its role in each of them, where everybody can see it, and takes the binding away afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::warn;

use super::hand::MANAGER;

/// The role, and the binding of it.
const NAME: &str = "ferro-reflection";
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after something that failed.
const RETRY: Duration = Duration::from_secs(5);
/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);

/// Keeps the bindings as they should be, for ever.
pub async fn keep(tasks: Tasks, home: Home) -> Result<()> {
    let ours = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut bindings: Watched<RoleBinding> =
        Watched::start(&tasks, "bindings of reflection", Api::all(home.client.clone()), ours);
    let mut namespaces = home.namespaces.clone();
    namespaces.ready().await?;
    bindings.ready().await?;
    loop {
        let has_failed = arrange(&home, &namespaces, &bindings).await;
        tokio::select! {
            changed = namespaces.changed() => changed?,
            changed = bindings.changed() => changed?,
            () = tokio::time::sleep(if has_failed { RETRY } else { AT_REST }) => {}
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Binds where it is missing, and unbinds where it is not needed any more. Whether something is to be tried again.
async fn arrange(home: &Home, namespaces: &Watched<Namespace>, bindings: &Watched<RoleBinding>) -> bool {
    let is_wanted = |namespace: &Namespace| {
        labels::OFFLOADED.is_on(&namespace.metadata) && namespace.metadata.deletion_timestamp.is_none()
    };
    let wanted: BTreeSet<String> = namespaces
        .all()
        .iter()
        .filter(|namespace| is_wanted(namespace))
        .map(|namespace| namespace.name_any())
        .collect();
    let is_ours = |binding: &RoleBinding| labels::PART_OF.is_on(&binding.metadata);
    let present = bindings.all().into_iter().filter(|binding| is_ours(binding));
    let present: BTreeSet<String> = present.filter_map(|binding| binding.namespace()).collect();
    let mut has_failed = false;
    for namespace in wanted.difference(&present) {
        has_failed |= said(namespace, &bind(&home.client, &home.namespace, namespace).await);
    }
    for namespace in present.difference(&wanted) {
        has_failed |= said(namespace, &unbind(&home.client, namespace).await);
    }
    has_failed
}

fn said(namespace: &str, result: &Result<()>) -> bool {
    if let Err(error) = result {
        warn!(namespace, error = format!("{error:#}"), "will be tried again");
    }
    result.is_err()
}

async fn bind(client: &Client, installation: &str, namespace: &str) -> Result<()> {
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": NAME, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": "ferro-controller", "namespace": installation}],
    }))?;
    let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    match Api::namespaced(client.clone(), namespace).create(&how, &binding).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        bound => bound.map(drop).context("cannot let the controller read what is to be reflected"),
    }
}

async fn unbind(client: &Client, namespace: &str) -> Result<()> {
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    match bindings.delete(NAME, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        unbound => unbound.map(drop).context("cannot take away the right to read what was reflected"),
    }
}
