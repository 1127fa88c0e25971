//! What the kernel of a node needs so that its pods reach those of peers: links, routes, rules, and no masquerade; and so
//! that peers reach no more than that.
//!
//! Pods send to a peer by the node that the gateway is on, over a VXLAN of our own, which leaves the network of the
//! cluster alone. `plan` says what is wanted, from a snapshot; `changes` says what to do about it, from what is there.
//! Both are pure, so that a node that is as it should be is not written to, and what others made is never touched: ours
//! is only what carries our protocol number, our name, or lies on our link.

mod difference;
mod peer;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferro_api::config::Reach;
use ipnet::IpNet;

pub use difference::{Change, changes};
pub use peer::{named, peer};
pub use plan::{Plan, Refusal, Unplanned, overlay_mtu, plan};

/// How the names of all our links begin.
pub const PREFIX: &str = "ferro.";
/// The link between the nodes of a cluster.
pub const OVERLAY: &str = "ferro.vxlan";
/// The link from a node to the gateway on it. The gateway makes it.
pub const GATEWAY: &str = "ferro.host";
/// The number of our VXLAN, and its UDP port: neither the registered one nor the one that CNIs use, and below those that
/// a kernel gives to anybody who asks for a port, whom it would be taken from.
pub const VNI: u32 = 1880;
/// See [`VNI`].
pub const PORT: u16 = 18_800;
/// The routing table for what comes out of the gateway, and the priority of the rule that leads there.
pub const TABLE: u32 = 1880;
/// The table that everybody uses.
pub const MAIN: u32 = 254;
/// By this our routes and rules are known. No routing daemon has this number (188 is taken by OSPF).
pub const PROTOCOL: u8 = 118;
/// The metric of our routes: not the one that others use by default, so that two routes can lie side by side.
pub const METRIC: u32 = 118;
/// The metric of the route that is used when there is no other: what is for a peer leaves by our links, or not at all.
pub const LAST_METRIC: u32 = 11_800;
/// The node's end of the link to the gateway.
pub const HOST_END: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(169, 254, 77, 1), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x77, 1));
/// The gateway's end of it.
pub const GATEWAY_END: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(169, 254, 77, 2), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x77, 2));

/// Of which family an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of a network.
    pub fn of(network: &IpNet) -> Self {
        Self::of_ip(&network.addr())
    }

    /// The family of an address.
    pub fn of_ip(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The address of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Debug for Mac {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

/// A node of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its internal addresses; the first is the one that it is known by.
    pub addresses: Vec<IpAddr>,
    /// The networks of the pods on it, where the cluster hands out such.
    pub pods: Vec<IpNet>,
}

/// A cluster whose networks have names here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its networks, as they are named here.
    pub views: Vec<IpNet>,
    /// The address of the node that the gateway is on; none while there is no tunnel to go by.
    pub gateway: Option<IpAddr>,
    /// The network of the pods of this cluster.
    pub own_pods: Option<IpNet>,
}

/// What decides about a node's routes.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// All nodes that are real.
    pub nodes: &'a [Node],
    /// All peers; of two with the same network the first has it.
    pub peers: &'a [Peer],
    /// The largest packet on the interface that has the node's address.
    pub mtu: u32,
    /// The networks that the node's own interfaces are in, but for those of ours.
    pub local: &'a [IpNet],
    /// What peers reach.
    pub reach: Reach,
}

/// What a kernel has, or is to have, of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The link between the nodes.
    pub overlay: Option<Overlay>,
    /// Which link address the next hops on it have.
    pub neighbours: BTreeMap<IpAddr, Mac>,
    /// Which node each link address is at.
    pub forwarding: BTreeMap<Mac, IpAddr>,
    /// Routes.
    pub routes: BTreeSet<Route>,
    /// Rules that lead to our table.
    pub rules: BTreeSet<Rule>,
    /// What keeps its address although a CNI would change it, and what is kept out.
    pub exemptions: BTreeMap<Family, Exemption>,
}

/// What a kernel has of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// What is there under the name of the link between the nodes.
    pub overlay: Option<PresentOverlay>,
    /// Whether the link to the gateway is there, and up.
    pub has_gateway: bool,
    /// As in [`Wanted`].
    pub neighbours: BTreeMap<IpAddr, Mac>,
    /// As in [`Wanted`].
    pub forwarding: BTreeMap<Mac, IpAddr>,
    /// As in [`Wanted`].
    pub routes: BTreeSet<Route>,
    /// As in [`Wanted`].
    pub rules: BTreeSet<Rule>,
    /// None where our table is there, but not as we write it.
    pub exemptions: BTreeMap<Family, Option<Exemption>>,
}

/// The link between the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The address that its packets come from.
    pub local: IpAddr,
    /// Its own link address.
    pub mac: Mac,
    /// The largest packet in it.
    pub mtu: u32,
}

/// What is there under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentOverlay {
    /// None if it is something else.
    pub overlay: Option<Overlay>,
    /// Whether it is up, forwards, and takes packets whose way back is another one.
    pub is_in_use: bool,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// To this next hop on the link between the nodes.
    Overlay(IpAddr),
    /// To the gateway on this node.
    Gateway(IpAddr),
    /// Nowhere: the packet is dropped.
    Nowhere,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The table that it is in.
    pub table: u32,
    /// To where.
    pub to: IpNet,
    /// Of several with the same target, the one with the least is used.
    pub metric: u32,
    /// By which way.
    pub hop: Hop,
    /// The address that the node itself uses as sender.
    pub source: Option<IpAddr>,
}

impl Route {
    /// A kernel has one route for each.
    fn key(&self) -> (u32, IpNet, u32) {
        (self.table, self.to, self.metric)
    }
}

/// A rule that leads what comes from a link to a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// For packets of this family.
    pub family: Family,
    /// When it is asked.
    pub priority: u32,
    /// The link.
    pub input: String,
    /// The table.
    pub table: u32,
}

/// What keeps its address on the way out of a node, whatever others would make of it; and what does not get in, though
/// the node would take it.
///
/// All sets are as short as can be and hold no network twice: a kernel takes no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exemption {
    /// Networks of own pods: what goes from them to peers keeps its sender.
    pub own: BTreeSet<IpNet>,
    /// Networks of peers.
    pub views: BTreeSet<IpNet>,
    /// Whatever has a way back to peers: what comes from peers keeps its sender towards them.
    pub inside: BTreeSet<IpNet>,
    /// Whether what comes from peers and goes elsewhere gets the node's address, since nobody there knows the peers.
    pub masquerades: bool,
    /// Addresses of the nodes: the link between them takes nothing that comes from elsewhere.
    pub nodes: BTreeSet<IpNet>,
    /// Whether what comes from peers reaches the node itself at the addresses that it has among those of pods.
    pub opens_node: bool,
}
