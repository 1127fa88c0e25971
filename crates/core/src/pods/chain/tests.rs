//! One pod that runs over there, and all that can be wrong with it.

use ferro_api::discovery::ForeignCluster;
use serde_json::{Value, json};

use super::*;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": reason, "message": message})
}

fn container(ready: bool, state: &Value) -> Value {
    json!({"name": "app", "image": "web:1", "imageID": "", "ready": ready, "restartCount": 0, "state": state})
}

fn running() -> Value {
    container(true, &json!({"running": {}}))
}

/// shop/web runs on turin.
fn whole() -> Snapshot {
    let pod = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "home-1"},
        "spec": {"nodeName": "liqo-turin", "containers": []},
        "status": {"phase": "Running", "podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running()]},
    });
    let node = json!({
        "metadata": {"name": "liqo-turin", "labels": {"liqo.io/type": "virtual-node"}},
        "status": {"conditions": [ready("True", "PeerReady", "")]},
    });
    let peer = json!({
        "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": "turin"},
        "spec": {}, "status": {
            "authentication": {"state": "ACCEPTED"}, "outgoing": {"state": "Established"},
            "network": {"state": "Established"}, "apiServerUrl": "https://192.0.2.2:6443",
            "contact": {"lastSeen": "2030-01-01T00:00:00Z"},
        },
    });
    let shadow = json!({
        "apiVersion": "virtualkubelet.liqo.io/v1alpha1", "kind": "ShadowPod",
        "metadata": {"name": "web", "uid": "shadow-1",
            "annotations": {"virtualkubelet.liqo.io/origin-uid": "home-1"}},
        "spec": {"pod": {"containers": []}}, "status": {"phase": "Active"},
    });
    let remote = json!({
        "metadata": {"name": "web", "annotations": {"virtualkubelet.liqo.io/shadow-uid": "shadow-1"}},
        "spec": {"nodeName": "turin-1", "containers": []},
        "status": {"phase": "Running", "podIP": "10.244.0.9", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running()]},
    });
    let tunnel = json!({
        "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint", "metadata": {"name": "turin"},
        "spec": {"clusterID": "turin", "podCIDR": "10.244.0.0/24", "endpointIP": "192.0.2.2",
            "backendType": "wireguard"},
        "status": {"remoteNATPodCIDR": "10.0.0.0/24",
            "connection": {"status": "connected", "probe": {"roundTripMicroseconds": 812}}},
    });
    Snapshot {
        pod: of(pod),
        node: Found::Some(of(node)),
        peer: Found::Some(of(peer)),
        mapping: Found::Some(of(json!({"phase": "Accepted", "remoteNamespace": "shop-rome"}))),
        there: There::Answers(Box::new(Objects { shadow: Some(of(shadow)), pod: Some(of(remote)) })),
        tunnel: Found::Some(of(tunnel)),
        now: "2030-01-01T00:00:04Z".parse().unwrap(),
    }
}

fn not_ready(snapshot: &mut Snapshot, phase: &str, reason: &str, message: &str) {
    let status = snapshot.pod.status.as_mut().unwrap();
    status.phase = Some(phase.to_owned());
    status.pod_ip = None;
    status.conditions = Some(vec![of(ready("False", reason, message))]);
}

fn objects(snapshot: &mut Snapshot) -> &mut Objects {
    match &mut snapshot.there {
        There::Answers(objects) => objects,
        There::Fails(_) | There::Unknown(_) => panic!("nobody answers"),
    }
}

fn remote(snapshot: &mut Snapshot) -> &mut Pod {
    objects(snapshot).pod.as_mut().unwrap()
}

fn lines(snapshot: &Snapshot) -> Vec<String> {
    let line = |step: &Step| format!("{} {} {:?} {}", step.link, step.name, step.state, step.shows);
    chain(snapshot).iter().map(line).collect()
}

/// The broken link, and what is said about it.
fn fault(snapshot: &Snapshot) -> (Link, String) {
    let chain = chain(snapshot);
    let broken = broken(&chain).unwrap_or_else(|| panic!("nothing is broken: {chain:?}"));
    (broken.link, broken.fault.clone().unwrap())
}

fn is_whole(snapshot: &Snapshot) -> bool {
    broken(&chain(snapshot)).is_none()
}

#[test]
fn a_pod_that_runs_elsewhere_shows_each_link() {
    let wanted = [
        "pod shop/web Good Running, ready",
        "node liqo-turin Good Ready",
        "peering turin Good Established, heard 4 s ago",
        "API server https://192.0.2.2:6443 Good answers",
        "namespace shop-rome Good Accepted",
        "ShadowPod shop-rome/web Good Active",
        "pod over there shop-rome/web Good Running, ready, on turin-1",
        "container app Good running, ready",
        "tunnel turin Good connected, round trip 0.8 ms",
        "address 10.244.0.9 there Good 10.0.0.9 here",
    ];
    assert_eq!(lines(&whole()), wanted);
    assert!(is_whole(&whole()));
}

#[test]
fn a_pod_at_home_or_nowhere_has_one_link() {
    let mut snapshot = whole();
    snapshot.node = Found::Some(of(json!({"metadata": {"name": "liqo-turin"}})));
    assert_eq!(lines(&snapshot), ["pod shop/web Good Running, ready; runs at home, on liqo-turin"]);
    snapshot.pod.spec.as_mut().unwrap().node_name = None;
    assert_eq!(chain(&snapshot)[0].state, State::Waiting);
    let verdict = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available"});
    snapshot.pod.status.as_mut().unwrap().conditions = Some(vec![of(verdict)]);
    let (link, why) = fault(&snapshot);
    assert_eq!(link, Link::Pod);
    assert!(why.contains("0/3 nodes") && why.contains("ferro explain shop"), "{why}");
}

#[test]
fn what_is_refused_at_home_is_said_of_the_pod() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Pending", "HostPathVolume", "the volume data is of the node; use a claim");
    let waiting = json!({"waiting": {"reason": "HostPathVolume", "message": "the volume data"}});
    snapshot.pod.status.as_mut().unwrap().container_statuses = Some(vec![of(container(false, &waiting))]);
    *objects(&mut snapshot) = Objects::default();
    let wanted = "HostPathVolume: the volume data is of the node; use a claim".to_owned();
    assert_eq!(fault(&snapshot), (Link::Pod, wanted.clone()));
    snapshot.there = There::Unknown("jane may not ask".into());
    assert_eq!(fault(&snapshot), (Link::Pod, wanted), "also where nothing else can be seen");
}

#[test]
fn the_first_broken_link_is_named_and_not_what_suffers_from_it() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Pending", "NoRemoteNamespace", "the namespace has no counterpart");
    let Found::Some(node) = &mut snapshot.node else { panic!() };
    let status = json!({"conditions": [ready("False", "NetworkNotReady", "no tunnel yet")]});
    node.status = Some(of(status));
    assert_eq!(fault(&snapshot), (Link::Node, "it is not Ready: NetworkNotReady: no tunnel yet".into()));
    *objects(&mut snapshot) = Objects::default();
    snapshot.tunnel = Found::None;
    assert_eq!(fault(&snapshot).0, Link::Tunnel);
    snapshot.mapping =
        Found::Some(of(json!({"phase": "CreationLoopBackOff", "message": "the quota is used up"})));
    let (link, why) = fault(&snapshot);
    assert!(link == Link::Namespace && why.contains("the quota is used up"), "{why}");
    snapshot.there = There::Fails("the cluster behind node liqo-turin cannot be asked".into());
    assert_eq!(fault(&snapshot).0, Link::ApiServer);
    let Found::Some(peer) = &mut snapshot.peer else { panic!() };
    let silent = json!({"outgoing": {"state": "Unreachable", "message": "silent for a minute"}});
    peer.status = Some(of(silent));
    assert_eq!(fault(&snapshot), (Link::Peering, "silent for a minute".into()));
    snapshot.peer = Found::None;
    assert_eq!(fault(&snapshot).0, Link::Peering);
    assert!(chain(&snapshot).iter().take(2).all(|step| step.state == State::Waiting));
    snapshot.node = Found::None;
    assert_eq!(fault(&snapshot).0, Link::Node);
}

#[test]
fn a_node_for_which_nobody_reports_is_broken_itself() {
    let mut snapshot = whole();
    let Found::Some(node) = &mut snapshot.node else { panic!() };
    let status = json!({"conditions": [ready("Unknown", "NodeStatusUnknown", "Kubelet stopped posting")]});
    node.status = Some(of(status));
    snapshot.there = There::Fails("it does not answer".into());
    let (link, why) = fault(&snapshot);
    assert!(link == Link::Node && why.contains("ferro status"), "{why}");
}

#[test]
fn what_the_provider_says_is_told() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Failed", "QuotaExceeded", "no room");
    let status = json!({"phase": "Rejected", "reason": "QuotaExceeded", "message": "no room for 2 cpu"});
    objects(&mut snapshot).shadow.as_mut().unwrap().status = Some(of(status));
    objects(&mut snapshot).pod = None;
    assert_eq!(
        fault(&snapshot),
        (Link::ShadowPod, "the cluster does not take the pod: no room for 2 cpu".into())
    );
    objects(&mut snapshot).shadow = None;
    snapshot.pod.status.as_mut().unwrap().reason = Some("QuotaExceeded".into());
    assert_eq!(fault(&snapshot), (Link::Pod, "QuotaExceeded".into()), "the pod knows when nothing is left");
}

#[test]
fn a_name_that_is_taken_over_there_is_told() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Pending", "ContainersNotReady", "");
    objects(&mut snapshot).shadow.as_mut().unwrap().metadata.annotations = None;
    assert_eq!(fault(&snapshot).0, Link::ShadowPod);
    assert!(!lines(&snapshot).iter().any(|line| line.contains("turin-1")), "its pod is none of ours");
    let meta = &mut objects(&mut snapshot).shadow.as_mut().unwrap().metadata;
    meta.deletion_timestamp = Some(of(json!("2030-01-01T00:00:00Z")));
    assert!(is_whole(&snapshot), "it goes by itself");
}

#[test]
fn a_pod_that_finds_no_node_over_there_and_one_that_fails_there_are_told() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Pending", "ContainersNotReady", "");
    let verdict = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available"});
    remote(&mut snapshot).status = Some(of(json!({"phase": "Pending", "conditions": [verdict]})));
    let (link, why) = fault(&snapshot);
    assert!(link == Link::RemotePod && why.contains("0/1 nodes are available"), "{why}");
    let status = json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"});
    remote(&mut snapshot).status = Some(of(status));
    assert_eq!(fault(&snapshot), (Link::RemotePod, "Evicted: the node was low on memory".into()));
    remote(&mut snapshot).status = Some(of(json!({"phase": "Pending"})));
    assert!(is_whole(&snapshot), "it has only begun");
}

#[test]
fn a_container_that_does_not_run_is_told_with_where_to_look() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Running", "ContainersNotReady", "");
    let state = |snapshot: &mut Snapshot, restarts: i32, state: &Value| {
        let mut container: Value = container(false, state);
        container["restartCount"] = restarts.into();
        let status = json!({"phase": "Running", "podIP": "10.244.0.9", "containerStatuses": [container]});
        remote(snapshot).status = Some(of(status));
    };
    state(&mut snapshot, 3, &json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}));
    let (link, why) = fault(&snapshot);
    assert_eq!(link, Link::Container);
    assert_eq!(why, "back-off 40s; see 'kubectl --namespace shop logs web --container app --previous'");
    assert!(lines(&snapshot).contains(&"container app Broken CrashLoopBackOff, restarts 3".to_owned()));
    state(&mut snapshot, 0, &json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}));
    assert_eq!(fault(&snapshot), (Link::Container, "no such image".into()));
    state(&mut snapshot, 0, &json!({"terminated": {"exitCode": 2, "reason": "Error"}}));
    let (_, why) = fault(&snapshot);
    assert_eq!(
        why,
        "it ended with the code 2 (Error); see 'kubectl --namespace shop logs web --container app'"
    );
    for patient in [json!({"waiting": {"reason": "ContainerCreating"}}), json!({"running": {}}), json!({})] {
        state(&mut snapshot, 0, &patient);
        assert!(is_whole(&snapshot), "{patient}");
        assert_eq!(chain(&snapshot)[0].state, State::Waiting);
    }
    state(&mut snapshot, 0, &json!({"terminated": {"exitCode": 0}}));
    snapshot.pod.status.as_mut().unwrap().pod_ip = Some("10.0.0.9".to_owned());
    assert_eq!(fault(&snapshot).0, Link::Pod, "nothing explains why it is not ready");
}

#[test]
fn a_tunnel_that_carries_nothing_is_broken_and_one_of_somebody_else_is_none_of_ours() {
    let mut snapshot = whole();
    not_ready(&mut snapshot, "Running", "TunnelDown", "the tunnel is down");
    let Found::Some(tunnel) = &mut snapshot.tunnel else { panic!() };
    let connection = tunnel.status.as_mut().unwrap().connection.as_mut().unwrap();
    connection.silent = Some(true);
    assert_eq!(fault(&snapshot).0, Link::Tunnel);
    let mut snapshot = whole();
    let Found::Some(tunnel) = &mut snapshot.tunnel else { panic!() };
    tunnel.status.as_mut().unwrap().connection =
        Some(of(json!({"status": "error", "statusMessage": "no route"})));
    assert_eq!(fault(&snapshot), (Link::Tunnel, "it is in error: no route".into()));
    snapshot.tunnel = Found::None;
    let Found::Some(peer) = &mut snapshot.peer else { panic!() };
    peer.status.as_mut().unwrap().network = Some(of(json!({"state": "External"})));
    snapshot.pod.status.as_mut().unwrap().pod_ip = Some("10.244.0.9".into());
    assert!(is_whole(&snapshot));
    assert!(lines(&snapshot).contains(&"address 10.244.0.9 there Good 10.244.0.9 here".to_owned()));
}

#[test]
fn an_address_without_a_name_here_is_told() {
    let mut snapshot = whole();
    snapshot.pod.status.as_mut().unwrap().pod_ip = None;
    assert!(is_whole(&snapshot), "it is on its way");
    remote(&mut snapshot).status.as_mut().unwrap().pod_ip = Some("192.0.2.77".into());
    assert_eq!(fault(&snapshot).0, Link::Address);
}

#[test]
fn what_cannot_be_seen_is_unknown_and_breaks_nothing() {
    let mut snapshot = whole();
    let no = || "jane may not".to_owned();
    snapshot.peer = Found::<ForeignCluster>::Unknown(no());
    snapshot.mapping = Found::Unknown(no());
    snapshot.tunnel = Found::Unknown(no());
    snapshot.there = There::Unknown(no());
    let wanted = [
        "pod shop/web Good Running, ready",
        "node liqo-turin Good Ready",
        "peering - Unknown jane may not",
        "API server - Unknown jane may not",
        "namespace shop Unknown jane may not",
        "container app Good running, ready",
        "tunnel - Unknown jane may not",
        "address - Unknown 10.0.0.9 here",
    ];
    assert_eq!(lines(&snapshot), wanted);
    assert!(is_whole(&snapshot));
    snapshot.node = Found::Unknown(no());
    assert_eq!(lines(&snapshot)[1], "node liqo-turin Unknown jane may not");
}

#[test]
fn a_pod_that_has_ended_well_needs_no_tunnel() {
    let mut snapshot = whole();
    snapshot.tunnel = Found::None;
    snapshot.pod.status = Some(of(json!({"phase": "Succeeded"})));
    objects(&mut snapshot).shadow.as_mut().unwrap().status = Some(of(json!({"phase": "Succeeded"})));
    let ended = container(false, &json!({"terminated": {"exitCode": 0}}));
    remote(&mut snapshot).status = Some(of(json!({"phase": "Succeeded", "containerStatuses": [ended]})));
    assert!(is_whole(&snapshot));
    assert_eq!(lines(&snapshot).last().unwrap(), "container app Good ended well");
}
