//! Peerings under faults: API servers that restart, wires that are cut, peers that are dead or change their mind. In the
//! end all is as it should be, and nothing is there twice.

mod pair;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Disconnecting, Established, Pending, Refused, Unreachable};
use ferro_api::discovery::{AuthState, ForeignCluster, PeeringState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use pair::{Pair, with_pair};
use rig::site::{Site, ferro};
use rig::wire::Wire;

const AUTHENTICATED: &str = "Authenticated";

/// What a `ForeignCluster` says about one side of the acquaintance.
fn condition<'a>(peer: &'a ForeignCluster, type_: &str) -> Result<&'a Condition> {
    let conditions = peer.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == type_).context("there is no such condition")
}

async fn restarts(pair: &mut Pair, server: &str) -> Result<()> {
    let component = format!("{server}/kube-apiserver");
    pair.peer().await?;
    pair.topology.restart(&component).await?;
    pair.until(&format!("peered while {server} restarted"), async |pair: &Pair| pair.are_peered().await)
        .await?;
    pair.unpeer().await?;
    pair.topology.restart(&component).await?;
    let what = format!("unpeered while {server} restarted");
    pair.until(&what, async |pair: &Pair| pair.are_unpeered().await).await?;
    pair.remove().await?;
    pair.topology.restart(&component).await?;
    pair.until(&format!("parted while {server} restarted"), async |pair: &Pair| pair.are_alone().await).await
}

#[test]
fn an_api_server_that_restarts_in_the_middle_changes_nothing() -> Result<()> {
    with_pair(async |pair| {
        restarts(pair, "rome").await?;
        restarts(pair, "turin").await
    })
}

/// Which part of the acquaintance is shown to be cut.
async fn is_unreachable(site: &Site, other: &Site) -> Result<()> {
    let status = site.peer(other).await?.status.unwrap_or_default();
    let shown = status.authentication.context("nothing is said about the authentication")?;
    ensure!(shown.state == AuthState::Pending && shown.reason.as_deref() == Some("Unreachable"), "{shown:?}");
    Ok(())
}

#[test]
fn a_cut_holds_things_up_and_nothing_more() -> Result<()> {
    with_pair(async |pair| {
        pair.set(Wire::Broken);
        // It waits until both know each other.
        let peering = tokio::spawn(pair.peer());
        pair.until("cut off before they met", async |pair: &Pair| {
            is_unreachable(&pair.rome.site, &pair.turin.site).await
        })
        .await?;
        pair.set(Wire::Whole);
        peering.await??;
        pair.until("peered after the cut", async |pair: &Pair| pair.are_peered().await).await?;

        pair.set(Wire::Silent);
        pair.until("lost", async |pair: &Pair| pair.are(Unreachable, Unreachable).await).await?;
        pair.set(Wire::Whole);
        pair.until("found again", async |pair: &Pair| pair.are_peered().await).await?;

        pair.set(Wire::Broken);
        pair.unpeer().await?;
        pair.until("cut off while unpeering", async |pair: &Pair| {
            pair.each_sees(Disconnecting, Unreachable).await?;
            pair.have_nodes(0, 0).await
        })
        .await?;
        pair.set(Wire::Whole);
        pair.until("unpeered after the cut", async |pair: &Pair| pair.are_unpeered().await).await?;

        pair.set(Wire::Silent);
        ferro(&pair.rome.site.cluster, &["peer", "turin"]).await?;
        ferro(&pair.turin.site.cluster, &["peer", "rome"]).await?;
        pair.until("cut off while asking", async |pair: &Pair| {
            pair.each_sees(Pending, PeeringState::None).await?;
            for (site, other) in [(&pair.rome.site, &pair.turin.site), (&pair.turin.site, &pair.rome.site)] {
                let status = site.peer(other).await?.status.unwrap_or_default();
                ensure!(
                    status.outgoing.is_some_and(|outgoing| outgoing.resource_request.is_some()),
                    "not asked"
                );
            }
            Ok(())
        })
        .await?;
        pair.set(Wire::Whole);
        pair.until("peered after another cut", async |pair: &Pair| pair.are_peered().await).await?;

        pair.set(Wire::Broken);
        pair.remove().await?;
        pair.until("cut off while parting", async |pair: &Pair| {
            pair.are(Disconnecting, Disconnecting).await?;
            pair.have_nodes(0, 0).await
        })
        .await?;
        pair.set(Wire::Whole);
        pair.until("parted after the cut", async |pair: &Pair| pair.are_alone().await).await
    })
}

#[test]
fn a_peer_that_is_dead_for_good_is_forgotten_by_force_on_either_side() -> Result<()> {
    with_pair(async |pair| {
        pair.peer().await?;
        pair.until("peered", async |pair: &Pair| pair.are_peered().await).await?;
        pair.turin.site.stop().await;
        pair.turin.set(Wire::Broken);
        pair.until("dead", async |pair: &Pair| {
            pair.rome.site.is(&pair.turin.site, Unreachable, Unreachable).await
        })
        .await?;

        let rome = pair.rome.site.cluster.clone();
        ferro(&rome, &["unpeer", "turin", "--bidirectional", "--force", "--yes"]).await?;
        pair.until("unpeered by force", async |pair: &Pair| {
            pair.rome.site.is(&pair.turin.site, PeeringState::None, Refused).await?;
            pair.have_nodes(0, 1).await
        })
        .await?;
        ferro(&rome, &["remove", "turin", "--force", "--yes"]).await?;
        pair.until("forgotten", async |pair: &Pair| pair.rome.site.is_alone().await).await?;
        pair.rome.is_as_before().await?;

        pair.turin.set(Wire::Whole);
        pair.turin.site.run(rig::fuse::Fuse::none()).await?;
        ferro(&pair.turin.site.cluster, &["remove", "rome"]).await?;
        pair.until("forgotten by the dead one, too", async |pair: &Pair| pair.are_alone().await).await
    })
}

#[test]
fn a_provider_that_ends_it_says_so() -> Result<()> {
    with_pair(async |pair| {
        pair.peer().await?;
        pair.until("peered", async |pair: &Pair| pair.are_peered().await).await?;
        ferro(&pair.turin.site.cluster, &["unpeer", "rome", "--incoming"]).await?;
        pair.until("ended by the provider", async |pair: &Pair| {
            pair.are(Refused, Established).await?;
            pair.have_nodes(0, 1).await?;
            let peer = pair.rome.site.peer(&pair.turin.site).await?;
            let said = condition(&peer, "OutgoingPeering")?;
            ensure!(said.reason == "RefusedByPeer" && said.message.contains("RefusedByHand"), "{said:?}");
            Ok(())
        })
        .await?;
        ferro(&pair.turin.site.cluster, &["accept", "rome", "--request"]).await?;
        pair.until("taken back", async |pair: &Pair| pair.are_peered().await).await?;

        ferro(&pair.turin.site.cluster, &["unpeer", "rome", "--incoming"]).await?;
        pair.unpeer().await?;
        pair.until("unpeered", async |pair: &Pair| pair.are_unpeered().await).await?;
        pair.remove().await?;
        pair.until("parted", async |pair: &Pair| pair.are_alone().await).await
    })
}

#[test]
fn a_cluster_that_was_removed_by_its_peer_sees_that_and_can_forget_it() -> Result<()> {
    with_pair(async |pair| {
        pair.peer().await?;
        pair.until("peered", async |pair: &Pair| pair.are_peered().await).await?;
        let begin = Instant::now();
        ferro(&pair.turin.site.cluster, &["remove", "rome"]).await?;
        pair.until("removed by its peer", async |pair: &Pair| {
            let peer = pair.rome.site.peer(&pair.turin.site).await?;
            let said = condition(&peer, AUTHENTICATED)?;
            ensure!(said.status == "False" && said.reason == "RejectedByPeer", "{said:?}");
            Ok(())
        })
        .await?;
        // Not only when somebody looks again after a minute.
        ensure!(begin.elapsed() < Duration::from_secs(45), "it took {:?}", begin.elapsed());
        pair.until("rid of its node", async |pair: &Pair| {
            pair.have_nodes(0, 0).await?;
            pair.turin.site.is_alone().await
        })
        .await?;
        ensure!(pair.rome.site.peer(&pair.turin.site).await?.spec.join(), "it still wants it");

        ferro(&pair.rome.site.cluster, &["remove", "turin"]).await?;
        pair.until("parted", async |pair: &Pair| pair.are_alone().await).await
    })
}
