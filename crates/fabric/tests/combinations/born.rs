//! What clusters are born with, and every way in which the networks of two can be in each other's way.

use std::collections::BTreeSet;

use ferro_api::config::Reach;
use ferro_core::network::{Agreement, Ipam, Naming, Offered, OwnNetworks, default_pools};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;

/// The network of the nodes, in every cluster.
const NODES: &str = "172.18.0.0/16";
const SERVICES: &str = "10.96.0.0/16";

/// What a cluster is born with.
#[derive(Clone, Copy)]
pub struct Born {
    pub pods: &'static str,
    pub external: &'static str,
    /// Networks that are in use there for something else.
    pub taken: &'static [&'static str],
}

/// Two clusters, and what their networks have to do with each other.
#[derive(Clone, Copy)]
pub struct Case {
    pub what: &'static str,
    pub a: Born,
    pub b: Born,
}

pub const fn born(pods: &'static str, external: &'static str) -> Born {
    Born { pods, external, taken: &[] }
}

const fn taken(born: Born, taken: &'static [&'static str]) -> Born {
    Born { taken, ..born }
}

const fn case(what: &'static str, a: Born, b: Born) -> Case {
    Case { what, a, b }
}

const A: Born = born("10.1.0.0/24", "10.2.0.0/24");
const B: Born = born("10.3.0.0/24", "10.4.0.0/24");

/// Networks of one are networks of the other, in every way that leaves each cluster two networks of its own.
pub const EQUAL: [Case; 7] = [
    case("all are different", A, B),
    case("the pods of both are the same", A, born(A.pods, B.external)),
    case("the pods of A are the external network of B", A, born(B.pods, A.pods)),
    case("the external network of A are the pods of B", A, born(A.external, B.external)),
    case("the external networks of both are the same", A, born(B.pods, A.external)),
    case("all are the same", A, A),
    case("all are the same, and crossed", A, born(A.external, A.pods)),
];

/// A network of one holds both networks of the other.
pub const WITHIN: [Case; 4] = [
    case("B is within the pods of A", born("10.8.0.0/23", A.external), born("10.8.0.0/24", "10.8.1.0/24")),
    case(
        "B is within the external network of A",
        born(A.pods, "10.8.0.0/23"),
        born("10.8.0.0/24", "10.8.1.0/24"),
    ),
    case("A is within the pods of B", born("10.8.0.0/24", "10.8.1.0/24"), born("10.8.0.0/23", B.external)),
    case(
        "A is within the external network of B",
        born("10.8.0.0/24", "10.8.1.0/24"),
        born(B.pods, "10.8.0.0/23"),
    ),
];

/// Something else has the networks of the other, on one side alone.
pub const TAKEN: [Case; 6] = [
    case("the pods of B are taken in A", taken(A, &[B.pods]), B),
    case("the external network of B is taken in A", taken(A, &[B.external]), B),
    case("both networks of B are taken in A", taken(A, &[B.pods, B.external]), B),
    case("the pods of A are taken in B", A, taken(B, &[A.pods])),
    case("the external network of A is taken in B", A, taken(B, &[A.external])),
    case("both networks of A are taken in B", A, taken(B, &[A.pods, A.external])),
];

pub fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

impl Born {
    /// The address manager at its first start. The external network is the first that it finds.
    pub fn ipam(&self) -> Ipam {
        let external = net(self.external);
        let own = OwnNetworks {
            pod: net(self.pods),
            service: net(SERVICES),
            reserved: self.taken.iter().copied().chain([NODES]).map(net).collect(),
            pools: [external].into_iter().chain(default_pools()).collect(),
            reach: Reach::Default,
        };
        let ipam = Ipam::new(own, external.prefix_len()).unwrap();
        assert_eq!(ipam.external(), external);
        ipam
    }

    fn networks(&self) -> [IpNet; 2] {
        [net(self.pods), net(self.external)]
    }
}

/// Each finds names for the networks of the other, and tells them.
pub fn agree((a, of_a): (&str, &mut Ipam), (b, of_b): (&str, &mut Ipam)) {
    let offered = |ipam: &Ipam| Offered { pod: ipam.own().pod, external: Some(ipam.external()) };
    let now = Timestamp::UNIX_EPOCH;
    let in_a = of_a.acquire(b, offered(of_b), now).unwrap();
    let in_b = of_b.acquire(a, offered(of_a), now).unwrap();
    of_a.agree(b, in_b).unwrap();
    of_b.agree(a, in_a).unwrap();
}

/// Which networks get another name: of B in A, then of A in B; pods first.
fn renamed(case: &Case) -> [bool; 4] {
    let (mut a, mut b) = (case.a.ipam(), case.b.ipam());
    agree(("a", &mut a), ("b", &mut b));
    let other = |naming: Naming| naming != Naming::Kept;
    let [in_a, in_b] = [&a.peers()["b"], &b.peers()["a"]].map(Agreement::answer);
    [in_a.pod, in_a.external.unwrap(), in_b.pod, in_b.external.unwrap()].map(other)
}

/// For each pair of networks whether it is so: pods and pods, pods and external, external and pods, external and
/// external.
fn related(a: [IpNet; 2], b: [IpNet; 2], is_so: impl Fn(&IpNet, &IpNet) -> bool) -> [bool; 4] {
    [is_so(&a[0], &b[0]), is_so(&a[0], &b[1]), is_so(&a[1], &b[0]), is_so(&a[1], &b[1])]
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// All pairs of networks that one cluster could have, if the world were small.
fn small_clusters() -> Vec<[IpNet; 2]> {
    let all: Vec<IpNet> = (8..=11).flat_map(|length| net("10.0.0.0/8").subnets(length).unwrap()).collect();
    let pairs = all.iter().flat_map(|pods| all.iter().map(|external| [*pods, *external]));
    pairs.filter(|[pods, external]| !overlap(pods, external)).collect()
}

#[test]
fn each_of_the_sixteen_ways_to_name_four_networks_is_among_the_cases() {
    let all = EQUAL.iter().chain(&WITHIN).chain(&TAKEN);
    assert_eq!(all.map(renamed).collect::<BTreeSet<_>>().len(), 16);
}

#[test]
fn networks_of_two_clusters_can_meet_in_no_other_way_than_in_the_cases() {
    let cases = || EQUAL.iter().chain(&WITHIN).map(|case| (case.a.networks(), case.b.networks()));
    let clusters = small_clusters();
    let possible = || clusters.iter().flat_map(|a| clusters.iter().map(|b| (*a, *b)));
    for is_so in [overlap, IpNet::eq] {
        let tried: BTreeSet<_> = cases().map(|(a, b)| related(a, b, is_so)).collect();
        assert_eq!(tried, possible().map(|(a, b)| related(a, b, is_so)).collect());
    }
}
