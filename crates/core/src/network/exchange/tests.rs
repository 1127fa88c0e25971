//! The decision row by row, where the model of two clusters does not look: a peer that lies, and what people are shown.

use std::net::IpAddr;

use ferro_api::common::ClusterIdentity;
use ferro_api::config::{NetworkMode, Reach};
use ferro_api::discovery::{ForeignCluster, NetworkState, NetworkStatus};
use ferro_api::names::finalizers;
use ferro_api::net::{NetworkConfig, NetworkConfigSpec, TunnelEndpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Objects, Snapshot, Wish, Write, answer_to, end, is_lost, plan, plan_without_addresses, shown, wish,
};
use crate::identity::tests::cluster;
use crate::network::config::{self, BACKEND, PORT, PUBLIC_KEY};
use crate::network::gateway::Gateway;
use crate::network::{Ipam, Offered, OwnNetworks, default_pools};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A gateway whose key, node and address follow from a number.
pub(super) fn gateway(number: u8) -> Gateway {
    let endpoint = (IpAddr::from([192, 0, 2, number]), 30_000 + u16::from(number)).into();
    Gateway { public_key: [number; 32], node_ip: [172, 18, 0, number].into(), endpoint }
}

pub(super) fn ipam(pods: &str) -> Ipam {
    let own = OwnNetworks {
        pod: pods.parse().unwrap(),
        service: "10.96.0.0/16".parse().unwrap(),
        reserved: ["172.18.0.1/32".parse().unwrap()].into(),
        pools: default_pools(),
        reach: Reach::Default,
    };
    Ipam::new(own, 16).unwrap()
}

/// What the peer, cluster 2, tells cluster 1.
fn told(change: impl Fn(&mut NetworkConfigSpec)) -> NetworkConfigSpec {
    let us = cluster(1).identity().id().to_string();
    let receiver = ClusterIdentity { cluster_id: us, cluster_name: None };
    let their = gateway(2);
    let mut spec = NetworkConfigSpec {
        pod_cidr: "10.244.0.0/16".into(),
        external_cidr: Some("10.0.0.0/16".into()),
        endpoint_ip: Some(their.endpoint.ip().to_string()),
        backend_type: BACKEND.into(),
        backend_config: [
            (PORT.to_owned(), their.endpoint.port().to_string()),
            (PUBLIC_KEY.to_owned(), their.key_text()),
        ]
        .into(),
        ..NetworkConfigSpec::for_cluster(receiver)
    };
    change(&mut spec);
    config::sign(&mut spec, &cluster(2));
    spec
}

fn object(spec: NetworkConfigSpec, status: &Value) -> NetworkConfig {
    let status = serde_json::from_value(status.clone()).unwrap();
    NetworkConfig { metadata: ObjectMeta::default(), spec, status }
}

/// All that is known of the peer, as values that a test can change.
struct Scene {
    ipam: Ipam,
    ours: Option<NetworkConfig>,
    theirs: Option<NetworkConfig>,
    tunnel: Option<TunnelEndpoint>,
    holder: Option<String>,
}

impl Scene {
    /// The peer has told its networks, and ours are told.
    fn new(theirs: NetworkConfigSpec) -> Self {
        let mut scene = Self {
            ipam: ipam("10.244.0.0/16"),
            ours: None,
            theirs: Some(object(theirs, &json!({}))),
            tunnel: None,
            holder: None,
        };
        let Some(Write::CreateConfig(spec)) = scene.plan().pop() else { panic!("{:?}", scene.plan()) };
        let mut ours = object(*spec, &json!({}));
        ours.metadata.finalizers = Some(vec![finalizers::ADDRESSES.into()]);
        scene.ours = Some(ours);
        scene
    }

    fn plan(&self) -> Vec<Write> {
        self.look(Wish::Join, plan)
    }

    fn look<T>(&self, wish: Wish, tell: impl Fn(&Snapshot<'_>) -> T) -> T {
        tell(&Snapshot {
            us: &cluster(1),
            peer: cluster(2).identity().id(),
            peer_name: None,
            wish,
            lost: false,
            forced: false,
            gateway: Some(&gateway(1)),
            is_gateway_silent: false,
            ipam: &self.ipam,
            ours: self.ours.as_ref(),
            theirs: self.theirs.as_ref(),
            tunnel: self.tunnel.as_ref(),
            holder_of: &|_| self.holder.clone(),
            now: at(0),
        })
    }

    /// The peer answers, and all is done that follows.
    fn answered(mut self, status: &Value) -> Self {
        let id = cluster(2).identity().id().to_string();
        self.ours.as_mut().unwrap().status = serde_json::from_value(status.clone()).unwrap();
        for write in self.plan() {
            if let Write::Acquire(offered) = write {
                self.ipam.acquire(&id, offered, at(0)).unwrap();
            }
        }
        self
    }
}

#[test]
fn the_first_word_is_ours_and_signed() {
    let scene = Scene::new(told(|_| {}));
    let spec = &scene.ours.as_ref().unwrap().spec;
    let [us, peer] = [1, 2].map(|number| cluster(number).identity().id());
    let read = config::read(spec, &us, &peer).unwrap();
    assert_eq!(read.endpoint, gateway(1).endpoint);
    assert_eq!(read.offered.external, Some(scene.ipam.external()));
}

#[test]
fn what_was_changed_by_hand_is_signed_anew() {
    let mut scene = Scene::new(told(|_| {}));
    scene.ours.as_mut().unwrap().spec.endpoint_ip = Some("203.0.113.9".into());
    let writes = scene.plan();
    let Write::PatchConfig(patch) = &writes[0] else { panic!("{writes:?}") };
    assert_eq!(patch["spec"]["endpointIP"], "192.0.2.1");
}

/// Each row is a lie, and the word with which it is refused.
#[test]
fn a_peer_that_lies_is_refused_with_the_reason_and_gets_nothing() {
    let unsigned = NetworkConfigSpec { signature: None, ..told(|_| {}) };
    let forged = NetworkConfigSpec { endpoint_ip: Some("198.51.100.1".into()), ..told(|_| {}) };
    let of_another = {
        let mut spec = told(|_| {});
        config::sign(&mut spec, &cluster(3));
        spec
    };
    let for_another = told(|spec| {
        let id = cluster(3).identity().id().to_string();
        spec.cluster = Some(ClusterIdentity { cluster_id: id, cluster_name: None });
    });
    let our_key = told(|spec| drop(spec.backend_config.insert(PUBLIC_KEY.into(), gateway(1).key_text())));
    let rows = [
        (unsigned, "NotSigned"),
        (forged, "NotSigned"),
        (of_another, "NotSigned"),
        (for_another, "AnotherReceiver"),
        (told(|spec| spec.backend_type = "ipsec".into()), "AnotherBackend"),
        (told(|spec| spec.pod_cidr = "ten".into()), "Unreadable"),
        (told(|spec| spec.endpoint_ip = Some("127.0.0.1".into())), "Unreadable"),
        (told(|spec| spec.pod_cidr = "0.0.0.0/0".into()), "TooLarge"),
        (told(|spec| spec.external_cidr = Some("10.0.0.0/8".into())), "TooLarge"),
        (told(|spec| spec.pod_cidr = "172.0.0.0/11".into()), "TooLarge"),
        (told(|spec| spec.pod_cidr = "fd00::/112".into()), "IPv6"),
        (told(|spec| spec.external_cidr = Some("fd00::/112".into())), "IPv6"),
        (told(|spec| spec.endpoint_ip = Some("10.244.0.9".into())), "EndpointInside"),
        (told(|spec| spec.endpoint_ip = Some("10.96.0.1".into())), "EndpointInside"),
        (our_key, "KeyInUse"),
    ];
    for (spec, word) in rows {
        assert_refused(&Scene::new(spec), word);
    }
}

/// What one peer claims must not move the names of another one.
#[test]
fn only_an_end_that_is_believed_is_kept_free() {
    let found = |scene: &Scene| scene.look(Wish::Join, end).map(|ip| ip.to_string());
    let at = |ip: &str| Scene::new(told(|spec| spec.endpoint_ip = Some(ip.into())));
    assert_eq!(found(&Scene::new(told(|_| {}))), Some("192.0.2.2".into()));
    // Where its own networks would be named, which are therefore named otherwise.
    let mut scene = at("10.1.0.9");
    assert_refused(&scene, "EndpointInside");
    assert_eq!(found(&scene), Some("10.1.0.9".into()));
    let mut own = scene.ipam.own().clone();
    own.reserve(["10.1.0.9".parse().unwrap()]);
    scene.ipam = Ipam::new(own, 16).unwrap();
    assert!(matches!(scene.plan()[..], [Write::Acquire(_)]), "{:?}", scene.plan());

    let mut beside = at("10.7.0.9");
    let neighbours = Offered { pod: "10.7.0.0/16".parse().unwrap(), external: None };
    beside.ipam.acquire("neighbour", neighbours, super::tests::at(0)).unwrap();
    assert_refused(&beside, "EndpointInside");
    let unsigned = NetworkConfigSpec { signature: None, ..told(|_| {}) };
    for scene in [beside, Scene::new(unsigned), at("10.244.0.9")] {
        assert_eq!(found(&scene), None);
    }
    assert_eq!(Scene::new(told(|_| {})).look(Wish::Part, end), None);
}

/// Nothing is done for the peer but to tell it why.
fn assert_refused(scene: &Scene, word: &str) {
    let writes = scene.plan();
    let [Write::Answer(patch)] = &writes[..] else { panic!("{word}: {writes:?}") };
    assert_eq!(patch["status"]["processed"], false, "{word}");
    assert_eq!(patch["status"]["conditions"][0]["reason"], word);
    assert_eq!(patch["status"]["podCIDRNAT"], Value::Null);
}

#[test]
fn a_peer_for_whose_networks_there_is_no_room_is_told_so() {
    let mut scene = Scene::new(told(|_| {}));
    // Our own external network takes all of it.
    let pools = vec!["10.0.0.0/16".parse().unwrap()];
    scene.ipam = Ipam::new(OwnNetworks { pools, ..scene.ipam.own().clone() }, 16).unwrap();
    assert_refused(&scene, "NoRoom");
}

#[test]
fn a_key_that_is_anothers_is_refused_also_to_who_has_a_tunnel_with_it() {
    let mut scene = Scene::new(told(|_| {}));
    scene.holder = Some("another".into());
    assert_refused(&scene, "KeyInUse");
    scene.tunnel = Some(tunnel(&json!(null)));
    let writes = scene.plan();
    assert!(matches!(writes[..], [Write::Answer(_), Write::DeleteTunnel]), "{writes:?}");
}

#[test]
fn networks_that_are_ours_or_public_get_other_names() {
    for offered in ["10.244.0.0/16", "10.96.0.0/16", "10.0.0.0/16", "8.8.0.0/16"] {
        let scene = Scene::new(told(|spec| spec.pod_cidr = offered.into())).answered(&json!({}));
        let writes = scene.plan();
        let [Write::Answer(patch)] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!(patch["status"]["processed"], true);
        let name = patch["status"]["podCIDRNAT"].as_str().unwrap();
        assert!(name.starts_with("10.") && name.ends_with("/16") && name != offered, "{name}");
    }
}

#[test]
fn an_answer_that_makes_no_sense_is_not_followed() {
    let whole = json!({"processed": true, "podCIDRNAT": "10.7.0.0/16", "externalCIDRNAT": "None"});
    let with = |field: &str, value: Value| {
        let mut status = whole.clone();
        status[field] = value;
        Scene::new(told(|_| {})).answered(&status)
    };
    let good = with("processed", json!(true));
    assert!(matches!(good.plan()[..], [Write::Answer(_), Write::Agree(_)]), "{:?}", good.plan());
    for (field, value) in [
        ("podCIDRNAT", json!("10.7.0.0/24")),
        ("podCIDRNAT", json!("fd00::/16")),
        ("podCIDRNAT", json!("rubbish")),
        ("podCIDRNAT", Value::Null),
        // Both would have the same name.
        ("externalCIDRNAT", json!("10.7.0.0/16")),
        ("processed", json!(false)),
    ] {
        let scene = with(field, value);
        assert!(matches!(scene.plan()[..], [Write::Answer(_)]), "{field}: {:?}", scene.plan());
        let status = show(&scene, Wish::Join);
        assert!(matches!(status.state, NetworkState::Error | NetworkState::Pending), "{status:?}");
    }
}

fn show(scene: &Scene, wish: Wish) -> NetworkStatus {
    let objects =
        Objects { ours: scene.ours.as_ref(), theirs: scene.theirs.as_ref(), tunnel: scene.tunnel.as_ref() };
    shown("milan", NetworkMode::Internal, wish, objects, None)
}

fn tunnel(status: &Value) -> TunnelEndpoint {
    let status = serde_json::from_value(json!({"connection": status})).unwrap();
    TunnelEndpoint { status, ..TunnelEndpoint::default() }
}

#[test]
fn people_are_shown_what_is_missing() {
    let mut scene = Scene::new(told(|_| {}));
    let says = |scene: &Scene, state: NetworkState, words: &str| {
        let status = show(scene, Wish::Join);
        let message = status.message.unwrap_or_default();
        assert!(status.state == state && message.contains(words), "{:?}: {message}", status.state);
    };
    let (ours, theirs) = (scene.ours.take(), scene.theirs.take());
    says(&scene, NetworkState::Pending, "about to tell its networks");
    scene.ours = ours;
    says(&scene, NetworkState::Pending, "waits until milan tells its networks");
    scene.theirs = theirs;
    says(&scene, NetworkState::Pending, "waits until milan has found names");
    scene.ours.as_mut().unwrap().status =
        serde_json::from_value(json!({"processed": true, "podCIDRNAT": "None"})).unwrap();
    assert!(answer_to(scene.ours.as_ref().unwrap()).unwrap().is_ok());
    says(&scene, NetworkState::Pending, "the tunnel is being set up");
    let no = json!({"processed": false, "conditions": [{
        "type": "Processed", "status": "False", "reason": "NoRoom", "message": "no\u{1b}room",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }]});
    let before = scene.ours.clone();
    scene.ours.as_mut().unwrap().status = serde_json::from_value(no.clone()).unwrap();
    says(&scene, NetworkState::Error, "milan does not use our networks; it says: no room");
    scene.ours = before;
    scene.theirs.as_mut().unwrap().status = serde_json::from_value(no).unwrap();
    says(&scene, NetworkState::Error, "what milan says of its networks cannot be used: no room");
    for (connection, state, words) in [
        (json!(null), NetworkState::Pending, "waits for the gateway"),
        (json!({"status": "connecting"}), NetworkState::Pending, "is being connected"),
        (json!({"status": "error", "statusMessage": "port 51820 is taken"}), NetworkState::Error, "is taken"),
        (json!({"status": "connected"}), NetworkState::Established, ""),
    ] {
        scene.tunnel = Some(tunnel(&connection));
        says(&scene, state, words);
    }
    assert_eq!(show(&scene, Wish::Part).state, NetworkState::None);
    let external = shown("milan", NetworkMode::External, Wish::Part, Objects::default(), None);
    assert_eq!(external.state, NetworkState::External);
}

fn peer(status: &Value) -> ForeignCluster {
    serde_json::from_value(json!({
        "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
        "metadata": {"name": "milan"}, "spec": {}, "status": status,
    }))
    .unwrap()
}

#[test]
fn networks_are_joined_as_long_as_one_uses_the_other() {
    for (outgoing, incoming, expected) in [
        ("None", "None", Wish::Part),
        ("Pending", "Refused", Wish::Part),
        ("Established", "None", Wish::Join),
        ("None", "Established", Wish::Join),
        ("Pending", "Unreachable", Wish::Join),
        ("Disconnecting", "None", Wish::Keep),
        ("Disconnecting", "Established", Wish::Join),
    ] {
        let mut peer = peer(&json!({"outgoing": {"state": outgoing}, "incoming": {"state": incoming}}));
        assert_eq!(wish(&peer, NetworkMode::Internal), expected, "{outgoing} {incoming}");
        assert_eq!(wish(&peer, NetworkMode::External), Wish::Part);
        peer.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
        assert_ne!(wish(&peer, NetworkMode::Internal), Wish::Join);
    }
}

#[test]
fn a_tunnel_is_let_go_by_the_gateway_or_by_force() {
    let mut tunnel = tunnel(&json!(null));
    let dropped = |tunnel: &TunnelEndpoint, forced| {
        plan_without_addresses(Wish::Part, false, forced, None, Some(tunnel))
    };
    tunnel.metadata.finalizers = Some(vec![finalizers::TUNNEL.into()]);
    assert_eq!(dropped(&tunnel, true), [Write::DeleteTunnel]);
    tunnel.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
    assert_eq!(dropped(&tunnel, false), []);
    assert_eq!(dropped(&tunnel, true), [Write::AbandonTunnel]);
    tunnel.metadata.finalizers = None;
    assert_eq!(dropped(&tunnel, true), []);
}

#[test]
fn copies_are_lost_by_force_or_when_the_peer_turns_us_away() {
    let says = |reason: &str| {
        json!({"conditions": [{
            "type": "Authenticated", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
        }]})
    };
    assert!(!is_lost(&peer(&says("WaitsForPeer"))));
    assert!(is_lost(&peer(&says("RejectedByPeer"))));
    let mut forced = peer(&json!({}));
    ferro_api::names::annotations::FORCE.put_on(&mut forced.metadata, "true");
    assert!(is_lost(&forced));
}
