use ferro_api::net::{NatMappingSpec, TunnelEndpointSpec};
use proptest::prelude::*;

use super::super::config::{PORT, PUBLIC_KEY};
use super::super::{Drop, Packet};
use super::*;

const KEY: &str = "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g=";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The tunnel of the vector V1 from a to b, with networks for other endpoints.
pub(in super::super) fn v1() -> TunnelEndpoint {
    let spec = TunnelEndpointSpec {
        cluster_id: "b".into(),
        pod_cidr: "10.244.0.0/24".into(),
        external_cidr: Some("192.168.0.0/24".into()),
        endpoint_ip: "192.0.2.2".into(),
        backend_type: BACKEND.into(),
        backend_config: [(PORT.to_owned(), "30020".to_owned()), (PUBLIC_KEY.into(), KEY.into())].into(),
    };
    let mut endpoint = TunnelEndpoint::new("tunnel", spec);
    endpoint.metadata.namespace = Some("liqo-tenant-b".into());
    endpoint.status = Some(TunnelEndpointStatus {
        local_pod_cidr: Some("10.244.0.0/24".into()),
        local_nat_pod_cidr: Some("10.0.40.0/24".into()),
        remote_nat_pod_cidr: Some("10.0.0.0/24".into()),
        local_external_cidr: Some("192.168.0.0/24".into()),
        local_nat_external_cidr: Some("192.168.8.0/24".into()),
        remote_nat_external_cidr: Some("192.168.7.0/24".into()),
        ..TunnelEndpointStatus::default()
    });
    endpoint
}

fn mapping(name: &str, entries: &[(&str, &str)]) -> NatMapping {
    let entries = entries.iter().map(|(endpoint, address)| ((*endpoint).into(), (*address).into()));
    NatMapping::new(name, NatMappingSpec { cluster_id: "b".into(), cluster_mappings: entries.collect() })
}

/// A node of a, as b reaches it.
fn redirection() -> NatMapping {
    mapping("natmapping-b", &[("172.18.0.3", "192.168.8.45")])
}

fn changed(change: impl Fn(&mut TunnelEndpointSpec, &mut TunnelEndpointStatus)) -> TunnelEndpoint {
    let mut endpoint = v1();
    change(&mut endpoint.spec, endpoint.status.as_mut().unwrap());
    endpoint
}

fn problem(endpoint: TunnelEndpoint) -> String {
    let (found, problems) = tunnels(&[endpoint], &[]);
    assert!(found.is_empty());
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].peer, "b");
    problems[0].to_string()
}

#[test]
fn what_the_resources_say_is_what_the_vectors_demand() {
    let (table, problems) = tables(&[v1()], &[redirection()], Reach::Default);
    assert_eq!(problems, []);
    let packet =
        |source: &str, destination: &str| Packet { source: ip(source), destination: ip(destination) };
    let tunnel = packet("10.0.40.7", "10.0.0.5");
    assert_eq!(table.outbound(packet("10.244.0.7", "10.0.0.5")), Ok(("b", tunnel)));
    let reply = packet("10.0.0.5", "10.0.40.7");
    assert_eq!(table.inbound("b", reply), Ok(packet("10.0.0.5", "10.244.0.7")));
    let node = packet("10.0.0.5", "192.168.8.45");
    assert_eq!(table.inbound("b", node), Ok(packet("10.0.0.5", "172.18.0.3")));
    assert_eq!(table.inbound("b", packet("10.244.0.5", "10.0.40.7")), Err(Drop::SpoofedSource));
}

#[test]
fn how_far_a_peer_reaches_is_what_the_configuration_says() {
    let packet = |to: &str| Packet { source: ip("10.0.0.5"), destination: ip(to) };
    for (reach, pods) in [(Reach::Default, true), (Reach::Full, true), (Reach::Strict, false)] {
        let (table, _) = tables(&[v1()], &[redirection()], reach);
        let pod = table.inbound("b", packet("10.0.40.7")).map(|packet| packet.destination);
        let wanted = if pods { Ok(ip("10.244.0.7")) } else { Err(Drop::ForeignDestination) };
        assert_eq!(pod, wanted, "{reach:?}");
        let endpoint = table.inbound("b", packet("192.168.8.45")).unwrap();
        assert_eq!(endpoint.destination, ip("172.18.0.3"), "{reach:?}");
        let answer = table.answer("b", packet("10.0.40.7")).unwrap();
        assert_eq!(answer.destination, ip("10.244.0.7"), "{reach:?}");
    }
    let strict = ReachablePods::of(Reach::Strict, [ip("10.244.0.7")].into());
    let table = tunnels(&[v1()], &[]).0["b"].table.clone().reaching(strict);
    assert!(table.inbound(packet("10.0.40.7")).is_ok());
    assert_eq!(table.inbound(packet("10.0.40.8")), Err(Drop::ForeignDestination));
}

#[test]
fn a_pod_that_is_published_is_reached_under_its_name_also_by_strict_reach() {
    let published = mapping("mine", &[("10.244.0.9", "10.0.40.9")]);
    let (table, problems) = tables(&[v1()], &[published], Reach::Strict);
    assert_eq!(problems, []);
    let table = &table.peers["b"];
    assert!(table.redirections().is_empty(), "it has a name without that");
    let packet = |to: &str| Packet { source: ip("10.0.0.5"), destination: ip(to) };
    assert_eq!(table.inbound(packet("10.0.40.9")).unwrap().destination, ip("10.244.0.9"));
    assert_eq!(table.inbound(packet("10.0.40.7")), Err(Drop::ForeignDestination));
}

#[test]
fn a_gateway_is_told_whom_to_talk_to_and_what_to_probe() {
    let (found, _) = tunnels(&[v1()], &[]);
    let tunnel = &found["b"];
    assert_eq!(tunnel.endpoint, "192.0.2.2:30020".parse().unwrap());
    assert_eq!(tunnel.public_key[..2], [0xf8, 0x28]);
    assert_eq!(tunnel.probe, Some(ProbePair { ours: ip("192.168.8.1"), theirs: ip("192.168.7.1") }));
    let pods_only = changed(|spec, _| spec.external_cidr = None);
    assert_eq!(tunnels(&[pods_only], &[]).0["b"].probe, None);
    let tiny = changed(|spec, status| {
        spec.external_cidr = Some("192.168.0.0/31".into());
        status.remote_nat_external_cidr = None;
        status.local_external_cidr = None;
    });
    assert_eq!(tunnels(&[tiny], &[]).0["b"].probe, None);
    assert_eq!(gateway_of("fd00:7::/64".parse().unwrap()), Some(ip("fd00:7::1")));
}

#[test]
fn what_keeps_its_name_need_not_be_said() {
    let kept = changed(|spec, status| {
        spec.pod_cidr = "10.1.0.0/24".into();
        spec.external_cidr = Some("192.168.9.0/24".into());
        status.remote_nat_pod_cidr = None;
        status.remote_nat_external_cidr = Some("None".into());
        status.local_nat_pod_cidr = None;
    });
    let agreement = tunnels(&[kept], &[]).0["b"].agreement;
    assert!(agreement.their_pods.is_identity() && agreement.ours.unwrap().pods.is_identity());
}

#[test]
fn what_cannot_be_read_is_named_with_its_object() {
    let mut early = v1();
    early.status = None;
    assert_eq!(
        problem(early),
        "TunnelEndpoint liqo-tenant-b/tunnel: it is not processed yet: status.localPodCIDR is missing"
    );
    for (endpoint, said) in [
        (changed(|spec, _| spec.pod_cidr = "10".into()), "podCIDR is \"10\", which is not a network"),
        (changed(|_, status| status.local_nat_pod_cidr = Some("10.0.40.0/25".into())), "same size"),
        (changed(|_, status| status.remote_nat_pod_cidr = Some("fd00::/24".into())), "same family"),
        (changed(|_, status| status.local_external_cidr = Some("x".into())), "localExternalCIDR is \"x\""),
        (changed(|spec, _| spec.endpoint_ip = "0.0.0.0".into()), "endpointIP"),
        (changed(|spec, _| spec.backend_config.clear()), "backend_config.port"),
        (
            changed(|spec, _| drop(spec.backend_config.insert(PUBLIC_KEY.into(), "AA==".into()))),
            "backend_config.publicKey",
        ),
        (changed(|spec, _| spec.backend_type = "ipsec".into()), "of the kind \"ipsec\""),
        (changed(|_, status| status.remote_nat_pod_cidr = None), "overlaps with 10.244.0.0/24"),
        (
            changed(|_, status| status.remote_nat_external_cidr = Some("10.0.0.0/24".into())),
            "overlaps with 10.0.0.0/24",
        ),
    ] {
        let problem = problem(endpoint);
        assert!(problem.contains(said), "{problem}");
    }
}

#[test]
fn a_peer_that_cannot_be_used_leaves_the_others_alone() {
    let other = changed(|spec, _| spec.cluster_id = "c".into());
    let (found, problems) = tunnels(&[v1(), other], &[]);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!((problems[0].peer.as_str(), problems.len()), ("c", 1), "c would draw what is meant for b");
    let mut twin = v1();
    twin.metadata.name = Some("zwilling".into());
    let (found, problems) = tunnels(&[twin, v1()], &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        problems[0].to_string(),
        "TunnelEndpoint liqo-tenant-b/zwilling: there is already a tunnel to the same cluster: TunnelEndpoint \
         liqo-tenant-b/tunnel"
    );
}

#[test]
fn no_two_have_one_key_and_nobody_has_ours() {
    let other = changed(|spec, status| {
        spec.cluster_id = "c".into();
        status.remote_nat_pod_cidr = Some("10.7.0.0/24".into());
        status.remote_nat_external_cidr = Some("10.8.0.0/24".into());
    });
    let (mut found, problems) = tunnels(&[v1(), other.clone()], &[]);
    assert!(problems[0].is_of(&other) && !problems[0].is_of(&v1()));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!((problems[0].peer.as_str(), problems.len()), ("c", 1));
    assert_eq!(problems[0].trouble, Trouble::SameKey("TunnelEndpoint liqo-tenant-b/tunnel".into()));
    let key = found["b"].public_key;
    assert_eq!(without_ourselves(&[7; 32], &mut found), []);
    let problems = without_ourselves(&key, &mut found);
    assert!(found.is_empty() && problems[0].peer == "b" && problems[0].trouble == Trouble::OwnKey);
    assert!(problems[0].is_of(&v1()));
}

#[test]
fn a_redirection_that_makes_no_sense_is_left_out_and_the_rest_holds() {
    let ours = mapping("a", &[("172.18.0.3", "192.168.8.45"), ("10.244.0.9", "192.168.8.46")]);
    let more = [
        ("172.18.0.3", "192.168.8.47"),
        ("172.18.0.4", "192.168.8.45"),
        ("172.18.0.5", "fd00::5"),
        ("172.18.0.6", "192.168.8.48"),
        ("host", "192.168.8.49"),
    ];
    let (table, problems) = tables(&[v1()], &[mapping("b", &more), ours], Reach::Default);
    let kept = [(ip("192.168.8.45"), ip("172.18.0.3")), (ip("192.168.8.48"), ip("172.18.0.6"))];
    assert_eq!(table.peers["b"].redirections(), kept.into());
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "NatMapping a: 10.244.0.9 is a pod of this cluster; only 10.0.40.9, its name there, can stand for it",
            "NatMapping b: 172.18.0.3 is redirected already: 192.168.8.45 stands for it",
            "NatMapping b: 192.168.8.45 stands for another endpoint already: 172.18.0.3",
            "NatMapping b: 172.18.0.5 and fd00::5 are not of the same family",
            "NatMapping b: a key of clusterMappings is \"host\", which is not an address",
        ]
    );
}

#[test]
fn what_the_address_manager_wrote_comes_before_what_others_wrote_earlier() {
    let theirs = mapping("a", &[("172.18.0.3", "192.168.8.45"), ("172.18.0.4", "192.168.8.46")]);
    let mut ours = mapping("natmapping-b", &[("172.18.0.3", "192.168.8.47")]);
    labels::PART_OF.put_on(&mut ours.metadata);
    let (table, problems) = tables(&[v1()], &[theirs, ours], Reach::Default);
    let kept = [(ip("192.168.8.46"), ip("172.18.0.4")), (ip("192.168.8.47"), ip("172.18.0.3"))];
    assert_eq!(table.peers["b"].redirections(), kept.into());
    assert_eq!(
        problems[0].to_string(),
        "NatMapping a: 172.18.0.3 is redirected already: 192.168.8.47 stands for it"
    );
}

proptest! {
    #[test]
    fn whatever_stands_in_the_resources_nothing_panics(
        texts in proptest::collection::vec("[0-9a-f:./N]{0,20}", 9),
        entries in proptest::collection::btree_map("[0-9.:]{0,12}", "[0-9.:]{0,12}", 0..4),
    ) {
        let endpoint = changed(|spec, status| {
            spec.pod_cidr.clone_from(&texts[0]);
            spec.external_cidr = Some(texts[1].clone());
            spec.endpoint_ip.clone_from(&texts[2]);
            spec.backend_config.insert(PORT.into(), texts[3].clone());
            status.local_pod_cidr = Some(texts[4].clone());
            status.local_nat_pod_cidr = Some(texts[5].clone());
            status.remote_nat_pod_cidr = Some(texts[6].clone());
            status.local_external_cidr = Some(texts[7].clone());
            status.remote_nat_external_cidr = Some(texts[8].clone());
        });
        let spec = NatMappingSpec { cluster_id: "b".into(), cluster_mappings: entries };
        let (found, problems) = tunnels(&[endpoint, v1()], &[NatMapping::new("x", spec)]);
        prop_assert!(found.contains_key("b") && !problems.is_empty());
    }
}
