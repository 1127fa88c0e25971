use super::*;

use ferro_api::config::Reach;
use k8s_openapi::jiff::Timestamp;

use super::super::{Answer, Asker, Ipam, Naming, Offered, OwnNetworks, default_pools};

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
        reach: Reach::Default,
    };
    let mut ipam = Ipam::new(own, 24).unwrap();
    let offered =
        Offered { pod: "10.7.0.0/16".parse().unwrap(), external: Some("10.8.0.0/24".parse().unwrap()) };
    ipam.acquire("a", offered, Timestamp::UNIX_EPOCH).unwrap();
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
    ipam
}

fn others(entries: &[(&str, IpAddr)]) -> BTreeMap<String, BTreeMap<IpAddr, IpAddr>> {
    [("a".to_owned(), entries.iter().map(|(endpoint, address)| (ip(endpoint), *address)).collect())].into()
}

#[test]
fn a_pod_is_told_of_where_peers_reach_only_what_is_published() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    turn.map(Asker::Caller, "a", ip("10.0.0.9")).unwrap();
    assert!(board.follow(&turn, &layout).0.is_empty());
    let mut turn = Turn::new(&ipam, now());
    turn.reach(Reach::Strict, &BTreeSet::new()).unwrap();
    let address = turn.map(Asker::Caller, "a", ip("10.0.0.9")).unwrap();
    let (delta, sheets) = board.follow(&turn, &layout);
    let opened = entry("a", "10.0.0.9", address);
    assert_eq!(delta, Delta { set: vec![opened.clone()], removed: vec![] });
    assert_eq!(sheets, [("a".to_owned(), 0)].into());
    let mut back = Turn::new(turn.after(), now());
    back.unmap(Asker::Caller, "a", ip("10.0.0.9"));
    assert_eq!(board.follow(&back, &layout).0, Delta { set: vec![], removed: vec![opened] });
}

#[test]
fn nodes_are_told_of_by_full_reach_to_each_peer_when_it_comes() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    turn.reach(Reach::Full, &[ip("172.18.0.3")].into()).unwrap();
    let (delta, _) = board.follow(&turn, &layout);
    assert_eq!(delta.set.len(), 1);
    let mut more = Turn::new(turn.after(), now());
    let offered =
        Offered { pod: "10.9.0.0/16".parse().unwrap(), external: Some("10.10.0.0/24".parse().unwrap()) };
    more.acquire("b", offered).unwrap();
    more.agree("b", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
    let (delta, sheets) = board.follow(&more, &layout);
    assert_eq!(delta.set.iter().map(|entry| entry.peer.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(sheets, [("b".to_owned(), 0)].into());
    let mut less = Turn::new(more.after(), now());
    less.release("b");
    let (delta, _) = board.follow(&less, &layout);
    assert_eq!(delta.removed.iter().map(|entry| entry.peer.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(board.own("a", 0).len(), 1);
    let mut last = Turn::new(less.after(), now());
    last.reach(Reach::Default, &BTreeSet::new()).unwrap();
    board.follow(&last, &layout);
    assert_eq!(board, Board::default(), "nothing is left");
}

#[test]
fn followers_are_told_what_changes_and_no_more() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    let address = turn.map(Asker::Caller, "a", ip("172.18.0.3")).unwrap();
    let (delta, sheets) = board.follow(&turn, &layout);
    let mapped = entry("a", "172.18.0.3", address);
    assert_eq!(delta, Delta { set: vec![mapped.clone()], removed: vec![] });
    assert_eq!(sheets, [("a".to_owned(), 0)].into());
    assert_eq!(board.own("a", 0), [(ip("172.18.0.3"), address)].into());

    let again = board.follow(&Turn::new(turn.after(), now()), &layout);
    assert!(again.0.is_empty() && again.1.is_empty());

    let mut back = Turn::new(turn.after(), now());
    back.unmap(Asker::Caller, "a", ip("172.18.0.3"));
    let (delta, _) = board.follow(&back, &layout);
    assert_eq!(delta, Delta { set: vec![], removed: vec![mapped] });
    assert_eq!(board, Board::default(), "nothing is left");
}

#[test]
fn what_others_wrote_is_in_force_unless_it_contradicts() {
    let (ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let mut turn = Turn::new(&ipam, now());
    let address = turn.map(Asker::Caller, "a", ip("172.18.0.3")).unwrap();
    let (free, other) = (ip("192.168.9.9"), ip("192.168.9.8"));
    let delta = board.set_others(&others(&[("1.1.1.1", free), ("1.1.1.2", address), ("172.18.0.3", other)]));
    assert_eq!(delta.set.len(), 3);

    let (delta, _) = board.follow(&turn, &layout);
    assert_eq!(delta.set, [entry("a", "172.18.0.3", address)]);
    assert_eq!(delta.removed, [entry("a", "1.1.1.2", address)], "another endpoint has this address now");
    assert_eq!(board.in_force().count(), 2);

    let mut back = Turn::new(turn.after(), now());
    back.unmap(Asker::Caller, "a", ip("172.18.0.3"));
    let (delta, _) = board.follow(&back, &layout);
    assert_eq!(delta.set.len(), 2, "both show again: {delta:?}");
    let delta = board.set_others(&BTreeMap::new());
    assert_eq!((delta.set.len(), delta.removed.len()), (0, 3));
}

#[test]
fn an_address_that_others_use_is_not_given_out() {
    let (mut ipam, mut board) = (ipam(), Board::default());
    let naming = "192.168.77.0/24".parse().unwrap();
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(naming) }).unwrap();
    board.set_others(&others(&[("1.1.1.1", ip("192.168.77.2")), ("1.1.1.2", ip("192.0.2.9"))]));
    let claimed = board.claimed(&ipam);
    assert_eq!(claimed.len(), 1, "the other one is not of our network: {claimed:?}");
    let mut turn = Turn::new(&ipam, now());
    assert_eq!(turn.map(Asker::Caller, "a", ip("172.18.0.3")), Ok(ip("192.168.77.2")));
    let mut turn = Turn::new(&ipam, now());
    turn.leave(claimed);
    assert_eq!(turn.map(Asker::Caller, "a", ip("172.18.0.3")), Ok(ip("192.168.77.3")));
}

#[test]
fn an_endpoint_that_others_redirected_keeps_its_address_when_it_is_asked_for() {
    let (mut ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let naming = "192.168.77.0/24".parse().unwrap();
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(naming) }).unwrap();
    let (node, by_hand) = ("172.18.0.3", ip("192.168.77.45"));
    board.set_others(&others(&[(node, by_hand)]));
    let mut turn = Turn::new(&ipam, now());
    turn.leave(board.claimed(&ipam));
    assert_eq!(turn.map(Asker::Caller, "a", ip(node)), Ok(by_hand));
    assert!(board.follow(&turn, &layout).0.is_empty(), "it is in force already");
    // It is the address manager's own from now on, until it is given up, too.
    assert!(board.set_others(&BTreeMap::new()).is_empty());
    assert_eq!(board.in_force().collect::<Vec<_>>(), [entry("a", node, by_hand)]);
    let mut back = Turn::new(turn.after(), now());
    back.unmap(Asker::Caller, "a", ip(node));
    assert_eq!(board.follow(&back, &layout).0.removed, [entry("a", node, by_hand)]);
}

#[test]
fn an_endpoint_that_others_redirected_is_given_up_and_asked_for_again_at_once_by_the_same_address() {
    let (mut ipam, mut board, layout) = (ipam(), Board::default(), Layout::default());
    let naming = "192.168.77.0/24".parse().unwrap();
    ipam.agree("a", Answer { pod: Naming::Kept, external: Some(naming) }).unwrap();
    let (node, other, by_hand) = ("172.18.0.3", "172.18.0.4", ip("192.168.77.45"));
    let mut next = |ipam: &mut Ipam, redirected: &str, asked: Option<&str>| {
        board.set_others(&others(&[(redirected, by_hand)]));
        let mut turn = Turn::new(ipam, now());
        turn.leave(board.claimed(ipam));
        for endpoint in [node, other].map(ip) {
            turn.unmap(Asker::Caller, "a", endpoint);
        }
        let address = asked.map(|endpoint| turn.map(Asker::Caller, "a", ip(endpoint)).unwrap());
        board.follow(&turn, &layout);
        *ipam = turn.into_after();
        address
    };
    for asked in [Some(node), None, Some(node), Some(node), None] {
        let address = next(&mut ipam, node, asked);
        assert_eq!(address, asked.map(|_| by_hand));
    }
    // Who remembers it must not reach somebody else by it.
    let address = next(&mut ipam, other, Some(other));
    assert!(address.is_some_and(|address| address != by_hand), "{address:?} rests");
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
    turn.map(Asker::Caller, "a", ip("172.18.0.3")).unwrap();
    board.follow(&turn, &layout);
    let mut renamed = Turn::new(turn.after(), now());
    let naming = "192.168.77.0/24".parse().unwrap();
    renamed.agree("a", Answer { pod: Naming::Kept, external: Some(naming) }).unwrap();
    let (delta, sheets) = board.follow(&renamed, &layout);
    assert_eq!((delta.set.len(), delta.removed.len(), sheets.len()), (1, 0, 1));
    assert!("192.168.77.0/24".parse::<ipnet::IpNet>().unwrap().contains(&delta.set[0].address));
}
