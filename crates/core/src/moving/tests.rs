use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Affinity, Taint};
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

fn rome() -> Node {
    of(json!({"metadata": {"name": "rome-1", "labels": {"kubernetes.io/hostname": "rome-1", "disk": "ssd"}}}))
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
    let nodes = [turin(), rome()];
    let to = if to_turin {
        Destination::Peer { node: &node, mapping: Some(&mapping) }
    } else {
        Destination::Home { nodes: Some(&nodes) }
    };
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
    assert!(checked(&pod, Some("LocalAndRemote"), true, &claim("Bound")).contains("the claim disk"));
    assert_eq!(
        checked(&pod, Some("LocalAndRemote"), false, &claim("Bound")),
        "free",
        "it is of this cluster"
    );
    for to_turin in [true, false] {
        assert_eq!(checked(&pod, Some("LocalAndRemote"), to_turin, &claim("Pending")), "free");
    }
}

#[test]
fn pods_that_ask_for_other_clusters_are_not_told_to_come_home() {
    let home = |changes: &Value| {
        let mut pod = plain();
        pod.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        checked(&pod, Some("LocalAndRemote"), false, &[])
    };
    let there = home(&json!({"nodeSelector": {"liqo.io/type": "virtual-node"}}));
    assert!(there.contains("their nodeSelector asks for liqo.io/type=virtual-node"), "{there}");
    let virtual_nodes = json!({"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]});
    let there = home(&json!({"affinity": affinity(&json!([{"matchExpressions": [virtual_nodes]}]))}));
    assert!(there.contains("their node affinity asks for liqo.io/type"), "{there}");
    assert_eq!(home(&json!({"nodeSelector": {"disk": "ssd"}})), "free");
    assert_eq!(home(&json!({"affinity": affinity(&json!([{"matchExpressions": [ssd()]}]))})), "free");
}

#[test]
fn what_an_autoscaler_may_make_is_left_to_the_scheduler() {
    let mut pod = plain();
    pod["nodeSelector"] = json!({"disk": "tape"});
    let rome = [rome()];
    for nodes in [None, Some(&rome[..])] {
        let home = Destination::Home { nodes };
        assert_eq!(check("shop", &template(&pod), None, None, &home, &[]), Ok(()));
    }
}

#[test]
fn data_that_lies_there_already_is_no_obstacle() {
    let mut pod = plain();
    pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let node = turin().metadata.name.unwrap();
    let disk = |selected: &str| {
        let annotations = json!({"volume.kubernetes.io/selected-node": selected});
        vec![of(
            json!({"metadata": {"name": "disk", "annotations": annotations}, "status": {"phase": "Bound"}}),
        )]
    };
    assert_eq!(checked(&pod, Some("LocalAndRemote"), true, &disk(&node)), "free");
    assert!(checked(&pod, Some("LocalAndRemote"), true, &disk("n1")).contains("the claim disk"));
    assert!(checked(&pod, Some("LocalAndRemote"), false, &disk(&node)).contains("the claim disk"));
    assert_eq!(checked(&pod, Some("LocalAndRemote"), false, &disk("n1")), "free", "it can be kept at home");
    let nodes = [turin(), rome()];
    let home = Destination::Home { nodes: Some(&nodes) };
    let again = |former| check("shop", &template(&pod), former, None, &home, &disk(&node));
    assert!(again(None).is_err());
    assert_eq!(again(Some(&Belonging::Home)), Ok(()), "who tries again is not refused");
}

#[test]
fn a_volume_of_ours_lies_on_a_peer_unless_it_was_handed_over() {
    let mut pod = plain();
    pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let disk = |volume: &str| {
        let annotations = json!({"volume.kubernetes.io/storage-provisioner": "storage.liqo.io"});
        vec![of(json!({
            "metadata": {"name": "disk", "uid": "7", "annotations": annotations},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
        }))]
    };
    let there = checked(&pod, Some("LocalAndRemote"), false, &disk("pvc-7"));
    assert!(there.contains("the claim disk"), "{there}");
    assert_eq!(checked(&pod, Some("LocalAndRemote"), false, &disk("pvc-of-a-stand-in")), "free");
}

#[test]
fn a_node_that_takes_no_pods_is_told() {
    let mapping: CurrentMapping = of(json!({"phase": "Accepted", "remoteNamespace": "shop-rome"}));
    let check_of = |node: &Node, pod: &Value| {
        let to = Destination::Peer { node, mapping: Some(&mapping) };
        let result = check("shop", &template(pod), None, Some(&offloading("Remote")), &to, &[]);
        result.map_or_else(|obstacle| obstacle.to_string(), |()| "free".to_owned())
    };
    let check = |node: &Node| check_of(node, &plain());
    let taint = |key: &str| -> Taint { of(json!({"key": key, "effect": "NoSchedule"})) };
    let with = |taints: Vec<Taint>, is_cordoned: bool| {
        let mut node = turin();
        let spec = node.spec.as_mut().unwrap();
        spec.taints = Some(taints);
        spec.unschedulable = Some(is_cordoned);
        node
    };
    // As Kubernetes leaves a node that a person has cordoned.
    let mut node = with(vec![taint("node.kubernetes.io/unschedulable")], true);
    assert!(check(&node).contains("cordoned; run 'kubectl uncordon liqo-turin'"), "{}", check(&node));
    node.status = Some(of(
        json!({"conditions": [{"type": "Ready", "status": "False", "message": "the peer is silent"}]}),
    ));
    assert!(check(&node).contains("the peer is silent"));
    let emptied = with(vec![taint("virtual-node.liqo.io/draining")], true);
    assert!(check(&emptied).contains("it is being emptied"), "{}", check(&emptied));
    let reserved = with(vec![taint("reserved")], false);
    assert!(check(&reserved).contains("taint reserved"), "{}", check(&reserved));
    let mut pod = plain();
    pod["tolerations"] = json!([{"key": "reserved", "operator": "Exists"}]);
    assert_eq!(check_of(&reserved, &pod), "free", "they put up with it");
    pod["tolerations"] = json!([{"key": "reserved", "value": "for others"}]);
    assert!(check_of(&reserved, &pod).contains("taint reserved"));
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
    let home = Destination::Home { nodes: None };
    let made = again(&pod, &home);
    assert_eq!((&made.metadata.uid, &made.metadata.resource_version, &made.status), (&None, &None, &None));
    assert_eq!(made.metadata.name.as_deref(), Some("web"));
    assert_eq!(Belonging::of(&made.metadata), Some(Belonging::Home));
    let spec = made.spec.unwrap();
    assert_eq!(spec.node_name, None);
    assert_eq!(spec.affinity, Some(affinity(&json!([{"matchExpressions": [at_home()]}]))));
    let there = turin();
    let away = again(&again(&pod, &home), &Destination::Peer { node: &there, mapping: None });
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
