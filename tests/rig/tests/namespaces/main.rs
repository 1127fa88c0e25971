//! Namespaces on other clusters, between real API servers: which are asked for, under which names, what becomes of them, and
//! how they go. Writes are counted in the audit log of the API server.

mod commands;
mod crashes;
mod deletion;
mod names;
mod selectors;
mod stage;

use anyhow::{Context, Result, ensure};
use ferro_api::offloading::OffloadingPhase;
use rig::wait::eventually;
use serde_json::{Value, json};

use stage::{Stage, condition, discard_namespace, make_namespace, namespace, on_stage};

const USE_CASE: &str =
    include_str!("../../../../examples/seeds/tenancy-4.3-namespaceoffloading-use-case.yaml");
const DEFAULT: &str = include_str!("../../../../examples/seeds/tenancy-4.3-namespaceoffloading-default.yaml");
const MAP: &str = include_str!("../../../../examples/seeds/tenancy-6.1.1-namespacemap.yaml");

/// What a manifest has as its spec.
fn spec_of(manifest: &str) -> Result<Value> {
    let manifest: Value = serde_saphyr::from_str(manifest)?;
    Ok(manifest["spec"].clone())
}

#[test]
fn the_manifests_of_the_contract_are_fulfilled_as_they_are_printed() -> Result<()> {
    on_stage(async |stage| {
        stage.label_node(&stage.turin.site, &json!({"security-policy": "strict"})).await?;
        stage.make("ns-test").await?;
        the_use_case(stage).await?;
        the_label(stage).await?;
        stage.rome.cluster.apply(DEFAULT).await?;
        stage.comes_to("ns-test", Some(OffloadingPhase::Ready)).await?;
        // What a person made does not go with the label.
        label(stage, "liqo.io/enabled=true").await?;
        label(stage, "liqo.io/enabled-").await?;
        stage.patch("ns-test", &json!({"spec": {"podOffloadingStrategy": "Local"}})).await?;
        stage.comes_to("ns-test", Some(OffloadingPhase::Ready)).await?;
        stage.unoffload("ns-test").await?;
        stage.discard("ns-test").await?;
        stage.label_node(&stage.turin.site, &json!({})).await
    })
}

/// Pods only remote, the same name, one cluster.
async fn the_use_case(stage: &Stage) -> Result<()> {
    stage.rome.cluster.apply(USE_CASE).await?;
    let offloading = stage.comes_to("ns-test", Some(OffloadingPhase::Ready)).await?;
    let status = offloading.status.context("it has no status")?;
    let turin = stage.turin.site.id().await?;
    let clusters: Vec<&String> = status.remote_namespaces_conditions.keys().collect();
    ensure!(clusters == [&turin], "{clusters:?}");
    for type_ in ["Ready", "OffloadingRequired"] {
        let shown = condition(&status.remote_namespaces_conditions[&turin], type_)?;
        ensure!(shown.status == "True", "{shown:?}");
    }
    // As printed in 6.1.1.
    let map = stage.map(&stage.turin.site).await?.context("there is no map")?;
    let printed: Value = serde_saphyr::from_str(MAP)?;
    ensure!(json!(map.spec) == printed["spec"], "{:?}", map.spec);
    let current = json!(map.status.context("it has no status")?.current_mapping);
    ensure!(current == printed["status"]["currentMapping"], "{current}");
    ensure!(stage.desired(&stage.milan).await?.is_empty(), "Milan is asked, too");
    let there = namespace(&stage.turin.site, "ns-test").await?.context("it is not there")?;
    ensure!(there.metadata.labels.unwrap_or_default().get("tenancy.liqo.io/tenant") == Some(&stage.id));
    let here = namespace(&stage.rome, "ns-test").await?.context("it is not here")?;
    ensure!(here.metadata.labels.unwrap_or_default().contains_key("offloading.liqo.io/admitted"));
    eventually("it is told that pods have to be restarted", || async {
        let told = stage.rome.cluster.kubectl(&["events", "--namespace", "ns-test"]).await?;
        ensure!(told.contains("RestartPods") && told.contains("kubectl rollout restart"), "{told}");
        Ok(())
    })
    .await?;

    stage.unoffload("ns-test").await?;
    ensure!(namespace(&stage.turin.site, "ns-test").await?.is_none(), "it is still there");
    let here = namespace(&stage.rome, "ns-test").await?.context("it is not here")?;
    ensure!(!here.metadata.labels.unwrap_or_default().contains_key("offloading.liqo.io/admitted"));
    Ok(())
}

async fn label(stage: &Stage, label: &str) -> Result<()> {
    stage.rome.cluster.kubectl(&["label", "namespace", "ns-test", label]).await.map(drop)
}

/// The label makes what is printed, on all clusters, and takes it away again.
async fn the_label(stage: &Stage) -> Result<()> {
    label(stage, "liqo.io/enabled=true").await?;
    let made = eventually("the label makes an offloading", || stage.offloading("ns-test")).await?;
    ensure!(json!(made.spec) == spec_of(DEFAULT)?, "{:?}", made.spec);
    stage.comes_to("ns-test", Some(OffloadingPhase::Ready)).await?;
    let remote = format!("ns-test-{}", stage.id);
    for provider in [&stage.turin.site, &stage.milan] {
        let current = stage.current(provider).await?;
        ensure!(current["ns-test"] == json!({"phase": "Accepted", "remoteNamespace": remote}), "{current:?}");
        ensure!(namespace(provider, &remote).await?.is_some(), "{} has no {remote}", provider.name);
    }
    label(stage, "liqo.io/enabled-").await?;
    stage.is_gone("ns-test").await?;
    for provider in [&stage.turin.site, &stage.milan] {
        ensure!(namespace(provider, &remote).await?.is_none(), "{} still has {remote}", provider.name);
    }
    Ok(())
}

#[test]
fn a_map_that_somebody_wrote_by_hand_is_left_as_it_is() -> Result<()> {
    on_stage(async |stage| {
        let place = "liqo-tenant-cluster-2-5c09e1";
        make_namespace(&stage.rome, place).await?;
        stage.rome.cluster.apply(MAP).await?;
        stage.make("ns-test").await?;
        stage.offload("ns-test", &json!({})).await?;
        stage.comes_to("ns-test", Some(OffloadingPhase::Ready)).await?;
        let get = ["get", "namespacemap", "cluster-2", "--namespace", place, "--output=json"];
        let left: Value = serde_json::from_str(&stage.rome.cluster.kubectl(&get).await?)?;
        ensure!(left["spec"] == spec_of(MAP)? && left["metadata"]["generation"] == json!(1), "{left}");
        stage.unoffload("ns-test").await?;
        stage.discard("ns-test").await?;
        discard_namespace(&stage.rome, place).await
    })
}
