//! What depends on the webhook, and what does not.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use rig::wait::{block_on, eventually};
use serde_json::json;

use super::stage::{INSTALLATION, PLAIN, Stage, stage, terms};

/// The deployment, as kubectl names it.
const CONTROLLER: [&str; 3] = ["deployment/ferro-controller", "--namespace", INSTALLATION];

async fn scale(stage: &Stage, replicas: usize) -> Result<()> {
    let cluster = stage.cluster()?;
    let wanted = format!("--replicas={replicas}");
    cluster.kubectl(&[&["scale", &wanted][..], &CONTROLLER].concat()).await?;
    eventually("the controller is scaled", || async {
        let pods = stage.controllers().await?;
        ensure!(pods.len() == replicas, "{pods:?}");
        Ok(())
    })
    .await?;
    cluster.kubectl(&[&["rollout", "status", "--timeout=300s"][..], &CONTROLLER].concat()).await.map(drop)
}

/// Waits until a pod of an offloaded namespace is created, with its policy.
async fn is_admitted(stage: &Stage, name: &str) -> Result<()> {
    let plain = json!({});
    let created = eventually("pods are admitted again", || stage.create("remote", name, &plain)).await?;
    ensure!(!terms(&created)?.is_null(), "nothing was added to {name}");
    Ok(())
}

#[test]
fn pods_are_shown_to_the_webhook_only_where_somebody_offloaded_their_namespace() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let (calls, asked) = (stage.calls().await?, stage.asked().await?);
        stage.create(PLAIN, "unseen", &json!({})).await?;
        ensure!(stage.calls().await? == calls, "a pod of another namespace was shown to it");
        ensure!(stage.asked().await? == asked, "it was asked about a pod of another namespace");
        stage.create("remote", "seen", &json!({})).await?;
        ensure!(stage.calls().await? > calls, "a pod of an offloaded namespace was not shown to it");
        ensure!(stage.asked().await? > asked, "it was not asked about a pod of an offloaded namespace");
        Ok(())
    })
}

#[test]
fn while_nobody_answers_pods_of_offloaded_namespaces_are_refused_and_all_others_created() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        scale(stage, 0).await?;
        stage.create(PLAIN, "as-ever", &json!({})).await?;
        let refused = eventually("a pod without its policy is refused", || async {
            let created = stage.create("remote", "too-early", &json!({})).await;
            created.err().context("it was created")
        });
        let refused = format!("{:#}", refused.await?);
        scale(stage, 1).await?;
        ensure!(refused.contains("failed calling webhook \"pods.offloading.liqo.io\""), "{refused}");
        is_admitted(stage, "in-time").await
    })
}

#[test]
fn certificates_that_are_lost_are_made_anew_and_nothing_has_to_be_restarted() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        let before = stage.controllers().await?;
        let secrets: Api<Secret> = Api::namespaced(stage.cluster()?.client.clone(), INSTALLATION);
        let old = secrets.get("ferro-webhook").await?;
        secrets.delete("ferro-webhook", &DeleteParams::default()).await?;
        eventually("there are other certificates", || async {
            let new = secrets.get("ferro-webhook").await?;
            ensure!(
                new.uid() != old.uid() && new.data.iter().flatten().any(|(key, _)| key == "tls.crt"),
                "not yet"
            );
            Ok(())
        })
        .await?;
        is_admitted(stage, "renewed").await?;
        ensure!(stage.controllers().await? == before, "the controller was started anew");
        Ok(())
    })
}
