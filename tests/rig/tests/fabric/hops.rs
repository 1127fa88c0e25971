//! The addresses that packets have on their way through the nodes of two clusters, as the kernels there see them.
//!
//! Each node notes from which interface to which others they go; what is inside of a tunnel is seen in namespaces only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rig::pods::{Caller, Echo};
use rig::topology::Cluster;
use serde_json::Value;

use crate::faults::gateway_node;
use crate::pair::{NODES, Pair, Side};

const TABLE: &str = "rig_hops";
const OVERLAY: &str = "ferro.vxlan";
const GATEWAY: &str = "ferro.host";
const PODS: &str = "pods";

/// Sender and receiver.
type Addresses = (IpAddr, IpAddr);

/// From a pod far from the gateway to one that is as far from the other gateway, packets have the right addresses on each
/// hop, there and back, and are seen nowhere else.
pub async fn are_as_named(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let ([near, far], [their_near, their_far]) = (nodes(here.cluster).await?, nodes(there.cluster).await?);
    let caller = Caller::on(here.cluster, far.into()).await?;
    let server = Echo::on(there.cluster, their_far.into()).await?;
    let (address, known_as) = (here.name_of(server.ip)?, there.name_of(caller.ip)?);
    let of = BTreeSet::from([caller.ip, server.ip, address, known_as]);
    let watches: Vec<_> = [(here, near), (here, far), (there, their_near), (there, their_far)]
        .map(|(side, node)| Watch { cluster: side.cluster, node })
        .into();
    try_join_all(watches.iter().map(|watch| watch.begin(&of))).await?;
    caller.ask(address, 1).await?;
    caller.ask_by_datagram(address).await?;
    let seen: BTreeSet<_> =
        try_join_all(watches.iter().map(Watch::end)).await?.into_iter().flatten().collect();
    let mut expected = passing(here, [far, near], (caller.ip, address));
    expected.extend(passing(there, [their_far, their_near], (server.ip, known_as)));
    ensure!(seen == expected, "seen: {seen:#?}, expected: {expected:#?}");
    Ok(())
}

/// The numbers of the node with the gateway, and of the other one.
async fn nodes(cluster: &Cluster) -> Result<[u8; 2]> {
    let near = gateway_node(cluster).await?.number;
    let mut numbers = NODES.iter().filter_map(|number| u8::try_from(*number).ok());
    Ok([near, numbers.find(|number| *number != near).context("there is no other node")?])
}

/// What is seen of packets between a pod and somebody behind the gateway, both ways.
fn passing(side: &Side<'_>, [far, near]: [u8; 2], (pod, peer): Addresses) -> BTreeSet<String> {
    let steps = [(far, PODS, OVERLAY), (near, OVERLAY, GATEWAY)];
    let both = steps.into_iter().flat_map(|(node, inner, outer)| {
        [(node, inner, outer, (pod, peer)), (node, outer, inner, (peer, pod))]
    });
    both.flat_map(|(node, from, to, addresses)| {
        [line(side.cluster, node, "from", from, addresses), line(side.cluster, node, "to", to, addresses)]
    })
    .collect()
}

fn line(cluster: &Cluster, node: u8, way: &str, link: &str, (source, destination): Addresses) -> String {
    format!("{}-{node}, {way} {link}: {source} > {destination}", cluster.plan.name)
}

/// A node that notes what passes.
struct Watch<'a> {
    cluster: &'a Cluster,
    node: u8,
}

impl Watch<'_> {
    /// Notes what passes between these: as it comes, before anything is done to it, and as it goes, after all was done.
    async fn begin(&self, of: &BTreeSet<IpAddr>) -> Result<()> {
        let of: Vec<_> = of.iter().map(ToString::to_string).collect();
        let of = of.join(", ");
        let noted = |(name, key, hook): (&str, &str, &str)| {
            format!(
                "add set inet {TABLE} {name} {{ typeof {key} . ip saddr . ip daddr; flags dynamic; size 1024; }}\
                 ; add chain inet {TABLE} {name} {{ type filter hook {hook}; }}\
                 ; add rule inet {TABLE} {name} ip saddr {{ {of} }} ip daddr {{ {of} }} \
                 add @{name} {{ {key} . ip saddr . ip daddr }}"
            )
        };
        let script = [
            format!("add table inet {TABLE}"),
            noted(("from", "iifname", "prerouting priority -400")),
            noted(("to", "oifname", "postrouting priority 400")),
        ]
        .join("; ");
        self.cluster.on_node(self.node, &["nft", &script]).await.map(drop)
    }

    /// Ends it, and gives what was noted.
    async fn end(&self) -> Result<Vec<String>> {
        let said = self.cluster.on_node(self.node, &["nft", "-j", "list", "table", "inet", TABLE]).await?;
        self.cluster.on_node(self.node, &["nft", "delete", "table", "inet", TABLE]).await?;
        let said: Value = serde_json::from_str(&said).context("nft lists something else")?;
        let sets = said["nftables"].as_array().into_iter().flatten().filter_map(|item| item.get("set"));
        let mut lines = Vec::new();
        for set in sets {
            let way = set["name"].as_str().context("a set has no name")?;
            for element in set["elem"].as_array().into_iter().flatten() {
                let part =
                    |place: usize| element["concat"][place].as_str().context("an element is no triple");
                let addresses = (part(1)?.parse()?, part(2)?.parse()?);
                lines.push(line(self.cluster, self.node, way, of_pods(part(0)?), addresses));
            }
        }
        Ok(lines)
    }
}

/// Interfaces of pods have names of their own, or belong to one bridge.
fn of_pods(link: &str) -> &str {
    if link.starts_with("veth") || link == "cni0" { PODS } else { link }
}
