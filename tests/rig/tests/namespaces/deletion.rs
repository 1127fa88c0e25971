//! The order in which namespaces go, with the peer there, with the peer cut off, and with the local Namespace: never a
//! deadlock, and nothing is left.

use anyhow::{Context, Result, ensure};
use ferro_api::offloading::OffloadingPhase;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use rig::audit::Asked;
use rig::wire::Wire;
use serde_json::json;

use crate::stage::{Stage, namespace, namespace_goes, on_stage};

/// Offloads a new namespace to both providers.
async fn offloaded(stage: &Stage, name: &str) -> Result<String> {
    stage.make(name).await?;
    stage.offload(name, &json!({})).await?;
    stage.comes_to(name, Some(OffloadingPhase::Ready)).await?;
    Ok(format!("{name}-{}", stage.id))
}

/// Where in the log something was first, or last, asked for.
fn place(asked: &[Asked], last: bool, is_it: impl Fn(&Asked) -> bool) -> Result<usize> {
    let mut places =
        asked.iter().enumerate().filter(|(_, one)| one.is_write() && is_it(one)).map(|(place, _)| place);
    let found = if last { places.next_back() } else { places.next() };
    found.with_context(|| format!("it is not in the log: {asked:?}"))
}

#[test]
fn entries_go_first_then_what_is_there_then_the_conditions_then_the_object() -> Result<()> {
    on_stage(async |stage| {
        let remote = offloaded(stage, "ordered").await?;
        let mark = stage.audit.mark().await?;
        stage.unoffload("ordered").await?;
        for provider in [&stage.turin.site, &stage.milan] {
            ensure!(namespace(provider, &remote).await?.is_none(), "{} still has it", provider.name);
        }
        let asked = stage.audit.since(mark).await?;
        let of = |one: &Asked, manager: &str, resource: &str, subresource: Option<&str>| {
            one.manager.as_deref() == Some(manager)
                && one.resource == resource
                && one.subresource.as_deref() == subresource
        };
        let (ours, copied) = ("ferro-offloading", "ferro-replicator");
        let (offloadings, maps) = ("namespaceoffloadings", "namespacemaps");
        let entries = place(&asked, true, |one| of(one, ours, maps, None))?;
        let shown = place(&asked, true, |one| of(one, ours, offloadings, Some("status")))?;
        // What a provider says of other namespaces may come at any time.
        let gone = place(&asked[..shown], true, |one| of(one, copied, maps, Some("status")))?;
        let released = place(&asked, true, |one| of(one, ours, offloadings, None))?;
        let order = [entries, gone, shown, released];
        ensure!(order.is_sorted(), "{order:?} in {asked:#?}");
        let terminating = place(&asked, false, |one| of(one, ours, offloadings, Some("status")))?;
        ensure!(terminating < gone, "Terminating is not shown while it waits: {asked:#?}");
        stage.discard("ordered").await
    })
}

#[test]
fn while_the_peer_is_cut_off_it_is_terminating_with_a_reason_and_goes_on_afterwards() -> Result<()> {
    on_stage(async |stage| {
        let remote = offloaded(stage, "cut").await?;
        stage.between_rome_and_turin(Wire::Broken);
        stage.delete("cut").await?;
        // Who is cut off may be known to be before the deletion is.
        stage.comes_to("cut", Some(OffloadingPhase::Terminating)).await?;
        let message = stage.fails("cut", "PeerUnreachable").await?;
        ensure!(message.contains("turin") && message.contains("liqo.io/force"), "{message}");
        let offloading = stage.offloading("cut").await?;
        let status = offloading.status.unwrap_or_default();
        ensure!(status.offloading_phase == Some(OffloadingPhase::Terminating), "{status:?}");
        namespace_goes(&stage.milan, &remote).await?;
        ensure!(namespace(&stage.turin.site, &remote).await?.is_some(), "who told Turin?");
        ensure!(stage.desired(&stage.turin.site).await?.is_empty(), "it is still asked for");
        stage.between_rome_and_turin(Wire::Whole);
        stage.is_gone("cut").await?;
        ensure!(namespace(&stage.turin.site, &remote).await?.is_none(), "it is still there");
        stage.discard("cut").await
    })
}

#[test]
fn force_releases_it_and_what_was_left_behind_goes_when_the_peer_is_back() -> Result<()> {
    on_stage(async |stage| {
        let remote = offloaded(stage, "forced").await?;
        stage.between_rome_and_turin(Wire::Broken);
        stage.delete("forced").await?;
        stage.comes_to("forced", Some(OffloadingPhase::Terminating)).await?;
        stage.patch("forced", &json!({"metadata": {"annotations": {"liqo.io/force": "true"}}})).await?;
        stage.is_gone("forced").await?;
        ensure!(namespace(&stage.turin.site, &remote).await?.is_some(), "who told Turin?");
        stage.between_rome_and_turin(Wire::Whole);
        namespace_goes(&stage.turin.site, &remote).await?;
        stage.discard("forced").await
    })
}

#[test]
fn deleting_the_local_namespace_deletes_the_others_without_a_deadlock() -> Result<()> {
    on_stage(async |stage| {
        let remote = offloaded(stage, "local").await?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "content"}}))?;
        Api::namespaced(stage.rome.admin.clone(), "local").create(&PostParams::default(), &map).await?;
        let namespaces: Api<Namespace> = Api::all(stage.rome.admin.clone());
        stage.between_rome_and_turin(Wire::Broken);
        namespaces.delete("local", &DeleteParams::default()).await?;
        stage.comes_to("local", Some(OffloadingPhase::Terminating)).await?;
        stage.between_rome_and_turin(Wire::Whole);
        namespace_goes(&stage.rome, "local").await?;
        for provider in [&stage.turin.site, &stage.milan] {
            ensure!(namespace(provider, &remote).await?.is_none(), "{} still has it", provider.name);
        }
        Ok(())
    })
}
