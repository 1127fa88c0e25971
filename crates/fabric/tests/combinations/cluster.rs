//! A cluster without Kubernetes: its address manager, its gateway, and behind that two pods and a node, each in a network
//! namespace of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::config::Reach;
use ferro_api::net::{NatMapping, NatMappingSpec, TunnelEndpoint, TunnelEndpointSpec, TunnelEndpointStatus};
use ferro_core::network::config::{BACKEND, PORT, PUBLIC_KEY};
use ferro_core::network::routes::{Exemption, Family, Wanted};
use ferro_core::network::{Agreement, Ipam, Naming, ProbePair, Tunnel, Turn, map_to_network, tunnels_of};
use ferro_fabric::dataplane::{Engine, PeerPlan, Tun, Wire};
use ferro_fabric::routes::Kernel;
use ferro_fabric::wireguard::{PrivateKey, PublicKey};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;

use crate::born::{Born, agree};
use crate::world::Host;

/// Of the tunnels.
const MTU: u16 = 1420;
pub const LISTENS: u16 = 51820;
/// Where everybody in a cluster sends what is not its own.
const ROUTER: &str = "169.254.1.1";
/// The node has the same address in every cluster, as that of V9.
const NODE: &str = "172.18.0.3";

/// What gateways have in common.
pub struct Lan(Host);

impl Lan {
    pub fn new() -> Self {
        let host = Host::new();
        host.ip("link add lan type bridge mcast_snooping 0\nlink set lan up");
        Self(host)
    }

    /// Gives a host an address there.
    pub fn attach(&self, host: &Host, number: u8) {
        let port = format!("port{number}");
        self.0.wire(&port, host, "outer");
        self.0.ip(&format!("link set {port} master lan"));
        host.ip(&format!("addr add {}/24 dev outer", address(number)));
    }
}

pub fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

/// One end of a tunnel, as others see it.
#[derive(Clone, Copy)]
pub struct Line {
    pub cluster: &'static str,
    pub key: PublicKey,
    pub at: SocketAddr,
}

/// Somebody in a cluster.
struct Member {
    host: Host,
    ip: IpAddr,
}

/// Somebody in a cluster who talks with another one, and how that one names it.
#[derive(Clone, Copy)]
pub struct Talker<'a> {
    pub host: &'a Host,
    pub ip: IpAddr,
    pub named: IpAddr,
}

pub struct Cluster {
    pub name: &'static str,
    pub ipam: Ipam,
    pub gateway: Host,
    number: u8,
    pods: [Member; 2],
    node: Member,
    engine: Option<Engine>,
}

impl Cluster {
    /// A cluster whose gateway does not run yet.
    pub fn new(name: &'static str, number: u8, born: &Born, lan: &Lan) -> Self {
        let (ipam, gateway) = (born.ipam(), Host::router());
        gateway.ip(&format!("addr add {ROUTER}/32 dev lo"));
        lan.attach(&gateway, number);
        // In a network of twice the size one is in each half: each may be a network of another cluster.
        let pods = [behind(ipam.own().pod, 7), behind(ipam.own().pod, 0x105)];
        let pods = [member(&gateway, "pod0", pods[0]), member(&gateway, "pod1", pods[1])];
        let node = member(&gateway, "node", NODE.parse().unwrap());
        Self { name, ipam, gateway, number, pods, node, engine: None }
    }

    pub fn key(&self) -> PrivateKey {
        PrivateKey::new([self.number; 32])
    }

    /// Its end of tunnels.
    pub fn line(&self) -> Line {
        let at = SocketAddr::new(address(self.number), LISTENS);
        Line { cluster: self.name, key: self.key().public(), at }
    }

    /// Comes to terms with another one, to which the process on the node is published.
    pub fn meet(&mut self, other: &mut Self) {
        agree((self.name, &mut self.ipam), (other.name, &mut other.ipam));
        self.publish(other.name);
        other.publish(self.name);
    }

    fn publish(&mut self, to: &str) {
        let there = self.ipam.map(to, self.node.ip, Timestamp::now()).unwrap();
        assert_eq!(self.ipam.redirections(to), [(self.node.ip, there)].into());
    }

    /// Says what peers reach, and which nodes there are.
    pub fn reach(&mut self, reach: Reach, nodes: &[IpAddr]) {
        let mut turn = Turn::new(&self.ipam, Timestamp::now());
        turn.reach(reach, &nodes.iter().copied().collect()).unwrap();
        self.ipam = turn.into_after();
    }

    /// Starts the gateway, with tunnels to these.
    pub fn start(&mut self, lines: &[Line]) {
        let plans = self.plans(lines);
        let views: Vec<IpNet> = plans.values().flat_map(|plan| plan.table.views().to_vec()).collect();
        let key = self.key();
        let start = || Engine::start(Tun::open("ferro0")?, Wire::open(LISTENS)?, key, MTU);
        let engine = self.gateway.inside(start).unwrap();
        self.gateway.ip(&format!("link set ferro0 up mtu {MTU}"));
        for view in views {
            self.gateway.ip(&format!("route add {view} dev ferro0"));
        }
        engine.set(plans).unwrap();
        self.engine = Some(engine);
    }

    /// Makes the host of the gateway a node as well, with a bridge for pods, and keeps out of it what a node role does.
    pub fn be_a_node(&self) {
        let pods = self.ipam.own().pod;
        let bridge = IpNet::new(behind(pods, 1), pods.prefix_len()).unwrap();
        self.gateway.ip(&format!("link add cni0 type bridge\nlink set cni0 up\naddr add {bridge} dev cni0"));
        let exemption = Exemption {
            own: [pods].into(),
            views: self.ipam.peers().values().flat_map(Agreement::networks).collect(),
            nodes: [address(self.number).into()].into(),
            ..Exemption::default()
        };
        let wanted = Wanted { exemptions: [(Family::V4, exemption)].into(), ..Wanted::default() };
        self.gateway.inside(|| Ok(Kernel::open().unwrap().become_like(&wanted).unwrap())).unwrap();
    }

    /// Tells the gateway what the address manager says now.
    pub fn tell(&self, lines: &[Line]) {
        self.engine().set(self.plans(lines)).unwrap();
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// Between which addresses the tunnel to this one is probed.
    pub fn probe(&self, to: &Line) -> ProbePair {
        self.plans(&[*to])[to.cluster].probe.unwrap()
    }

    /// What the gateway would read of the resources.
    fn plans(&self, lines: &[Line]) -> BTreeMap<String, PeerPlan> {
        let endpoints: Vec<_> = lines.iter().map(|line| self.tunnel_endpoint(line)).collect();
        let mappings: Vec<_> = lines.iter().map(|line| self.nat_mapping(line.cluster)).collect();
        let (endpoints, mappings): (Vec<_>, Vec<_>) = (endpoints.iter().collect(), mappings.iter().collect());
        let (tunnels, problems) = tunnels_of(&endpoints, &mappings, self.ipam.own().reach);
        assert!(problems.is_empty(), "{problems:?}");
        tunnels.into_iter().map(|(peer, tunnel)| (peer, plan(tunnel))).collect()
    }

    fn tunnel_endpoint(&self, to: &Line) -> TunnelEndpoint {
        let agreement = self.ipam.peers()[to.cluster];
        let (offered, answer, ours) = (agreement.offered(), agreement.answer(), agreement.ours.unwrap());
        let external = ours.external.unwrap();
        let spec = TunnelEndpointSpec {
            cluster_id: to.cluster.to_owned(),
            pod_cidr: offered.pod.to_string(),
            external_cidr: offered.external.map(|external| external.to_string()),
            endpoint_ip: to.at.ip().to_string(),
            backend_type: BACKEND.to_owned(),
            backend_config: [
                (PORT.to_owned(), to.at.port().to_string()),
                (PUBLIC_KEY.to_owned(), STANDARD.encode(to.key.0)),
            ]
            .into(),
        };
        let status = TunnelEndpointStatus {
            local_pod_cidr: Some(ours.pods.here().to_string()),
            local_nat_pod_cidr: Some(Naming::there(&ours.pods).to_string()),
            remote_nat_pod_cidr: Some(answer.pod.to_string()),
            local_external_cidr: Some(external.here().to_string()),
            local_nat_external_cidr: Some(Naming::there(&external).to_string()),
            remote_nat_external_cidr: answer.external.map(|external| external.to_string()),
            ..TunnelEndpointStatus::default()
        };
        TunnelEndpoint { status: Some(status), ..TunnelEndpoint::new(to.cluster, spec) }
    }

    fn nat_mapping(&self, to: &str) -> NatMapping {
        let entries = self.ipam.redirections(to).into_iter();
        let cluster_mappings = entries.map(|(ip, there)| (ip.to_string(), there.to_string())).collect();
        NatMapping::new(to, NatMappingSpec { cluster_id: to.to_owned(), cluster_mappings })
    }

    /// A pod that talks with a cluster.
    pub fn pod(&self, place: usize, with: &str) -> Talker<'_> {
        self.talker(&self.pods[place], with)
    }

    /// A process on the node that does.
    pub fn process(&self, with: &str) -> Talker<'_> {
        self.talker(&self.node, with)
    }

    fn talker<'a>(&self, member: &'a Member, with: &str) -> Talker<'a> {
        let named = self.ipam.clone().map(with, member.ip, Timestamp::now()).unwrap();
        Talker { host: &member.host, ip: member.ip, named }
    }
}

fn plan(tunnel: Tunnel) -> PeerPlan {
    PeerPlan {
        key: PublicKey(tunnel.public_key),
        endpoint: Some(tunnel.endpoint),
        keepalive: None,
        table: tunnel.table,
        probe: tunnel.probe,
    }
}

/// A host behind the gateway, without a network between them.
fn member(gateway: &Host, name: &str, ip: IpAddr) -> Member {
    let host = Host::new();
    // Anybody may ping.
    host.set("ipv4/ping_group_range", "0 0");
    gateway.wire(name, &host, "eth0");
    gateway.ip(&format!("route add {ip}/32 dev {name}"));
    host.ip(&format!(
        "addr add {ip}/32 dev eth0\nroute add {ROUTER}/32 dev eth0\nroute add default via {ROUTER}"
    ));
    Member { host, ip }
}

/// So far behind the first address of a network.
fn behind(network: IpNet, hosts: u32) -> IpAddr {
    map_to_network(Ipv4Addr::from_bits(hosts).into(), network).unwrap()
}
