//! Two clusters and every way in which their networks can be in each other's way: names by the address manager, tables
//! from resources, real engines, and pods and nodes in network namespaces that talk across.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

mod born;
mod cluster;
mod end;
mod hops;
mod hostile;
mod packets;
mod reach;
mod talk;
#[allow(dead_code, reason = "shared with the suite of routes, which uses more of it")]
#[path = "../routes/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferro_core::network::ProbePair;
use ferro_core::network::trace::probe::Returned;
use ferro_fabric::probe::probe;

use self::born::{Born, Case, EQUAL, TAKEN, WITHIN, born};
use self::cluster::{Cluster, LISTENS, Lan, Line, Talker, address};
use self::end::{End, overheard};
use self::hops::{Capture, hops};
use self::talk::{datagram, ping, stream};
use self::world::Host;

const MEGABYTES: usize = 1 << 20;

/// Why packets are dropped that break a rule.
const SPOOFED: &str = "a packet out of a tunnel whose sender is not the peer's";
const FOREIGN: &str = "a packet out of a tunnel for somebody whom the peer may not reach";
const NAMELESS: &str = "a packet to a peer of somebody who has no name there";

/// Two clusters that have met.
fn pair(a: &Born, b: &Born) -> (Lan, Cluster, Cluster) {
    let lan = Lan::new();
    let (mut a, mut b) = (Cluster::new("a", 1, a, &lan), Cluster::new("b", 2, b, &lan));
    a.meet(&mut b);
    (lan, a, b)
}

fn everybody_talks(cases: &[Case]) {
    for case in cases {
        println!("{}", case.what);
        let (_lan, mut a, mut b) = pair(&case.a, &case.b);
        a.start(&[b.line()]);
        b.start(&[a.line()]);
        // Pods far apart in their networks, and pods at the same place.
        talk_both_ways(a.pod(0, "b"), b.pod(1, "a"), 10 * MEGABYTES);
        talk_both_ways(a.pod(1, "b"), b.pod(1, "a"), MEGABYTES);
        talk_both_ways(a.pod(0, "b"), b.process("a"), MEGABYTES);
        talk_both_ways(a.process("b"), b.pod(0, "a"), MEGABYTES);
        talk_both_ways(a.process("b"), b.process("a"), MEGABYTES);
        for cluster in [&a, &b] {
            let drops = cluster.engine().drops();
            assert!([SPOOFED, FOREIGN, NAMELESS].iter().all(|rule| !drops.contains_key(*rule)), "{drops:?}");
        }
    }
}

fn talk_both_ways(one: Talker<'_>, other: Talker<'_>, length: usize) {
    for (from, to) in [(one, other), (other, one)] {
        datagram(from, to);
        stream(from, to, length);
        ping(from, to, 56);
        ping(from, to, 9000);
    }
}

#[test]
fn clusters_with_equal_networks_reach_each_other() {
    everybody_talks(&EQUAL);
}

#[test]
fn a_cluster_within_a_network_of_another_reaches_it_and_is_reached() {
    everybody_talks(&WITHIN);
}

#[test]
fn clusters_whose_networks_are_taken_by_others_reach_each_other() {
    everybody_talks(&TAKEN);
}

/// Lets the first pod of A and the second of B talk, and compares the addresses on each hop with those of a vector: inside
/// A, in the tunnel, inside B; there and back.
fn addresses_are(a: &Born, b: &Born, vector: [[&str; 2]; 3]) {
    let (lan, mut a, mut b) = pair(a, b);
    let between = Host::new();
    lan.attach(&between, 9);
    let [to_a, to_b] = [LISTENS, LISTENS + 1].map(|port| SocketAddr::new(address(9), port));
    a.start(&[Line { at: to_a, ..b.line() }]);
    b.start(&[Line { at: to_b, ..a.line() }]);
    let ends =
        [End::connect(&between, to_a, b.key(), &a.line()), End::connect(&between, to_b, a.key(), &b.line())];
    let (in_a, in_b) = (a.pod(0, "b"), b.pod(1, "a"));
    let captures = [in_a, in_b].map(|talker| Capture::at(talker.host));
    let in_tunnel = overheard(ends, || talk_both_ways(in_a, in_b, MEGABYTES / 8));
    let [in_a, in_b] = captures.map(Capture::hops);
    let ProbePair { ours, theirs } = a.probe(&b.line());
    let probes = [format!("{ours} to {theirs}"), format!("{theirs} to {ours}")];
    let in_tunnel = hops(&in_tunnel).into_iter().filter(|hop| !probes.contains(hop)).collect();
    let expected = vector.map(|hop| BTreeSet::from(hop.map(str::to_owned)));
    assert_eq!([in_a, in_tunnel, in_b], expected);
}

#[test]
fn v1_both_clusters_have_the_same_networks() {
    // In B so much is taken that the first network that is free is the one of the vector.
    let a = born("10.244.0.0/24", "192.168.0.0/24");
    let b = Born { taken: &["10.0.0.0/19", "10.0.32.0/21"], ..a };
    let vector = [
        ["10.244.0.7 to 10.0.0.5", "10.0.0.5 to 10.244.0.7"],
        ["10.0.40.7 to 10.0.0.5", "10.0.0.5 to 10.0.40.7"],
        ["10.0.40.7 to 10.244.0.5", "10.244.0.5 to 10.0.40.7"],
    ];
    addresses_are(&a, &b, vector);
}

#[test]
fn v2_one_of_the_two_is_renamed() {
    let a = Born { taken: &["10.0.0.0/15"], ..born("10.1.0.0/24", "192.168.0.0/24") };
    let b = born("10.0.0.0/24", "192.168.1.0/24");
    let vector = [
        ["10.1.0.7 to 10.2.0.5", "10.2.0.5 to 10.1.0.7"],
        ["10.1.0.7 to 10.2.0.5", "10.2.0.5 to 10.1.0.7"],
        ["10.1.0.7 to 10.0.0.5", "10.0.0.5 to 10.1.0.7"],
    ];
    addresses_are(&a, &b, vector);
}

#[test]
fn datagrams_that_may_not_go_far_end_at_each_router_and_it_is_heard_where() {
    let equal = born("10.244.0.0/24", "192.168.0.0/24");
    let (_lan, mut a, mut b) = pair(&equal, &equal);
    a.start(&[b.line()]);
    b.start(&[a.line()]);
    for to in [b.pod(1, "a"), b.process("a")] {
        let IpAddr::V4(named) = to.named else { panic!("these clusters have IPv4") };
        let heard = a.pod(0, "b").host.inside(|| probe(named)).unwrap();
        let what: Vec<_> = heard.iter().map(|heard| (heard.hops, heard.what)).collect();
        assert_eq!(what[..3], [(1, Returned::Expired), (2, Returned::Expired), (3, Returned::Arrived)]);
        // The router of the peer has no name here but that of its gateway.
        assert_eq!(heard[1].from, a.probe(&b.line()).theirs);
        assert_eq!(heard[2].from, to.named);
    }
    // Nobody is behind this name.
    let nobody = a.pod(0, "b").host.inside(|| probe(vacant(b.pod(1, "a").named))).unwrap();
    assert!(nobody.iter().all(|heard| heard.what != Returned::Arrived), "{nobody:?}");
}

/// An address of the same network that no pod has.
fn vacant(beside: IpAddr) -> Ipv4Addr {
    match beside {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() ^ 0x40),
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
