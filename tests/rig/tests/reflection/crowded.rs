//! More namespaces than an API server takes requests on one connection: whatever is watched, others are asked and answered.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::tenancy::Tenant;
use ferro_api::virtualkubelet::ShadowPod;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::fuse::Fuse;
use rig::wait::eventually;
use serde_json::json;

use crate::stage::{Stage, on_stage};

/// An API server takes a hundred requests.
const CROWD: usize = 110;
const AT_ONCE: usize = 16;

fn names() -> impl Iterator<Item = String> {
    (0..CROWD).map(|number| format!("crowd-{number}"))
}

fn pods(stage: &Stage) -> Api<Pod> {
    Api::namespaced(stage.rome.admin.clone(), "crowd-0")
}

#[test]
fn a_pod_comes_and_goes_however_many_namespaces_are_offloaded() -> Result<()> {
    on_stage(async |stage| {
        let id = stage.rome.id().await?;
        let tenants: Api<Tenant> = Api::all(stage.turin.admin.clone());
        let more = json!({"spec": {"namespaceQuota": CROWD + 10}});
        tenants.patch(&id, &PatchParams::default(), &Patch::Merge(more)).await?;
        stream::iter(names())
            .map(|name| make(stage, name))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        are_there(stage, &id, CROWD).await?;
        let shadows: Api<ShadowPod> = Api::namespaced(stage.turin.admin.clone(), &format!("crowd-0-{id}"));
        eventually("the pod is there", || async { Ok(shadows.get("guest").await?) }).await?;

        // Whoever leads next watches all of them from the beginning.
        stage.rome.run(Fuse::none()).await?;
        pods(stage).delete("guest", &DeleteParams::default()).await?;
        eventually("the pod is gone here and there", || async {
            ensure!(shadows.get_opt("guest").await?.is_none(), "its ShadowPod is there");
            ensure!(pods(stage).get_opt("guest").await?.is_none(), "it is here");
            Ok(())
        })
        .await?;
        let gone = stream::iter(names()).map(|name| unmake(stage, name));
        gone.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        are_there(stage, &id, 0).await
    })
}

/// Offloads a namespace; the first one has a pod by then, since nobody answers for pods afterwards.
async fn make(stage: &Stage, name: String) -> Result<()> {
    let (client, how) = (stage.rome.admin.clone(), PostParams::default());
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone()).create(&how, &namespace).await?;
    if name == "crowd-0" {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "guest"}, "spec": {
            "nodeName": stage.node, "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": false,
            "containers": [{"name": "guest", "image": "guest"}],
        }}))?;
        eventually("the pod is made", || async { Ok(pods(stage).create(&how, &pod).await?) }).await?;
    }
    let offloading: NamespaceOffloading = serde_json::from_value(json!({
        "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading"}, "spec": {},
    }))?;
    Api::namespaced(client, &name).create(&how, &offloading).await?;
    Ok(())
}

async fn unmake(stage: &Stage, name: String) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(stage.rome.admin.clone());
    namespaces.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until so many of them are over there.
async fn are_there(stage: &Stage, id: &str, count: usize) -> Result<()> {
    let all: BTreeSet<String> = names().map(|name| format!("{name}-{id}")).collect();
    let namespaces: Api<Namespace> = Api::all(stage.turin.admin.clone());
    eventually(&format!("{count} of the namespaces are there"), || async {
        let present = namespaces.list(&ListParams::default()).await?.items;
        let found = present.iter().filter(|namespace| all.contains(&namespace.name_any())).count();
        ensure!(found == count, "{found} are");
        Ok(())
    })
    .await
}
