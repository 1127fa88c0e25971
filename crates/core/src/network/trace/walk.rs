//! Follows a packet through a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::super::{Drop, Packet, Problem, Table, Tunnel, tunnels_of};
use super::{Fault, Gateway, Hop, OVERLAY, OVERLAY_PORT, Place, Service, Snapshot, Target, Way, complaint};

/// The ways to the target: one to an address, and for a Service one to each cluster that serves it.
pub fn trace(snapshot: &Snapshot) -> Vec<Way> {
    let walk = Walk::new(snapshot);
    let service = match &snapshot.target {
        Target::Address(ip) => return vec![walk.to(*ip, None)],
        Target::Service(service) => service,
    };
    if let Err(fault) = walk.pod_runs().and_then(|()| can_serve(service)) {
        return vec![Way { broken: Some(fault), ..Way::default() }];
    }
    // Endpoints of one cluster are reached alike, unless one of them is not reached at all.
    let mut ways: BTreeMap<(Option<String>, bool), Way> = BTreeMap::new();
    for endpoint in service.ready.iter().collect::<BTreeSet<_>>() {
        let way = walk.to(*endpoint, Some(service));
        let which = (way.peer.clone(), way.broken.is_some());
        ways.entry(which).and_modify(|same| same.alike += 1).or_insert(way);
    }
    ways.into_values().collect()
}

fn can_serve(service: &Service) -> Result<(), Fault> {
    let name = service.name.clone();
    if !service.exists {
        return Err(Fault::NoService(name));
    }
    if let Some(other) = service.stands_for.clone() {
        return Err(Fault::AnotherName { service: name, name: other });
    }
    let is = |wanted: &String, (number, called): &(u16, Option<String>)| {
        *wanted == number.to_string() || called.as_ref() == Some(wanted)
    };
    if let Some(port) =
        service.port.as_ref().filter(|wanted| !service.ports.iter().any(|has| is(wanted, has)))
    {
        let has: Vec<_> = service.ports.iter().map(|(number, _)| number.to_string()).collect();
        let has = if has.is_empty() { "none".into() } else { has.join(", ") };
        return Err(Fault::NoPort { service: name, port: port.clone(), has });
    }
    if service.ready.is_empty() {
        return Err(Fault::NoEndpoints { service: name, unready: service.unready });
    }
    Ok(())
}

/// Who is found at an address.
enum Owner {
    Here,
    Peer(String),
}

struct Walk<'a> {
    now: &'a Snapshot,
    tunnels: BTreeMap<String, Tunnel>,
    problems: Vec<Problem>,
    table: Table,
}

impl<'a> Walk<'a> {
    fn new(now: &'a Snapshot) -> Self {
        let (endpoints, mappings): (Vec<_>, Vec<_>) =
            (now.endpoints.iter().collect(), now.mappings.iter().collect());
        let (tunnels, problems) = tunnels_of(&endpoints, &mappings, now.reach);
        let peers = tunnels.iter().map(|(peer, tunnel)| (peer.clone(), tunnel.table.clone()));
        let table = Table { peers: peers.collect() };
        Self { now, tunnels, problems, table }
    }

    fn to(&self, to: IpAddr, service: Option<&Service>) -> Way {
        let mut way = Way { to: Some(to), ..Way::default() };
        way.broken = self.go(to, service, &mut way).err();
        way
    }

    fn go(&self, to: IpAddr, service: Option<&Service>, way: &mut Way) -> Result<(), Fault> {
        self.pod_runs()?;
        let pod = &self.now.source.pod;
        let source = self.now.source.ips.iter().find(|ip| ip.is_ipv4() == to.is_ipv4());
        let source = *source.ok_or_else(|| Fault::NoAddress { pod: pod.clone(), to })?;
        let packet = Packet { source, destination: to };
        let front = service.and_then(|service| service.ips.iter().find(|ip| ip.is_ipv4() == to.is_ipv4()));
        let sent = Packet { destination: *front.unwrap_or(&to), ..packet };
        way.pass(Place::Pod(pod.clone()), sent, sent, "sends");
        if let Some(service) = service.filter(|_| front.is_some()) {
            way.pass(Place::Service(service.name.clone()), sent, packet, "chooses an endpoint");
        }
        match self.owner(to)? {
            Owner::Here => {
                let node = self.now.source.node.clone().unwrap_or_default();
                way.pass(
                    Place::Node(node),
                    packet,
                    packet,
                    "stays in this cluster, whose own network delivers it",
                );
                Ok(())
            }
            Owner::Peer(peer) => {
                way.peer = Some(peer.clone());
                self.through(&peer, packet, way)
            }
        }
    }

    fn pod_runs(&self) -> Result<(), Fault> {
        let source = &self.now.source;
        let (pod, phase) = (source.pod.clone(), source.phase.clone());
        if phase != "Running" {
            return Err(Fault::NotRunning { pod, phase });
        }
        match source
            .node
            .as_ref()
            .filter(|node| self.now.nodes.get(*node).is_some_and(|node| node.is_virtual))
        {
            Some(node) => Err(Fault::RunsElsewhere { pod, node: node.clone() }),
            None => Ok(()),
        }
    }

    fn owner(&self, to: IpAddr) -> Result<Owner, Fault> {
        let known = &self.now.networks;
        let of = |network: Option<IpNet>| network.filter(|network| network.contains(&to));
        let is_node = self.now.nodes.values().any(|node| node.ips.contains(&to));
        if of(known.pods).is_some() || is_node {
            return Ok(Owner::Here);
        }
        if self.now.external_mode {
            return Err(Fault::External(to));
        }
        let serves = |tunnel: &Tunnel| tunnel.table.views().iter().any(|view| view.contains(&to));
        if let Some((peer, _)) = self.tunnels.iter().find(|(_, tunnel)| serves(tunnel)) {
            return Ok(Owner::Peer(peer.clone()));
        }
        if let Some(network) = of(known.external) {
            return Err(Fault::OwnExternal { ip: to, network });
        }
        if let Some(network) = of(known.services) {
            return Err(Fault::VacantService { ip: to, network });
        }
        let holds = |networks: &Vec<IpNet>| networks.iter().any(|network| network.contains(&to));
        match known.peers.iter().find(|(_, networks)| holds(networks)) {
            Some((peer, _)) => Err(self.unusable(peer)),
            None => Err(Fault::Nobody(to)),
        }
    }

    /// Why there is no tunnel to a peer whose networks have names.
    fn unusable(&self, peer: &str) -> Fault {
        let problem = self.problems.iter().find(|problem| problem.peer == peer);
        let name = self.name(peer);
        problem.map_or_else(
            || Fault::NoTunnel(name.clone()),
            |problem| Fault::Unusable { peer: name.clone(), problem: problem.to_string() },
        )
    }

    fn name(&self, peer: &str) -> String {
        self.now.names.get(peer).cloned().unwrap_or_else(|| peer.to_owned())
    }

    fn through(&self, peer: &str, packet: Packet, way: &mut Way) -> Result<(), Fault> {
        let gateway = self.to_gateway(peer, packet, way)?;
        let (_, outside) = self.table.outbound(packet).map_err(|drop| match drop {
            Drop::NamelessSource => Fault::Unmapped { source_ip: packet.source, peer: self.name(peer) },
            Drop::UnknownPeer | Drop::SpoofedSource | Drop::ForeignDestination | Drop::NoPeer => {
                Fault::Nobody(packet.destination)
            }
        })?;
        let name = self.name(peer);
        let what = renamed(packet.source, outside.source, &format!("as {name} names it"));
        way.pass(Place::Gateway(gateway.node.clone()), packet, outside, &what);
        let endpoint = self.now.endpoints.iter().find(|endpoint| endpoint.spec.cluster_id == peer);
        if let Some((status, message)) = endpoint.and_then(complaint) {
            return Err(Fault::NotConnected { peer: name, status, message });
        }
        let Some(tunnel) = self.tunnels.get(peer) else { return Err(self.unusable(peer)) };
        let what = format!("WireGuard to {}", tunnel.endpoint);
        way.pass(Place::Tunnel(name.clone()), outside, outside, &what);
        at_peer(&name, tunnel, outside, way);
        self.back(peer, gateway, outside, way);
        Ok(())
    }

    /// From the pod's node to the gateway.
    fn to_gateway(&self, peer: &str, packet: Packet, way: &mut Way) -> Result<&'a Gateway, Fault> {
        let node = self.now.source.node.clone().unwrap_or_default();
        self.node_is_ready(&node)?;
        let gateway = self.now.gateway.as_ref().ok_or(Fault::NoGateway)?;
        let views = self.tunnels.get(peer).map(|tunnel| tunnel.table.views()).unwrap_or_default();
        let view = views.iter().find(|view| view.contains(&packet.destination));
        let route = view.map_or_else(|| packet.destination.to_string(), ToString::to_string);
        if node == gateway.node {
            let what = format!("route {route} to the gateway on this node");
            way.pass(Place::Node(node), packet, packet, &what);
            return Ok(gateway);
        }
        let what = format!("route {route} via {} dev {OVERLAY}", gateway.node_ip);
        way.pass(Place::Node(node), packet, packet, &what);
        self.node_is_ready(&gateway.node)?;
        let what = format!("VXLAN to {}, UDP port {OVERLAY_PORT}", gateway.node_ip);
        way.pass(Place::Overlay(gateway.node.clone()), packet, packet, &what);
        Ok(gateway)
    }

    fn node_is_ready(&self, name: &str) -> Result<(), Fault> {
        let is_ready = self.now.nodes.get(name).is_some_and(|node| node.ready);
        if is_ready { Ok(()) } else { Err(Fault::NodeNotReady(name.to_owned())) }
    }

    /// The answer: the same way in the other direction.
    fn back(&self, peer: &str, gateway: &Gateway, outside: Packet, way: &mut Way) {
        let name = self.name(peer);
        let turned = |packet: Packet| Packet { source: packet.destination, destination: packet.source };
        let reply = turned(outside);
        let arrived = way.hops.last().filter(|hop| matches!(hop.place, Place::Peer(_)));
        let arrived = arrived.and_then(|hop| hop.after).map(turned);
        let mut hop = |place, before, after, what: String| {
            way.back.push(Hop { place, before, after: Some(after), what });
        };
        if let Some(inside) = arrived {
            hop(Place::Peer(name.clone()), inside, inside, "answers".into());
            let what = renamed(inside.source, reply.source, "as it is named here");
            hop(Place::PeerGateway(name.clone()), inside, reply, what);
        }
        hop(Place::Tunnel(name), reply, reply, "WireGuard".into());
        let place = Place::Gateway(gateway.node.clone());
        if let Ok(home) = self.table.answer(peer, reply) {
            let what = renamed(reply.destination, home.destination, "as it is named here");
            hop(place, reply, home, what);
            hop(Place::Pod(self.now.source.pod.clone()), home, home, "gets the answer".into());
        }
    }
}

/// What the peer does, as far as it follows from what was agreed on.
fn at_peer(name: &str, tunnel: &Tunnel, outside: Packet, way: &mut Way) {
    let gateway = Place::PeerGateway(name.to_owned());
    let Some(pod) = tunnel.agreement.their_pods.outward(outside.destination) else {
        let is_probe = tunnel.probe.is_some_and(|probe| probe.theirs == outside.destination);
        let (after, what) = if is_probe {
            (Some(outside), "answers by itself: this is its own address")
        } else {
            (None, "redirects it; to whom, 'ferro network rules' says there")
        };
        way.hops.push(Hop { place: gateway, before: outside, after, what: what.into() });
        return;
    };
    let inside = Packet { destination: pod, ..outside };
    let what = renamed(outside.destination, pod, "as it is named there");
    way.pass(gateway, outside, inside, &what);
    let what = format!("gets it, and sees {} as its client", inside.source);
    way.pass(Place::Peer(name.to_owned()), inside, inside, &what);
}

fn renamed(before: IpAddr, after: IpAddr, why: &str) -> String {
    if before == after {
        format!("{before} keeps its name")
    } else {
        format!("{before} becomes {after}, {why}")
    }
}

impl Way {
    fn pass(&mut self, place: Place, before: Packet, after: Packet, what: &str) {
        self.hops.push(Hop { place, before, after: Some(after), what: what.to_owned() });
    }
}
