//! What is published by strict reach, and by full reach.

use super::super::super::Turn;
use super::*;

#[test]
fn by_strict_reach_a_pod_is_open_to_whom_it_is_published_and_to_nobody_else() {
    let [_, mut b, _] = star();
    b.own.reach = Reach::Strict;
    let pod = ip("10.0.0.9");
    assert_eq!(b.map("a", pod, now()), Ok(ip("10.1.0.9")), "the name is the same as ever");
    assert_eq!(b.redirections("a"), [(pod, ip("10.1.0.9"))].into());
    assert!(b.redirections("c").is_empty());
    assert_eq!(b.map("c", pod, now()), Ok(ip("10.4.0.9")));
    let stored = Ipam::from_storage(&b.to_storage(), b.own.clone()).unwrap().unwrap();
    assert_eq!(stored, b, "a restart closes nothing");
    assert_eq!(b.map("a", ip("172.18.0.3"), now()), Ok(ip("192.168.1.45")), "pods take no addresses");
    b.unmap("a", pod, now());
    assert!(!b.redirections("a").contains_key(&pod) && b.redirections("c").contains_key(&pod));
    b.unmap("c", pod, now());
    assert!(b.mapping(&pod).is_none() && b.external.resting().next().is_none(), "nothing of it rests");
}

#[test]
fn a_pod_under_another_name_is_published_under_that_and_goes_with_the_peer() {
    let [_, mut b, _] = star();
    b.own.reach = Reach::Strict;
    let pod = ip("10.0.0.9");
    b.map("a", pod, now()).unwrap();
    // One that reaches pods only reaches those that are published.
    b.agree("a", Answer { pod: naming("10.9.0.0/24"), external: None }).unwrap();
    assert_eq!(b.redirections("a"), [(pod, ip("10.9.0.9"))].into());
    // What was published is not closed by a reach that would not have asked for it.
    b.own.reach = Reach::Default;
    assert_eq!(b.redirections("a").len(), 1);
    b.release("a", now());
    assert!(b.mapping(&pod).is_none());
}

fn by(ipam: &Ipam, reach: Reach, nodes: &[&str]) -> Ipam {
    let mut turn = Turn::new(ipam, now());
    turn.reach(reach, &nodes.iter().map(|node| ip(node)).collect()).unwrap();
    turn.into_after()
}

#[test]
fn by_full_reach_all_peers_reach_all_nodes_for_as_long_as_these_are_there() {
    let [_, b, _] = star();
    let nodes = ["172.18.0.3", "172.18.0.4"];
    let opened = by(&b, Reach::Full, &nodes);
    for (peer, external) in [("a", "192.168.1.0/24"), ("c", "192.168.4.0/24")] {
        let published = opened.redirections(peer);
        assert_eq!(published.keys().copied().collect::<Vec<_>>(), nodes.map(ip), "{peer}");
        assert!(published.values().all(|address| net(external).contains(address)), "{published:?}");
    }
    assert_eq!(by(&opened, Reach::Full, &nodes), opened, "the same nodes keep their addresses");
    // A peer that comes later reaches them, too.
    let mut later = opened.clone();
    agree(
        &mut later,
        "d",
        [("10.6.0.0/24", "10.6.0.0/24"), ("192.168.6.0/24", "192.168.6.0/24")],
        ["None", "None"],
    );
    assert_eq!(later.redirections("d").len(), 2);
    later.release("d", now());
    assert_eq!((later.peers, later.mappings), (opened.peers.clone(), opened.mappings.clone()));
    // A node that leaves, and one that comes.
    let other = by(&opened, Reach::Full, &["172.18.0.4", "172.18.0.5"]);
    assert_eq!(other.redirections("a").into_keys().collect::<Vec<_>>(), ["172.18.0.4", "172.18.0.5"].map(ip));
    for reach in [Reach::Default, Reach::Strict] {
        let closed = by(&other, reach, &nodes);
        assert!(closed.mappings.is_empty() && closed.redirections("a").is_empty());
        assert_eq!(closed.external.resting().count(), 3);
    }
}

#[test]
fn what_somebody_asked_for_stays_published_whatever_the_reach() {
    let [_, mut b, _] = star();
    let node = ip("172.18.0.3");
    let address = b.map("a", node, now()).unwrap();
    let mut opened = by(&b, Reach::Full, &["172.18.0.3"]);
    assert_eq!(opened.redirections("a")[&node], address);
    assert_eq!(by(&opened, Reach::Default, &[]).redirections("a")[&node], address);
    assert!(by(&opened, Reach::Default, &[]).redirections("c").is_empty());
    opened.unmap("a", node, now());
    assert_eq!(opened.redirections("a")[&node], address, "it is a node all the same");
    assert!(by(&opened, Reach::Default, &[]).mappings.is_empty());
}

#[test]
fn a_node_is_published_only_where_an_address_can_stand_for_it() {
    let [_, b, _] = star();
    // Among pods it is reached without; and there is no address of the other family.
    assert!(by(&b, Reach::Full, &["10.0.0.1", "fd00::1", "127.0.0.1"]).mappings.is_empty());
    let mut small = cluster("10.0.0.0/24", "192.168.0.0/30");
    small.own.reach = Reach::Full;
    let mut turn = Turn::new(&small, now());
    assert!(turn.reach(Reach::Full, &["172.18.0.3", "172.18.0.4"].map(ip).into()).is_err());
    assert_eq!(turn.after().mapped(), 1, "as many as there is room for");
}

fn hosting(ipam: &Ipam, guests: &[(&str, &str)]) -> Ipam {
    let mut turn = Turn::new(ipam, now());
    turn.host(&guests.iter().map(|(pod, peer)| (ip(pod), (*peer).to_owned())).collect());
    turn.into_after()
}

#[test]
fn by_strict_reach_a_peer_reaches_the_pods_that_run_here_for_it_and_no_others() {
    let [_, b, _] = star();
    let b = by(&b, Reach::Strict, &[]);
    let hosting_two = hosting(&b, &[("10.0.0.9", "a"), ("10.0.0.8", "c"), ("172.18.0.3", "a")]);
    assert_eq!(hosting_two.redirections("a"), [(ip("10.0.0.9"), ip("10.1.0.9"))].into());
    assert_eq!(hosting_two.redirections("c").into_keys().collect::<Vec<_>>(), [ip("10.0.0.8")]);
    let other = hosting(&hosting_two, &[("10.0.0.9", "c")]);
    assert!(other.redirections("a").is_empty(), "the address is another's by now");
    assert_eq!(other.redirections("c").into_keys().collect::<Vec<_>>(), [ip("10.0.0.9")]);
    assert_eq!(hosting(&other, &[]).mappings, b.mappings);
    let opened = by(&other, Reach::Default, &[]);
    assert!(hosting(&opened, &[("10.0.0.9", "c")]).mappings.is_empty(), "all pods are reached anyway");
}

#[test]
fn a_pod_that_runs_here_for_a_peer_is_not_reached_by_one_who_is_no_peer_any_more() {
    let [_, b, _] = star();
    let mut b = hosting(&by(&b, Reach::Strict, &[]), &[("10.0.0.9", "a")]);
    b.release("a", now());
    assert!(b.redirections("a").is_empty());
    assert!(hosting(&b, &[]).mappings.is_empty());
}
