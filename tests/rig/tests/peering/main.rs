//! Peering between real API servers: two clusters agree, keep the agreement, and end it without a trace.

mod crashes;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::sharing::{OfferPhase, ResourceOffer};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::objects::{at_rest, await_same, settled};
use rig::site::{Site, clusters, ferro, knows_itself};
use rig::wait::block_on;
use serde_json::json;

/// The nodes that stand for peers.
async fn virtual_nodes(site: &Site) -> Result<Vec<Node>> {
    let nodes: Api<Node> = Api::all(site.admin.clone());
    Ok(nodes.list(&ListParams::default().labels("liqo.io/type=virtual-node")).await?.items)
}

async fn accepted_offers(site: &Site) -> Result<usize> {
    let offers: Api<ResourceOffer> = Api::all(site.admin.clone());
    let offers = offers.list(&ListParams::default().labels("liqo.io/replicated=true")).await?;
    let accepted = |offer: &&ResourceOffer| {
        offer.status.as_ref().and_then(|status| status.phase) == Some(OfferPhase::Accepted)
    };
    Ok(offers.items.iter().filter(accepted).count())
}

#[test]
fn two_clusters_peer_both_ways_and_part_without_a_trace() -> Result<()> {
    block_on(async {
        let topology = clusters("peering", &["rome", "turin"]).await?;
        let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
        let bare = [at_rest(a).await?, at_rest(b).await?];
        let (rome, turin) = (Site::start(a, &[]).await?, Site::start(b, &[]).await?);
        for site in [&rome, &turin] {
            knows_itself(site).await?;
        }
        let installed = [settled(a).await?, settled(b).await?];

        let remote = turin.cluster.kubeconfig.display().to_string();
        ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"]).await?;
        rome.reaches(&turin, Established, Established).await?;
        turin.reaches(&rome, Established, Established).await?;
        for site in [&rome, &turin] {
            let nodes = virtual_nodes(site).await?;
            ensure!(nodes.len() == 1, "{} has {} virtual nodes", site.name, nodes.len());
            ensure!(accepted_offers(site).await? == 1, "{} has accepted another number of offers", site.name);
            let ready =
                nodes[0].status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            let ready = ready.iter().find(|condition| condition.type_ == "Ready").context("no condition")?;
            ensure!(ready.status == "False", "{} is ready without a network", nodes[0].name_any());
        }

        let over = json!({"spec": {"join": false}});
        rome.change(&turin, over.clone()).await?;
        rome.reaches(&turin, Unpeered, Established).await?;
        turin.reaches(&rome, Established, Unpeered).await?;
        ensure!(virtual_nodes(&rome).await?.is_empty() && virtual_nodes(&turin).await?.len() == 1);
        turin.change(&rome, over).await?;
        rome.reaches(&turin, Unpeered, Unpeered).await?;
        turin.reaches(&rome, Unpeered, Unpeered).await?;

        ferro(&rome.cluster, &["remove", "turin", "--wait", "--yes"]).await?;
        ferro(&turin.cluster, &["remove", "rome", "--wait", "--yes"]).await?;
        await_same(a, &installed[0]).await?;
        await_same(b, &installed[1]).await?;
        for (mut site, before) in [rome, turin].into_iter().zip(&bare) {
            site.stop().await;
            ferro(&site.cluster, &["uninstall", "--yes"]).await?;
            await_same(&site.cluster, before).await?;
        }
        Ok(())
    })
}
