//! The vectors V1 and V2 of the contract, hop by hop, and every link that can break.

use ferro_api::net::{
    Connection, EndpointMapping, IpamStorageSpec, NatMappingSpec, Probe, Subnets, TunnelEndpointStatus,
};

use super::super::tunnel::tests::v1 as endpoint;
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn connected(mut endpoint: TunnelEndpoint) -> TunnelEndpoint {
    let status = Some(ConnectionStatus::Connected);
    let connection = Connection { status, probe: Some(Probe::default()), ..Connection::default() };
    endpoint.status.get_or_insert_default().connection = Some(connection);
    endpoint
}

fn storage() -> IpamStorage {
    let subnets = Subnets {
        remote_pod_cidr: Some("10.0.0.0/24".into()),
        remote_external_cidr: Some("192.168.7.0/24".into()),
        ..Subnets::default()
    };
    let spec = IpamStorageSpec {
        pod_cidr: Some("10.244.0.0/24".into()),
        service_cidr: Some("10.96.0.0/16".into()),
        external_cidr: Some("192.168.0.0/24".into()),
        cluster_subnets: [("b".to_owned(), subnets)].into(),
        endpoint_mappings: [("172.18.0.3".to_owned(), EndpointMapping::default())].into(),
        ..IpamStorageSpec::default()
    };
    IpamStorage::new("ipam", spec)
}

/// V1, with the pod on the second node and the gateway on the first.
pub(super) fn v1(to: &str) -> Snapshot {
    let node = |ip_: &str| Node { ips: vec![ip(ip_)], ready: true, is_virtual: false };
    Snapshot {
        source: Source {
            pod: "default/client".into(),
            phase: "Running".into(),
            ips: vec![ip("10.244.0.7")],
            node: Some("a-2".into()),
        },
        target: Target::Address(ip(to)),
        networks: Known::from_storage(&[storage()]),
        external_mode: false,
        reach: Reach::Default,
        gateway: Some(Gateway { node: "a-1".into(), node_ip: ip("172.18.0.2") }),
        nodes: [("a-1".to_owned(), node("172.18.0.2")), ("a-2".to_owned(), node("172.18.0.3"))].into(),
        endpoints: vec![connected(endpoint())],
        mappings: Vec::new(),
        names: [("b".to_owned(), "turin".to_owned())].into(),
    }
}

fn packet(packet: Packet) -> String {
    format!("{} > {}", packet.source, packet.destination)
}

/// Each hop in a line.
fn lines(hops: &[Hop]) -> Vec<String> {
    let after = |hop: &Hop| hop.after.map_or_else(|| "?".to_owned(), packet);
    hops.iter().map(|hop| format!("{}: {} => {}", hop.place, packet(hop.before), after(hop))).collect()
}

pub(super) fn only(snapshot: &Snapshot) -> Way {
    let mut ways = trace(snapshot);
    assert_eq!(ways.len(), 1);
    ways.remove(0)
}

/// What breaks, after which hops.
fn broken(change: impl FnOnce(&mut Snapshot)) -> (Link, String, usize) {
    let mut snapshot = v1("10.0.0.5");
    change(&mut snapshot);
    let way = only(&snapshot);
    let fault = way.broken.expect("it should be broken");
    assert!(way.back.is_empty());
    (fault.link(), fault.to_string(), way.hops.len())
}

#[test]
fn v1_there_and_back_with_both_networks_the_same() {
    let way = only(&v1("10.0.0.5"));
    assert_eq!(way.broken, None);
    assert_eq!(way.peer.as_deref(), Some("b"));
    assert_eq!(
        lines(&way.hops),
        [
            "pod default/client: 10.244.0.7 > 10.0.0.5 => 10.244.0.7 > 10.0.0.5",
            "node a-2: 10.244.0.7 > 10.0.0.5 => 10.244.0.7 > 10.0.0.5",
            "overlay to a-1: 10.244.0.7 > 10.0.0.5 => 10.244.0.7 > 10.0.0.5",
            "gateway on a-1: 10.244.0.7 > 10.0.0.5 => 10.0.40.7 > 10.0.0.5",
            "tunnel to turin: 10.0.40.7 > 10.0.0.5 => 10.0.40.7 > 10.0.0.5",
            "gateway of turin: 10.0.40.7 > 10.0.0.5 => 10.0.40.7 > 10.244.0.5",
            "endpoint in turin: 10.0.40.7 > 10.244.0.5 => 10.0.40.7 > 10.244.0.5",
        ]
    );
    assert_eq!(
        lines(&way.back),
        [
            "endpoint in turin: 10.244.0.5 > 10.0.40.7 => 10.244.0.5 > 10.0.40.7",
            "gateway of turin: 10.244.0.5 > 10.0.40.7 => 10.0.0.5 > 10.0.40.7",
            "tunnel to turin: 10.0.0.5 > 10.0.40.7 => 10.0.0.5 > 10.0.40.7",
            "gateway on a-1: 10.0.0.5 > 10.0.40.7 => 10.0.0.5 > 10.244.0.7",
            "pod default/client: 10.0.0.5 > 10.244.0.7 => 10.0.0.5 > 10.244.0.7",
        ]
    );
    let said: Vec<_> = way.hops.iter().map(|hop| hop.what.as_str()).collect();
    assert_eq!(
        said,
        [
            "sends",
            "route 10.0.0.0/24 via 172.18.0.2 dev ferro.vxlan",
            "VXLAN to 172.18.0.2, UDP port 18800",
            "10.244.0.7 becomes 10.0.40.7, as turin names it",
            "WireGuard to 192.0.2.2:30020",
            "10.0.0.5 becomes 10.244.0.5, as it is named there",
            "gets it, and sees 10.0.40.7 as its client",
        ]
    );
}

#[test]
fn an_answer_gets_home_however_little_peers_reach() {
    let way = only(&Snapshot { reach: Reach::Strict, ..v1("10.0.0.5") });
    assert_eq!(way.back, only(&v1("10.0.0.5")).back);
}

#[test]
fn v2_there_and_back_with_one_network_renamed() {
    let mut snapshot = v1("10.2.0.5");
    snapshot.source.ips = vec![ip("10.1.0.7")];
    snapshot.source.node = Some("a-1".into());
    snapshot.networks = Known::default();
    let tunnel = &mut snapshot.endpoints[0];
    tunnel.spec.pod_cidr = "10.0.0.0/24".into();
    let connection = tunnel.status.take().unwrap().connection;
    tunnel.status = Some(TunnelEndpointStatus {
        local_pod_cidr: Some("10.1.0.0/24".into()),
        local_nat_pod_cidr: Some("None".into()),
        remote_nat_pod_cidr: Some("10.2.0.0/24".into()),
        connection,
        ..TunnelEndpointStatus::default()
    });
    let way = only(&snapshot);
    assert_eq!(way.broken, None);
    assert_eq!(
        lines(&way.hops),
        [
            "pod default/client: 10.1.0.7 > 10.2.0.5 => 10.1.0.7 > 10.2.0.5",
            "node a-1: 10.1.0.7 > 10.2.0.5 => 10.1.0.7 > 10.2.0.5",
            "gateway on a-1: 10.1.0.7 > 10.2.0.5 => 10.1.0.7 > 10.2.0.5",
            "tunnel to turin: 10.1.0.7 > 10.2.0.5 => 10.1.0.7 > 10.2.0.5",
            "gateway of turin: 10.1.0.7 > 10.2.0.5 => 10.1.0.7 > 10.0.0.5",
            "endpoint in turin: 10.1.0.7 > 10.0.0.5 => 10.1.0.7 > 10.0.0.5",
        ]
    );
    assert_eq!(
        lines(&way.back),
        [
            "endpoint in turin: 10.0.0.5 > 10.1.0.7 => 10.0.0.5 > 10.1.0.7",
            "gateway of turin: 10.0.0.5 > 10.1.0.7 => 10.2.0.5 > 10.1.0.7",
            "tunnel to turin: 10.2.0.5 > 10.1.0.7 => 10.2.0.5 > 10.1.0.7",
            "gateway on a-1: 10.2.0.5 > 10.1.0.7 => 10.2.0.5 > 10.1.0.7",
            "pod default/client: 10.2.0.5 > 10.1.0.7 => 10.2.0.5 > 10.1.0.7",
        ]
    );
}

#[test]
fn what_only_the_peer_knows_is_left_open() {
    let way = only(&v1("192.168.7.45"));
    assert_eq!(way.broken, None);
    assert_eq!(lines(&way.hops).last().unwrap(), "gateway of turin: 10.0.40.7 > 192.168.7.45 => ?");
    assert_eq!(way.back.len(), 3, "its answer comes out of the tunnel: {:?}", lines(&way.back));
    let own = only(&v1("192.168.7.1"));
    assert!(own.hops.last().unwrap().what.contains("answers by itself"));
}

#[test]
fn what_stays_in_the_cluster_needs_no_tunnel() {
    for to in ["10.244.0.9", "172.18.0.2"] {
        let mut snapshot = v1(to);
        (snapshot.gateway, snapshot.endpoints) = (None, Vec::new());
        let way = only(&snapshot);
        assert_eq!((way.broken, way.peer, way.hops.len()), (None, None, 2), "{to}");
    }
}

#[test]
fn an_endpoint_of_another_kind_is_named_by_its_redirection() {
    let mut snapshot = v1("10.0.0.5");
    snapshot.source.ips = vec![ip("172.18.0.3")];
    let fault = only(&snapshot).broken.unwrap();
    assert_eq!(fault.link(), Link::Gateway);
    assert!(fault.to_string().starts_with("172.18.0.3 is not of the pod network, and not mapped for turin"));
    let cluster_mappings = [("172.18.0.3".to_owned(), "192.168.8.45".to_owned())].into();
    snapshot.mappings =
        vec![NatMapping::new("natmapping-b", NatMappingSpec { cluster_id: "b".into(), cluster_mappings })];
    let way = only(&snapshot);
    assert_eq!(way.broken, None);
    assert_eq!(lines(&way.hops)[3], "gateway on a-1: 172.18.0.3 > 10.0.0.5 => 192.168.8.45 > 10.0.0.5");
}

fn service(snapshot: &mut Snapshot, ready: &[&str]) {
    snapshot.target = Target::Service(Service {
        name: "shop/web".into(),
        exists: true,
        ips: vec![ip("10.96.0.9")],
        port: Some("http".into()),
        ports: vec![(80, Some("http".into()))],
        ready: ready.iter().map(|text| ip(text)).collect(),
        unready: 1,
        stands_for: None,
    });
}

#[test]
fn a_service_leads_to_every_cluster_that_serves_it() {
    let mut snapshot = v1("10.0.0.5");
    service(&mut snapshot, &["10.0.0.5", "10.244.0.9", "10.0.0.6"]);
    let ways = trace(&snapshot);
    let ends: Vec<_> = ways.iter().map(|way| (way.peer.as_deref(), way.alike)).collect();
    assert_eq!(ends, [(None, 0), (Some("b"), 1)]);
    assert_eq!(
        lines(&ways[1].hops)[..2],
        [
            "pod default/client: 10.244.0.7 > 10.96.0.9 => 10.244.0.7 > 10.96.0.9",
            "service shop/web: 10.244.0.7 > 10.96.0.9 => 10.244.0.7 > 10.0.0.5",
        ]
    );
}

#[test]
fn a_service_that_serves_nobody_is_the_broken_link() {
    let of = |change: fn(&mut Service)| {
        let (link, said, hops) = broken(|snapshot| {
            service(snapshot, &["10.0.0.5"]);
            if let Target::Service(service) = &mut snapshot.target {
                change(service);
            }
        });
        assert_eq!((link, hops), (Link::Service, 0), "{said}");
        said
    };
    assert_eq!(
        of(|service| service.exists = false),
        "there is no Service shop/web; see 'kubectl --namespace shop get services'"
    );
    assert_eq!(
        of(|service| service.stands_for = Some("db.example.org".into())),
        "the Service shop/web stands for the name db.example.org, which DNS answers; see what that leads to"
    );
    assert_eq!(
        of(|service| service.port = Some("443".into())),
        "the Service shop/web has no port 443; it has 80"
    );
    assert_eq!(
        of(|service| service.ready.clear()),
        "the Service shop/web has no ready endpoint (1 are not ready); see 'kubectl --namespace shop get \
         endpointslices --selector kubernetes.io/service-name=web'"
    );
}

#[test]
fn the_first_broken_link_is_named_with_what_to_do() {
    type Change<'a> = Box<dyn FnOnce(&mut Snapshot) + 'a>;
    let connection = |snapshot: &mut Snapshot, status: Option<ConnectionStatus>, message: Option<&str>| {
        let status_message = message.map(str::to_owned);
        snapshot.endpoints[0].status.as_mut().unwrap().connection =
            status.map(|status| Connection { status: Some(status), status_message, ..Connection::default() });
    };
    let cases: [(Change<'_>, Link, usize, &str); 14] = [
        (Box::new(|now| now.source.phase = "Pending".into()), Link::Pod, 0, "describe pod client"),
        (Box::new(|now| now.source.ips = vec![ip("fd00::7")]), Link::Pod, 0, "only like reaches like"),
        (
            Box::new(|now| now.nodes.get_mut("a-2").unwrap().is_virtual = true),
            Link::Pod,
            0,
            "run 'ferro trace' in that cluster",
        ),
        (Box::new(|now| now.target = Target::Address(ip("10.9.0.5"))), Link::Node, 1, "in no network"),
        (Box::new(|now| now.target = Target::Address(ip("192.168.0.9"))), Link::Node, 1, "is for peers"),
        (
            Box::new(|now| now.target = Target::Address(ip("10.96.3.3"))),
            Link::Service,
            1,
            "no Service has it",
        ),
        (Box::new(|now| now.endpoints.clear()), Link::Node, 1, "no TunnelEndpoint for turin yet"),
        (Box::new(|now| now.endpoints[0].status = None), Link::Node, 1, "it is not processed yet"),
        (Box::new(|now| now.external_mode = true), Link::Node, 1, "somebody else joins the networks"),
        (Box::new(|now| drop(now.nodes.remove("a-2"))), Link::Node, 1, "the node a-2 is not Ready"),
        (Box::new(|now| now.gateway = None), Link::Gateway, 1, "'ferro status'"),
        (
            Box::new(|now| now.nodes.get_mut("a-1").unwrap().ready = false),
            Link::Node,
            2,
            "the node a-1 is not Ready",
        ),
        (
            Box::new(|now| connection(now, Some(ConnectionStatus::Error), Some("no route"))),
            Link::Tunnel,
            4,
            "the tunnel to turin is in error: no route",
        ),
        (Box::new(|now| connection(now, None, None)), Link::Tunnel, 4, "logs of ferro-gateway"),
    ];
    for (change, link, hops, said) in cases {
        let found = broken(change);
        assert_eq!((found.0, found.2), (link, hops), "{found:?}");
        assert!(found.1.contains(said), "{found:?}");
    }
    let (_, said, _) = broken(|now| connection(now, Some(ConnectionStatus::Connecting), None));
    assert!(said.contains("let its UDP port through the firewalls"), "{said}");
}

#[test]
fn what_is_stored_is_known_and_what_cannot_be_read_is_not() {
    let mut second = IpamStorage::new("ipam-1", IpamStorageSpec::default());
    second.spec.pod_cidr = Some("?".into());
    let known = Known::from_storage(&[second, storage()]);
    assert_eq!(known.pods, "10.244.0.0/24".parse().ok());
    assert_eq!(known.peers["b"].len(), 2);
}
