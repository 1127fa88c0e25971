//! Names of networks, and what holds after any sequence of changes.

mod reach;
mod vectors;

use std::time::Duration;

use proptest::prelude::*;

use super::super::{Drop, Naming, Packet, PeerTable, QUARANTINE, Table, chain, default_pools};
use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_900_000_000).unwrap()
}

fn offered(pod: &str, external: &str) -> Offered {
    Offered { pod: net(pod), external: Some(net(external)) }
}

fn naming(text: &str) -> Naming {
    text.parse().unwrap()
}

/// A cluster with these networks.
fn cluster(pod: &str, external: &str) -> Ipam {
    let own = OwnNetworks {
        pod: net(pod),
        service: net("10.96.0.0/16"),
        reserved: BTreeSet::new(),
        pools: default_pools(),
        reach: Reach::Default,
    };
    let external = ExternalAddresses::new(net(external));
    Ipam { own, external, peers: BTreeMap::new(), resting: BTreeMap::new(), mappings: Mappings::default() }
}

/// What the vectors say was agreed on: the peer's networks under our names and its own, and ours under its names.
fn agree(ipam: &mut Ipam, peer: &str, theirs: [(&str, &str); 2], ours: [&str; 2]) {
    let [pods, external] = theirs.map(|(here, there)| Translation::new(net(here), net(there)).unwrap());
    let agreement = Agreement { their_pods: pods, their_external: Some(external), ours: None };
    ipam.peers.insert(peer.into(), agreement);
    let [pod, external] = ours.map(naming);
    ipam.agree(peer, Answer { pod, external: Some(external) }).unwrap();
}

fn table(ipam: &Ipam, transit: &[(&str, Translation)]) -> Table {
    let of = |(peer, agreement): (&String, &Agreement)| {
        let through = transit.iter().filter(|(to, _)| to == peer).map(|(_, network)| *network).collect();
        Some((peer.clone(), PeerTable::new(agreement, &ipam.redirections(peer), through)?))
    };
    Table { peers: ipam.peers().iter().filter_map(of).collect() }
}

fn packet(source: &str, destination: &str) -> Packet {
    Packet { source: ip(source), destination: ip(destination) }
}

fn star() -> [Ipam; 3] {
    let [mut a, mut b, mut c] = [(); 3].map(|()| cluster("10.0.0.0/24", "192.168.0.0/24"));
    let of = |pod, external| [(pod, "10.0.0.0/24"), (external, "192.168.0.0/24")];
    agree(&mut a, "b", of("10.1.0.0/24", "192.168.1.0/24"), ["10.2.0.0/24", "192.168.2.0/24"]);
    agree(&mut b, "a", of("10.2.0.0/24", "192.168.2.0/24"), ["10.1.0.0/24", "192.168.1.0/24"]);
    agree(&mut b, "c", of("10.3.0.0/24", "192.168.3.0/24"), ["10.4.0.0/24", "192.168.4.0/24"]);
    agree(&mut c, "b", of("10.4.0.0/24", "192.168.4.0/24"), ["10.3.0.0/24", "192.168.3.0/24"]);
    b.external = ExternalAddresses::restored(net("192.168.0.0/24"), 45, BTreeSet::new(), BTreeMap::new());
    [a, b, c]
}

#[test]
fn an_external_network_that_nobody_could_use_is_refused() {
    let own = |pod: &str| OwnNetworks {
        pod: net(pod),
        service: net("10.96.0.0/16"),
        reserved: BTreeSet::new(),
        pools: default_pools(),
        reach: Reach::Default,
    };
    for (length, is_usable) in
        [(8, false), (11, false), (12, true), (16, true), (30, true), (31, false), (32, false), (120, false)]
    {
        let made = Ipam::new(own("10.244.0.0/16"), length);
        assert_eq!(made.is_ok(), is_usable, "{length}");
        let Err(refusal) = made else { continue };
        assert_eq!(refusal, Refusal::Mask { length, least: 12, most: 30 });
        assert!(refusal.to_string().contains("externalCIDRMaskLength"), "{refusal}");
    }
    let mut smallest = Ipam::new(own("10.244.0.0/16"), 30).unwrap();
    assert!(smallest.external.allocate(now()).is_ok());
    assert_eq!(Ipam::new(own("fd00::/56"), 64).unwrap().external(), net("fd00:0:0:100::/64"));
    assert!(Ipam::new(own("fd00::/56"), 24).is_err());
}

#[test]
fn networks_keep_their_names_where_these_are_free_and_private() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let answer = ipam.acquire("same", offered("10.244.0.0/16", "192.168.0.0/16"), now()).unwrap();
    assert_eq!(answer, Answer { pod: naming("10.0.0.0/16"), external: Some(naming("10.1.0.0/16")) });
    let answer = ipam.acquire("free", offered("10.9.0.0/16", "10.8.0.0/24"), now()).unwrap();
    assert_eq!(answer, Answer { pod: Naming::Kept, external: Some(Naming::Kept) });
    let hostile = ipam.acquire("hostile", offered("8.8.8.0/24", "10.96.3.0/24"), now()).unwrap();
    assert_eq!(hostile, Answer { pod: naming("10.2.0.0/24"), external: Some(naming("10.2.1.0/24")) });
    assert_eq!(
        ipam.acquire("greedy", offered("0.0.0.0/0", "10.8.0.0/24"), now()),
        Err(Refusal::NoRoom(net("0.0.0.0/0")))
    );
    assert!(!ipam.peers().contains_key("greedy"), "nothing is half done");
}

#[test]
fn a_network_is_not_given_the_name_that_another_one_of_the_peer_can_keep() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let answer = ipam.acquire("peer", offered("10.244.0.0/16", "10.0.0.0/16"), now()).unwrap();
    assert_eq!(answer, Answer { pod: naming("10.1.0.0/16"), external: Some(Naming::Kept) });
}

#[test]
fn a_peer_that_changes_its_networks_gets_others_and_one_that_does_not_keeps_them() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let first = offered("10.9.0.0/16", "10.8.0.0/24");
    ipam.acquire("peer", first, now()).unwrap();
    ipam.agree("peer", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
    let before = ipam.clone();
    ipam.acquire("peer", first, now()).unwrap();
    assert_eq!(ipam, before);
    let answer = ipam.acquire("peer", offered("10.244.0.0/16", "10.8.0.0/24"), now()).unwrap();
    assert_eq!(answer.pod, naming("10.0.0.0/16"));
    assert!(ipam.peers()["peer"].ours.is_some(), "what it said of our networks still holds");
}

#[test]
fn a_name_that_a_peer_had_rests_before_another_peer_has_it() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let (of_b, soon) =
        (offered("10.2.0.0/16", "192.168.0.0/16"), now() + QUARANTINE - Duration::from_secs(1));
    let names = ipam.acquire("b", of_b, now()).unwrap();
    assert_eq!(names, Answer { pod: Naming::Kept, external: Some(naming("10.0.0.0/16")) });
    ipam.release("b", now());
    // Neither the name that was its own nor the one that stood for another; also after a restart.
    ipam = Ipam::from_storage(&ipam.to_storage(), ipam.own.clone()).unwrap().unwrap();
    let of_c = ipam.clone().acquire("c", of_b, soon).unwrap();
    assert_eq!(of_c, Answer { pod: naming("10.1.0.0/16"), external: Some(naming("10.3.0.0/16")) });
    assert_eq!(ipam.clone().acquire("b", of_b, soon), Ok(names), "who comes back has its names again");
    let rested = now() + QUARANTINE;
    assert_eq!(ipam.acquire("c", of_b, rested), Ok(names));
    assert!(ipam.resting.is_empty());
}

#[test]
fn another_network_of_the_same_peer_does_not_get_the_name_of_one_before() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let names = ipam.acquire("b", offered("10.244.0.0/16", "192.168.0.0/16"), now()).unwrap();
    assert_eq!(names, Answer { pod: naming("10.0.0.0/16"), external: Some(naming("10.1.0.0/16")) });
    let names = ipam.acquire("b", offered("8.8.0.0/16", "192.168.0.0/16"), now()).unwrap();
    assert_eq!(names, Answer { pod: naming("10.2.0.0/16"), external: Some(naming("10.1.0.0/16")) });
    let other = ipam.acquire("c", offered("10.0.0.0/16", "10.2.0.0/24"), now()).unwrap();
    assert_eq!(other, Answer { pod: naming("10.3.0.0/16"), external: Some(naming("10.4.0.0/24")) });
}

#[test]
fn a_peer_that_changes_its_mind_all_the_time_does_not_use_up_the_names() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    for number in 0..200 {
        let offer = offered(&format!("10.{number}.0.0/16"), &format!("172.16.{number}.0/24"));
        ipam.acquire("b", offer, now()).unwrap();
        assert!(ipam.resting.len() <= 2, "{:?}", ipam.resting);
    }
    assert_eq!(
        ipam.acquire("c", offered("10.7.0.0/16", "172.16.7.0/24"), now()),
        Ok(Answer { pod: Naming::Kept, external: Some(Naming::Kept) })
    );
    // Where there is no room beside its own former names, these have to do.
    let mut small = cluster("10.244.0.0/16", "192.168.0.0/16");
    small.own.pools = vec![net("10.0.0.0/16")];
    for third in 0..9 {
        let offer = Offered { pod: net(&format!("8.{third}.0.0/16")), external: None };
        assert_eq!(small.acquire("b", offer, now()).unwrap().pod, naming("10.0.0.0/16"));
    }
}

#[test]
fn several_peers_with_the_largest_networks_leave_room_for_another() {
    let mut ipam = cluster("10.244.0.0/16", "192.168.0.0/16");
    let largest = shortest_mask(&net("8.0.0.0/8"));
    for greedy in 0..7 {
        let offer = offered(&format!("8.0.0.0/{largest}"), &format!("9.0.0.0/{largest}"));
        ipam.acquire(&format!("greedy-{greedy}"), offer, now()).unwrap();
    }
    ipam.acquire("honest", offered("10.0.0.0/12", "10.0.0.0/16"), now()).unwrap();
}

#[test]
fn what_cannot_be_mapped_is_refused_with_the_reason() {
    let mut ipam = cluster("10.0.0.0/24", "192.168.0.0/29");
    assert_eq!(ipam.map("a", ip("10.0.0.1"), now()), Err(MapError::UnknownPeer("a".into())));
    ipam.acquire("a", offered("10.7.0.0/24", "192.168.7.0/24"), now()).unwrap();
    assert_eq!(ipam.map("a", ip("10.0.0.1"), now()), Err(MapError::NotReady("a".into())));
    let unequal = Answer { pod: naming("10.3.0.0/25"), external: Some(Naming::Kept) };
    assert!(matches!(ipam.agree("a", unequal), Err(Refusal::Unlike(_))));
    ipam.agree("a", Answer { pod: Naming::Kept, external: None }).unwrap();
    assert_eq!(ipam.map("a", ip("172.18.0.3"), now()), Err(MapError::PodsOnly("a".into())));
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
    let service = "10.96.0.10";
    for nowhere in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "169.254.1.1",
        "255.255.255.255",
        "192.168.0.3",
        "fd00::1",
        service,
    ] {
        assert_eq!(ipam.map("a", ip(nowhere), now()), Err(MapError::NotAnEndpoint(ip(nowhere))));
    }
    for host in 1..=5 {
        ipam.map("a", ip(&format!("172.18.0.{host}")), now()).unwrap();
    }
    let full = ipam.map("a", ip("172.18.0.6"), now());
    assert!(matches!(full, Err(MapError::Exhausted(_))), "{full:?}");
}

#[test]
fn what_a_peer_may_not_send_is_dropped_with_the_reason() {
    let [a, ..] = star();
    let at_a = table(&a, &[]);
    assert_eq!(at_a.inbound("b", packet("10.0.0.9", "10.2.0.7")), Err(Drop::SpoofedSource));
    assert_eq!(at_a.inbound("b", packet("10.1.0.9", "10.0.0.7")), Err(Drop::ForeignDestination));
    assert_eq!(at_a.inbound("x", packet("10.1.0.9", "10.2.0.7")), Err(Drop::UnknownPeer));
    assert_eq!(at_a.outbound(packet("172.18.0.3", "10.1.0.9")), Err(Drop::NamelessSource));
    assert_eq!(at_a.outbound(packet("10.0.0.7", "10.77.0.9")), Err(Drop::NoPeer));
}

#[derive(Clone, Debug)]
enum Change {
    Acquire(u8, u8, u8),
    Agree(u8, bool),
    Map(u8, u8),
    Unmap(u8, u8),
    Reach(bool),
    Release(u8),
    Restart,
    Wait(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0_u8..4, 0_u8..6, 0_u8..3).prop_map(|(peer, pod, external)| Change::Acquire(peer, pod, external)),
        (0_u8..4, any::<bool>()).prop_map(|(peer, kept)| Change::Agree(peer, kept)),
        (0_u8..4, 0_u8..16).prop_map(|(peer, host)| Change::Map(peer, host)),
        (0_u8..4, 0_u8..16).prop_map(|(peer, host)| Change::Unmap(peer, host)),
        any::<bool>().prop_map(Change::Reach),
        (0_u8..4).prop_map(Change::Release),
        Just(Change::Restart),
        (0_u8..10).prop_map(Change::Wait),
    ]
}

/// Endpoints of nodes, and some pods.
fn endpoint(host: u8) -> IpAddr {
    if host < 12 { ip(&format!("172.18.0.{host}")) } else { ip(&format!("10.0.0.{host}")) }
}

/// Nothing in use overlaps, no address stands for two endpoints, and nothing is kept for nobody.
fn is_sound(ipam: &Ipam) -> Result<(), TestCaseError> {
    let mut networks: Vec<IpNet> = ipam.taken("").collect();
    while let Some(network) = networks.pop() {
        let others: Networks = networks.iter().copied().collect();
        prop_assert_eq!(others.overlapping(&network), None);
    }
    let addresses: BTreeSet<IpAddr> = ipam.mappings.values().map(|mapping| mapping.ip).collect();
    prop_assert_eq!(addresses.len(), ipam.mappings.size());
    prop_assert!(ipam.mappings.iter().all(|(endpoint, mapping)| ipam.is_fit(endpoint, mapping)));
    for mapping in ipam.mappings.values() {
        prop_assert!(!mapping.is_idle());
        prop_assert!(mapping.peers.iter().all(|peer| ipam.peers.contains_key(peer)));
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_sequence_leaves_it_sound_and_a_restart_changes_nothing(
        changes in proptest::collection::vec(change(), 1..80)
    ) {
        let own = OwnNetworks {
            pod: net("10.0.0.0/16"),
            service: net("10.96.0.0/16"),
            reserved: [net("172.18.0.0/16")].into(),
            pools: vec![net("10.0.0.0/12"), net("192.168.0.0/16")],
            reach: Reach::Default,
        };
        let mut ipam = Ipam::new(own, 28).unwrap();
        let mut now = now();
        let mut freed: BTreeMap<String, (Timestamp, Vec<IpNet>)> = BTreeMap::new();
        for change in changes {
            let before = ipam.peers.clone();
            match change {
                Change::Acquire(peer, pod, external) => {
                    let offer = offered(&format!("10.{pod}.0.0/16"), &format!("192.168.{external}.0/24"));
                    _ = ipam.acquire(&peer.to_string(), offer, now);
                }
                Change::Agree(peer, kept) => {
                    let pod = if kept { Naming::Kept } else { naming("10.77.0.0/16") };
                    _ = ipam.agree(&peer.to_string(), Answer { pod, external: Some(Naming::Kept) });
                }
                Change::Map(peer, host) => {
                    let (peer, endpoint) = (peer.to_string(), endpoint(host));
                    let first = ipam.map(&peer, endpoint, now);
                    prop_assert_eq!(ipam.map(&peer, endpoint, now), first);
                }
                Change::Unmap(peer, host) => {
                    ipam.unmap(&peer.to_string(), endpoint(host), now);
                }
                Change::Reach(is_strict) => {
                    ipam.own.reach = if is_strict { Reach::Strict } else { Reach::Default };
                }
                Change::Release(peer) => ipam.release(&peer.to_string(), now),
                Change::Restart => {
                    let stored = serde_json::to_string(&ipam.to_storage()).unwrap();
                    let stored = serde_json::from_str(&stored).unwrap();
                    let again = Ipam::from_storage(&stored, ipam.own.clone()).unwrap().unwrap();
                    prop_assert_eq!(&again, &ipam);
                    ipam = again;
                }
                Change::Wait(minutes) => now += QUARANTINE / 5 * u32::from(minutes),
            }
            is_sound(&ipam)?;
            // Nobody has a name that another one had until just now.
            for (peer, agreement) in &ipam.peers {
                let others = freed.iter().filter(|(other, (since, _))| {
                    *other != peer && now.duration_since(*since) < QUARANTINE.try_into().unwrap()
                });
                let rest: Networks = others.flat_map(|(_, (_, names))| names.iter().copied()).collect();
                for network in agreement.networks() {
                    prop_assert_eq!(rest.overlapping(&network), None, "{}", peer);
                }
            }
            for (peer, had) in before {
                let has: Vec<IpNet> = ipam.peers.get(&peer).into_iter().flat_map(Agreement::networks).collect();
                let gone: Vec<IpNet> = had.networks().filter(|network| !has.contains(network)).collect();
                if !gone.is_empty() {
                    freed.insert(peer, (now, gone));
                }
            }
        }
        for peer in 0..4 {
            ipam.release(&peer.to_string(), now);
        }
        prop_assert!(ipam.mappings.is_empty() && ipam.peers.is_empty());
    }
}

#[test]
fn a_storage_that_does_not_make_sense_is_named() {
    let mut ipam = cluster("10.0.0.0/24", "192.168.0.0/24");
    ipam.acquire("a", offered("10.0.0.0/24", "192.168.7.0/24"), now()).unwrap();
    let (good, own) = (ipam.to_storage(), ipam.own.clone());
    let error = |change: &dyn Fn(&mut ferro_api::net::IpamStorageSpec)| {
        let mut bad = good.clone();
        change(&mut bad);
        Ipam::from_storage(&bad, own.clone()).unwrap_err().to_string()
    };
    assert!(error(&|bad| bad.pod_cidr = Some("10.1.0.0/24".into())).contains("delete it to begin anew"));
    assert!(error(&|bad| bad.external_cidr = Some("x".into())).starts_with("externalCIDR"));
    let broken = error(&|bad| bad.prefixes.values_mut().for_each(|bytes| bytes.0.clear()));
    assert!(broken.starts_with("prefixes["), "{broken}");
    assert!(Ipam::from_storage(&ferro_api::net::IpamStorageSpec::default(), own).unwrap().is_none());
}
