use super::*;

use k8s_openapi::jiff::Timestamp;

use super::super::{Answer, Ipam, Naming, Offered, OwnNetworks, default_pools};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn entry(peer: &str, endpoint: &str, address: IpAddr) -> Entry {
    Entry { peer: peer.into(), endpoint: ip(endpoint), address }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_900_000_000).unwrap()
}

/// An address manager with the peer `a`, which keeps all names.
fn ipam() -> Ipam {
    let own = OwnNetworks {
        pod: "10.0.0.0/16".parse().unwrap(),
        service: "10.96.0.0/16".parse().unwrap(),
        reserved: BTreeSet::new(),
        pools: default_pools(),
    };
    let mut ipam = Ipam::new(own, 24).unwrap();
    let offered =
        Offered { pod: "10.7.0.0/16".parse().unwrap(), external: Some("10.8.0.0/24".parse().unwrap()) };
    ipam.acquire("a", offered).unwrap();
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
    ipam
}

fn others(entries: &[(&str, IpAddr)]) -> BTreeMap<String, BTreeMap<IpAddr, IpAddr>> {
    [("a".to_owned(), entries.iter().map(|(endpoint, address)| (ip(endpoint), *address)).collect())].into()
}

#[test]
fn followers_are_told_what_changes_and_no_more() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    let address = turn.map("a", ip("172.18.0.3")).unwrap();
    let (delta, sheets) = board.follow(&turn, &layout);
    let mapped = entry("a", "172.18.0.3", address);
    assert_eq!(delta, Delta { set: vec![mapped.clone()], removed: vec![] });
    assert_eq!(sheets, [("a".to_owned(), 0)].into());
    assert_eq!(board.own("a", 0), [(ip("172.18.0.3"), address)].into());

    let again = board.follow(&Turn::new(turn.after(), now()), &layout);
    assert!(again.0.is_empty() && again.1.is_empty());

    let mut back = Turn::new(turn.after(), now());
    back.unmap("a", ip("172.18.0.3"));
    let (delta, _) = board.follow(&back, &layout);
    assert_eq!(delta, Delta { set: vec![], removed: vec![mapped] });
    assert_eq!(board, Board::default(), "nothing is left");
}

#[test]
fn what_others_wrote_is_in_force_unless_it_contradicts() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    let address = turn.map("a", ip("172.18.0.3")).unwrap();
    let (free, other) = (ip("192.168.9.9"), ip("192.168.9.8"));
    let delta = board.set_others(&others(&[("1.1.1.1", free), ("1.1.1.2", address), ("172.18.0.3", other)]));
    assert_eq!(delta.set.len(), 3);

    let (delta, _) = board.follow(&turn, &layout);
    assert_eq!(delta.set, [entry("a", "172.18.0.3", address)]);
    assert_eq!(delta.removed, [entry("a", "1.1.1.2", address)], "another endpoint has this address now");
    assert_eq!(board.in_force().count(), 2);

    let mut back = Turn::new(turn.after(), now());
    back.unmap("a", ip("172.18.0.3"));
    let (delta, _) = board.follow(&back, &layout);
    assert_eq!(delta.set.len(), 2, "both show again: {delta:?}");
    let delta = board.set_others(&BTreeMap::new());
    assert_eq!((delta.set.len(), delta.removed.len()), (0, 3));
}

#[test]
fn of_two_endpoints_with_one_address_the_first_counts() {
    let mut board = Board::default();
    let address = ip("192.168.9.9");
    let delta = board.set_others(&others(&[("1.1.1.2", address), ("1.1.1.1", address)]));
    assert_eq!(delta.set, [entry("a", "1.1.1.1", address)]);
}

#[test]
fn another_name_of_the_external_network_changes_every_address() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    turn.map("a", ip("172.18.0.3")).unwrap();
    board.follow(&turn, &layout);
    let mut renamed = Turn::new(turn.after(), now());
    let naming = "192.168.77.0/24".parse().unwrap();
    renamed.agree("a", Answer { pod: Naming::Kept, external: Some(naming) }).unwrap();
    let (delta, sheets) = board.follow(&renamed, &layout);
    assert_eq!((delta.set.len(), delta.removed.len(), sheets.len()), (1, 0, 1));
    assert!("192.168.77.0/24".parse::<ipnet::IpNet>().unwrap().contains(&delta.set[0].address));
}
