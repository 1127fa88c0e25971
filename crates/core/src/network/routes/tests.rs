//! Plans for small clusters, and a kernel made of sets on which every plan comes true.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;

use super::plan::mac;
use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node(name: &str, address: &str, pods: &str) -> Node {
    Node { name: name.into(), addresses: vec![ip(address)], pods: vec![net(pods)] }
}

fn nodes() -> Vec<Node> {
    vec![
        node("one", "192.0.2.1", "10.244.0.0/24"),
        node("two", "192.0.2.2", "10.244.1.0/24"),
        node("three", "192.0.2.3", "10.244.2.0/24"),
    ]
}

fn turin() -> Peer {
    Peer {
        views: vec![net("10.0.0.0/16"), net("10.50.0.0/16")],
        gateway: Some(ip("192.0.2.1")),
        own_pods: Some(net("10.244.0.0/16")),
    }
}

fn planned(name: &str, nodes: &[Node], peers: &[Peer], local: &[IpNet]) -> Plan {
    plan(&Snapshot { node: name, nodes, peers, mtu: 1500, local, reach: Reach::Default }).unwrap()
}

fn shown(routes: &BTreeSet<Route>) -> Vec<String> {
    let hop = |hop: &Hop| match hop {
        Hop::Overlay(ip) => format!("{ip} overlay"),
        Hop::Gateway(ip) => format!("{ip} gateway"),
        Hop::Nowhere => "nowhere".into(),
    };
    let source = |route: &Route| route.source.map(|ip| format!(" from {ip}")).unwrap_or_default();
    routes
        .iter()
        .map(|route| format!("{} {} {}{}", route.table, route.to, hop(&route.hop), source(route)))
        .collect()
}

#[test]
fn a_node_leads_to_peers_by_the_node_of_the_gateway() {
    let Plan { wanted, refused } = planned("two", &nodes(), &[turin()], &[]);
    assert!(refused.is_empty());
    let overlay = Overlay { local: ip("192.0.2.2"), mac: Mac([2, 0xfe, 192, 0, 2, 2]), mtu: 1450 };
    assert_eq!(wanted.overlay, Some(overlay));
    assert_eq!(
        shown(&wanted.routes),
        [
            "254 10.0.0.0/16 192.0.2.1 overlay from 192.0.2.2",
            "254 10.0.0.0/16 nowhere",
            "254 10.50.0.0/16 192.0.2.1 overlay from 192.0.2.2",
            "254 10.50.0.0/16 nowhere",
            "254 169.254.77.2/32 192.0.2.1 overlay",
        ]
    );
    assert!(wanted.rules.is_empty());
    assert_eq!(wanted.forwarding.get(&Mac([2, 0xfe, 192, 0, 2, 1])), Some(&ip("192.0.2.1")));
    assert_eq!(wanted.neighbours.get(&ip("192.0.2.3")), Some(&Mac([2, 0xfe, 192, 0, 2, 3])));
    let exemption = &wanted.exemptions[&Family::V4];
    assert_eq!(exemption.own, [net("10.244.0.0/16")].into());
    assert_eq!(exemption.views, [net("10.0.0.0/16"), net("10.50.0.0/16")].into());
    assert!(exemption.inside.contains(&net("192.0.2.1/32")) && !exemption.masquerades);
    // The kernel may lack the family that nobody uses.
    assert!(wanted.neighbours.keys().all(IpAddr::is_ipv4));
}

#[test]
fn the_node_of_the_gateway_leads_to_it_and_from_it() {
    let Plan { wanted, .. } = planned("one", &nodes(), &[turin()], &[]);
    assert_eq!(
        shown(&wanted.routes),
        [
            "254 10.0.0.0/16 169.254.77.2 gateway from 192.0.2.1",
            "254 10.0.0.0/16 nowhere",
            "254 10.50.0.0/16 169.254.77.2 gateway from 192.0.2.1",
            "254 10.50.0.0/16 nowhere",
            "1880 10.244.1.0/24 192.0.2.2 overlay",
            "1880 10.244.2.0/24 192.0.2.3 overlay",
            "1880 192.0.2.2/32 192.0.2.2 overlay",
            "1880 192.0.2.3/32 192.0.2.3 overlay",
        ]
    );
    let rule = Rule { family: Family::V4, priority: 1880, input: "ferro.host".into(), table: 1880 };
    assert_eq!(wanted.rules, [rule].into());
    assert!(wanted.exemptions[&Family::V4].masquerades);
}

#[test]
fn ipv6_goes_by_the_address_that_each_link_has_by_itself() {
    let nodes =
        [node("one", "2001:db8::1", "fd01:0:0:1::/64"), node("two", "2001:db8::2", "fd01:0:0:2::/64")];
    let peer = Peer { views: vec![net("fd02::/48")], gateway: Some(ip("2001:db8::1")), own_pods: None };
    let Plan { wanted, refused } = planned("two", &nodes, &[peer], &[]);
    assert!(refused.is_empty());
    assert_eq!(wanted.overlay.unwrap().mtu, 1430);
    let hop = *wanted.neighbours.keys().next().unwrap();
    assert!(hop.to_string().starts_with("fe80::fe:"), "{hop}");
    let routes = shown(&wanted.routes);
    assert_eq!(routes[0], format!("254 fd02::/48 {hop} overlay from 2001:db8::2"));
    assert_eq!(wanted.forwarding.into_iter().next().unwrap(), (mac(&ip("2001:db8::1")), ip("2001:db8::1")));
}

#[test]
fn ipv6_of_a_peer_goes_over_nodes_that_have_ipv4_only() {
    let peer = Peer { views: vec![net("fd02::/48")], ..turin() };
    let Plan { wanted, refused } = planned("two", &nodes(), &[peer], &[]);
    assert!(refused.is_empty());
    assert_eq!(shown(&wanted.routes)[0], "254 fd02::/48 fe80::fe:c0ff:fe00:201 overlay");
}

#[test]
fn nothing_is_wanted_without_a_peer() {
    assert_eq!(planned("two", &nodes(), &[], &[]), Plan::default());
    // Not even an address of the node: there may be none yet.
    assert_eq!(planned("nobody", &[], &[], &[]), Plan::default());
}

#[test]
fn a_peer_draws_no_traffic_that_is_for_somebody_here() {
    for (view, local, with) in [
        ("10.244.0.0/16", &[][..], "10.244.0.0/24"),
        ("10.244.1.128/25", &[], "10.244.1.0/24"),
        ("10.0.0.0/8", &[], "10.244.0.0/24"),
        ("192.0.2.0/24", &[], "192.0.2.1/32"),
        ("0.0.0.0/0", &[], "10.244.0.0/24"),
        ("169.254.77.0/30", &[], "169.254.0.0/16"),
        ("224.0.0.0/4", &[], "224.0.0.0/3"),
        ("172.17.0.0/16", &["172.17.0.0/16"], "172.17.0.0/16"),
    ] {
        let local: Vec<_> = local.iter().map(|text| net(text)).collect();
        let peer = Peer { views: vec![net(view)], ..turin() };
        let Plan { wanted, refused } = planned("two", &nodes(), &[peer], &local);
        assert!(wanted.routes.is_empty(), "{view}");
        assert!(wanted.exemptions.values().all(|exemption| exemption.views.is_empty()), "{view}");
        assert_eq!(refused, [Refusal::Overlaps { view: net(view), with: net(with) }].into());
    }
}

#[test]
fn the_link_between_nodes_is_for_nodes_and_they_are_open_to_peers_only_by_full_reach() {
    let (nodes, peers) = (nodes(), [turin()]);
    for (reach, opens) in [(Reach::Default, false), (Reach::Strict, false), (Reach::Full, true)] {
        let snapshot = Snapshot { node: "two", nodes: &nodes, peers: &peers, mtu: 1500, local: &[], reach };
        let exemptions = plan(&snapshot).unwrap().wanted.exemptions;
        let exemption = &exemptions[&Family::V4];
        assert_eq!(exemption.opens_node, opens, "{reach:?}");
        let addresses = nodes.iter().flat_map(|node| &node.addresses);
        for address in addresses {
            assert!(exemption.nodes.iter().any(|network| network.contains(address)), "{address}");
        }
        assert!(!exemption.nodes.iter().any(|network| network.contains(&ip("192.0.2.9"))));
    }
    // Packets of one family may go between nodes in those of the other.
    let peer = Peer { views: vec![net("fd02::/48")], ..turin() };
    let exemptions = planned("two", &nodes, &[peer], &[]).wanted.exemptions;
    assert!(exemptions[&Family::V4].views.is_empty() && !exemptions[&Family::V4].nodes.is_empty());
    assert_eq!(exemptions[&Family::V6].views, [net("fd02::/48")].into());
}

#[test]
fn the_gateway_is_heard_also_where_other_links_have_such_addresses() {
    let Plan { wanted, refused } = planned("two", &nodes(), &[turin()], &[net("169.254.0.0/16")]);
    assert!(refused.is_empty());
    assert!(shown(&wanted.routes).contains(&"254 169.254.77.2/32 192.0.2.1 overlay".to_owned()));
}

#[test]
fn a_gateway_that_nobody_knows_is_told_of() {
    let peer = Peer { gateway: Some(ip("192.0.2.9")), ..turin() };
    let Plan { wanted, refused } = planned("two", &nodes(), &[peer], &[]);
    assert_eq!(refused, [Refusal::UnknownGateway(ip("192.0.2.9"))].into());
    // Until then nothing that is for the peer leaves by another way, or under another name.
    assert_eq!(shown(&wanted.routes), ["254 10.0.0.0/16 nowhere", "254 10.50.0.0/16 nowhere"]);
    assert_eq!(wanted.exemptions[&Family::V4].views.len(), 2);
}

#[test]
fn what_is_for_a_peer_without_a_tunnel_goes_nowhere() {
    let parted = Peer { gateway: None, ..turin() };
    for name in ["one", "two"] {
        let Plan { wanted, refused } = planned(name, &nodes(), std::slice::from_ref(&parted), &[]);
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!(shown(&wanted.routes), ["254 10.0.0.0/16 nowhere", "254 10.50.0.0/16 nowhere"]);
        assert_eq!(wanted.exemptions[&Family::V4].views.len(), 2);
        // With a tunnel the way by it counts, whoever is looked at last.
        assert_eq!(
            planned(name, &nodes(), &[turin(), parted.clone()], &[]),
            planned(name, &nodes(), &[turin()], &[])
        );
    }
}

#[test]
fn a_tunnel_that_goes_leaves_no_moment_in_which_packets_get_out() {
    let mut kernel = Kernel(Present { has_gateway: true, ..Present::default() });
    kernel.do_all(&planned("one", &nodes(), &[turin()], &[]).wanted);
    let parted = planned("one", &nodes(), &[Peer { gateway: None, ..turin() }], &[]).wanted;
    let all = kernel.do_all(&parted);
    let opens = |change: &Change| match change {
        Change::RemoveRoute(route) => route.hop == Hop::Nowhere,
        Change::RemoveExemption(_) => true,
        _ => false,
    };
    assert!(!all.iter().any(opens), "{all:?}");
    assert!(kernel.has(&parted));
}

#[test]
fn a_node_without_an_address_is_waited_for() {
    let (nodes, peers) = (nodes(), [turin()]);
    let snapshot =
        Snapshot { node: "four", nodes: &nodes, peers: &peers, mtu: 1500, local: &[], reach: Reach::Default };
    assert_eq!(plan(&snapshot), Err(Unplanned::UnknownNode("four".into())));
    let narrow = Snapshot { node: "two", mtu: 600, ..snapshot };
    assert_eq!(plan(&narrow), Err(Unplanned::TooSmall(ip("192.0.2.2"), 600)));
}

#[test]
fn of_two_nodes_with_one_network_one_has_a_way_from_the_gateway() {
    let mut nodes = nodes();
    nodes[2].pods = nodes[1].pods.clone();
    let wanted = planned("one", &nodes, &[turin()], &[]).wanted;
    let ways: Vec<&Route> = wanted.routes.iter().filter(|route| route.to == nodes[1].pods[0]).collect();
    assert_eq!(ways.len(), 1, "{ways:?}");
}

/// A kernel, as far as changes go.
#[derive(Default)]
struct Kernel(Present);

impl Kernel {
    fn do_all(&mut self, want: &Wanted) -> Vec<Change> {
        let all = changes(&self.0, want);
        for change in &all {
            self.perform(change.clone());
        }
        all
    }

    fn perform(&mut self, change: Change) {
        let now = &mut self.0;
        match change {
            Change::WriteExemption(family, exemption) => _ = now.exemptions.insert(family, Some(exemption)),
            Change::RemoveExemption(family) => assert!(now.exemptions.remove(&family).is_some()),
            Change::CreateOverlay(overlay) => {
                assert!(now.overlay.is_none());
                now.overlay = Some(PresentOverlay { overlay: Some(overlay), is_in_use: false });
            }
            Change::TuneOverlay(overlay) => {
                assert!(now.overlay.is_some());
                now.overlay = Some(PresentOverlay { overlay: Some(overlay), is_in_use: true });
            }
            Change::RemoveOverlay => {
                assert!(now.overlay.take().is_some());
                now.neighbours.clear();
                now.forwarding.clear();
                now.routes.retain(|route| !matches!(route.hop, Hop::Overlay(_)));
            }
            Change::PutNeighbour(ip, mac) => _ = now.neighbours.insert(ip, mac),
            Change::RemoveNeighbour(ip) => assert!(now.neighbours.remove(&ip).is_some()),
            Change::PutForwarding(mac, ip) => _ = now.forwarding.insert(mac, ip),
            Change::RemoveForwarding(mac, ip) => assert_eq!(now.forwarding.remove(&mac), Some(ip)),
            Change::AddRoute(route) => {
                assert!(now.routes.iter().all(|other| other.key() != route.key()));
                self.lead(route);
            }
            Change::ReplaceRoute(route) => {
                let before = now.routes.len();
                now.routes.retain(|other| other.key() != route.key());
                assert_eq!(now.routes.len(), before - 1);
                self.lead(route);
            }
            Change::RemoveRoute(route) => assert!(now.routes.remove(&route)),
            Change::AddRule(rule) => assert!(now.rules.insert(rule)),
            Change::RemoveRule(rule) => assert!(now.rules.remove(&rule)),
        }
    }

    /// A route wants its link, and its next hop is to be known by then.
    fn lead(&mut self, route: Route) {
        let now = &mut self.0;
        match route.hop {
            Hop::Overlay(hop) => {
                assert!(now.overlay.as_ref().unwrap().is_in_use);
                assert!(now.forwarding.contains_key(&now.neighbours[&hop]));
            }
            Hop::Gateway(_) => assert!(now.has_gateway),
            Hop::Nowhere => {}
        }
        assert!(!now.exemptions.is_empty(), "a route before the exemption");
        now.routes.insert(route);
    }

    fn has(&self, want: &Wanted) -> bool {
        let exemptions =
            self.0.exemptions.iter().map(|(family, one)| Some((*family, one.clone()?))).collect();
        let now = Wanted {
            overlay: self.0.overlay.as_ref().and_then(|present| present.overlay.clone()),
            neighbours: self.0.neighbours.clone(),
            forwarding: self.0.forwarding.clone(),
            routes: self.0.routes.clone(),
            rules: self.0.rules.clone(),
            exemptions: Option::unwrap_or_default(exemptions),
        };
        now == *want
    }
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let mut kernel = Kernel(Present { has_gateway: true, ..Present::default() });
    let wanted = planned("one", &nodes(), &[turin()], &[]).wanted;
    assert!(!kernel.do_all(&wanted).is_empty());
    assert!(kernel.has(&wanted));
    assert_eq!(kernel.do_all(&wanted), []);
}

#[test]
fn routes_to_the_gateway_wait_for_its_link() {
    let mut kernel = Kernel::default();
    let wanted = planned("one", &nodes(), &[turin()], &[]).wanted;
    kernel.do_all(&wanted);
    let leads_to_gateway = |route: &Route| matches!(route.hop, Hop::Gateway(_));
    assert!(!kernel.0.routes.iter().any(leads_to_gateway));
    // Until then nothing leaves by another way.
    assert_eq!(kernel.0.routes.iter().filter(|route| route.hop == Hop::Nowhere).count(), 2);
    kernel.0.has_gateway = true;
    let all = kernel.do_all(&wanted);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(kernel.has(&wanted));
}

#[test]
fn a_gateway_that_moves_takes_its_routes_along() {
    let mut kernel = Kernel::default();
    kernel.do_all(&planned("two", &nodes(), &[turin()], &[]).wanted);
    let moved = Peer { gateway: Some(ip("192.0.2.3")), ..turin() };
    let wanted = planned("two", &nodes(), &[moved], &[]).wanted;
    let all = kernel.do_all(&wanted);
    assert!(all.iter().all(|change| matches!(change, Change::ReplaceRoute(_))), "{all:?}");
    assert!(kernel.has(&wanted));
}

#[test]
fn a_link_that_is_not_ours_under_our_name_is_made_anew() {
    let mut kernel = Kernel::default();
    let wanted = planned("two", &nodes(), &[turin()], &[]).wanted;
    kernel.do_all(&wanted);
    kernel.0.overlay = Some(PresentOverlay { overlay: None, is_in_use: true });
    let all = kernel.do_all(&wanted);
    assert!(all.starts_with(&[Change::RemoveOverlay]), "{all:?}");
    assert!(kernel.has(&wanted));
}

#[test]
fn a_new_size_needs_no_new_link() {
    let mut kernel = Kernel::default();
    kernel.do_all(&planned("two", &nodes(), &[turin()], &[]).wanted);
    let nodes = nodes();
    let peers = [turin()];
    let snapshot =
        Snapshot { node: "two", nodes: &nodes, peers: &peers, mtu: 9000, local: &[], reach: Reach::Default };
    let wanted = plan(&snapshot).unwrap().wanted;
    let all = kernel.do_all(&wanted);
    assert_eq!(all, [Change::TuneOverlay(wanted.overlay.clone().unwrap())]);
}

#[test]
fn a_table_that_somebody_changed_is_written_again() {
    let mut kernel = Kernel::default();
    let wanted = planned("two", &nodes(), &[turin()], &[]).wanted;
    kernel.do_all(&wanted);
    kernel.0.exemptions.insert(Family::V4, None);
    assert_eq!(kernel.do_all(&wanted).len(), 1);
    assert!(kernel.has(&wanted));
}

fn some_net() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 4_u8..=32)
        .prop_map(|(bits, length)| IpNet::new(IpAddr::V4(bits.into()), length).unwrap());
    let v6 = (any::<u128>(), 4_u8..=128)
        .prop_map(|(bits, length)| IpNet::new(IpAddr::V6(bits.into()), length).unwrap());
    // Close to each other, so that many overlap.
    let near = (0_u32..1 << 12, 18_u8..=30)
        .prop_map(|(bits, length)| IpNet::new(IpAddr::V4((0x0a00_0000 | bits << 8).into()), length).unwrap());
    prop_oneof![1 => v4, 1 => v6, 4 => near].prop_map(|network| network.trunc())
}

prop_compose! {
    fn some_cluster()(
        pods in proptest::collection::vec(some_net(), 3),
        views in proptest::collection::vec(proptest::collection::vec(some_net(), 0..4), 0..4),
        gateways in proptest::collection::vec(proptest::option::of(1_u8..=4), 4),
        local in proptest::collection::vec(some_net(), 0..3),
    ) -> (Vec<Node>, Vec<Peer>, Vec<IpNet>) {
        let names = ["one", "two", "three"];
        let nodes = names.iter().zip(pods).zip(1_u8..).map(|((name, pods), index)| Node {
            name: (*name).into(),
            addresses: vec![IpAddr::from([192, 0, 2, index])],
            pods: vec![pods],
        });
        let peers = views.into_iter().zip(gateways).map(|(views, gateway)| Peer {
            views,
            gateway: gateway.map(|number| IpAddr::from([192, 0, 2, number])),
            own_pods: None,
        });
        (nodes.collect(), peers.collect(), local)
    }
}

fn apart(a: &IpNet, b: &IpNet) -> bool {
    !a.contains(b) && !b.contains(a)
}

proptest! {
    #[test]
    fn no_route_covers_a_network_of_the_node((nodes, peers, local) in some_cluster(), own in 0_usize..3) {
        let own = &nodes[own];
        let Plan { wanted, refused } = planned(&own.name, &nodes, &peers, &local);
        // The gateway's own address is no network of a peer: one address of our own link, whoever else is around it.
        let gateway = IpNet::from(IpAddr::from(GATEWAY_END.0));
        for route in wanted.routes.iter().filter(|route| route.to != gateway) {
            for pods in &own.pods {
                prop_assert!(apart(&route.to, pods), "{route:?}");
            }
            prop_assert!(!own.addresses.iter().any(|ip| route.to.contains(ip)));
            if route.table == MAIN {
                prop_assert!(local.iter().all(|network| apart(&route.to, network)), "{route:?}");
            }
        }
        // Every view has a route, or there is a reason.
        for peer in &peers {
            for view in &peer.views {
                let is_led = wanted.routes.iter().any(|route| route.table == MAIN && route.to == *view);
                prop_assert!(is_led || !refused.is_empty());
                // With a route or without one: behind it nothing leads out into the world.
                let ends = |route: &&Route| route.to == *view && route.hop == Hop::Nowhere;
                prop_assert_eq!(wanted.routes.iter().filter(ends).count(), usize::from(is_led));
            }
        }
        // A kernel takes only networks that are apart.
        for exemption in wanted.exemptions.values() {
            for set in [&exemption.own, &exemption.views, &exemption.inside, &exemption.nodes] {
                for (index, a) in set.iter().enumerate() {
                    prop_assert!(set.iter().skip(index + 1).all(|b| apart(a, b)));
                }
            }
        }
    }

    #[test]
    fn every_plan_comes_true_from_every_other(
        steps in proptest::collection::vec((some_cluster(), any::<bool>()), 1..5),
    ) {
        let mut kernel = Kernel::default();
        for ((nodes, peers, local), has_gateway) in steps {
            kernel.0.has_gateway = has_gateway;
            if !has_gateway {
                kernel.0.routes.retain(|route| !matches!(route.hop, Hop::Gateway(_)));
            }
            let wanted = planned("two", &nodes, &peers, &local).wanted;
            kernel.do_all(&wanted);
            prop_assert_eq!(kernel.do_all(&wanted), []);
            prop_assert!(!has_gateway || kernel.has(&wanted));
        }
        kernel.do_all(&Wanted::default());
        prop_assert!(kernel.has(&Wanted::default()));
    }
}
