//! What datagrams tell that may pass one router, two, three and so on: how far a way leads, and where it ends.
//!
//! The router at which one ends says so, and the endpoint says that nobody listens at that port. Who is silent may still
//! pass packets on, which whatever answers behind it proves. So a link is called broken only where nothing behind it was
//! heard; whether the packet or the answer was lost there cannot be seen from one end.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Link, Place, Way};

/// The port to which they go, at which nobody is expected to listen: that of traceroute.
pub const PORT: u16 = 33_434;
/// The longest way: two nodes and the gateway here, the gateway and two nodes there, and the endpoint.
pub const FURTHEST: u8 = 7;

/// What came back of one that was let pass so many routers, less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// How many hops it was given.
    pub hops: u8,
    /// Who answered.
    pub from: IpAddr,
    /// What became of it.
    pub what: Returned,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Returned {
    /// It had no more hops left.
    Expired,
    /// It got there.
    Arrived,
    /// Somebody on the way does not know how to go on.
    Unreachable,
}

/// A place on a way, and what the datagrams tell about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Where.
    pub place: Place,
    /// The link that leads there.
    pub link: Link,
    /// What is known.
    pub state: State,
}

/// What is known of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It answered, by this address.
    Answered(IpAddr),
    /// It did not, but somebody behind it.
    Passed,
    /// Nothing gets there, or nothing comes back from there.
    Broken(Gap),
    /// It cannot be told from here.
    Unknown(Gap),
}

/// Why nothing was heard of a place, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// The first router is silent.
    #[error(
        "nothing comes back, not even from the node {0}: look for a NetworkPolicy that holds the pod's packets, and at \
         its network plugin"
    )]
    Node(String),
    /// The node of the gateway is silent.
    #[error(
        "packets get to the node of the pod, and not over {overlay} to {node}: let UDP port {port} through between the \
         nodes, and see the logs of ferro-node on both",
        overlay = super::OVERLAY,
        port = super::OVERLAY_PORT
    )]
    Overlay {
        /// The node of the gateway.
        node: String,
    },
    /// The gateway is silent.
    #[error(
        "packets get to the node {0}, and nothing comes back from the gateway on it: see the logs of ferro-gateway, and \
         of ferro-node on both nodes"
    )]
    Gateway(String),
    /// Somebody before it says that the way ends there.
    #[error("{by} says that it has no way to {to}: see the logs of ferro-node and of ferro-gateway")]
    NoRoute {
        /// Who says so.
        by: IpAddr,
        /// To whom.
        to: IpAddr,
    },
    /// Nothing comes through the tunnel.
    #[error(
        "packets get to the gateway, and the gateway of {0} does not answer it: let its UDP port through the firewalls, \
         and see 'ferro network' there"
    )]
    Tunnel(String),
    /// The tunnel is fine, and its other end sends nothing on.
    #[error(
        "the gateway of {0} answers through the tunnel, and nothing comes back from behind it: see there whether its \
         reach is strict, and run 'ferro trace' the other way round"
    )]
    Peer(String),
    /// One of the two.
    #[error(
        "packets get to the gateway, and nothing comes back from {0}; whether the tunnel carries anything could not be \
         asked: see 'ferro network'"
    )]
    TunnelOrPeer(String),
    /// Its own gateway is not an endpoint.
    #[error("this is the gateway of {0} itself, which answers to pings alone")]
    PingsAlone(String),
    /// Somebody says that there is no such endpoint.
    #[error("{by} says that {to} cannot be reached: is there still such a pod in {peer}?")]
    Unreachable {
        /// Who says so.
        by: IpAddr,
        /// Of whom.
        to: IpAddr,
        /// Where that is.
        peer: String,
    },
    /// It may be silent by intent.
    #[error(
        "packets get to the nodes of {peer}, and {to} does not answer to datagrams: it is gone, or a NetworkPolicy there \
         holds them"
    )]
    Endpoint {
        /// Who.
        to: IpAddr,
        /// Where that is.
        peer: String,
    },
}

/// What the datagrams tell of each place of a way to a peer, up to the first broken link. Whether the gateways hear each
/// other is taken from what they measure themselves, if that is known.
pub fn judge(way: &Way, heard: &[Heard], tunnel: Option<bool>) -> Vec<Probed> {
    let Some((stops, peer)) = stops(way).zip(peer(way)) else { return Vec::new() };
    let arrived = heard.iter().find(|heard| heard.what == Returned::Arrived);
    let refused = heard.iter().filter(|heard| heard.what == Returned::Unreachable).min_by_key(|it| it.hops);
    let mut answers: Vec<&Heard> = heard.iter().filter(|heard| heard.what == Returned::Expired).collect();
    // Who looks for the next one in vain says so of what was to go further than to itself.
    answers.extend(refused.filter(|by| !answers.iter().any(|heard| heard.from == by.from)));
    let furthest = answers.iter().map(|heard| usize::from(heard.hops)).max().unwrap_or_default();
    let mut probed = Vec::new();
    for (hops, (place, link)) in (1..).zip(&stops) {
        // Behind the gateway of the peer, all routers answer by its address.
        let is_last = hops == stops.len();
        let is_it = |heard: &&&Heard| {
            let of = usize::from(heard.hops);
            of == hops || is_last && of > hops
        };
        let state = match answers.iter().find(is_it) {
            Some(heard) => State::Answered(heard.from),
            None if arrived.is_some() || furthest > hops => State::Passed,
            None => refused.map_or_else(|| silent(way, place, tunnel), |by| State::Broken(no_route(way, by))),
        };
        let link = if matches!(state, State::Broken(Gap::Peer(_))) { Link::Peer } else { *link };
        let is_end = matches!(state, State::Broken(_) | State::Unknown(_));
        probed.push(Probed { place: place.clone(), link, state });
        if is_end {
            return probed;
        }
    }
    let state = arrived.map_or_else(|| missing(way, refused, &peer), |heard| State::Answered(heard.from));
    probed.push(Probed { place: Place::Peer(peer), link: Link::Endpoint, state });
    probed
}

/// The routers on the way, in order, each with the link that leads to it; none for a way that is not whole.
fn stops(way: &Way) -> Option<Vec<(Place, Link)>> {
    let stop = |place: &Place| match place {
        Place::Pod(_) | Place::Service(_) | Place::Tunnel(_) | Place::Peer(_) => None,
        Place::Node(_) => Some(Link::Pod),
        Place::Overlay(_) => Some(Link::Overlay),
        Place::Gateway(_) => Some(Link::Gateway),
        Place::PeerGateway(_) => Some(Link::Tunnel),
    };
    let stops = way.hops.iter().filter_map(|hop| Some((hop.place.clone(), stop(&hop.place)?)));
    way.broken.is_none().then(|| stops.collect())
}

/// Who is at the other end, by name.
fn peer(way: &Way) -> Option<String> {
    way.hops.iter().find_map(|hop| match &hop.place {
        Place::PeerGateway(peer) => Some(peer.clone()),
        _ => None,
    })
}

/// What it means that neither this place nor anything behind it was heard.
fn silent(way: &Way, place: &Place, tunnel: Option<bool>) -> State {
    match place {
        Place::Overlay(node) => State::Broken(Gap::Overlay { node: node.clone() }),
        Place::Gateway(node) => State::Broken(Gap::Gateway(node.clone())),
        Place::PeerGateway(peer) | Place::Tunnel(peer) | Place::Peer(peer) => match tunnel {
            Some(true) if is_gateway_itself(way) => State::Unknown(Gap::PingsAlone(peer.clone())),
            Some(true) => State::Broken(Gap::Peer(peer.clone())),
            Some(false) => State::Broken(Gap::Tunnel(peer.clone())),
            None => State::Unknown(Gap::TunnelOrPeer(peer.clone())),
        },
        Place::Pod(name) | Place::Service(name) | Place::Node(name) => State::Broken(Gap::Node(name.clone())),
    }
}

/// Whether the way ends at the peer's gateway, which needs no rule to know what to do with it.
fn is_gateway_itself(way: &Way) -> bool {
    way.hops.last().is_some_and(|hop| matches!(hop.place, Place::PeerGateway(_)) && hop.after.is_some())
}

/// What it means that the peer's nodes were heard and the endpoint was not.
fn missing(way: &Way, refused: Option<&Heard>, peer: &str) -> State {
    let (to, peer) = (to(way), peer.to_owned());
    match refused {
        Some(heard) => State::Broken(Gap::Unreachable { by: heard.from, to, peer }),
        None => State::Unknown(Gap::Endpoint { to, peer }),
    }
}

fn no_route(way: &Way, by: &Heard) -> Gap {
    Gap::NoRoute { by: by.from, to: to(way) }
}

fn to(way: &Way) -> IpAddr {
    way.to.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

#[cfg(test)]
mod tests;
