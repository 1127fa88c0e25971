//! Virtual nodes as an API server would keep them.

use std::time::Duration;

use ferro_api::config::AdvertisementConfig;
use ferro_api::discovery::{NetworkState, NetworkStatus, NodeLabels};
use ferro_api::sharing::ResourceOfferSpec;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Health, Upkeep, VirtualNode, claimed_labels, farewell, lease, lost_since};
use crate::keepalive::{Signal, Timing};
use crate::replication::apply;
use crate::resources::tests::quantities;

const PEER: &str = "0b3c0d60-0000-8000-8000-000000000001";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn offer(labels: &Value) -> ResourceOfferSpec {
    serde_json::from_value(json!({
        "clusterId": PEER,
        "resourceQuota": {"hard": {
            "cpu": "1908m", "memory": "2664000000", "brokering.liqo.io/redis": "true",
        }},
        "labels": labels,
    }))
    .unwrap()
}

fn peer<'a>(offer: &'a ResourceOfferSpec, corrections: Option<&'a NodeLabels>) -> VirtualNode<'a> {
    VirtualNode {
        name: "liqo-milan-0a1b2c",
        cluster_id: PEER,
        offer,
        corrections,
        version: "v1.34.0-ferro",
        agent: None,
    }
}

fn network(state: NetworkState) -> NetworkStatus {
    NetworkStatus { state, ..NetworkStatus::default() }
}

fn heard(network: &NetworkStatus, second: i64) -> Health<'_> {
    let config = AdvertisementConfig::default();
    let timing = Timing { drain_delay: Duration::from_mins(10), ..Timing::new(&config, None) };
    Health { signal: Signal::judge(at(0), &timing, at(second)), network, ending: false }
}

fn registered(offer: &ResourceOfferSpec, corrections: Option<&NodeLabels>) -> Node {
    let mut node = peer(offer, corrections).register(&heard(&network(NetworkState::Established), 0), at(0));
    node.metadata.resource_version = Some("7".into());
    node
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref().unwrap().get(key).map(String::as_str)
}

/// Status and reason of a condition.
fn condition(node: &Node, type_: &str) -> (String, String) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let condition = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (condition.status.clone(), condition.reason.clone().unwrap())
}

fn patched(node: &Node, upkeep: &Upkeep) -> Node {
    let mut value = json!(node);
    upkeep.object.iter().chain(&upkeep.status).for_each(|patch| apply(&mut value, patch));
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_node_has_what_is_offered_as_far_as_it_can_be_counted() {
    let node = registered(&offer(&json!({})), None);
    let status = node.status.unwrap();
    assert_eq!(status.capacity, Some(quantities([("cpu", "1908m"), ("memory", "2664M")])));
    assert_eq!(status.allocatable, status.capacity);
}

#[test]
fn what_an_api_server_would_refuse_is_not_taken_over() {
    let mut odd = offer(&json!({}));
    odd.resource_quota.as_mut().unwrap().hard =
        quantities([("cpu", "1500u"), ("pods", "1500m"), ("not a name", "1"), ("example.org/gpu", "2")]);
    let status = registered(&odd, None).status.unwrap();
    assert_eq!(status.capacity, Some(quantities([("cpu", "1m"), ("pods", "1"), ("example.org/gpu", "2")])));
}

#[test]
fn the_node_is_marked_tainted_and_in_a_region_of_its_own() {
    let node = registered(&offer(&json!({})), None);
    assert_eq!(label(&node, "liqo.io/type"), Some("virtual-node"));
    assert_eq!(label(&node, "liqo.io/remoteID"), Some(PEER));
    assert_eq!(label(&node, "topology.kubernetes.io/region"), Some("liqo-milan-0a1b2c"));
    assert_eq!(label(&node, "node.kubernetes.io/exclude-from-external-load-balancers"), Some("true"));
    assert_eq!(label(&node, "kubernetes.io/arch"), Some("amd64"));
    assert_eq!(label(&node, "kubernetes.io/os"), Some("linux"));
    let taints = json!([{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}]);
    assert_eq!(json!(node.spec.unwrap().taints), taints);
}

#[test]
fn a_peer_claims_free_labels_and_no_reserved_ones() {
    let offer = offer(&json!({
        "liqo.io/region": "eu", "color": "blue", "example.org/x": "y", "kubernetes.io/arch": "arm64",
        "liqo.io/type": "physical", "liqo.io/remoteID": "other", "kubernetes.io/hostname": "n1",
        "node-role.kubernetes.io/control-plane": "", "topology.kubernetes.io/region": "home",
        "node.kubernetes.io/instance-type": "big", "beta.kubernetes.io/os": "x", "scheduling.k8s.io/x": "y",
        "virtual-node.liqo.io/x": "y", "not a key": "x", "/x": "y", "UPPER.org/x": "y", "bad-value": "-x",
    }));
    let node = registered(&offer, None);
    assert_eq!(claimed_labels(&node.metadata), ["color", "example.org/x", "liqo.io/region"]);
    assert_eq!(label(&node, "color"), Some("blue"));
    assert_eq!(label(&node, "kubernetes.io/arch"), Some("arm64"));
    assert_eq!(label(&node, "kubernetes.io/hostname"), Some("liqo-milan-0a1b2c"));
    assert_eq!(node.metadata.labels.unwrap().len(), 7 + 3);
}

#[test]
fn an_unknown_architecture_is_not_believed() {
    let node = registered(&offer(&json!({"kubernetes.io/arch": "quantum"})), None);
    assert_eq!(label(&node, "kubernetes.io/arch"), Some("amd64"));
}

#[test]
fn the_administrator_corrects_claims_but_not_what_the_node_is() {
    let set = json!({"color": "red", "liqo.io/type": "physical", "topology.kubernetes.io/region": "south"});
    let corrections: NodeLabels = serde_json::from_value(json!({"set": set, "drop": ["size"]})).unwrap();
    let node = registered(&offer(&json!({"color": "blue", "size": "xl"})), Some(&corrections));
    assert_eq!(label(&node, "color"), Some("red"));
    assert_eq!(label(&node, "size"), None);
    assert_eq!(label(&node, "liqo.io/type"), Some("virtual-node"));
    assert_eq!(label(&node, "topology.kubernetes.io/region"), Some("south"));
    assert_eq!(claimed_labels(&node.metadata), Vec::<&str>::new());
}

#[test]
fn nothing_is_written_when_nothing_changes() {
    let (offer, network) = (offer(&json!({"color": "blue"})), network(NetworkState::Established));
    let mut node = registered(&offer, None);
    node.status.as_mut().unwrap().capacity = Some(quantities([("cpu", "1.908"), ("memory", "2664M")]));
    assert_eq!(peer(&offer, None).upkeep(&node, &heard(&network, 15), at(15)), Upkeep::default());
}

#[test]
fn a_smaller_offer_changes_only_the_figures() {
    let (before, network) = (offer(&json!({})), network(NetworkState::Established));
    let mut after = before.clone();
    after.resource_quota.as_mut().unwrap().hard = quantities([("cpu", "1")]);
    let upkeep = peer(&after, None).upkeep(&registered(&before, None), &heard(&network, 0), at(9));
    let figures = json!({"cpu": "1", "memory": null});
    let status = json!({"status": {"capacity": figures, "allocatable": figures},
        "metadata": {"resourceVersion": "7"}});
    assert_eq!(upkeep, Upkeep { object: None, status: Some(status) });
}

#[test]
fn a_label_that_is_no_longer_claimed_goes_and_one_of_others_stays() {
    let mut node = registered(&offer(&json!({"color": "blue", "size": "xl"})), None);
    node.metadata.labels.as_mut().unwrap().insert("added-by-hand".into(), "x".into());
    let (after, network) = (offer(&json!({"size": "m"})), network(NetworkState::Established));
    let upkeep = peer(&after, None).upkeep(&node, &heard(&network, 0), at(9));
    let node = patched(&node, &upkeep);
    assert_eq!((label(&node, "color"), label(&node, "size")), (None, Some("m")));
    assert_eq!(label(&node, "added-by-hand"), Some("x"));
    assert_eq!(claimed_labels(&node.metadata), ["size"]);
}

#[test]
fn taints_and_conditions_of_others_stay() {
    let (offer, network) = (offer(&json!({})), network(NetworkState::Pending));
    let mut node = registered(&offer, None);
    let other = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
    node.spec.as_mut().unwrap().taints = serde_json::from_value(other).unwrap();
    let other = serde_json::from_value(json!({"type": "KernelDeadlock", "status": "False"})).unwrap();
    node.status.as_mut().unwrap().conditions.as_mut().unwrap().push(other);
    let upkeep = peer(&offer, None).upkeep(&node, &heard(&network, 0), at(9));
    let node = patched(&node, &upkeep);
    assert_eq!(node.spec.unwrap().taints.unwrap().len(), 2);
    assert_eq!(node.status.unwrap().conditions.unwrap().len(), 6);
}

#[test]
fn the_node_is_ready_only_with_a_network_or_when_somebody_else_provides_one() {
    let ready = |state| {
        let network = network(state);
        let offer = offer(&json!({}));
        let node = peer(&offer, None).register(&heard(&network, 0), at(0));
        (condition(&node, "Ready").0, condition(&node, "NetworkUnavailable").0)
    };
    let (up, down) = (("True".to_owned(), "False".to_owned()), ("False".to_owned(), "True".to_owned()));
    assert_eq!(ready(NetworkState::Established), up);
    assert_eq!(ready(NetworkState::External), up);
    for state in [NetworkState::None, NetworkState::Pending, NetworkState::Error] {
        assert_eq!(ready(state), down);
    }
}

#[test]
fn a_silent_peer_makes_the_node_not_ready_once_and_a_word_brings_it_back() {
    let (offer, network) = (offer(&json!({})), network(NetworkState::External));
    let (virtual_node, mut node) = (peer(&offer, None), registered(&offer, None));
    let late = virtual_node.upkeep(&node, &heard(&network, 59), at(59));
    assert_eq!(late, Upkeep::default());
    let lost = virtual_node.upkeep(&node, &heard(&network, 60), at(60));
    node = patched(&node, &lost);
    assert_eq!(condition(&node, "Ready"), ("False".into(), "PeerSilent".into()));
    assert_eq!(lost_since(&node), Some(at(60)));
    assert_eq!(virtual_node.upkeep(&node, &heard(&network, 100), at(100)), Upkeep::default());
    node = patched(&node, &virtual_node.upkeep(&node, &heard(&network, 700), at(700)));
    assert_eq!(lost_since(&node), Some(at(60)), "the time of the change is kept");
    node = patched(&node, &virtual_node.upkeep(&node, &heard(&network, 0), at(800)));
    assert_eq!(condition(&node, "Ready"), ("True".into(), "PeerReady".into()));
    assert_eq!(lost_since(&node), None);
}

#[test]
fn the_lease_belongs_to_the_node_and_goes_with_it() {
    let mut node = registered(&offer(&json!({})), None);
    node.metadata.uid = Some("u1".into());
    let lease = lease(&node, at(5));
    assert_eq!(lease.metadata.namespace.as_deref(), Some("kube-node-lease"));
    assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, "u1");
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("liqo-milan-0a1b2c"));
    assert_eq!((spec.lease_duration_seconds, spec.renew_time.unwrap().0), (Some(40), at(5)));
}

#[test]
fn a_node_that_goes_belongs_to_no_place_and_is_still_that_of_its_peer() {
    let node = registered(&offer(&json!({"liqo.io/region": "eu"})), None);
    assert!(label(&node, "kubernetes.io/hostname").is_some() && label(&node, "liqo.io/region").is_some());
    let left = patched(&node, &Upkeep { object: farewell(&node), status: None });
    let known = [("liqo.io/remoteID", PEER), ("liqo.io/type", "virtual-node")];
    let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(left.metadata.labels, Some(known.into()));
    assert_eq!(farewell(&left), None);
}
