//! A peer that was trusted and is not to be: whatever comes out of its tunnel, nobody gets what is not meant for them, and
//! everybody else is served as before.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use ferro_core::network::ProbePair;
use ferro_fabric::packet::Header;
use k8s_openapi::jiff::Timestamp;

use crate::born::{Born, born};
use crate::cluster::{Cluster, LISTENS, Lan, Talker, address};
use crate::end::End;
use crate::packets::{Noise, PORT, broken, error_about, evil, forbid_pieces, mutants, syn, told_length, udp};
use crate::talk::{datagram, pattern, ping_often, stream};
use crate::world::{drain, eventually};
use crate::{FOREIGN, MEGABYTES, SPOOFED};

/// Each packet is sent so often.
const TIMES: u64 = 3;
/// The number of one of the clusters.
const ROGUE: u8 = 3;
/// An endpoint that is published to the honest peer alone.
const SECRET: &str = "172.18.0.4";
/// No tunnel lets through more.
const LONGEST: usize = 65_000;
/// So many packets a flood sends at once.
const BURST: usize = 64;

const NOT_WHOLE: &str = "not a whole packet";
const TOO_LONG: &str = "a packet that is too long for the tunnel";
const NO_ECHO: &str = "a packet to the gateway itself that is no echo";

/// A cluster with two peers of which one is honest, all born with the same networks.
struct Scene {
    victim: Cluster,
    honest: Cluster,
    rogue: Cluster,
    end: End,
    _lan: Lan,
}

impl Scene {
    fn new() -> Self {
        let lan = Lan::new();
        let born = born("10.244.0.0/24", "192.168.0.0/24");
        // No name of it for somebody is that of the victim for somebody else.
        let other = Born { taken: &["10.0.0.0/16"], ..born };
        let mut victim = Cluster::new("victim", 1, &born, &lan);
        let mut honest = Cluster::new("honest", 2, &born, &lan);
        let mut rogue = Cluster::new("rogue", ROGUE, &other, &lan);
        victim.meet(&mut honest);
        victim.meet(&mut rogue);
        victim.ipam.map("honest", SECRET.parse().unwrap(), Timestamp::now()).unwrap();
        victim.start(&[honest.line(), rogue.line()]);
        honest.start(&[victim.line()]);
        let at = SocketAddr::new(address(ROGUE), LISTENS);
        let end = End::connect(&rogue.gateway, at, rogue.key(), &victim.line());
        Self { victim, honest, rogue, end, _lan: lan }
    }

    /// A pod of the rogue cluster, as the victim names it.
    fn ours(&self) -> IpAddr {
        self.rogue.pod(0, "victim").named
    }

    /// A pod of the victim, as the rogue cluster names it.
    fn theirs(&self) -> IpAddr {
        self.victim.pod(0, "rogue").named
    }

    /// Between the two gateways, as the victim probes.
    fn probe(&self) -> ProbePair {
        self.victim.probe(&self.rogue.line())
    }

    /// The address of the victim's external network that stands for this, under the name that the rogue cluster has for
    /// that network.
    fn published(&self, endpoint: &str) -> IpAddr {
        let ip = self.victim.ipam.mapping(&endpoint.parse().unwrap()).unwrap().ip;
        self.victim.ipam.peers()["rogue"].ours.unwrap().external.unwrap().outward(ip).unwrap()
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.victim.engine().drops().get(reason).copied().unwrap_or_default()
    }

    /// Every one of these is dropped for this reason.
    fn are_dropped(&mut self, reason: &str, packets: &[Vec<u8>]) {
        let wanted = self.dropped(reason) + TIMES * u64::try_from(packets.len()).unwrap();
        for _ in 0..TIMES {
            for packet in packets {
                self.end.send(packet);
            }
        }
        eventually(reason, || match self.dropped(reason) {
            dropped if dropped == wanted => Ok(()),
            dropped => Err(format!("{dropped} are dropped, and not {wanted}")),
        });
        self.all_are_served();
    }

    /// The honest peer is, and the rogue one where it is honest.
    fn all_are_served(&mut self) {
        let pod = self.victim.pod(0, "honest");
        datagram(self.honest.pod(1, "victim"), pod);
        datagram(pod, self.honest.pod(1, "victim"));
        let socket = pod.host.udp(&SocketAddr::new(pod.ip, 0).to_string());
        let port = socket.local_addr().unwrap().port();
        let request = udp(self.ours(), self.theirs(), port, b"honest");
        eventually("an honest packet and its answer", || self.is_answered(&request, &socket));
        assert_eq!(self.victim.engine().failure(), None);
    }

    fn is_answered(&mut self, request: &[u8], socket: &UdpSocket) -> Result<(), String> {
        drain(socket);
        self.end.send(request);
        let mut buffer = [0; 64];
        let (length, seen) = socket.recv_from(&mut buffer).map_err(|error| error.to_string())?;
        assert_eq!((&buffer[..length], seen.ip()), (&b"honest"[..], self.ours()));
        socket.send_to(b"answer", seen).map_err(|error| error.to_string())?;
        let wanted = (self.theirs(), self.ours());
        // Probes come, too.
        for _ in 0..100 {
            let Some(packet) = self.end.receive() else { continue };
            let addresses = Header::parse(&packet).unwrap().addresses;
            if (addresses.source, addresses.destination) == wanted {
                return Ok(());
            }
        }
        Err("no answer".to_owned())
    }
}

/// Sockets of everybody whom a packet could hit.
fn listeners(scene: &Scene) -> Vec<UdpSocket> {
    let Scene { victim, honest, .. } = scene;
    let everybody = [(victim, "honest"), (honest, "victim")]
        .into_iter()
        .flat_map(|(cluster, with)| [cluster.pod(0, with), cluster.pod(1, with), cluster.process(with)]);
    let listen = |talker: Talker<'_>| talker.host.udp(&format!("0.0.0.0:{PORT}"));
    let gateways = [victim, honest].map(|cluster| cluster.gateway.udp(&format!("0.0.0.0:{PORT}")));
    everybody.map(listen).chain(gateways).collect()
}

fn nobody_hears(listeners: &[UdpSocket]) {
    for listener in listeners {
        listener.set_nonblocking(true).unwrap();
        let heard = listener.recv_from(&mut [0; 64]);
        assert!(heard.is_err(), "{} gets something: {heard:?}", listener.local_addr().unwrap());
    }
}

fn all(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

/// Addresses that mean something, but not between these clusters.
fn nobodys() -> Vec<IpAddr> {
    all(&[
        "0.0.0.0",
        "127.0.0.1",
        "169.254.1.1",
        "172.18.0.3",
        "10.96.0.1",
        "10.244.0.7",
        "192.0.2.1",
        "198.51.100.7",
        "224.0.0.1",
        "255.255.255.255",
    ])
}

#[test]
fn nobody_gets_what_a_peer_may_not_send_and_all_others_are_served() {
    let mut scene = Scene::new();
    let listeners = listeners(&scene);
    let (ours, theirs, probe) = (scene.ours(), scene.theirs(), scene.probe());
    let another_peers = scene.honest.pod(1, "victim").named;
    let conversation = evil(theirs, another_peers);

    let mut sources = nobodys();
    sources.extend([theirs, another_peers, probe.ours]);
    let mut spoofed: Vec<_> = sources.iter().map(|source| evil(*source, theirs)).collect();
    spoofed.push(evil(another_peers, probe.ours));
    spoofed.push(error_about(ours, theirs, &conversation));
    scene.are_dropped(SPOOFED, &spoofed);

    let mut destinations = nobodys();
    destinations.extend([another_peers, probe.theirs, scene.published(SECRET)]);
    let foreign: Vec<_> = destinations.iter().map(|destination| evil(ours, *destination)).collect();
    scene.are_dropped(FOREIGN, &foreign);

    scene.are_dropped(NO_ECHO, &[evil(ours, probe.ours), evil(probe.theirs, probe.ours)]);
    nobody_hears(&listeners);
}

#[test]
fn a_node_is_not_reached_at_the_addresses_that_it_has_among_those_of_pods() {
    let mut scene = Scene::new();
    scene.victim.be_a_node();
    let (ours, listeners) = (scene.ours(), listeners(&scene));
    for (wanted, address) in (1..).zip(["10.244.0.1", "10.244.0.255"]) {
        let pods = scene.victim.ipam.peers()["rogue"].ours.unwrap().pods;
        let packet = evil(ours, pods.outward(address.parse().unwrap()).unwrap());
        scene.end.send(&packet);
        eventually(&format!("{address} is not reached"), || {
            let text = scene.victim.gateway.run("nft", "list chain ip ferro prerouting");
            // Each of the two is of a kind that has a rule of its own.
            if text.matches("packets 1 ").count() == wanted { Ok(()) } else { Err(text) }
        });
    }
    nobody_hears(&listeners);
    scene.all_are_served();
}

#[test]
fn what_is_not_a_whole_packet_or_longer_than_any_is_dropped() {
    let mut scene = Scene::new();
    let (ours, theirs) = (scene.ours(), scene.theirs());
    // An error that is about less than a header.
    let mut error = error_about(ours, theirs, &evil(theirs, ours))[..40].to_vec();
    error[3] = 40;
    scene.are_dropped(NOT_WHOLE, &[broken(&evil(ours, theirs)), vec![error]].concat());
    let longer = [LONGEST + 1, 65_475].map(|length| udp(ours, theirs, PORT, &pattern(length - 28)));
    scene.are_dropped(TOO_LONG, &longer);
}

#[test]
fn what_fits_only_the_wider_tunnel_of_a_peer_comes_in_pieces_or_its_sender_is_told() {
    let mut scene = Scene::new();
    let (ours, theirs, pod) = (scene.ours(), scene.theirs(), scene.victim.pod(0, "rogue"));
    let socket = pod.host.udp(&SocketAddr::new(pod.ip, PORT).to_string());
    let mut buffer = vec![0; 1 << 16];
    for length in [9000, LONGEST] {
        let payload = pattern(length - 28);
        let mut packet = udp(ours, theirs, PORT, &payload);
        eventually("it comes", || {
            scene.end.send(&packet);
            let received = socket.recv(&mut buffer).map_err(|error| error.to_string())?;
            if buffer[..received] == payload { Ok(()) } else { Err(format!("{received} bytes come")) }
        });
        forbid_pieces(&mut packet);
        let (told, _) = eventually("the sender is told", || {
            scene.end.send(&packet);
            let mut received = (0..100).filter_map(|_| scene.end.receive());
            received.find_map(|packet| told_length(&packet, ours)).ok_or_else(|| "it is not".to_owned())
        });
        assert_eq!(told, 1500, "by the link of the pod");
    }
}

#[test]
fn what_the_peer_has_not_sealed_just_now_is_dropped() {
    let mut scene = Scene::new();
    let honest = udp(scene.ours(), scene.theirs(), PORT, b"honest");
    let before = scene.end.seal(&honest);
    let changed = |place: usize| {
        let mut datagram = before.clone();
        datagram[place] ^= 0x80;
        datagram
    };
    scene.end.send_sealed(&before);
    for (reason, datagram) in [
        ("a message that came before", before.clone()),
        ("not a message of WireGuard", changed(0)),
        ("a message for no session", changed(4)),
        // Its number is far ahead of all others.
        ("a message that is not genuine", changed(14)),
        ("not a message of WireGuard", before[..31].to_vec()),
    ] {
        let wanted = scene.dropped(reason) + 1;
        scene.end.send_sealed(&datagram);
        eventually(reason, || match scene.dropped(reason) {
            dropped if dropped == wanted => Ok(()),
            dropped => Err(format!("{dropped} are dropped, and not {wanted}")),
        });
    }
    scene.all_are_served();
}

#[test]
fn a_flood_of_garbage_is_counted_and_keeps_nobody_else_from_talking() {
    let mut scene = Scene::new();
    let (mut noise, reasons) = (Noise(0x9e37_79b9_7f4a_7c15), [SPOOFED, FOREIGN, NOT_WHOLE, NO_ECHO]);
    let garbage: Vec<_> = (1..=500).map(|length| noise.bytes(length)).collect();
    let wanted = u64::try_from(garbage.len()).unwrap();
    let sum = |scene: &Scene| reasons.iter().map(|reason| scene.dropped(reason)).sum::<u64>();
    for packet in &garbage {
        scene.end.send(packet);
    }
    eventually("all are dropped", || match sum(&scene) {
        dropped if dropped == wanted => Ok(()),
        dropped => Err(format!("{dropped} are dropped, and not {wanted}")),
    });
    let (ours, theirs) = (scene.ours(), scene.theirs());
    let originals = [evil(ours, theirs), syn(ours, theirs), error_about(ours, theirs, &evil(theirs, ours))];
    let mutants: Vec<_> = originals.iter().flat_map(|packet| mutants(packet, &mut noise)).collect();
    let (from, to) = (scene.honest.pod(1, "victim"), scene.victim.pod(1, "honest"));
    thread::scope(|scope| {
        let talk = scope.spawn(|| {
            stream(from, to, 5 * MEGABYTES);
            stream(to, from, 5 * MEGABYTES);
            ping_often(from, to, 9000);
        });
        let all: Vec<_> = garbage.iter().chain(&mutants).collect();
        while !talk.is_finished() {
            for packets in all.chunks(BURST) {
                for packet in packets {
                    scene.end.send(packet);
                }
                // As much as a line carries, not as much as this machine can make: it has to do the talking, too.
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert!(sum(&scene) > wanted);
    scene.all_are_served();
}
