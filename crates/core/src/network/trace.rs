//! The way of a packet from a pod of this cluster, hop by hop, up to the first broken link.
//!
//! It is computed with the table that the gateway runs. Of the peer's side it says what follows from what the two have
//! agreed on; what is known only there is left open.

mod fault;
pub mod probe;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ferro_api::config::Reach;
use ferro_api::net::{ConnectionStatus, IpamStorage, NatMapping, TunnelEndpoint};
use ipnet::IpNet;
use serde::Serialize;

pub use fault::{Fault, Link};
pub use walk::trace;

use super::{Packet, routes};

/// The interface over which nodes reach the gateway.
pub const OVERLAY: &str = routes::OVERLAY;
/// The UDP port of that interface.
pub const OVERLAY_PORT: u16 = routes::PORT;

/// Everything that a way depends on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Who sends.
    pub source: Source,
    /// To whom.
    pub target: Target,
    /// The networks in use.
    pub networks: Known,
    /// Whether somebody else joins the networks.
    pub external_mode: bool,
    /// What peers can reach.
    pub reach: Reach,
    /// Where the gateway runs.
    pub gateway: Option<Gateway>,
    /// All nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// All tunnels.
    pub endpoints: Vec<TunnelEndpoint>,
    /// All redirections.
    pub mappings: Vec<NatMapping>,
    /// What the peers are called, by their identifiers.
    pub names: BTreeMap<String, String>,
}

/// The pod that sends.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Its namespace and name.
    pub pod: String,
    /// Its phase.
    pub phase: String,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// The node that it runs on.
    pub node: Option<String>,
}

/// To whom a packet is sent.
#[derive(Clone, Debug)]
pub enum Target {
    /// To this address.
    Address(IpAddr),
    /// To any endpoint of a Service.
    Service(Service),
}

/// A Service that a packet is sent to.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Its namespace and name.
    pub name: String,
    /// Whether it exists.
    pub exists: bool,
    /// Its own addresses; a headless one has none.
    pub ips: Vec<IpAddr>,
    /// The port that was asked for, by number or name.
    pub port: Option<String>,
    /// Its ports, each with its name.
    pub ports: Vec<(u16, Option<String>)>,
    /// Those who serve.
    pub ready: Vec<IpAddr>,
    /// How many more are there and not ready.
    pub unready: usize,
    /// The name that it stands for, of one that has no endpoints.
    pub stands_for: Option<String>,
}

/// Where the gateway runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The name of the node.
    pub node: String,
    /// The address of the node.
    pub node_ip: IpAddr,
}

/// A node of this cluster.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it stands for a peer.
    pub is_virtual: bool,
}

/// The networks in use, as far as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of the pods.
    pub pods: Option<IpNet>,
    /// Of the services.
    pub services: Option<IpNet>,
    /// Of addresses by which peers reach other endpoints.
    pub external: Option<IpNet>,
    /// Those of peers, as they are named here, by their identifiers.
    pub peers: BTreeMap<String, Vec<IpNet>>,
}

impl Known {
    /// What is stored; what cannot be read is not known.
    pub fn from_storage(shards: &[IpamStorage]) -> Self {
        let mut known = Self::default();
        let read = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        for spec in shards.iter().map(|shard| &shard.spec) {
            known.pods = known.pods.or_else(|| read(&spec.pod_cidr));
            known.services = known.services.or_else(|| read(&spec.service_cidr));
            known.external = known.external.or_else(|| read(&spec.external_cidr));
            for (peer, subnets) in &spec.cluster_subnets {
                let networks = [read(&subnets.remote_pod_cidr), read(&subnets.remote_external_cidr)];
                known.peers.entry(peer.clone()).or_default().extend(networks.into_iter().flatten());
            }
        }
        known
    }
}

/// One way that a packet takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The address that it goes to.
    pub to: Option<IpAddr>,
    /// The identifier of the peer that it leads to; none inside this cluster.
    pub peer: Option<String>,
    /// How many more endpoints of the Service are reached alike.
    pub alike: usize,
    /// From the pod onwards.
    pub hops: Vec<Hop>,
    /// The answer, as far as it can be known from here.
    pub back: Vec<Hop>,
    /// The first broken link.
    pub broken: Option<Fault>,
}

/// One step: the addresses with which a packet comes, and with which it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where.
    pub place: Place,
    /// As it comes.
    pub before: Packet,
    /// As it goes on; none where that is known only there.
    pub after: Option<Packet>,
    /// What happens.
    pub what: String,
}

/// Where a packet passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "name")]
pub enum Place {
    /// The pod that sends.
    Pod(String),
    /// The Service, on the node of the pod.
    Service(String),
    /// A node.
    Node(String),
    /// Between two nodes.
    Overlay(String),
    /// The gateway of this cluster, on this node.
    Gateway(String),
    /// The tunnel to this peer.
    Tunnel(String),
    /// The gateway of this peer.
    PeerGateway(String),
    /// A pod or another endpoint of this peer.
    Peer(String),
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(name) => write!(to, "pod {name}"),
            Self::Service(name) => write!(to, "service {name}"),
            Self::Node(name) => write!(to, "node {name}"),
            Self::Overlay(name) => write!(to, "overlay to {name}"),
            Self::Gateway(name) => write!(to, "gateway on {name}"),
            Self::Tunnel(peer) => write!(to, "tunnel to {peer}"),
            Self::PeerGateway(peer) => write!(to, "gateway of {peer}"),
            Self::Peer(peer) => write!(to, "endpoint in {peer}"),
        }
    }
}

/// Why a tunnel carries no packets, in words; nothing if it does.
pub fn complaint(endpoint: &TunnelEndpoint) -> Option<(&'static str, String)> {
    let connection = endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
    let said = connection.and_then(|connection| connection.status_message.clone());
    let or = |otherwise: &str| said.clone().unwrap_or_else(|| otherwise.to_owned());
    let at = &endpoint.spec.endpoint_ip;
    match connection.and_then(|connection| connection.status) {
        Some(ConnectionStatus::Connected) => None,
        Some(ConnectionStatus::Connecting) => Some((
            "connecting",
            or(&format!(
                "{at} has not answered; let its UDP port through the firewalls, and see 'ferro network' there"
            )),
        )),
        Some(ConnectionStatus::Error) => {
            Some(("in error", or("the gateway does not say why; see the logs of ferro-gateway")))
        }
        None => Some((
            "not reported on",
            or("the gateway has not taken it up; see 'ferro status' and the logs of ferro-gateway"),
        )),
    }
}

#[cfg(test)]
mod tests;
