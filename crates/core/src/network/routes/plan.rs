//! From nodes and tunnels to what the kernel of one node is to have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ferro_api::config::Reach;
use ipnet::IpNet;
use ring::digest::{SHA256, digest};

use super::{
    Exemption, Family, GATEWAY, GATEWAY_END, Hop, LAST_METRIC, MAIN, METRIC, Mac, Node, Overlay, Peer, Route,
    Rule, Snapshot, TABLE, Wanted,
};

/// What VXLAN puts around a packet: Ethernet 14, VXLAN 8, UDP 8, and an IP header of 20 or 40.
const AROUND: [u32; 2] = [50, 70];
/// What never belongs to a peer: this host, its links, and everybody at once.
const NEVER: [&str; 6] =
    ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "fe80::/10", "ff00::/8"];

/// What is wanted, and what of it is not to be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel is to have.
    pub wanted: Wanted,
    /// Why some networks have no route.
    pub refused: BTreeSet<Refusal>,
}

/// Why a network has no route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// A peer must never draw traffic to itself that is for somebody here.
    #[error(
        "{view} stands for a peer, but overlaps with {with}, which this node is in; reserve {with} in liqonetConfig"
    )]
    Overlaps {
        /// The network of the peer.
        view: IpNet,
        /// The network here.
        with: IpNet,
    },
    /// Nobody knows where the gateway is.
    #[error("the gateway is at {0}, but no node has that address")]
    UnknownGateway(IpAddr),
    /// The next hop is of another family.
    #[error("{view} cannot be reached by the node {node}, which has no address of that family")]
    NoHop {
        /// The network.
        view: IpNet,
        /// The node that would be the next hop.
        node: String,
    },
}

/// Why nothing can be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplanned {
    /// The node is not known, or has no address.
    #[error("the node {0} is not known, or has no InternalIP yet")]
    UnknownNode(String),
    /// The network cannot carry anything.
    #[error("the interface with the address {0} takes packets of {1} bytes only, which is too small")]
    TooSmall(IpAddr, u32),
}

/// What the kernel of a node is to have. Without a peer that is nothing.
pub fn plan(now: &Snapshot<'_>) -> Result<Plan, Unplanned> {
    if now.peers.is_empty() {
        return Ok(Plan::default());
    }
    let unknown = || Unplanned::UnknownNode(now.node.to_owned());
    let node = now.nodes.iter().find(|node| node.name == now.node).ok_or_else(unknown)?;
    let local = *node.addresses.first().ok_or_else(unknown)?;
    let mut planner = Planner { now, node, local, plan: Plan::default() };
    let mtu = overlay_mtu(&local, now.mtu).ok_or(Unplanned::TooSmall(local, now.mtu))?;
    planner.plan.wanted.overlay = Some(Overlay { local, mac: mac(&local), mtu });
    planner.join_nodes();
    let views = planner.lead_to_peers();
    let mut gateways = now.peers.iter().filter_map(|peer| peer.gateway);
    if gateways.any(|gateway| node.addresses.contains(&gateway)) {
        planner.lead_from_gateway(&views);
    }
    planner.exempt(&views);
    Ok(planner.plan)
}

/// The largest packet that fits in the overlay of a node with this address, on an interface with this one; at least
/// what every IP network carries.
pub fn overlay_mtu(local: &IpAddr, underlay: u32) -> Option<u32> {
    let [v4, v6] = AROUND;
    let (around, least) = if local.is_ipv4() { (v4, 576) } else { (v6, 1280) };
    underlay.checked_sub(around).filter(|mtu| *mtu >= least)
}

struct Planner<'a> {
    now: &'a Snapshot<'a>,
    node: &'a Node,
    local: IpAddr,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn others(&self) -> impl Iterator<Item = &'a Node> + use<'a> {
        let own = self.now.node;
        self.now.nodes.iter().filter(move |node| node.name != own)
    }

    /// Every other node is on the link, under an address that follows from its own. Only families that some peer has
    /// are touched: the kernel may lack the other one.
    fn join_nodes(&mut self) {
        let views = self.now.peers.iter().flat_map(|peer| &peer.views);
        let families: BTreeSet<Family> = views.map(Family::of).collect();
        for node in self.others() {
            let Some(mac) = node.addresses.first().map(mac) else { continue };
            let same_family = |ip: &&IpAddr| ip.is_ipv4() == self.local.is_ipv4();
            let Some(at) = node.addresses.iter().find(same_family) else { continue };
            self.plan.wanted.forwarding.insert(mac, *at);
            for hop in families.iter().filter_map(|family| hop(node, *family)) {
                self.plan.wanted.neighbours.insert(hop, mac);
            }
        }
    }

    /// Routes to the networks of all peers; gives back those that are a peer's. What has no way yet leads nowhere, and
    /// not out into the world, where others would answer in the name of the peer.
    fn lead_to_peers(&mut self) -> BTreeSet<IpNet> {
        let mut led = BTreeSet::new();
        for peer in self.now.peers {
            for view in &peer.views {
                if let Some(with) = self.in_the_way(view) {
                    self.plan.refused.insert(Refusal::Overlaps { view: *view, with });
                    continue;
                }
                let hop = self.hop_to(peer, view);
                // A peer is here twice, by its tunnel and by its names; or two have one name for their networks, which
                // is a mistake of somebody.
                if led.insert(*view) {
                    self.lead_to(*view, hop);
                }
            }
        }
        led
    }

    fn lead_to(&mut self, view: IpNet, hop: Option<Hop>) {
        let last = Route { table: MAIN, to: view, metric: LAST_METRIC, hop: Hop::Nowhere, source: None };
        self.plan.wanted.routes.insert(last);
        if let Some(hop) = hop {
            let source = self.node.addresses.iter().copied().find(|ip| ip.is_ipv4() == is_v4(&view));
            self.plan.wanted.routes.insert(Route { metric: METRIC, hop, source, ..last });
        }
        if let Some(hop @ Hop::Overlay(IpAddr::V4(_))) = hop {
            self.hear_gateway(hop);
        }
    }

    /// The gateway itself tells senders that a packet is too long, or has passed too many. Its address means nothing on
    /// other nodes, and a kernel takes nothing by the overlay, which has no address, from whom it would not answer by it.
    fn hear_gateway(&mut self, hop: Hop) {
        let to = IpNet::from(IpAddr::V4(GATEWAY_END.0));
        let is_heard = self.plan.wanted.routes.iter().any(|route| route.to == to);
        if !is_heard {
            let heard = Route { table: MAIN, to, metric: METRIC, hop, source: None };
            self.plan.wanted.routes.insert(heard);
        }
    }

    /// A network of this node that overlaps.
    fn in_the_way(&self, view: &IpNet) -> Option<IpNet> {
        let nodes = self.now.nodes.iter();
        let of_nodes = nodes
            .flat_map(|node| node.pods.iter().copied().chain(node.addresses.iter().map(|ip| (*ip).into())));
        let own = self.now.peers.iter().filter_map(|peer| peer.own_pods);
        let never = NEVER.iter().filter_map(|text| text.parse().ok());
        let mut all = self.now.local.iter().copied().chain(of_nodes).chain(own).chain(never);
        all.find(|network| overlap(network, view))
    }

    fn hop_to(&mut self, peer: &Peer, view: &IpNet) -> Option<Hop> {
        let gateway = peer.gateway?;
        if self.node.addresses.contains(&gateway) {
            let (v4, v6) = GATEWAY_END;
            return Some(Hop::Gateway(if is_v4(view) { v4.into() } else { v6.into() }));
        }
        let Some(node) = self.others().find(|node| node.addresses.contains(&gateway)) else {
            self.plan.refused.insert(Refusal::UnknownGateway(gateway));
            return None;
        };
        let found = hop(node, Family::of(view)).filter(|hop| self.plan.wanted.neighbours.contains_key(hop));
        if found.is_none() {
            self.plan.refused.insert(Refusal::NoHop { view: *view, node: node.name.clone() });
        }
        found.map(Hop::Overlay)
    }

    /// On the gateway's node: what comes out of it goes to the other nodes by the way that it came, which no firewall
    /// on the network between them can mistake for a forgery.
    fn lead_from_gateway(&mut self, views: &BTreeSet<IpNet>) {
        let families: BTreeSet<Family> = views.iter().map(Family::of).collect();
        for family in &families {
            let input = GATEWAY.to_owned();
            self.plan.wanted.rules.insert(Rule { family: *family, priority: TABLE, input, table: TABLE });
        }
        // Two nodes with one network are a mistake of somebody, and a kernel takes one way only.
        let mut led = BTreeSet::new();
        for node in self.others() {
            let addresses = node.addresses.iter().map(|ip| IpNet::from(*ip));
            for to in node.pods.iter().copied().chain(addresses) {
                let family = Family::of(&to);
                let Some(hop) = hop(node, family).filter(|hop| self.plan.wanted.neighbours.contains_key(hop))
                else {
                    continue;
                };
                let own = self.node.addresses.iter().map(|ip| IpNet::from(*ip));
                let mut here = self.node.pods.iter().copied().chain(own);
                let is_elsewhere = !here.any(|network| overlap(&network, &to));
                if families.contains(&family) && is_elsewhere && led.insert(to) {
                    let hop = Hop::Overlay(hop);
                    self.plan.wanted.routes.insert(Route {
                        table: TABLE,
                        to,
                        metric: METRIC,
                        hop,
                        source: None,
                    });
                }
            }
        }
    }

    /// Masquerade is kept off for what goes to peers and comes from them. The link between the nodes is guarded also
    /// where no peer is reached: it is there.
    fn exempt(&mut self, views: &BTreeSet<IpNet>) {
        let is_gateway = self.plan.wanted.routes.iter().any(|route| matches!(route.hop, Hop::Gateway(_)));
        let pods = self.now.nodes.iter().flat_map(|node| node.pods.iter().copied());
        let own: Vec<IpNet> = pods.chain(self.now.peers.iter().filter_map(|peer| peer.own_pods)).collect();
        let nodes = self.now.nodes.iter().flat_map(|node| node.addresses.iter().map(|ip| IpNet::from(*ip)));
        let nodes: Vec<IpNet> = nodes.collect();
        let inside: Vec<IpNet> =
            nodes.iter().copied().chain(own.iter().copied()).chain(views.iter().copied()).collect();
        let mut exemptions = BTreeMap::new();
        for family in views.iter().map(Family::of).chain([Family::of_ip(&self.local)]) {
            exemptions.entry(family).or_insert_with(|| Exemption {
                own: shortest(&own, family),
                views: shortest(views, family),
                inside: shortest(&inside, family),
                masquerades: is_gateway,
                nodes: shortest(&nodes, family),
                opens_node: self.now.reach == Reach::Full,
            });
        }
        self.plan.wanted.exemptions = exemptions;
    }
}

/// The networks of a family in as few as can be, none of which overlaps another.
fn shortest<'a>(networks: impl IntoIterator<Item = &'a IpNet>, family: Family) -> BTreeSet<IpNet> {
    let of_family = networks.into_iter().filter(|network| Family::of(network) == family);
    IpNet::aggregate(&of_family.map(IpNet::trunc).collect()).into_iter().collect()
}

fn is_v4(network: &IpNet) -> bool {
    Family::of(network) == Family::V4
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// The address by which a node is a next hop on the overlay. For IPv6 it is the one that a kernel gives to its link by
/// itself, since a node may have no other.
fn hop(node: &Node, family: Family) -> Option<IpAddr> {
    match family {
        Family::V4 => node.addresses.iter().copied().find(IpAddr::is_ipv4),
        Family::V6 => node.addresses.first().map(|ip| link_local(mac(ip)).into()),
    }
}

/// The link address of a node follows from its address, so that nobody has to tell it.
pub(super) fn mac(ip: &IpAddr) -> Mac {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let hash = digest(&SHA256, &ip.octets());
            hash.as_ref().first_chunk().copied().unwrap_or_default()
        }
    };
    Mac([0x02, 0xfe, a, b, c, d])
}

/// The address that a kernel gives to a link with this address.
fn link_local(mac: Mac) -> Ipv6Addr {
    let [first, vendor @ .., _, _, _] = mac.0;
    let [.., one, two, three] = mac.0;
    let tail = [first ^ 2, vendor[0], vendor[1], 0xff, 0xfe, one, two, three];
    Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(u64::from_be_bytes(tail)))
}
