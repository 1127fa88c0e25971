use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Affinity;
use serde_json::{Value, json};

use super::*;

const TURIN: &str = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn turin() -> Node {
    of(json!({
        "metadata": {"name": "liqo-turin", "labels": {"liqo.io/type": "virtual-node", "liqo.io/remoteID": TURIN}},
        "spec": {"taints": [{"key": "virtual-node.liqo.io/not-allowed", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn offloading(strategy: &str) -> NamespaceOffloading {
    of(json!({
        "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "shop"}, "spec": {"podOffloadingStrategy": strategy},
    }))
}

fn template(spec: &Value) -> PodTemplateSpec {
    of(json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}))
}

fn plain() -> Value {
    json!({"containers": [{"name": "app", "image": "web:1"}]})
}

fn checked(spec: &Value, strategy: Option<&str>, to_turin: bool, claims: &[PersistentVolumeClaim]) -> String {
    let (node, mapping) = (turin(), of(json!({"phase": "Accepted", "remoteNamespace": "shop-rome"})));
    let to =
        if to_turin { Destination::Peer { node: &node, mapping: Some(&mapping) } } else { Destination::Home };
    let offloading = strategy.map(offloading);
    let result = check("shop", &template(spec), None, offloading.as_ref(), &to, claims);
    result.map_or_else(|obstacle| obstacle.to_string(), |()| "free".to_owned())
}

#[test]
fn pods_go_where_the_policy_of_their_namespace_lets_them() {
    assert_eq!(checked(&plain(), Some("LocalAndRemote"), true, &[]), "free");
    assert_eq!(checked(&plain(), Some("Remote"), true, &[]), "free");
    assert_eq!(checked(&plain(), Some("LocalAndRemote"), false, &[]), "free");
    assert_eq!(checked(&plain(), None, false, &[]), "free");
    assert!(checked(&plain(), Some("Remote"), false, &[]).contains("podOffloadingStrategy is Remote"));
    assert!(checked(&plain(), Some("Local"), true, &[]).contains("podOffloadingStrategy is Local"));
    assert!(checked(&plain(), None, true, &[]).contains("ferro offload"));
}

#[test]
fn where_pods_belonged_by_an_earlier_move_does_not_keep_them_there() {
    let (node, mapping) = (turin(), of(json!({"phase": "Accepted", "remoteNamespace": "shop-rome"})));
    let to = Destination::Peer { node: &node, mapping: Some(&mapping) };
    let mut moved = template(&plain());
    moved.spec.as_mut().unwrap().affinity = Some(steered(None, None, &Belonging::Home));
    let offloading = offloading("LocalAndRemote");
    let check = |former: Option<&Belonging>| check("shop", &moved, former, Some(&offloading), &to, &[]);
    assert_eq!(check(Some(&Belonging::Home)), Ok(()));
    assert!(check(None).is_err(), "that is the will of somebody else");
}

#[test]
fn what_cannot_travel_or_has_data_elsewhere_stays() {
    let mut pod = plain();
    pod["hostNetwork"] = json!(true);
    assert!(checked(&pod, Some("LocalAndRemote"), true, &[]).contains("another cluster"));
    assert_eq!(checked(&pod, Some("LocalAndRemote"), false, &[]), "free");
    let mut pod = plain();
    pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let claim = |phase: &str| vec![of(json!({"metadata": {"name": "disk"}, "status": {"phase": phase}}))];
    for to_turin in [true, false] {
        assert!(checked(&pod, Some("LocalAndRemote"), to_turin, &claim("Bound")).contains("the claim disk"));
        assert_eq!(checked(&pod, Some("LocalAndRemote"), to_turin, &claim("Pending")), "free");
    }
}

#[test]
fn a_node_that_takes_no_pods_is_told() {
    let mapping: CurrentMapping = of(json!({"phase": "Accepted", "remoteNamespace": "shop-rome"}));
    let check = |node: &Node| {
        let to = Destination::Peer { node, mapping: Some(&mapping) };
        check("shop", &template(&plain()), None, Some(&offloading("Remote")), &to, &[])
            .unwrap_err()
            .to_string()
    };
    let mut node = turin();
    node.spec.as_mut().unwrap().unschedulable = Some(true);
    assert!(check(&node).contains("cordoned"));
    node.spec.as_mut().unwrap().taints = Some(vec![of(json!({"key": "drain", "effect": "NoSchedule"}))]);
    assert!(check(&node).contains("taint drain"));
    node.status = Some(of(
        json!({"conditions": [{"type": "Ready", "status": "False", "message": "the peer is silent"}]}),
    ));
    assert!(check(&node).contains("the peer is silent"));
}

fn affinity(terms: &Value) -> Affinity {
    of(
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}),
    )
}

fn ssd() -> Value {
    json!({"key": "disk", "operator": "In", "values": ["ssd"]})
}

fn in_turin() -> Value {
    json!({"key": "liqo.io/remoteID", "operator": "In", "values": [TURIN]})
}

fn at_home() -> Value {
    json!({"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]})
}

fn cluster() -> Belonging {
    Belonging::Cluster(TURIN.into())
}

#[test]
fn affinity_of_others_is_narrowed_and_that_of_an_earlier_move_is_taken_back() {
    let none = steered(None, None, &cluster());
    assert_eq!(none, affinity(&json!([{"matchExpressions": [in_turin()]}])));
    let back = steered(Some(&none), Some(&cluster()), &Belonging::Home);
    assert_eq!(back, affinity(&json!([{"matchExpressions": [at_home()]}])));
    let own = affinity(&json!([{"matchExpressions": [ssd()]}, {"matchFields": [ssd()]}]));
    let moved = steered(Some(&own), None, &cluster());
    let wanted = json!([{"matchExpressions": [ssd(), in_turin()]},
        {"matchExpressions": [in_turin()], "matchFields": [ssd()]}]);
    assert_eq!(moved, affinity(&wanted));
    let home = steered(Some(&moved), Some(&cluster()), &Belonging::Home);
    let wanted = json!([{"matchExpressions": [ssd(), at_home()]},
        {"matchExpressions": [at_home()], "matchFields": [ssd()]}]);
    assert_eq!(home, affinity(&wanted));
}

#[test]
fn a_term_that_selects_nothing_goes_on_selecting_nothing() {
    let own = affinity(&json!([{}, {"matchExpressions": [ssd()]}]));
    let moved = steered(Some(&own), None, &cluster());
    assert_eq!(moved, affinity(&json!([{}, {"matchExpressions": [ssd(), in_turin()]}])));
}

#[test]
fn moving_again_to_the_same_place_changes_nothing() {
    let patch_to =
        |present: Option<&Affinity>, former: Option<&Belonging>| patch(present, former, &cluster());
    let first = patch_to(None, None).unwrap();
    assert_eq!(first["metadata"]["annotations"]["offloading.liqo.io/moved-to"], TURIN);
    let template: PodSpec =
        of(json!({"containers": [], "affinity": first["spec"]["template"]["spec"]["affinity"]}));
    let present = template.affinity.as_ref();
    assert_eq!(patch_to(present, Some(&cluster())), None);
    assert!(patch_to(present, None).is_some(), "it was not noted");
    assert!(patch(present, Some(&cluster()), &Belonging::Home).is_some());
}

#[test]
fn a_pod_is_made_again_without_where_it_was() {
    let pod: Pod = of(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"nodeName": "rome-1", "containers": []}, "status": {"phase": "Running"},
    }));
    let made = again(&pod, &Destination::Home);
    assert_eq!((&made.metadata.uid, &made.metadata.resource_version, &made.status), (&None, &None, &None));
    assert_eq!(made.metadata.name.as_deref(), Some("web"));
    assert_eq!(Belonging::of(&made.metadata), Some(Belonging::Home));
    let spec = made.spec.unwrap();
    assert_eq!(spec.node_name, None);
    assert_eq!(spec.affinity, Some(affinity(&json!([{"matchExpressions": [at_home()]}]))));
    let there = turin();
    let away = again(&again(&pod, &Destination::Home), &Destination::Peer { node: &there, mapping: None });
    assert_eq!(away.spec.unwrap().affinity, Some(affinity(&json!([{"matchExpressions": [in_turin()]}]))));
}

fn deployment(replicas: i32, strategy: &Value, status: &Value) -> Deployment {
    of(json!({
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy}, "status": status,
    }))
}

#[test]
fn an_update_that_leaves_nobody_to_serve_is_told() {
    let outage = |replicas, strategy: Value| outage(&deployment(replicas, &strategy, &json!({}))).is_some();
    assert!(!outage(1, json!({})), "one more is made first");
    assert!(!outage(3, json!({"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})));
    assert!(outage(1, json!({"type": "Recreate"})));
    assert!(!outage(0, json!({"type": "Recreate"})), "nobody serves in any case");
    assert!(outage(1, json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})));
    assert!(outage(2, json!({"rollingUpdate": {"maxUnavailable": "100%"}})));
    assert!(!outage(2, json!({"rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 0}})));
    assert!(
        outage(1, json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}})),
        "one may be missing then"
    );
}

#[test]
fn an_update_is_done_when_all_new_pods_serve_and_no_old_one_is_left() {
    let seen = |status: Value| progress(&deployment(3, &json!({}), &status));
    let at = |observed: i64, all: i32, updated: i32, available: i32| {
        seen(json!({"observedGeneration": observed, "replicas": all, "updatedReplicas": updated,
            "availableReplicas": available}))
    };
    assert_eq!(at(1, 3, 3, 3).standing, Standing::UnderWay, "that was before");
    let half = at(2, 4, 2, 3);
    assert_eq!((half.ready, half.old, half.standing), (1, 2, Standing::UnderWay));
    assert_eq!(at(2, 3, 3, 2).standing, Standing::UnderWay);
    assert_eq!(at(2, 3, 3, 3).standing, Standing::Done);
    let late = json!({"observedGeneration": 2, "replicas": 4, "updatedReplicas": 1, "availableReplicas": 3, "conditions": [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}]});
    assert_eq!(seen(late).standing, Standing::Stuck("timed out".into()));
}
