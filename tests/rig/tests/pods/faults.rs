//! What befalls pods, controllers and the wire between the clusters.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rig::lan::Loss;
use rig::wait::eventually;

use crate::stage::{AWAY, Stage, is_ready};
use crate::workloads::deployment;

fn uids(pods: &[Pod]) -> Vec<String> {
    let mut uids: Vec<String> = pods.iter().filter_map(Pod::uid).collect();
    uids.sort();
    uids
}

pub async fn a_lost_pod_is_made_again_over_there(stage: &Stage) -> Result<()> {
    let here = uids(&stage.await_ready("web", 2).await?);
    let victim = stage.there("web").await?.into_iter().next().context("nothing runs")?;
    stage
        .turin()?
        .kubectl(&["-n", &stage.there, "delete", "pod", &victim.name_any(), "--wait=false"])
        .await?;
    eventually("there is another one over there", || async {
        let there = stage.there("web").await?;
        ensure!(
            there.len() == 2 && !uids(&there).contains(&victim.uid().unwrap_or_default()),
            "{:?}",
            uids(&there)
        );
        Ok(())
    })
    .await?;
    ensure!(uids(&stage.await_ready("web", 2).await?) == here, "the pods at home are others");
    Ok(())
}

pub async fn pods_run_on_while_the_clusters_are_cut_apart(stage: &Stage) -> Result<()> {
    let (here, there) = (uids(&stage.await_ready("web", 2).await?), uids(&stage.there("web").await?));
    stage.topology().cut("rome", "turin", Loss::CUT, false).await?;
    eventually("pods that cannot be reached are not ready", || async {
        let pods = stage.here(AWAY, "web").await?;
        ensure!(!pods.iter().any(is_ready), "some are ready");
        Ok(())
    })
    .await?;
    ensure!(uids(&stage.there("web").await?) == there, "others run over there");
    stage.topology().heal("rome", "turin").await?;
    ensure!(uids(&stage.await_ready("web", 2).await?) == here, "the pods at home are others");
    ensure!(uids(&stage.there("web").await?) == there, "others run over there");
    Ok(())
}

pub async fn kills_of_either_controller_leave_nothing_wrong(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let kill = [
        "-n",
        "liqo",
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/name=ferro-controller",
        "--grace-period=0",
        "--force",
        "--wait=false",
    ];
    for (round, cluster) in [stage.turin()?, rome, stage.turin()?].into_iter().enumerate() {
        let name = format!("many-{round}");
        rome.apply(&deployment(AWAY, &name, 5)).await?;
        cluster.kubectl(&kill).await?;
        stage.await_ready(&name, 5).await?;
        stage.kubectl(AWAY, &["delete", "deployment", &name, "--wait=false"]).await?;
        cluster.kubectl(&kill).await?;
        stage.await_gone(&name).await?;
    }
    stage.await_ready("web", 2).await.map(drop)
}
