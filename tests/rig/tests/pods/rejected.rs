//! Pods that home lets travel and the provider does not take: they ask for rights that it does not give, or it has no room.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use rig::installation::ferro;
use rig::topology::Cluster;
use rig::wait::eventually;

use crate::stage::{AWAY, BOTH, Stage, WEB, is_ready, node_of};
use crate::workloads::{deployment, shell};

/// Security contexts that home does not mind: one that our own controller over there refuses, and one that it leaves to the
/// API server there. With them the word, and a part of the sentence.
const REFUSED: [(&str, &str, &str, &str); 2] = [
    ("mighty", "{privileged: true}", "NotAllowed", "container shell asks for privileged"),
    ("unconfined", "{seccompProfile: {type: Unconfined}}", "Forbidden", "violates PodSecurity"),
];
/// How many pods the Deployment has for which there is no room.
const CROWD: usize = 2;

/// Who looks at the pod reads why the provider refuses it, in the provider's words.
pub async fn what_the_provider_does_not_allow_is_told_at_home(stage: &Stage) -> Result<()> {
    let pods = REFUSED.map(|(name, context, ..)| {
        let secured = format!("{{name: shell, securityContext: {context},");
        shell(name, "Always", "sleep 1000").replace("{name: shell,", &secured)
    });
    stage.rome()?.apply(&pods.join("---")).await?;
    for (name, _, word, sentence) in REFUSED {
        eventually(&format!("{name} says why it does not run"), || async {
            let described = stage.kubectl(AWAY, &["describe", "pod", name]).await?;
            for said in ["Pending", word, sentence] {
                ensure!(described.contains(said), "nothing of {said}: {described}");
            }
            Ok(())
        })
        .await?;
        ensure!(stage.there(name).await?.is_empty(), "{name} is there");
    }
    let names = REFUSED.map(|(name, ..)| name);
    stage.kubectl(AWAY, &[&["delete", "pod", "--timeout=300s"], &names[..]].concat()).await?;
    for name in names {
        stage.await_gone(name).await?;
    }
    Ok(())
}

/// A provider whose Tenant is full offers nothing more, and turns away who comes before that is known: pods run elsewhere,
/// also those that would rather be there.
pub async fn a_pod_without_room_makes_way_for_one_elsewhere(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(&attracted(&stage.node)).await?;
    let moved = async {
        fill(stage).await?;
        turned_away(stage).await
    }
    .await;
    empty(stage).await?;
    moved?;
    stage.kubectl(BOTH, &["delete", "deployment", "crowd", "--timeout=300s"]).await?;
    eventually("nothing is left of it", || async {
        let left = stage.here(BOTH, "crowd").await?;
        ensure!(left.is_empty(), "{} are", left.len());
        Ok(())
    })
    .await
}

/// A Deployment without pods yet, which would rather be on this node than on any other.
fn attracted(node: &str) -> String {
    let affinity = format!(
        "      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]}}
      containers:"
    );
    deployment(BOTH, "crowd", 0).replace("      containers:", &affinity)
}

/// Lets rome have no more pods on turin than it has.
async fn fill(stage: &Stage) -> Result<()> {
    let turin = stage.turin()?;
    let made = ["get", "pods", "-A", "-l", "virtualkubelet.liqo.io/shadowed=true", "-o", "name"];
    eventually("nothing but web runs on turin", || async {
        let made = turin.kubectl(&made).await?;
        ensure!(made.lines().count() == WEB, "{made}");
        Ok(())
    })
    .await?;
    set(turin, ["--quota", &format!("pods={WEB}")]).await?;
    let shown = ["get", "tenants", "-o", "jsonpath={.items[*].status.resourceQuota.hard.pods}"];
    eventually("the Tenant is full", || async {
        let shown = turin.kubectl(&shown).await?;
        ensure!(shown == WEB.to_string(), "there is room for {shown}");
        Ok(())
    })
    .await
}

/// Changes what rome may have on turin, as its administrators do: who finds it changed in the meantime tries again.
async fn set(turin: &Cluster, what: [&str; 2]) -> Result<()> {
    let set = [&["tenant", "set", "rome"], &what[..]].concat();
    eventually("the Tenant is changed", || ferro(turin, &set)).await.map(drop)
}

/// Lets rome have as many as turin offers, and waits until that holds in each of its namespaces.
async fn empty(stage: &Stage) -> Result<()> {
    let turin = stage.turin()?;
    set(turin, ["--unset", "quota"]).await?;
    let hard = ["get", "resourcequotas", "-A", "-o", "jsonpath={.items[*].status.hard.pods}"];
    eventually("there is room in all namespaces", || async {
        let hard = turin.kubectl(&hard).await?;
        ensure!(hard.split_whitespace().all(|pods| pods != WEB.to_string()), "{hard}");
        Ok(())
    })
    .await
}

async fn turned_away(stage: &Stage) -> Result<()> {
    stage.kubectl(BOTH, &["scale", "deployment/crowd", &format!("--replicas={CROWD}")]).await?;
    eventually("all run elsewhere", || async {
        let pods = stage.here(BOTH, "crowd").await?;
        let is_elsewhere = |pod: &&Pod| is_ready(pod) && node_of(pod) != Some(&stage.node);
        let elsewhere = pods.iter().filter(is_elsewhere).count();
        ensure!(elsewhere == CROWD, "{elsewhere} of {CROWD} do");
        let there = stage.at(stage.turin()?, BOTH, "crowd").await?;
        ensure!(there.is_empty(), "{} are on turin", there.len());
        Ok(())
    })
    .await
}
