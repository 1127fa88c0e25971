//! What honest and hostile consumers write, and the pods that come of it.

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::bounds::{MOST_BYTES, MOST_CONTAINERS, MOST_KEYS, MOST_VOLUMES};
use super::pod;
use crate::pods::Refusal;
use crate::pods::fields::samples::{any_good_spec, any_keys, any_spec};
use crate::pods::outward::{self, access::Access};

fn terms(more: &Value) -> TenantSpec {
    let mut terms = json!({"cluster": {"clusterID": "rome"}});
    terms.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(terms).unwrap()
}

fn shadow(spec: &Value) -> ShadowPod {
    let metadata = json!({"name": "web-1", "namespace": "shop-rome", "uid": "s1",
        "labels": {"app": "web"}, "annotations": {"note": "x"}});
    serde_json::from_value(json!({"apiVersion": "virtualkubelet.liqo.io/v1alpha1", "kind": "ShadowPod",
        "metadata": metadata, "spec": {"pod": spec}}))
    .unwrap()
}

fn made(spec: &Value) -> Pod {
    pod(&shadow(spec), "rome", &terms(&json!({}))).unwrap()
}

fn refused(spec: &Value) -> Refusal {
    pod(&shadow(spec), "rome", &terms(&json!({}))).unwrap_err()
}

#[test]
fn a_pod_is_what_the_shadow_pod_says_and_belongs_to_the_tenant() {
    let pod = made(&json!({"containers": [{"name": "main", "image": "app"}]}));
    let content = annotations::POD_CONTENT.of(&pod.metadata).unwrap();
    assert_eq!(
        serde_json::to_value(&pod).unwrap(),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop-rome",
                "labels": {"app": "web", "liqo.io/originID": "rome", "virtualkubelet.liqo.io/shadowed": "true"},
                "annotations": {"note": "x", "virtualkubelet.liqo.io/shadow-uid": "s1",
                    "virtualkubelet.liqo.io/content": content},
            },
            "spec": {
                "automountServiceAccountToken": false,
                "serviceAccountName": "default",
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}]}]}}},
                "containers": [
                    {"name": "main", "image": "app", "resources": {"requests": {"cpu": "0", "memory": "0"}}}],
            },
        })
    );
}

#[test]
fn the_pool_and_the_class_of_the_tenant_count_and_not_what_the_consumer_wants() {
    let shadow = shadow(
        &json!({"containers": [], "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "runtimeClassName": "native", "nodeName": "n1", "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical", "schedulerName": "mine", "serviceAccountName": "admin"}),
    );
    let terms = terms(&json!({"nodePool": {"pool": "guests"}, "runtimeClassName": "sandbox"}));
    let spec = serde_json::to_value(pod(&shadow, "rome", &terms).unwrap().spec).unwrap();
    assert_eq!(spec["nodeSelector"], json!({"pool": "guests"}));
    assert_eq!(spec["runtimeClassName"], "sandbox");
    assert_eq!(spec["serviceAccountName"], "default");
    for gone in ["nodeName", "tolerations", "priorityClassName", "schedulerName"] {
        assert_eq!(spec.get(gone), None, "{gone}");
    }
}

#[test]
fn marks_of_this_cluster_cannot_be_forged() {
    let mut shadow = shadow(&json!({"containers": []}));
    labels::ORIGIN_ID.put_on(&mut shadow.metadata, "turin");
    labels::PART_OF.put_on(&mut shadow.metadata);
    labels::TENANT.put_on(&mut shadow.metadata, "turin");
    annotations::SHADOW_UID.put_on(&mut shadow.metadata, "s0");
    annotations::POD_CONTENT.put_on(&mut shadow.metadata, "forged");
    let honest = made(&json!({"containers": []}));
    assert_eq!(pod(&shadow, "rome", &terms(&json!({}))).unwrap(), honest);
}

#[test]
fn where_a_pod_comes_from_is_told_to_its_files() {
    let home = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"}});
    let sent = outward::shadow(&serde_json::from_value(home).unwrap(), "shop-rome", "rome", &Access::Closed)
        .unwrap();
    let made = pod(&sent, "rome", &terms(&json!({}))).unwrap();
    assert_eq!(annotations::ORIGIN_NAMESPACE.of(&made.metadata), Some("shop"));
    assert_eq!(annotations::ORIGIN_UID.of(&made.metadata), Some("u1"));
    assert_ne!(annotations::POD_CONTENT.of(&made.metadata), annotations::POD_CONTENT.of(&sent.metadata));
}

#[test]
fn a_privileged_container_of_any_kind_is_refused_unless_the_tenant_may() {
    let container = json!({"name": "evil", "securityContext": {"privileged": true}});
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        let mut spec = json!({"containers": []});
        spec[kind] = json!([container]);
        let refusal = refused(&spec);
        assert_eq!(refusal.word, "NotAllowed");
        assert!(refusal.message.starts_with("container evil asks for privileged"), "{refusal:?}");
        assert!(pod(&shadow(&spec), "rome", &terms(&json!({"podSecurity": "restricted"}))).is_err());
        assert!(pod(&shadow(&spec), "rome", &terms(&json!({"podSecurity": "privileged"}))).is_ok());
    }
}

#[test]
fn capabilities_that_every_container_has_may_be_added_and_others_not() {
    let spec = |name: &str| json!({"containers": [{"name": "a", "securityContext": {"capabilities": {"add": [name]}}}]});
    made(&spec("NET_BIND_SERVICE"));
    for name in ["SYS_ADMIN", "NET_ADMIN", "ALL", "net_bind_service"] {
        assert_eq!(refused(&spec(name)).word, "NotAllowed", "{name}");
    }
    let unmasked = json!({"containers": [{"name": "a", "securityContext": {"procMount": "Unmasked"}}]});
    assert_eq!(refused(&unmasked).word, "NotAllowed");
}

#[test]
fn the_nodes_of_the_provider_are_out_of_reach_even_for_a_privileged_tenant() {
    let hostile = [
        json!({"containers": [], "hostNetwork": true}),
        json!({"containers": [], "hostPID": true}),
        json!({"containers": [], "hostIPC": true}),
        json!({"containers": [], "volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "hostPort": 1}]}]}),
        json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}]}),
        json!({"containers": [], "volumes": [{"name": "kube-api-access-x",
            "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]}),
    ];
    let terms = terms(&json!({"podSecurity": "privileged"}));
    for spec in hostile {
        let refusal = pod(&shadow(&spec), "rome", &terms).unwrap_err();
        assert_eq!(refusal.word, "NotAllowed", "{spec}");
        assert!(refusal.message.contains("is not allowed on this cluster"), "{refusal:?}");
    }
}

#[test]
fn what_is_too_large_is_refused_and_the_largest_is_not() {
    let keyed = |count: usize| (0..count).map(|key| (format!("k{key}"), String::new())).collect();
    let container = json!({"name": "a"});
    let spec = |containers: usize, rest: usize, volumes: usize| {
        json!({"containers": vec![container.clone(); containers], "initContainers": vec![container.clone(); rest],
            "ephemeralContainers": vec![container.clone(); rest], "volumes": vec![json!({"name": "v"}); volumes]})
    };
    let mut largest = shadow(&spec(MOST_CONTAINERS - 2, 1, MOST_VOLUMES));
    largest.metadata.labels = Some(keyed(MOST_KEYS));
    largest.metadata.annotations = Some(keyed(MOST_KEYS));
    assert!(pod(&largest, "rome", &terms(&json!({}))).is_ok());

    let mut labelled = largest.clone();
    labelled.metadata.labels = Some(keyed(MOST_KEYS + 1));
    let mut annotated = largest;
    annotated.metadata.annotations = Some(keyed(MOST_KEYS + 1));
    let long = json!({"containers": [{"name": "a", "args": ["x".repeat(MOST_BYTES)]}]});
    let too_large = [
        labelled,
        annotated,
        shadow(&spec(MOST_CONTAINERS - 1, 1, 0)),
        shadow(&spec(1, 0, MOST_VOLUMES + 1)),
        shadow(&long),
    ];
    for shadow in too_large {
        let refusal = pod(&shadow, "rome", &terms(&json!({}))).unwrap_err();
        assert_eq!(refusal.word, "TooLarge");
        assert!(refusal.message.contains("at most"), "{refusal:?}");
    }
}

#[test]
fn a_name_of_any_length_makes_a_message_that_fits_into_a_status() {
    let name = "é".repeat(50_000);
    let hostile = [
        json!({"containers": [{"name": name, "ports": [{"containerPort": 1, "hostPort": 1}]}]}),
        json!({"containers": [{"name": name, "securityContext": {"privileged": true}}]}),
        json!({"containers": [], "volumes": [{"name": name, "nfs": {"path": "/", "server": "s"}}]}),
    ];
    for spec in hostile {
        assert!(refused(&spec).message.len() <= 1024);
    }
}

/// Whether a key with a value that means it is anywhere.
fn has(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            (name == key && !matches!(value, Value::Bool(false) | Value::Null)) || has(value, key)
        }),
        Value::Array(items) => items.iter().any(|item| has(item, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What no pod of a consumer has, wherever it may be in it.
const NEVER: [&str; 22] = [
    "claims",
    "clusterTrustBundle",
    "csi",
    "flexVolume",
    "gitRepo",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPath",
    "hostPort",
    "nfs",
    "nodeName",
    "podCertificate",
    "priority",
    "priorityClassName",
    "privileged",
    "resourceClaims",
    "schedulerName",
    "serviceAccountToken",
    "tolerations",
    "topologySpreadConstraints",
    "windowsOptions",
];

proptest! {
    #[test]
    fn whatever_a_consumer_writes_no_pod_has_what_is_forbidden(
        spec in any_spec(), good in any_good_spec(), labels in any_keys(), notes in any_keys(),
    ) {
        for spec in [spec, good] {
            let mut shadow = shadow(&json!({"containers": []}));
            shadow.metadata.labels = Some(labels.clone());
            shadow.metadata.annotations = Some(notes.clone());
            shadow.spec.pod = spec;
            let terms = terms(&json!({"nodePool": {"pool": "guests"}}));
            let Ok(pod) = pod(&shadow, "rome", &terms) else { continue };
            let spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
            for key in NEVER {
                prop_assert!(!has(&spec, key), "{}: {}", key, spec);
            }
            prop_assert_eq!(&spec["serviceAccountName"], "default");
            prop_assert_eq!(&spec["automountServiceAccountToken"], &json!(false));
            prop_assert_eq!(&spec["nodeSelector"], &json!({"pool": "guests"}));
            prop_assert_eq!(spec["affinity"].as_object().unwrap().len(), 1);
            prop_assert_eq!(labels::ORIGIN_ID.of(&pod.metadata), Some("rome"));
            prop_assert!(labels::SHADOWED.is_on(&pod.metadata) && !labels::PART_OF.is_on(&pod.metadata));
            prop_assert_eq!(annotations::SHADOW_UID.of(&pod.metadata), Some("s1"));
            prop_assert_eq!(&pod.metadata.owner_references, &None);
        }
    }

    #[test]
    fn whatever_home_sends_of_a_good_pod_is_taken(spec in any_good_spec()) {
        let home = Pod { spec: Some(spec), ..Pod::default() };
        let sent = outward::shadow(&home, "shop-rome", "rome", &Access::Closed).unwrap();
        let made = pod(&sent, "rome", &terms(&json!({})));
        prop_assert!(made.is_ok(), "{:?}", made);
        prop_assert_eq!(made, pod(&sent, "rome", &terms(&json!({}))));
    }
}
