//! Everything that a gateway does to addresses, as one value: a peer's packets in, and ours out.
//!
//! A gateway translates only addresses of its own cluster. Inside a tunnel the sender is named as the receiver names
//! it, and the receiver as the sender does. What is not expected is dropped, with the reason.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Agreement, Ours, Translation};

/// The two addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What a gateway does to the addresses of one peer's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTable {
    /// The peer's networks, as they are named here.
    views: Vec<IpNet>,
    ours: Ours,
    /// For each address that the peer uses, the endpoint behind it, and the other way round.
    redirections: BTreeMap<IpAddr, IpAddr>,
    published: BTreeMap<IpAddr, IpAddr>,
    /// Networks of other peers that this one reaches, and is reached from, through this cluster.
    transit: Vec<Translation>,
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
        // The replies of a pod have the address of its network: another one would never be undone.
        let usable = redirections.iter().filter(|(endpoint, _)| !ours.pods.here().contains(*endpoint));
        let published: BTreeMap<IpAddr, IpAddr> =
            usable.map(|(endpoint, there)| (*endpoint, *there)).collect();
        let redirections = published.iter().map(|(endpoint, there)| (*there, *endpoint)).collect();
        Some(Self { views: agreement.networks().collect(), ours, redirections, published, transit })
    }

    /// The peer's networks, as they are named here.
    pub fn views(&self) -> &[IpNet] {
        &self.views
    }

    /// For each address that the peer uses, the endpoint behind it.
    pub fn redirections(&self) -> &BTreeMap<IpAddr, IpAddr> {
        &self.redirections
    }

    /// For each endpoint that is published to the peer, the address that the peer uses.
    pub fn published(&self) -> &BTreeMap<IpAddr, IpAddr> {
        &self.published
    }

    /// Our networks under the names of the peer.
    pub fn ours(&self) -> &Ours {
        &self.ours
    }

    /// Networks of other peers that this one reaches through this cluster.
    pub fn transit(&self) -> &[Translation] {
        &self.transit
    }

    fn is_peers(&self, ip: &IpAddr) -> bool {
        self.views.iter().any(|view| view.contains(ip))
    }

    /// A packet that came out of the tunnel, as it goes on in this cluster.
    pub fn inbound(&self, packet: Packet) -> Result<Packet, Drop> {
        if !self.is_peers(&packet.source) {
            return Err(Drop::SpoofedSource);
        }
        let redirected = self.redirections.get(&packet.destination).copied();
        let transit = || self.transit.iter().find_map(|network| network.inward(packet.destination));
        let destination = redirected
            .or_else(|| self.ours.pods.inward(packet.destination))
            .or_else(transit)
            .ok_or(Drop::ForeignDestination)?;
        Ok(Packet { destination, ..packet })
    }

    /// A packet of this cluster, as it goes into the tunnel.
    fn outbound(&self, packet: Packet) -> Result<Packet, Drop> {
        let transit = || self.transit.iter().find_map(|network| network.outward(packet.source));
        let source = self
            .ours
            .pods
            .outward(packet.source)
            .or_else(|| self.published.get(&packet.source).copied())
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
    /// A packet that came out of a peer's tunnel, as it goes on in this cluster.
    pub fn inbound(&self, peer: &str, packet: Packet) -> Result<Packet, Drop> {
        self.peers.get(peer).ok_or(Drop::UnknownPeer)?.inbound(packet)
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
