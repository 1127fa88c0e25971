//! Names that cannot be had: refused at once where that is possible, shown with the reason where it is not, and whoever has
//! the name is left alone.

use anyhow::{Context, Result, ensure};
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use rig::site::Site;
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{Stage, discard_namespace, make_namespace, namespace, on_stage};

const POLICY: &str = "validatingadmissionpolicybinding";

fn same_name() -> Value {
    json!({"namespaceMappingStrategy": "EnforceSameName"})
}

#[test]
fn a_name_of_27_characters_is_refused_with_the_number_26() -> Result<()> {
    on_stage(async |stage| {
        let (long, fits) = ("a".repeat(27), "a".repeat(26));
        for name in [&long, &fits] {
            stage.make(name).await?;
        }
        let Err(refused) = stage.offload(&long, &json!({})).await else { anyhow::bail!("it is taken") };
        ensure!(format!("{refused:#}").contains("26"), "{refused:#}");
        stage.offload(&fits, &json!({})).await?;
        stage.comes_to(&fits, Some(OffloadingPhase::Ready)).await?;
        stage.unoffload(&fits).await?;
        the_label_is_answered_on_the_namespace(stage, &long).await?;
        the_controller_knows_it_as_well(stage, &long).await?;
        for name in [&long, &fits] {
            stage.discard(name).await?;
        }
        Ok(())
    })
}

async fn the_label_is_answered_on_the_namespace(stage: &Stage, name: &str) -> Result<()> {
    let kubectl = &stage.rome.cluster;
    kubectl.kubectl(&["label", "namespace", name, "liqo.io/enabled=true"]).await?;
    eventually("the label is answered", || async {
        let shown = kubectl.kubectl(&["describe", "namespace", name]).await?;
        ensure!(shown.contains("OffloadingRefused") && shown.contains("at most 26 characters"), "{shown}");
        let told = kubectl.kubectl(&["events", "--for", &format!("namespace/{name}")]).await?;
        ensure!(told.contains("NameTooLong") && told.contains("at most 26 characters"), "{told}");
        Ok(())
    })
    .await?;
    kubectl.kubectl(&["label", "namespace", name, "liqo.io/enabled-"]).await?;
    eventually("the answer is taken back", || async {
        let conditions =
            namespace(&stage.rome, name).await?.and_then(|is| is.status).unwrap_or_default().conditions;
        ensure!(conditions.iter().flatten().next().is_none(), "{conditions:?}");
        Ok(())
    })
    .await
}

/// What came past the policy, as before it was installed.
async fn past_the_policy(stage: &Stage, namespace: &str, spec: &Value) -> Result<()> {
    let kubectl = &stage.rome.cluster;
    let policy = kubectl.kubectl(&["get", POLICY, "ferro-offloading", "--output=json"]).await?;
    let mut policy: Value = serde_json::from_str(&policy)?;
    let meta = policy["metadata"].as_object_mut().context("it has no metadata")?;
    meta.retain(|field, _| ["name", "labels", "annotations"].contains(&field.as_str()));
    kubectl.kubectl(&["delete", POLICY, "ferro-offloading"]).await?;
    // Policies take effect a moment after they are written.
    let offloaded = eventually("nothing stands in the way", || stage.offload(namespace, spec)).await;
    kubectl.apply(&policy.to_string()).await?;
    eventually("the policy stands in the way again", || async {
        let again = try_to_offload(stage, namespace, spec).await;
        let is_refused = matches!(&again, Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422));
        ensure!(is_refused, "{again:?}");
        Ok(())
    })
    .await?;
    offloaded
}

/// What an API server says to an offloading that is not meant.
async fn try_to_offload(stage: &Stage, namespace: &str, spec: &Value) -> kube::Result<NamespaceOffloading> {
    let object = json!({
        "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading"}, "spec": spec,
    });
    let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    stage.offloadings(namespace).create(&dry, &object).await
}

async fn the_controller_knows_it_as_well(stage: &Stage, name: &str) -> Result<()> {
    past_the_policy(stage, name, &json!({})).await?;
    let message = stage.fails(name, "NameTooLong").await?;
    ensure!(message.contains("at most 26 characters"), "{message}");
    stage.comes_to(name, Some(OffloadingPhase::AllFailed)).await?;
    stage.is_asked_for(name, &[]).await?;
    stage.unoffload(name).await
}

/// What tells whether a namespace was touched. The controller-manager writes annotations and status, nobody else does.
fn traits(namespace: &Namespace) -> Value {
    let meta = &namespace.metadata;
    json!([meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp])
}

async fn traits_of(site: &Site, name: &str) -> Result<Value> {
    Ok(traits(&namespace(site, name).await?.with_context(|| format!("{} has no {name}", site.name))?))
}

#[test]
fn a_namespace_that_the_provider_has_already_is_untouched_also_after_deletion() -> Result<()> {
    on_stage(async |stage| {
        let turin = &stage.turin.site;
        make_namespace(turin, "taken").await?;
        let maps: Api<ConfigMap> = Api::namespaced(turin.admin.clone(), "taken");
        let treasure = serde_json::from_value(json!({"metadata": {"name": "treasure"}}))?;
        let treasure = maps.create(&PostParams::default(), &treasure).await?;
        let before = [traits_of(turin, "taken").await?, traits_of(turin, "kube-system").await?];
        stage.make("taken").await?;
        stage.offload("taken", &same_name()).await?;
        let message = stage.fails("taken", "CreationFailed").await?;
        ensure!(message.contains("turin") && message.contains("not part of this Tenant"), "{message}");
        stage.comes_to("taken", Some(OffloadingPhase::SomeFailed)).await?;
        eventually("Milan has room for it", || async {
            ensure!(namespace(&stage.milan, "taken").await?.is_some(), "it is not there");
            Ok(())
        })
        .await?;

        let refused = stage.offload("kube-system", &same_name()).await;
        ensure!(refused.is_err(), "an offloading of kube-system is taken");
        past_the_policy(stage, "kube-system", &same_name()).await?;
        stage.fails("kube-system", "NameReserved").await?;
        stage.comes_to("kube-system", Some(OffloadingPhase::AllFailed)).await?;
        stage.is_asked_for("kube-system", &[]).await?;

        for name in ["taken", "kube-system"] {
            stage.unoffload(name).await?;
        }
        let after = [traits_of(turin, "taken").await?, traits_of(turin, "kube-system").await?];
        ensure!(before == after, "{before:?} became {after:?}");
        ensure!(maps.get("treasure").await? == treasure, "what was in it is not as it was");
        stage.discard("taken").await?;
        discard_namespace(turin, "taken").await
    })
}

#[test]
fn of_two_namespaces_that_want_one_name_the_older_has_it() -> Result<()> {
    on_stage(async |stage| {
        let (turin, later) = (&stage.turin.site, format!("twin-{}", stage.id));
        for name in ["twin", &later] {
            stage.make(name).await?;
        }
        stage.offload("twin", &json!({})).await?;
        stage.comes_to("twin", Some(OffloadingPhase::Ready)).await?;
        let before = traits_of(turin, &later).await?;
        stage.offload(&later, &same_name()).await?;
        let message = stage.fails(&later, "NameTaken").await?;
        ensure!(message.contains("the namespace twin has the name"), "{message}");
        stage.comes_to(&later, Some(OffloadingPhase::AllFailed)).await?;
        stage.unoffload(&later).await?;
        ensure!(traits_of(turin, &later).await? == before, "it was touched");

        stage.offload(&later, &same_name()).await?;
        stage.fails(&later, "NameTaken").await?;
        stage.unoffload("twin").await?;
        stage.comes_to(&later, Some(OffloadingPhase::Ready)).await?;
        ensure!(traits_of(turin, &later).await? != before, "it is the namespace of another one");
        stage.unoffload(&later).await?;
        for name in ["twin", &later] {
            stage.discard(name).await?;
        }
        Ok(())
    })
}
