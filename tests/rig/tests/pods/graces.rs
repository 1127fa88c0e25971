//! How long pods may take to end: as long as whoever deletes them says, and not as long as they ask for.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rig::wait::eventually;
use serde_json::json;

use crate::faults::kill_controllers;
use crate::stage::{AWAY, Stage, is_ready, uids};
use crate::workloads::shell;

/// In seconds: longer than anything is waited for here.
const OWN: i64 = 600;
const GIVEN: i64 = 2;
/// Does not hear that it should end, and ends when there is this file.
const DEAF: &str = r#"trap "" TERM; until [ -e /tmp/end ]; do sleep 1; done"#;

/// A pod that takes all the time that it is given.
fn deaf(name: &str) -> String {
    let own = format!("terminationGracePeriodSeconds: {OWN}");
    shell(name, "Always", DEAF).replace("terminationGracePeriodSeconds: 1", &own)
}

pub async fn who_deletes_a_pod_says_how_long_it_may_take(stage: &Stage) -> Result<()> {
    let all = ["hurried", "evicted", "forced", "orphaned", "recalled", "taken"];
    stage.rome()?.apply(&all.map(deaf).join("---")).await?;
    let names = all.map(|name| format!("pod/{name}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wait = ["wait", "--for=condition=Ready", "--timeout=300s"];
    stage.kubectl(AWAY, &[&wait[..], &names].concat()).await?;
    tokio::try_join!(
        delete(stage, "hurried", GIVEN),
        evict(stage, "evicted"),
        delete(stage, "forced", 0),
        recall(stage, "recalled"),
        take(stage, "taken"),
    )?;
    try_join_all(["hurried", "evicted", "forced", "recalled", "taken"].map(|app| stage.await_gone(app)))
        .await?;
    // Nobody remembers anything: what is left over there tells that it is to end.
    delete(stage, "orphaned", 0).await?;
    tokio::try_join!(kill_controllers(stage.rome()?), kill_controllers(stage.turin()?))?;
    stage.await_gone("orphaned").await
}

async fn delete(stage: &Stage, name: &str, grace: i64) -> Result<()> {
    let grace_period = format!("--grace-period={grace}");
    let delete = ["delete", "pod", name, &grace_period, "--wait=false"];
    let force = if grace == 0 { &["--force"][..] } else { &[] };
    stage.kubectl(AWAY, &[&delete[..], force].concat()).await.map(drop)
}

async fn evict(stage: &Stage, name: &str) -> Result<()> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": AWAY},
        "deleteOptions": {"gracePeriodSeconds": GIVEN},
    });
    let path = format!("/api/v1/namespaces/{AWAY}/pods/{name}/eviction");
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request.body(serde_json::to_vec(&eviction)?)?;
    stage.rome()?.client.request_text(request).await.map(drop).context("it cannot be evicted")
}

/// Somebody who has given a pod all its time thinks better of it. The pod over there says so; but no kubelet of today heeds
/// that, on whatever cluster (kubernetes/kubernetes#83916), so that this one is ended by hand.
async fn recall(stage: &Stage, name: &str) -> Result<()> {
    stage.kubectl(AWAY, &["delete", "pod", name, "--wait=false"]).await?;
    await_grace(stage, name, OWN).await?;
    delete(stage, name, GIVEN).await?;
    await_grace(stage, name, GIVEN).await?;
    let end = ["-n", stage.there.as_str(), "exec", name, "--", "touch", "/tmp/end"];
    stage.turin()?.kubectl(&end).await.map(drop)
}

/// Waits until the pod over there is to end, and has so much time.
async fn await_grace(stage: &Stage, name: &str, grace: i64) -> Result<()> {
    eventually(&format!("{name} has {grace} s over there"), || async {
        let there = stage.there(name).await?;
        let given = there.first().and_then(|pod| pod.metadata.deletion_grace_period_seconds);
        ensure!(given == Some(grace), "{given:?}");
        Ok(())
    })
    .await
}

/// Who deletes the pod over there says so, too: another one is made in its place. Then it is deleted at home.
async fn take(stage: &Stage, name: &str) -> Result<()> {
    let before = stage.there(name).await?.first().and_then(Pod::uid).context("nothing runs")?;
    let grace_period = format!("--grace-period={GIVEN}");
    let delete_there = ["-n", &stage.there, "delete", "pod", name, &grace_period, "--wait=false"];
    stage.turin()?.kubectl(&delete_there).await?;
    eventually("there is another one over there", || async {
        let there = stage.there(name).await?;
        ensure!(!uids(&there).contains(&before), "it is still there");
        ensure!(there.len() == 1 && there.iter().all(is_ready), "it is not ready");
        Ok(())
    })
    .await?;
    delete(stage, name, GIVEN).await
}
