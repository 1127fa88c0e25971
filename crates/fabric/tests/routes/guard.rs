//! What peers do not reach: the nodes themselves, at whatever addresses these have among those of pods, and the link
//! between the nodes.

use std::net::{IpAddr, UdpSocket};

use etherparse::PacketBuilder;
use ferro_api::config::Reach;
use ferro_core::network::routes::{PORT, VNI};
use ferro_fabric::routes::Facts;

use crate::world::{Host, drain, eventually, exchange};
use crate::{Cluster, POD, reaches};

/// Where everybody listens.
const LISTENS: u16 = 8000;
/// The port of a service, on each node.
const NODE_PORT: u16 = 30_000;

fn follow(cluster: &Cluster, reach: Reach) {
    for node in 1..=3 {
        cluster.follow(node, &Facts { reach, ..Cluster::facts(node) });
    }
}

/// How many packets a chain of ours has dropped.
fn dropped(node: &Host, family: &str, chain: &str) -> u64 {
    let text = node.run("nft", &format!("list chain {family} ferro {chain}"));
    let mut words = text.split_whitespace();
    std::iter::from_fn(|| words.find(|word| *word == "packets").and_then(|_| words.next()))
        .map(|count| count.parse::<u64>().unwrap())
        .sum()
}

/// What is sent there is dropped by a chain of this node, and nobody gets it.
fn is_dropped(node: &Host, chain: &str, from: &UdpSocket, payload: &[u8], to: (IpAddr, u16), by: &UdpSocket) {
    let family = if to.0.is_ipv4() { "ip" } else { "ip6" };
    drain(by);
    let before = dropped(node, family, chain);
    eventually(&format!("{to:?} is dropped"), || {
        from.send_to(payload, to).map_err(|error| error.to_string())?;
        let now = dropped(node, family, chain);
        if now > before { Ok(()) } else { Err(format!("{now} are")) }
    });
    by.set_nonblocking(true).unwrap();
    let heard = by.recv_from(&mut [0; 64]);
    by.set_nonblocking(false).unwrap();
    assert!(heard.is_err(), "{to:?} gets something: {heard:?}");
}

/// The addresses that a node has among those of its pods, and those that it takes for its own.
fn among_pods(number: u8) -> Vec<IpAddr> {
    let texts: &[&str] = match number {
        // There is no network between this node and its pod.
        3 => &["10.244.3.1"],
        2 => &["10.244.2.1", "10.244.2.255", "fd01:0:0:2::1", "fd01:0:0:2::"],
        _ => &["10.244.1.1", "10.244.1.255", "fd01:0:0:1::1", "fd01:0:0:1::"],
    };
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn peers_reach_pods_and_not_the_nodes_at_addresses_among_them() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    let peers = [cluster.gateway.udp(POD), cluster.gateway.udp("[fd02::5]:7000")];
    let of = |to: &IpAddr| if to.is_ipv4() { &peers[0] } else { &peers[1] };
    for number in 1..=3 {
        let (node, pod) = cluster.of(number);
        let all = node.udp(&format!("[::]:{LISTENS}"));
        for to in among_pods(number) {
            is_dropped(node, "prerouting", of(&to), b"evil", (to, LISTENS), &all);
        }
        // Its own address, by which it is redirected to, is as good as before, and so are pods.
        let here = pod.udp(&format!("0.0.0.0:{LISTENS}"));
        reaches(&peers[0], &here, &format!("10.244.{number}.7:{LISTENS}"), "10.0.0.5");
        if number < 3 {
            let here = pod.udp(&format!("[::]:{}", LISTENS + 1));
            reaches(&peers[1], &here, &format!("[fd01:0:0:{number}::7]:{}", LISTENS + 1), "fd02::5");
        }
        drop(all);
        let here = node.udp(&format!("0.0.0.0:{LISTENS}"));
        reaches(&peers[0], &here, &format!("192.168.77.{number}:{LISTENS}"), "10.0.0.5");
        // Whom it talks to itself may answer, whatever address it does that from.
        let own = format!("10.244.{number}.1");
        reaches(&node.udp(&format!("{own}:0")), &peers[0], POD, &own);
    }
}

#[test]
fn ports_of_services_are_not_reached_at_a_node_either() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    let (node, pod) = cluster.of(2);
    node.nft(&format!(
        "table ip proxy {{ chain pre {{ type nat hook prerouting priority dstnat; \
         fib daddr type local udp dport {NODE_PORT} dnat to 10.244.2.7:{LISTENS}\n }}\n }}\n"
    ));
    let (peer, service) = (cluster.gateway.udp(POD), pod.udp(&format!("0.0.0.0:{LISTENS}")));
    let at = ("10.244.2.1".parse().unwrap(), NODE_PORT);
    is_dropped(node, "prerouting", &peer, b"evil", at, &service);
    // It is the reach that keeps it away.
    follow(&cluster, Reach::Full);
    reaches(&peer, &service, &format!("10.244.2.1:{NODE_PORT}"), "10.0.0.5");
}

#[test]
fn full_reach_opens_the_nodes_and_another_one_closes_them_again() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    cluster.follow_everywhere();
    let peer = cluster.gateway.udp(POD);
    for (reach, is_open) in [(Reach::Strict, false), (Reach::Full, true), (Reach::Default, false)] {
        follow(&cluster, reach);
        for number in 1..=3 {
            let node = cluster.of(number).0;
            assert_eq!(cluster.follow(number, &Facts { reach, ..Cluster::facts(number) }), []);
            let to = format!("10.244.{number}.1");
            let here = node.udp(&format!("{to}:{LISTENS}"));
            if is_open {
                reaches(&peer, &here, &format!("{to}:{LISTENS}"), "10.0.0.5");
            } else {
                is_dropped(node, "prerouting", &peer, b"evil", (to.parse().unwrap(), LISTENS), &here);
            }
        }
    }
}

/// A datagram for the link between the nodes, as if the first node sent it to the second one, with a packet of somebody
/// in the network of the peer for the pod there.
fn forged() -> Vec<u8> {
    let mac = |number| [0x02, 0xfe, 192, 168, 77, number];
    let mut datagram = vec![8, 0, 0, 0];
    datagram.extend((VNI << 8).to_be_bytes());
    let frame = PacketBuilder::ethernet2(mac(1), mac(2)).ipv4([10, 50, 0, 77], [10, 244, 2, 7], 64);
    frame.udp(7000, LISTENS).write(&mut datagram, b"forged").unwrap();
    datagram
}

#[test]
fn the_link_between_nodes_takes_nothing_that_is_not_from_a_node() {
    let cluster = Cluster::new();
    cluster.add_gateway();
    let (node, pod) = cluster.of(2);
    let victim = pod.udp(&format!("0.0.0.0:{LISTENS}"));
    for reach in [Reach::Full, Reach::Default] {
        follow(&cluster, reach);
        // A peer, to the node itself as it is redirected to; a neighbour of the nodes; a pod of the node.
        for (from, to) in [
            (cluster.gateway.udp(POD), "192.168.77.2"),
            (cluster.stranger.udp("0.0.0.0:0"), "192.168.77.2"),
            (pod.udp("0.0.0.0:0"), "10.244.2.1"),
        ] {
            is_dropped(node, "input", &from, &forged(), (to.parse().unwrap(), PORT), &victim);
        }
    }
    // A node to an address that no other one knows it by: somebody whose sender was changed on the way.
    let first = cluster.of(1).0.udp("0.0.0.0:0");
    is_dropped(node, "input", &first, &forged(), ("10.244.2.1".parse().unwrap(), PORT), &victim);
    // Without our table it would be taken.
    node.run("nft", "delete table ip ferro");
    let peer = cluster.gateway.udp(POD);
    eventually("it is well made", || {
        peer.send_to(&forged(), ("192.168.77.2", PORT)).map_err(|error| error.to_string())?;
        let mut buffer = [0; 64];
        let length = victim.recv(&mut buffer).map_err(|error| error.to_string())?;
        assert_eq!(&buffer[..length], b"forged");
        Ok(())
    });
    // And all the while nodes talk by it.
    follow(&cluster, Reach::Default);
    let flow = pod.udp("0.0.0.0:0");
    eventually("pods are served", || exchange(&flow, &peer, POD.parse().unwrap()));
}
