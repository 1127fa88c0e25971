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
    let (table, problems) = tables(&[v1()], &[mapping("natmapping-b", &[("172.18.0.3", "192.168.8.45")])]);
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
fn a_redirection_that_makes_no_sense_is_left_out_and_the_rest_holds() {
    let ours = mapping("a", &[("172.18.0.3", "192.168.8.45"), ("10.244.0.9", "192.168.8.46")]);
    let more = [
        ("172.18.0.3", "192.168.8.47"),
        ("172.18.0.4", "192.168.8.45"),
        ("172.18.0.5", "fd00::5"),
        ("172.18.0.6", "192.168.8.48"),
        ("host", "192.168.8.49"),
    ];
    let (table, problems) = tables(&[v1()], &[mapping("b", &more), ours]);
    let kept = [(ip("192.168.8.45"), ip("172.18.0.3")), (ip("192.168.8.48"), ip("172.18.0.6"))];
    assert_eq!(table.peers["b"].redirections(), &kept.into());
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "NatMapping a: 10.244.0.9 is a pod of this cluster, which needs no redirection",
            "NatMapping b: 172.18.0.3 is redirected already: 192.168.8.45 stands for it",
            "NatMapping b: 192.168.8.45 stands for another endpoint already: 172.18.0.3",
            "NatMapping b: 172.18.0.5 and fd00::5 are not of the same family",
            "NatMapping b: a key of clusterMappings is \"host\", which is not an address",
        ]
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
