//! A provider that falls silent: a glitch changes nothing, a silence does, in steps, and it can come back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered, Unreachable};
use ferro_api::names::taints::draining;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use rig::fuse::Fuse;
use rig::site::Site;
use rig::wait::{block_on, eventually};
use serde_json::json;

use crate::{Stage, ask, configure, is_ready, node_of, offer_of, readiness, shows};

/// How often offers are confirmed here.
const BEAT: &str = "advertisement.keepaliveRetryTime=2";
const BEAT_TIME: Duration = Duration::from_secs(2);

#[test]
fn a_silent_provider_is_lost_and_drained_in_steps_and_taken_back() -> Result<()> {
    block_on(async {
        let patient = [BEAT, "advertisement.keepaliveThreshold=30", "networkManager.config.mode=external"];
        let mut stage = Stage::set("keepalive", &[("turin", &[BEAT]), ("rome", &patient)]).await?;
        let [turin, rome] = stage.two()?;
        ask(rome, turin).await?;
        rome.reaches(turin, Established, Unpeered).await?;
        // Somebody else provides the network, so that nothing else is missing.
        is_ready(rome, turin, "True", "PeerReady").await?;
        shows(rome, turin, "Network", "External", &[]).await?;

        is_heard_after(Timestamp::UNIX_EPOCH, rome, turin).await?;
        let ready_since = readiness(rome, turin).await?.last_transition_time;
        turin.stop().await;
        misses_a_beat(rome, turin).await?;
        rome.is(turin, Established, Unpeered).await?;
        let missed = Timestamp::now();
        turin.run(Fuse::none()).await?;
        is_heard_after(missed, rome, turin).await?;
        rome.is(turin, Established, Unpeered).await?;
        let ready = readiness(rome, turin).await?;
        ensure!(ready.status == "True" && ready.last_transition_time == ready_since, "{ready:?}");

        // From now on two missed beats are a silence, by a change of the configuration alone.
        turin.stop().await;
        configure(rome, &json!({"advertisementConfig": {"keepaliveThreshold": 2}})).await?;
        rome.reaches(turin, Unreachable, Unpeered).await?;
        is_ready(rome, turin, "False", "PeerSilent").await?;
        let words = ["turin is silent since", "its pods stay until", "ferro unpeer turin --force"];
        shows(rome, turin, "OutgoingPeering", "PeerSilent", &words).await?;
        is_open(rome, turin).await.context("pods are moved before the delay is over")?;

        configure(rome, &json!({"advertisementConfig": {"drainDelaySeconds": 1}})).await?;
        eventually("the node is drained", || is_drained(rome, turin)).await?;
        shows(rome, turin, "OutgoingPeering", "PeerSilent", &["its pods are moved elsewhere"]).await?;
        is_ready(rome, turin, "False", "PeerSilent").await?;

        // Whoever starts anew does not take a lost peer for a living one.
        rome.run(Fuse::none()).await?;
        obeys(rome, turin).await?;
        is_drained(rome, turin).await?;
        rome.is(turin, Unreachable, Unpeered).await?;

        turin.run(Fuse::none()).await?;
        rome.reaches(turin, Established, Unpeered).await?;
        is_ready(rome, turin, "True", "PeerReady").await?;
        eventually("pods are let on the node again", || is_open(rome, turin)).await
    })
}

/// Waits until a confirmation of the offer is missing.
async fn misses_a_beat(consumer: &Site, provider: &Site) -> Result<()> {
    eventually("a beat is missed", || async {
        let age = Timestamp::now().duration_since(last_beat(consumer, provider).await?);
        ensure!(age.unsigned_abs() > BEAT_TIME + BEAT_TIME / 2, "the last beat was {age} ago");
        Ok(())
    })
    .await
}

async fn is_heard_after(moment: Timestamp, consumer: &Site, provider: &Site) -> Result<()> {
    eventually("the provider is heard again", || async {
        let last = last_beat(consumer, provider).await?;
        ensure!(last > moment, "the last beat was at {last}");
        Ok(())
    })
    .await
}

/// When the offer was last confirmed.
async fn last_beat(consumer: &Site, provider: &Site) -> Result<Timestamp> {
    let offer = offer_of(consumer, provider).await?;
    Ok(offer.spec.renew_time.context("the offer was never confirmed")?.0)
}

/// Waits until the controller has done something new for the peer, so that it has looked at all about it.
async fn obeys(consumer: &Site, provider: &Site) -> Result<()> {
    consumer.change(provider, json!({"spec": {"nodeLabels": {"set": {"seen-by": "the-new-one"}}}})).await?;
    eventually("the controller works", || async {
        let node = node_of(consumer, provider).await?;
        ensure!(node.labels().contains_key("seen-by"), "the node has no new label");
        Ok(())
    })
    .await
}

/// Whether pods are moved off the node, and no new ones let on it.
async fn is_drained(consumer: &Site, provider: &Site) -> Result<()> {
    let spec = node_of(consumer, provider).await?.spec.unwrap_or_default();
    let evicts = |taint: &Taint| taint.key == draining().key && taint.effect == "NoExecute";
    ensure!(spec.unschedulable == Some(true) && spec.taints.iter().flatten().any(evicts), "{spec:?}");
    Ok(())
}

/// Whether pods are let on the node: it has no trace of a drain.
async fn is_open(consumer: &Site, provider: &Site) -> Result<()> {
    let spec = node_of(consumer, provider).await?.spec.unwrap_or_default();
    let is_drain = |taint: &Taint| taint.key == draining().key;
    ensure!(spec.unschedulable != Some(true) && !spec.taints.iter().flatten().any(is_drain), "{spec:?}");
    Ok(())
}
