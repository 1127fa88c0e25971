//! The vectors of the contract, and what an endpoint has beside.

use super::*;

#[test]
fn v1_both_networks_are_the_same() {
    let (mut a, mut b) =
        (cluster("10.244.0.0/24", "192.168.0.0/24"), cluster("10.244.0.0/24", "192.168.0.0/24"));
    let external = ("192.168.7.0/24", "192.168.0.0/24");
    agree(&mut a, "b", [("10.0.0.0/24", "10.244.0.0/24"), external], ["10.0.40.0/24", "192.168.8.0/24"]);
    agree(&mut b, "a", [("10.0.40.0/24", "10.244.0.0/24"), external], ["10.0.0.0/24", "192.168.8.0/24"]);
    let (at_a, at_b) = (table(&a, &[]), table(&b, &[]));
    let tunnel = packet("10.0.40.7", "10.0.0.5");
    assert_eq!(at_a.outbound(packet("10.244.0.7", "10.0.0.5")), Ok(("b", tunnel)));
    assert_eq!(at_b.inbound("a", tunnel), Ok(packet("10.0.40.7", "10.244.0.5")));
    let reply = packet("10.0.0.5", "10.0.40.7");
    assert_eq!(at_b.outbound(packet("10.244.0.5", "10.0.40.7")), Ok(("a", reply)));
    assert_eq!(at_a.inbound("b", reply), Ok(packet("10.0.0.5", "10.244.0.7")));
    assert_eq!(b.map("a", ip("10.244.0.5"), now()), Ok(ip("10.0.0.5")));
}

#[test]
fn v2_one_of_them_is_renamed() {
    let (mut a, mut b) = (cluster("10.1.0.0/24", "192.168.0.0/24"), cluster("10.0.0.0/24", "192.168.1.0/24"));
    let kept = |network| (network, network);
    agree(&mut a, "b", [("10.2.0.0/24", "10.0.0.0/24"), kept("192.168.1.0/24")], ["None", "None"]);
    agree(&mut b, "a", [kept("10.1.0.0/24"), kept("192.168.0.0/24")], ["10.2.0.0/24", "None"]);
    let (at_a, at_b) = (table(&a, &[]), table(&b, &[]));
    let tunnel = packet("10.1.0.7", "10.2.0.5");
    assert_eq!(at_a.outbound(tunnel), Ok(("b", tunnel)));
    assert_eq!(at_b.inbound("a", tunnel), Ok(packet("10.1.0.7", "10.0.0.5")));
    let reply = packet("10.2.0.5", "10.1.0.7");
    assert_eq!(at_b.outbound(packet("10.0.0.5", "10.1.0.7")), Ok(("a", reply)));
    assert_eq!(at_a.inbound("b", reply), Ok(reply));
}

#[test]
fn v3_v4_a_pod_of_a_third_cluster_is_never_taken_for_one_of_ours() {
    let mut b = cluster("10.0.0.0/24", "192.168.0.0/24");
    let kept = |network| (network, network);
    agree(&mut b, "a", [kept("10.7.0.0/24"), kept("192.168.7.0/24")], ["None", "None"]);
    agree(&mut b, "c", [kept("10.1.0.0/24"), kept("192.168.1.0/24")], ["None", "None"]);
    b.external = ExternalAddresses::restored(net("192.168.0.0/24"), 45, BTreeSet::new(), BTreeMap::new());
    assert_eq!(b.map("a", ip("10.1.0.5"), now()), Ok(ip("192.168.0.45")));
    assert_eq!(b.redirections("a"), [(ip("10.1.0.5"), ip("192.168.0.45"))].into());
    let at_b = table(&b, &[]);
    assert_eq!(
        at_b.inbound("a", packet("10.7.0.7", "192.168.0.45")),
        Ok(packet("10.7.0.7", "10.1.0.5")),
        "and the peering with c does the rest"
    );
    assert_eq!(at_b.inbound("a", packet("10.7.0.7", "192.168.0.46")), Err(Drop::ForeignDestination));
    // It lives in c: c itself is told its own name for it.
    assert_eq!(b.map("c", ip("10.1.0.5"), now()), Ok(ip("10.1.0.5")));
    assert!(b.redirections("c").is_empty());
}

#[test]
fn v5_anybodys_redirection_is_honoured_and_shown_under_the_printed_name() {
    let mut b = cluster("10.9.0.0/24", "192.168.0.0/24");
    agree(
        &mut b,
        "cluster-1",
        [("10.7.0.0/24", "10.7.0.0/24"), ("192.168.7.0/24", "192.168.7.0/24")],
        ["None", "None"],
    );
    let written = [(ip("10.0.0.5"), ip("192.168.0.45"))].into();
    let rules = PeerTable::new(&b.peers["cluster-1"], &written, Vec::new()).unwrap();
    assert_eq!(rules.redirections()[&ip("192.168.0.45")], ip("10.0.0.5"));
    assert_eq!(rules.inbound(packet("10.7.0.1", "192.168.0.45")), Ok(packet("10.7.0.1", "10.0.0.5")));
    assert_eq!(chain("cluster-1"), "LIQO-PRRT-MAP-CLS-cluster-1");
}

/// Three clusters with the same networks, b in the middle.
#[test]
fn v6_through_a_hub_with_everything_overlapping() {
    let [a, mut b, mut c] = star();
    assert_eq!(b.map("a", ip("10.3.0.5"), now()), Ok(ip("192.168.1.45")));
    assert_eq!(b.redirections("a"), [(ip("10.3.0.5"), ip("192.168.1.45"))].into());
    let transit = Translation::new(net("10.2.0.0/24"), net("10.5.0.0/24")).unwrap();
    // c keeps the name of the transit network; to c it is one more network of b.
    let (at_a, at_b) = (table(&a, &[]), table(&b, &[("c", transit)]));
    let agreement = c.peers.get_mut("b").unwrap();
    agreement.their_external = Some(Translation::identity(net("10.5.0.0/24")));
    let at_c = table(&c, &[]);

    let (_, first) = at_a.outbound(packet("10.0.0.7", "192.168.1.45")).unwrap();
    assert_eq!(first, packet("10.2.0.7", "192.168.1.45"));
    let hub = at_b.inbound("a", first).unwrap();
    assert_eq!(hub, packet("10.2.0.7", "10.3.0.5"));
    let (to, second) = at_b.outbound(hub).unwrap();
    assert_eq!((to, second), ("c", packet("10.5.0.7", "10.3.0.5")));
    let there = at_c.inbound("b", second).unwrap();
    assert_eq!(there, packet("10.5.0.7", "10.0.0.5"));

    let (_, back) = at_c.outbound(packet("10.0.0.5", "10.5.0.7")).unwrap();
    assert_eq!(back, packet("10.3.0.5", "10.5.0.7"));
    let hub = at_b.inbound("c", back).unwrap();
    let (to, last) = at_b.outbound(hub).unwrap();
    assert_eq!((to, last), ("a", packet("192.168.1.45", "10.2.0.7")));
    assert_eq!(at_a.inbound("b", last), Ok(packet("192.168.1.45", "10.0.0.7")));
}

#[test]
fn v7_an_address_is_shared_and_freed_by_its_last_user() {
    let [_, mut b, _] = star();
    agree(
        &mut b,
        "d",
        [("10.6.0.0/24", "10.6.0.0/24"), ("192.168.6.0/24", "192.168.6.0/24")],
        ["10.1.0.0/24", "None"],
    );
    let endpoint = ip("10.3.0.5");
    assert_eq!(b.map("a", endpoint, now()), Ok(ip("192.168.1.45")));
    assert_eq!(b.map("d", endpoint, now()), Ok(ip("192.168.0.45")));
    b.unmap("a", endpoint, now());
    assert!(b.redirections("a").is_empty());
    assert_eq!(b.redirections("d").len(), 1);
    b.unmap("d", endpoint, now());
    let freed = b.clone();
    b.unmap("d", endpoint, now());
    assert_eq!((b.mappings.size(), &b), (0, &freed));
    assert_ne!(b.map("a", endpoint, now()), Ok(ip("192.168.1.45")), "it rests");
}

#[test]
fn what_slices_give_back_stays_with_whoever_called_and_the_other_way_round() {
    let [_, mut b, _] = star();
    let (endpoint, other) = (ip("10.3.0.5"), ip("10.3.0.6"));
    let reflect =
        |b: &mut Ipam, endpoint| b.map_for(Asker::Slices, &Claims::default(), ("a", endpoint), now());
    let address = b.map("a", endpoint, now()).unwrap();
    assert_eq!(reflect(&mut b, endpoint), Ok(address), "one endpoint has one address");
    reflect(&mut b, other).unwrap();
    assert_eq!(b.reflected_to("a"), [endpoint, other].into());
    b.unmap("a", other, now());
    assert!(b.redirections("a").contains_key(&other), "slices name it");
    b.unmap_for(Asker::Slices, "a", endpoint, now());
    assert_eq!(b.redirection("a", endpoint), Some(address), "somebody has asked for it");
    b.release("a", now());
    assert_eq!(b.mapped(), 0);
}

#[test]
fn v8_v9_pods_keep_their_host_part_and_processes_on_nodes_get_an_address() {
    let [_, mut b, _] = star();
    let before = b.clone();
    assert_eq!(b.map("a", ip("10.0.0.9"), now()), Ok(ip("10.1.0.9")));
    assert_eq!(b, before, "nothing is stored for a pod");
    assert_eq!(b.map("a", ip("172.18.0.3"), now()), Ok(ip("192.168.1.45")));
    assert_eq!(b.map("a", ip("172.18.0.3"), now()), Ok(ip("192.168.1.45")), "asked again");
}

#[test]
fn what_a_peer_publishes_itself_gets_no_address_from_here() {
    let [_, mut b, _] = star();
    let theirs = b.peers()["a"].their_external.unwrap().here();
    let published = theirs.hosts().nth(4).unwrap();
    let before = b.clone();
    assert_eq!(b.map("a", published, now()), Err(MapError::TheirOwn(published)));
    assert_eq!(b, before);
    assert!(b.map("c", published, now()).is_ok(), "for others it is an endpoint like any other");
}

#[test]
fn v10_a_chain_maps_again_at_every_link() {
    let mut clusters: Vec<Ipam> = (0..4).map(|_| cluster("10.0.0.0/24", "192.168.0.0/24")).collect();
    for n in 0..3 {
        let of = |pod, external| [(pod, "10.0.0.0/24"), (external, "192.168.0.0/24")];
        agree(&mut clusters[n], "up", of("10.1.0.0/24", "192.168.1.0/24"), ["10.2.0.0/24", "192.168.2.0/24"]);
        agree(
            &mut clusters[n + 1],
            "down",
            of("10.2.0.0/24", "192.168.2.0/24"),
            ["10.1.0.0/24", "192.168.1.0/24"],
        );
    }
    // A pod of the last cluster, as the third one sees it, is published link by link towards the first.
    let mut seen = clusters[2].home_pod_ip("up", ip("10.0.0.5")).unwrap();
    assert_eq!(seen, ip("10.1.0.5"));
    for n in (1..3).rev() {
        let published = clusters[n].map("down", seen, now()).unwrap();
        assert!(net("192.168.1.0/24").contains(&published), "{published}");
        assert_eq!(clusters[n].redirections("down")[&seen], published);
        seen = published;
    }
}
