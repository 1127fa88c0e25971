//! Everything that a gateway does to addresses, as one value: a peer's packets in, and ours out.
//!
//! A gateway translates only addresses of its own cluster. Inside a tunnel the sender is named as the receiver names
//! it, and the receiver as the sender does. What is not expected is dropped, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::config::Reach;
use ipnet::IpNet;
use serde::Serialize;

use super::{Agreement, Ours, Redirections, Translation};

/// The two addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// The gateway knows nothing of the peer.
    UnknownPeer,
    /// It came out of a tunnel with a sender that is not the peer's.
    SpoofedSource,
    /// It came out of a tunnel for somebody whom the peer may not reach.
    ForeignDestination,
    /// It is to go to a peer, and comes from somebody who has no name there.
    NamelessSource,
    /// It is for no peer.
    NoPeer,
}

/// With which pods of this cluster a peer may begin to talk. Answers to what a pod began pass to all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReachablePods {
    /// All.
    #[default]
    All,
    /// Those that are published to it under their names there, and these.
    Only(BTreeSet<IpAddr>),
}

impl ReachablePods {
    /// What the configuration says, given the pods that are open for the peer without being published.
    ///
    /// `full` opens no more pods than the default: nodes are redirected.
    pub fn of(reach: Reach, open: BTreeSet<IpAddr>) -> Self {
        match reach {
            Reach::Default | Reach::Full => Self::All,
            Reach::Strict => Self::Only(open),
        }
    }
}

/// What a gateway does to the addresses of one peer's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTable {
    /// The peer's networks, as they are named here.
    views: Vec<IpNet>,
    ours: Ours,
    /// Of a pod they only say that the peer may reach it.
    published: Redirections,
    /// Networks of other peers that this one reaches, and is reached from, through this cluster.
    transit: Vec<Translation>,
    reachable: ReachablePods,
}

impl PeerTable {
    /// The table for what was agreed with a peer; none before both have agreed.
    ///
    /// `redirections` are endpoints, each with the address that the peer uses for it. `transit` are networks of other
    /// peers: here as they are named in this cluster, there as they are announced to the peer.
    pub fn new(
        agreement: &Agreement,
        redirections: &BTreeMap<IpAddr, IpAddr>,
        transit: Vec<Translation>,
    ) -> Option<Self> {
        let ours = agreement.ours?;
        let mut published = Redirections::default();
        for (endpoint, address) in redirections {
            if !ours.pods.here().contains(endpoint) {
                // Of two with one address the first counts.
                _ = published.insert(*endpoint, *address);
            }
        }
        let (views, reachable) = (agreement.networks().collect(), ReachablePods::All);
        Some(Self { views, ours, published, transit, reachable })
    }

    /// The same table, by which the peer reaches these pods.
    #[must_use]
    pub fn reaching(self, reachable: ReachablePods) -> Self {
        Self { reachable, ..self }
    }

    /// The same table with other endpoints, and pods, that are published to the peer. It costs the same for many as for
    /// few.
    #[must_use]
    pub fn publishing(self, published: Redirections) -> Self {
        Self { published, ..self }
    }

    /// Whether it is the same table. Of what is published this is known only where one is a clone of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        self.published.is_same(&other.published)
            && self.views == other.views
            && self.ours == other.ours
            && self.transit == other.transit
            && self.reachable == other.reachable
    }

    /// Whether there may be pods with which the peer must not begin to talk.
    pub fn has_closed(&self) -> bool {
        self.reachable != ReachablePods::All
    }

    /// The pods with which the peer may begin to talk, if not with all.
    pub fn open_pods(&self) -> Option<BTreeSet<IpAddr>> {
        let ReachablePods::Only(pods) = &self.reachable else { return None };
        let published = self.published.entries().map(|(endpoint, _)| endpoint);
        let published = published.filter(|endpoint| self.is_published_pod(endpoint));
        Some(pods.iter().copied().chain(published).collect())
    }

    /// The peer's networks, as they are named here.
    pub fn views(&self) -> &[IpNet] {
        &self.views
    }

    /// For each address that the peer uses, the endpoint behind it.
    pub fn redirections(&self) -> BTreeMap<IpAddr, IpAddr> {
        self.published().into_iter().map(|(endpoint, address)| (address, endpoint)).collect()
    }

    /// For each endpoint that is redirected, the address that the peer uses.
    pub fn published(&self) -> BTreeMap<IpAddr, IpAddr> {
        self.published.entries().filter(|(endpoint, _)| !self.is_pod(endpoint)).collect()
    }

    /// Whether an endpoint is a pod of this cluster.
    pub fn is_pod(&self, endpoint: &IpAddr) -> bool {
        self.ours.pods.here().contains(endpoint)
    }

    /// Whether a pod is published. The replies of a pod have the address of its network: another one would never be
    /// undone.
    fn is_published_pod(&self, pod: &IpAddr) -> bool {
        self.published.address(pod).is_some_and(|name| self.ours.pods.outward(*pod) == Some(name))
    }

    /// Our networks, as they are named here and by the peer.
    pub fn ours(&self) -> &Ours {
        &self.ours
    }

    /// Networks of other peers that go through this cluster: as they are named here, and as the peer is told.
    pub fn transit(&self) -> &[Translation] {
        &self.transit
    }

    /// Whether an address is one of the peer's, as it is named here.
    pub fn is_peers(&self, ip: &IpAddr) -> bool {
        self.views.iter().any(|view| view.contains(ip))
    }

    /// A packet that came out of the tunnel and begins something, as it goes on in this cluster.
    pub fn inbound(&self, packet: Packet) -> Result<Packet, Drop> {
        let packet = self.answer(packet)?;
        if self.is_open(&packet.destination) { Ok(packet) } else { Err(Drop::ForeignDestination) }
    }

    /// Whether the peer may begin to talk to this one of ours, under its name here.
    pub fn is_open(&self, destination: &IpAddr) -> bool {
        match &self.reachable {
            ReachablePods::All => true,
            ReachablePods::Only(pods) => {
                !self.is_pod(destination) || pods.contains(destination) || self.is_published_pod(destination)
            }
        }
    }

    /// A packet that came out of the tunnel as an answer to one that went in, as it goes on in this cluster.
    pub fn answer(&self, packet: Packet) -> Result<Packet, Drop> {
        if !self.is_peers(&packet.source) {
            return Err(Drop::SpoofedSource);
        }
        let redirected = self.published.endpoint(&packet.destination);
        let redirected = redirected.filter(|endpoint| !self.is_pod(endpoint));
        let transit = || self.transit.iter().find_map(|network| network.inward(packet.destination));
        let destination = redirected
            .or_else(|| self.ours.pods.inward(packet.destination))
            .or_else(transit)
            .ok_or(Drop::ForeignDestination)?;
        Ok(Packet { destination, ..packet })
    }

    /// A packet of this cluster, as it goes into the tunnel. One for somebody else is refused: what an ICMP error is
    /// about must have come from the same peer.
    pub fn outbound(&self, packet: Packet) -> Result<Packet, Drop> {
        if !self.is_peers(&packet.destination) {
            return Err(Drop::NoPeer);
        }
        let transit = || self.transit.iter().find_map(|network| network.outward(packet.source));
        let source = self
            .ours
            .pods
            .outward(packet.source)
            .or_else(|| self.published.address(&packet.source))
            .or_else(transit)
            .ok_or(Drop::NamelessSource)?;
        Ok(Packet { source, ..packet })
    }
}

/// What a gateway does to the addresses of all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// By the identifier of the peer.
    pub peers: BTreeMap<String, PeerTable>,
}

impl Table {
    /// A packet that came out of a peer's tunnel and begins something, as it goes on in this cluster.
    pub fn inbound(&self, peer: &str, packet: Packet) -> Result<Packet, Drop> {
        self.peers.get(peer).ok_or(Drop::UnknownPeer)?.inbound(packet)
    }

    /// The same for an answer to a packet that went into that tunnel.
    pub fn answer(&self, peer: &str, packet: Packet) -> Result<Packet, Drop> {
        self.peers.get(peer).ok_or(Drop::UnknownPeer)?.answer(packet)
    }

    /// A packet of this cluster, as it goes into the tunnel, and of which peer.
    pub fn outbound(&self, packet: Packet) -> Result<(&str, Packet), Drop> {
        let to = self.peers.iter().find(|(_, table)| table.is_peers(&packet.destination));
        let (peer, table) = to.ok_or(Drop::NoPeer)?;
        Ok((peer, table.outbound(packet)?))
    }
}

/// The name under which a peer's redirections are shown.
pub fn chain(peer: &str) -> String {
    format!("LIQO-PRRT-MAP-CLS-{peer}")
}
