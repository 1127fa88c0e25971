//! Rome's controllers end after their n-th write, here or at the peer, for every n while objects are made, while they are
//! changed and while they are deleted: whatever was cut off, the next start comes to the same end.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, ListParams};
use rig::audit::writes;
use rig::crashes::{Fuses, Writes, all_of, end_after, most};
use rig::fuse::Fuse;
use rig::wait::{GENEROUSLY, GLANCE};
use serde_json::json;

use crate::stage::{Stage, on_stage};

const KINDS: [&str; 5] = ["Service", "EndpointSlice", "ConfigMap", "Secret", "Ingress"];

/// Ends after so many writes, here and at the peer; after less than none it never does.
fn after(writes: i64) -> Fuse {
    Fuse::after(writes).everywhere()
}

/// Makes some objects, changes them and deletes them; a controller ends when its fuse breaks, and another one starts.
/// Gives what was written.
async fn cycle(stage: &mut Stage, ends: &Writes) -> Result<Writes> {
    let mut fuses = Fuses::begin([&mut stage.rome], after, ends).await?;
    stage.make("Service", "web", json!({"spec": {"ports": [{"port": 80}]}})).await?;
    let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.0.5"]}]});
    stage.make("EndpointSlice", "web-1", slice).await?;
    stage.make("ConfigMap", "settings", json!({"data": {"a": "1"}})).await?;
    stage.make("Secret", "keys", json!({"stringData": {"a": "1"}})).await?;
    until(stage, &mut fuses, "made", async |stage: &Stage| {
        ensure!(stage.there("EndpointSlice").get_opt("web-1").await?.is_some(), "no slice");
        ensure!(stage.there("Secret").get_opt("keys").await?.is_some(), "no Secret");
        ensure!(stage.there("ConfigMap").get_opt("settings").await?.is_some(), "no ConfigMap");
        Ok(())
    })
    .await?;
    fuses.step([&mut stage.rome]).await?;
    stage.change("Secret", "keys", &json!({"stringData": {"a": "2"}})).await?;
    stage.here("Service").delete("web", &DeleteParams::default()).await?;
    stage.make("Service", "web", json!({"spec": {"clusterIP": "None", "ports": [{"port": 81}]}})).await?;
    until(stage, &mut fuses, "changed", async |stage: &Stage| {
        ensure!(stage.there("Secret").get("keys").await?.data["data"]["a"] == "Mg==", "the former Secret");
        ensure!(
            stage.there("Service").get("web").await?.data["spec"]["clusterIP"] == "None",
            "the former Service"
        );
        Ok(())
    })
    .await?;
    fuses.step([&mut stage.rome]).await?;
    for (kind, name) in
        [("Service", "web"), ("EndpointSlice", "web-1"), ("ConfigMap", "settings"), ("Secret", "keys")]
    {
        stage.here(kind).delete(name, &DeleteParams::default()).await?;
    }
    until(stage, &mut fuses, "deleted", async |stage: &Stage| {
        for kind in KINDS {
            let left =
                stage.there(kind).list(&ListParams::default().labels("reflection.liqo.io/reflected")).await?;
            ensure!(left.items.is_empty(), "{:?}", left.items);
        }
        Ok(())
    })
    .await?;
    Ok(fuses.written())
}

/// Waits for a state, and starts again who has ended.
async fn until(
    stage: &mut Stage,
    fuses: &mut Fuses<'_>,
    what: &str,
    reached: impl AsyncFn(&Stage) -> Result<()>,
) -> Result<()> {
    let begin = Instant::now();
    loop {
        fuses.restart([&mut stage.rome]).await?;
        match reached(stage).await {
            Ok(()) => return Ok(()),
            Err(error) if begin.elapsed() > GENEROUSLY => return Err(error.context(what.to_owned())),
            Err(_) => tokio::time::sleep(GLANCE).await,
        }
    }
}

#[test]
fn whoever_ends_after_any_write_comes_to_the_same_end() -> Result<()> {
    on_stage(async |stage| {
        let writes = cycle(stage, &Writes::new()).await.context("without any crash")?;
        ensure!((8..40).contains(&all_of(&writes, 0)), "{writes:?} writes");
        end_after(1..=most(&writes), &writes, async |ends: &Writes| cycle(stage, ends).await).await?;
        println!("ended after each of {writes:?} writes, and came to the right end every time");
        stage.rome.run(Fuse::none()).await
    })
}

/// How often the controllers start anew.
const STARTS: usize = 5;

#[test]
fn a_new_start_leaves_alone_what_is_right() -> Result<()> {
    on_stage(async |stage| {
        stage.make("Service", "web", json!({"spec": {"ports": [{"port": 80}]}})).await?;
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.0.5"]}]});
        stage.make("EndpointSlice", "web-1", slice).await?;
        stage.make("ConfigMap", "settings", json!({"data": {"a": "1"}})).await?;
        for (kind, name) in [("Service", "web"), ("EndpointSlice", "web-1"), ("ConfigMap", "settings")] {
            stage.arrives(kind, name, |_| true).await?;
        }
        let mark = stage.audit.mark().await?;
        for _ in 0..STARTS {
            stage.rome.run(Fuse::none()).await?;
            stage.settles().await?;
        }
        let asked = stage.audit.since(mark).await?;
        for (kind, name) in [("services", "web"), ("endpointslices", "web-1"), ("configmaps", "settings")] {
            let written = writes(&asked, kind);
            let touched = written.get(&format!("{}/{name}", stage.there));
            ensure!(touched.is_none(), "{kind} {name} was written: {touched:?}");
        }
        for (kind, name) in [("EndpointSlice", "web-1"), ("Service", "web"), ("ConfigMap", "settings")] {
            stage.unmake(kind, &[name]).await?;
        }
        Ok(())
    })
}
