//! `ferro trace --live`: packets go from a pod, and of all links the one that was cut is named.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use rig::installation::ferro;
use rig::pods::{Echo, PORT};
use rig::topology::Cluster;
use rig::tunnels::connected;
use rig::wait::eventually;

use crate::faults::gateway_node;
use crate::pair::{NODES, Pair};
use crate::services;

/// The UDP ports of the overlay and of tunnels.
const OVERLAY: &str = "udp dport 18800";
const TUNNEL: &str = "udp dport 5871";
/// What comes out of tunnels.
const FROM_GATEWAY: &str = "iifname \"ferro.host\"";

/// A whole way is seen to be one; then each link is cut in turn, and named. The two pairs have their first in common.
pub async fn name_what_is_cut(one: &Pair<'_>, other: &Pair<'_>) -> Result<()> {
    let [one_way, other_way] = [Way::of(one).await?, Way::of(other).await?];
    both_are_whole(&one_way, &other_way).await?;
    eventually("the way to a Service is whole", || one_way.leads_to_a_service()).await?;

    let cut = Cut::make(one_way.from, OVERLAY).await?;
    one_way.shows_a_cut_of("overlay").await?;
    cut.mend().await?;

    let cuts = tokio::try_join!(Cut::make(one_way.to, FROM_GATEWAY), Cut::make(other_way.to, TUNNEL))?;
    tokio::try_join!(one_way.shows_a_cut_of("peer"), other_way.shows_a_cut_of("tunnel"))?;
    tokio::try_join!(cuts.0.mend(), cuts.1.mend())?;
    tokio::try_join!(connected(other_way.from, other_way.to), connected(other_way.to, other_way.from))?;
    both_are_whole(&one_way, &other_way).await
}

/// What a gateway says of a tunnel trails behind: a cut may be shown when it is mended.
async fn both_are_whole(one_way: &Way<'_>, other_way: &Way<'_>) -> Result<()> {
    eventually("all links are whole", || async {
        tokio::try_join!(one_way.is_whole(), other_way.is_whole()).map(drop)
    })
    .await
}

/// From a pod that is not on the gateway's node to one of the peer.
struct Way<'a> {
    from: &'a Cluster,
    to: &'a Cluster,
    pod: String,
    address: IpAddr,
}

impl<'a> Way<'a> {
    async fn of(pair: &Pair<'a>) -> Result<Self> {
        let [here, there] = &pair.0;
        let gateway = gateway_node(here.cluster).await?.number;
        let far = NODES.into_iter().find(|number| *number != usize::from(gateway));
        let far = far.context("there is no other node")?;
        let server = Echo::on(there.cluster, far).await?;
        Ok(Self {
            from: here.cluster,
            to: there.cluster,
            pod: format!("caller-{far}"),
            address: here.name_of(server.ip)?,
        })
    }

    async fn trace(&self) -> Result<String> {
        self.trace_to(&self.address.to_string()).await
    }

    async fn trace_to(&self, to: &str) -> Result<String> {
        ferro(self.from, &["trace", "--from", &self.pod, "--to", to, "--live"]).await
    }

    /// The Service that was made for the pods of the peer is followed to its endpoints there.
    async fn leads_to_a_service(&self) -> Result<()> {
        let service = services::name(self.to);
        let said = self.trace_to(&format!("{service}:{PORT}")).await?;
        let peer = format!(" in {}", self.to.plan.name);
        let is_title = |line: &str| {
            line.contains(", an endpoint of ") && line.contains(&service) && line.contains(&peer)
        };
        ensure!(said.lines().any(is_title), "no endpoint of {service} is named: {said}");
        passes_all(&said)
    }

    /// Packets pass everybody on the way, and the endpoint answers.
    async fn is_whole(&self) -> Result<()> {
        let said = self.trace().await?;
        passes_all(&said)?;
        let answer = format!("answers to packets of the pod, as {}", self.address);
        ensure!(said.contains(&answer), "the endpoint does not answer: {said}");
        Ok(())
    }

    /// A cut lasts until it is mended, and on a busy machine a trace may see something else first.
    async fn shows_a_cut_of(&self, link: &str) -> Result<()> {
        eventually(&format!("the cut of the {link} is shown"), || self.is_broken_at(link)).await
    }

    async fn is_broken_at(&self, link: &str) -> Result<()> {
        match self.trace().await {
            Ok(said) => bail!("the {link} is cut, and it is not seen: {said}"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(
                    said.contains(&format!("the way is broken at the {link}: ")),
                    "not the {link}: {said}"
                );
                Ok(())
            }
        }
    }
}

/// Everybody on the way was tried, and is well.
fn passes_all(said: &str) -> Result<()> {
    let (_, tried) = said.split_once("TRIED").with_context(|| format!("nothing was tried: {said}"))?;
    for place in ["node ", "overlay to ", "gateway on ", "gateway of ", "endpoint in "] {
        let is_passed = |line: &str| line.starts_with(place) && line.contains(" good ");
        ensure!(tried.lines().any(is_passed), "{place}is not passed: {said}");
    }
    Ok(())
}

/// A rule of the node under a gateway that drops packets.
struct Cut<'a> {
    cluster: &'a Cluster,
    node: u8,
}

impl<'a> Cut<'a> {
    const TABLE: &'static str = "rig_cut";

    /// Drops what matches as soon as it comes to the node.
    async fn make(cluster: &'a Cluster, what: &str) -> Result<Self> {
        let (node, table) = (gateway_node(cluster).await?.number, Self::TABLE);
        let script = format!(
            "add table inet {table}; add chain inet {table} cut {{ type filter hook prerouting priority -500; }}\
             ; add rule inet {table} cut {what} drop"
        );
        cluster.on_node(node, &["nft", &script]).await?;
        Ok(Self { cluster, node })
    }

    async fn mend(self) -> Result<()> {
        self.cluster.on_node(self.node, &["nft", "delete", "table", "inet", Self::TABLE]).await.map(drop)
    }
}
