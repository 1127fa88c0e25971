//! Where a way breaks, and what a person can do about it.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

/// The link of a way that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// The pod that sends.
    Pod,
    /// The Service that it sends to.
    Service,
    /// A node of this cluster, or its routes.
    Node,
    /// Between the node of the pod and that of the gateway.
    Overlay,
    /// The gateway of this cluster.
    Gateway,
    /// The tunnel to the peer.
    Tunnel,
    /// The peer, behind its end of the tunnel.
    Peer,
    /// To whom it is sent.
    Endpoint,
}

impl fmt::Display for Link {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Pod => "pod",
            Self::Service => "service",
            Self::Node => "node",
            Self::Overlay => "overlay",
            Self::Gateway => "gateway",
            Self::Tunnel => "tunnel",
            Self::Peer => "peer",
            Self::Endpoint => "endpoint",
        })
    }
}

/// Why a packet does not get any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The pod does not run.
    #[error(
        "the pod {pod} is {phase} and has to be Running; see 'kubectl {} describe pod {}'",
        namespace(.pod),
        name(.pod)
    )]
    NotRunning {
        /// With its namespace.
        pod: String,
        /// What it is instead.
        phase: String,
    },
    /// It has no address of the family that is needed.
    #[error("the pod {pod} has no address of the family of {to}; only like reaches like")]
    NoAddress {
        /// With its namespace.
        pod: String,
        /// Where it is to send to.
        to: IpAddr,
    },
    /// It is one that a peer runs.
    #[error("the pod {pod} runs at the peer behind the node {node}: run 'ferro trace' in that cluster")]
    RunsElsewhere {
        /// With its namespace.
        pod: String,
        /// The node that stands for the peer.
        node: String,
    },
    /// There is none of this name.
    #[error("there is no Service {0}; see 'kubectl {n} get services'", n = namespace(.0))]
    NoService(String),
    /// It has other ports.
    #[error("the Service {service} has no port {port}; it has {has}")]
    NoPort {
        /// With its namespace.
        service: String,
        /// The one that was asked for.
        port: String,
        /// Those that there are.
        has: String,
    },
    /// Nobody serves.
    #[error(
        "the Service {service} has no ready endpoint ({unready} are not ready); see 'kubectl {} get endpointslices \
         --selector kubernetes.io/service-name={}'",
        namespace(.service),
        name(.service)
    )]
    NoEndpoints {
        /// With its namespace.
        service: String,
        /// How many endpoints are there and not ready.
        unready: usize,
    },
    /// It is another name, and no endpoint.
    #[error("the Service {service} stands for the name {name}, which DNS answers; see what that leads to")]
    AnotherName {
        /// With its namespace.
        service: String,
        /// The other name.
        name: String,
    },
    /// No Service has the address.
    #[error("{ip} is of the service network {network}, and no Service has it; see 'kubectl get services -A'")]
    VacantService {
        /// Where the packet is to go.
        ip: IpAddr,
        /// The network.
        network: IpNet,
    },
    /// The address is for others.
    #[error(
        "{ip} is of this cluster's own external network {network}, which is for peers; send to the endpoint itself"
    )]
    OwnExternal {
        /// Where the packet is to go.
        ip: IpAddr,
        /// The network.
        network: IpNet,
    },
    /// It is in no network that is known.
    #[error("{0} is in no network of this cluster or of a peer; 'ferro network' lists them all")]
    Nobody(IpAddr),
    /// The peer's networks are named, and nothing more has come of it.
    #[error(
        "there is no TunnelEndpoint for {0} yet: both clusters have to answer each other's NetworkConfig; see 'kubectl \
         get networkconfigs -A' here and there"
    )]
    NoTunnel(String),
    /// There is one, and it cannot be used.
    #[error("the tunnel to {peer} cannot be used: {problem}")]
    Unusable {
        /// Who.
        peer: String,
        /// Which object, and what is wrong with it.
        problem: String,
    },
    /// Somebody else joins the networks.
    #[error(
        "liqonetConfig.mode is external: somebody else joins the networks of this cluster and its peers; ask them for \
         the way to {0}"
    )]
    External(IpAddr),
    /// A node is not there, or not ready.
    #[error("the node {0} is not Ready; see 'kubectl describe node {0}'")]
    NodeNotReady(String),
    /// Nobody forwards.
    #[error("no gateway has told where it runs; see 'ferro status'")]
    NoGateway,
    /// The peer could not answer.
    #[error(
        "{source_ip} is not of the pod network, and not mapped for {peer}: {peer} has no name for it; use a pod with an \
         address of its own, or give it one in a NatMapping"
    )]
    Unmapped {
        /// Who sends.
        source_ip: IpAddr,
        /// To whom.
        peer: String,
    },
    /// The tunnel does not carry packets.
    #[error("the tunnel to {peer} is {status}: {message}")]
    NotConnected {
        /// Who.
        peer: String,
        /// In which state it is.
        status: &'static str,
        /// Why, or what to do.
        message: String,
    },
}

impl Fault {
    /// Where on the way it lies.
    pub fn link(&self) -> Link {
        match self {
            Self::NotRunning { .. } | Self::NoAddress { .. } | Self::RunsElsewhere { .. } => Link::Pod,
            Self::NoService(_)
            | Self::NoPort { .. }
            | Self::NoEndpoints { .. }
            | Self::AnotherName { .. }
            | Self::VacantService { .. } => Link::Service,
            Self::OwnExternal { .. }
            | Self::Nobody(_)
            | Self::NoTunnel(_)
            | Self::Unusable { .. }
            | Self::External(_)
            | Self::NodeNotReady(_) => Link::Node,
            Self::NoGateway | Self::Unmapped { .. } => Link::Gateway,
            Self::NotConnected { .. } => Link::Tunnel,
        }
    }
}

/// The flag by which kubectl finds an object that is called by namespace and name.
fn namespace(object: &str) -> String {
    object.split_once('/').map(|(namespace, _)| format!("--namespace {namespace}")).unwrap_or_default()
}

fn name(object: &str) -> &str {
    object.split_once('/').map_or(object, |(_, name)| name)
}
