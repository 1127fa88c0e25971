//! What is sent of pods, and how it is changed.

use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::access::{Access, ApiServer};
use super::{change, shadow as shadow_with};
use crate::pods::Refusal;
use crate::pods::fields::samples::{any_good_spec, any_keys, any_spec};

/// What is sent where pods do not reach the API server of home.
fn shadow(pod: &Pod, namespace: &str, home: &str) -> Result<ShadowPod, Refusal> {
    shadow_with(pod, namespace, home, &Access::Closed)
}

fn pod(metadata: &Value, spec: &Value) -> Pod {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    serde_json::from_value(pod).unwrap()
}

fn meta() -> Value {
    json!({"name": "web-1", "namespace": "shop", "uid": "u1"})
}

fn sent(pod: &Pod) -> ShadowPod {
    shadow(pod, "shop-rome", "rome").unwrap()
}

fn sent_spec(spec: &Value) -> Value {
    serde_json::to_value(sent(&pod(&meta(), spec)).spec.pod).unwrap()
}

#[test]
fn a_shadow_pod_has_the_name_of_its_pod_and_says_where_it_comes_from() {
    let labels = json!({"app": "web", "liqo.io/enabled": "true", "topology.kubernetes.io/zone": "z"});
    let notes = json!({"note": "x", "offloading.liqo.io/x": "y",
        "kubectl.kubernetes.io/last-applied-configuration": "{}", "kubernetes.io/config.source": "file"});
    let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u1", "labels": labels, "annotations": notes,
        "finalizers": ["a/b"], "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u0"}]});
    let shadow = sent(&pod(&metadata, &json!({"containers": []})));
    let meta = serde_json::to_value(&shadow.metadata).unwrap();
    let content = annotations::POD_CONTENT.of(&shadow.metadata).unwrap();
    assert_eq!(content.len(), 32);
    assert_eq!(
        meta,
        json!({
            "name": "web-1", "namespace": "shop-rome",
            "labels": {"app": "web", "liqo.io/originID": "rome"},
            "annotations": {
                "note": "x", "virtualkubelet.liqo.io/origin-uid": "u1", "virtualkubelet.liqo.io/content": content,
                "tenancy.liqo.io/origin-namespace": "shop",
            },
        })
    );
}

#[test]
fn where_the_api_server_of_home_is_not_reached_its_token_and_the_mounts_stay_at_home() {
    let mounts = json!([{"name": "kube-api-access-x", "mountPath": "/token"}]);
    let both =
        json!([{"name": "kube-api-access-x", "mountPath": "/token"}, {"name": "data", "mountPath": "/data"}]);
    let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt"}}]});
    let spec = sent_spec(&json!({
        "containers": [{"name": "a", "volumeMounts": mounts}, {"name": "b", "volumeMounts": both}],
        "initContainers": [{"name": "c", "volumeMounts": mounts}],
        "ephemeralContainers": [{"name": "d", "volumeMounts": mounts}],
        "volumes": [{"name": "kube-api-access-x", "projected": token}, {"name": "data", "emptyDir": {}}],
    }));
    assert_eq!(spec["volumes"], json!([{"name": "data", "emptyDir": {}}]));
    assert_eq!(spec["containers"][0].get("volumeMounts"), None);
    assert_eq!(spec["containers"][1]["volumeMounts"], json!([{"name": "data", "mountPath": "/data"}]));
    assert_eq!(spec["initContainers"][0].get("volumeMounts"), None);
    assert_eq!(spec["ephemeralContainers"][0].get("volumeMounts"), None);
    assert_eq!(spec["automountServiceAccountToken"], false);
}

/// A pod with the token that Kubernetes adds, and one that its user asks for.
fn with_tokens() -> Pod {
    let own = json!({"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]});
    let vault = json!({"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}},
        {"configMap": {"name": "settings"}}]});
    let mount = json!([{"name": "kube-api-access-x", "mountPath": "/token", "readOnly": true}]);
    pod(
        &meta(),
        &json!({
            "containers": [{"name": "a", "volumeMounts": mount, "env": [{"name": "A", "value": "b"}]},
                {"name": "b", "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}]}],
            "volumes": [{"name": "vault", "projected": vault}, {"name": "kube-api-access-x", "projected": own}],
        }),
    )
}

fn open() -> Access {
    Access::Open(ApiServer { addresses: vec!["10.71.0.1".parse().unwrap()], port: 6443 })
}

#[test]
fn tokens_come_from_a_secret_of_home_and_the_authorities_beside_them_as_well() {
    let spec = shadow_with(&with_tokens(), "shop-rome", "rome", &open()).unwrap().spec.pod;
    let spec = serde_json::to_value(spec).unwrap();
    let item = |key: &str, path: &str| json!({"secret": {"name": "ferro-token-u1", "items": [{"key": key, "path": path}]}});
    let of_vault = json!([item("token-0", "t"), {"configMap": {"name": "settings"}}]);
    assert_eq!(spec["volumes"][0]["projected"]["sources"], of_vault);
    let own = &spec["volumes"][1];
    assert_eq!(own["name"], "kube-api-access-x");
    assert_eq!(own["projected"]["sources"][0], item("token-1", "token"));
    assert_eq!(own["projected"]["sources"][1], item("ca.crt", "ca.crt"));
    let namespace = &own["projected"]["sources"][2]["downwardAPI"]["items"][0];
    let of_home = "metadata.annotations['tenancy.liqo.io/origin-namespace']";
    assert_eq!(namespace["fieldRef"]["fieldPath"], of_home, "the namespace that the token is of");
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["mountPath"], "/token");
    assert_eq!(spec["automountServiceAccountToken"], false);
}

#[test]
fn the_api_server_of_home_is_called_by_a_name_that_its_certificate_has() {
    let spec = shadow_with(&with_tokens(), "shop-rome", "rome", &open()).unwrap().spec.pod;
    let spec = serde_json::to_value(spec).unwrap();
    let names = ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    assert_eq!(spec["hostAliases"], json!([{"ip": "10.71.0.1", "hostnames": names}]));
    let variables = json!([{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
        {"name": "KUBERNETES_SERVICE_PORT_HTTPS", "value": "6443"}, {"name": "A", "value": "b"}]);
    assert_eq!(spec["containers"][0]["env"], variables);
    let own = json!([{"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}]);
    assert_eq!(spec["containers"][1]["env"], own, "who names another one means it");
}

#[test]
fn a_pod_without_a_token_is_sent_as_it_is_and_no_address_is_part_of_a_wish() {
    let plain = pod(&meta(), &json!({"containers": [{"name": "a"}]}));
    let closed = shadow(&plain, "shop-rome", "rome").unwrap();
    assert_eq!(shadow_with(&plain, "shop-rome", "rome", &open()).unwrap(), closed);
    let (with, without) = (shadow_with(&with_tokens(), "n", "c", &open()), shadow(&with_tokens(), "n", "c"));
    assert_eq!(change(&with.unwrap(), &without.unwrap()), None);
    assert!(Access::Unknown.is_known_for(&plain) && !Access::Unknown.is_known_for(&with_tokens()));
}

/// A pod with containers for debugging, the last of which has the token of home, and the states of some.
fn with_debugging(statuses: &Value) -> Pod {
    let mut pod = with_tokens();
    let mount = json!([{"name": "kube-api-access-x", "mountPath": "/token"}]);
    let all = json!([{"name": "first"}, {"name": "refused"}, {"name": "last", "volumeMounts": mount}]);
    pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(all).unwrap();
    pod.status = serde_json::from_value(json!({"ephemeralContainerStatuses": statuses})).unwrap();
    pod
}

#[test]
fn a_container_for_debugging_that_has_ended_is_not_wished_for_again() {
    let status = |name: &str, id: Option<&str>, state: &Value| {
        json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "containerID": id,
            "state": state})
    };
    let (running, ended) = (json!({"running": {}}), json!({"terminated": {"exitCode": 0}}));
    let names = |statuses: &Value| -> Vec<String> {
        let all = sent(&with_debugging(statuses)).spec.pod.ephemeral_containers.unwrap_or_default();
        all.into_iter().map(|one| one.name).collect()
    };
    let first = status("first", Some("c://1"), &ended);
    let some = [first.clone(), status("refused", None, &ended), status("last", Some("c://2"), &running)];
    assert_eq!(names(&json!([])), ["first", "refused", "last"]);
    assert_eq!(names(&json!(some)), ["refused", "last"], "one that was refused may come yet");
    let all = ["first", "refused", "last"].map(|name| status(name, Some("c://3"), &ended));
    assert_eq!(sent(&with_debugging(&json!(all))).spec.pod.ephemeral_containers, None);
    let open = shadow_with(&with_debugging(&json!([first])), "shop-rome", "rome", &open()).unwrap();
    let left = serde_json::to_value(open.spec.pod.ephemeral_containers).unwrap();
    assert_eq!(left[0].get("volumeMounts"), None);
    assert_eq!(left[1]["volumeMounts"][0]["mountPath"], "/token", "each has its own mounts");
}

#[test]
fn a_volume_that_is_only_called_like_that_of_a_token_travels() {
    let volumes = json!([{"name": "kube-api-access-x", "emptyDir": {}}]);
    assert_eq!(sent_spec(&json!({"containers": [], "volumes": volumes}))["volumes"], volumes);
}

#[test]
fn a_claim_that_kubernetes_makes_for_one_pod_is_named_as_home_names_it() {
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    let spec = sent_spec(&json!({"containers": [], "volumes": volumes}));
    let claim = json!([{"name": "scratch", "persistentVolumeClaim": {"claimName": "web-1-scratch"}}]);
    assert_eq!(spec["volumes"], claim);
}

#[test]
fn an_application_is_told_the_namespace_uid_node_and_account_of_home() {
    let from = |path: &str| json!({"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let paths = [
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "metadata.name",
        "status.podIP",
        "status.hostIP",
        "metadata.labels['app']",
    ];
    let env: Vec<Value> = paths.into_iter().map(from).collect();
    let spec = sent_spec(&json!({"nodeName": "liqo-turin", "serviceAccountName": "web",
        "containers": [{"name": "a", "env": env}], "ephemeralContainers": [{"name": "b", "env": [env[0]]}]}));
    let plain = |value: &str| json!({"name": "V", "value": value});
    let mut told = vec![plain("shop"), plain("u1"), plain("liqo-turin"), plain("web")];
    told.extend(env.iter().skip(4).cloned());
    assert_eq!(spec["containers"][0]["env"], json!(told));
    assert_eq!(spec["ephemeralContainers"][0]["env"], json!([plain("shop")]));
}

#[test]
fn a_variable_from_an_annotation_that_stays_at_home_keeps_its_value() {
    let from = |key: &str| {
        let path = format!("metadata.annotations['{key}']");
        json!({"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    };
    let mut metadata = meta();
    metadata["annotations"] = json!({"cni.projectcalico.org/podIP": "$(X)", "note": "n"});
    let env = json!([from("cni.projectcalico.org/podIP"), from("note"), from("liqo.io/none")]);
    let shadow = sent(&pod(&metadata, &json!({"containers": [{"name": "a", "env": env}]})));
    let spec = serde_json::to_value(shadow.spec.pod).unwrap();
    let plain = |value: &str| json!({"name": "V", "value": value});
    assert_eq!(spec["containers"][0]["env"], json!([plain("$$(X)"), from("note"), plain("")]));
}

#[test]
fn files_tell_the_namespace_and_uid_of_home_by_way_of_annotations() {
    let item = |path: &str| json!({"path": "f", "fieldRef": {"fieldPath": path}});
    let items = json!([item("metadata.namespace"), item("metadata.uid"), item("metadata.labels")]);
    let volumes = json!([
        {"name": "a", "downwardAPI": {"items": items}},
        {"name": "b", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
    ]);
    let spec = sent_spec(&json!({"containers": [], "volumes": volumes}));
    let told = json!([
        item("metadata.annotations['tenancy.liqo.io/origin-namespace']"),
        item("metadata.annotations['virtualkubelet.liqo.io/origin-uid']"),
        item("metadata.labels"),
    ]);
    assert_eq!(spec["volumes"][0]["downwardAPI"]["items"], told);
    assert_eq!(spec["volumes"][1]["projected"]["sources"][0]["downwardAPI"]["items"], told);
}

#[test]
fn a_refusal_says_what_where_and_why() {
    let spec = json!({"containers": [{"name": "web", "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
    let refusal = shadow(&pod(&meta(), &spec), "n", "c").unwrap_err();
    assert_eq!(refusal.word, "HostPort");
    assert_eq!(
        refusal.message,
        "the hostPort 8080 of container web cannot run on another cluster: it belongs to a node, and no cluster gives its \
         nodes to pods of others; take it out, or keep the pod in this cluster with the node affinity liqo.io/type NotIn \
         [virtual-node]"
    );
    let spec = json!({"containers": [], "volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]});
    assert_eq!(shadow(&pod(&meta(), &spec), "n", "c").unwrap_err().word, "HostPathVolume");
}

#[test]
fn what_says_no_is_not_refused() {
    let spec = json!({"hostNetwork": false, "hostPID": false, "hostIPC": false, "resourceClaims": [],
        "os": {"name": "linux"}, "containers": [{"name": "a", "resources": {"claims": []},
            "ports": [{"containerPort": 80, "hostPort": 0}], "livenessProbe": {"tcpSocket": {"port": 80, "host": ""}}}]});
    assert!(shadow(&pod(&meta(), &spec), "n", "c").is_ok());
}

#[test]
fn a_change_names_what_is_new_and_what_is_gone() {
    let mut metadata = meta();
    metadata["labels"] = json!({"app": "web", "old": "1"});
    let before =
        sent(&pod(&metadata, &json!({"containers": [{"name": "a", "image": "v1"}], "hostname": "h"})));
    metadata["labels"] = json!({"app": "web", "new": "2"});
    let after = sent(&pod(&metadata, &json!({"containers": [{"name": "a", "image": "v2"}]})));
    let trimmed = ShadowPod { metadata: before.metadata.clone(), ..ShadowPod::default() };
    let patch = change(&trimmed, &after).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"new": "2", "old": null}));
    let content = annotations::POD_CONTENT;
    assert_eq!(patch["metadata"]["annotations"], json!({content.key(): content.of(&after.metadata)}));
    assert_eq!(patch["spec"]["pod"]["containers"], json!([{"name": "a", "image": "v2"}]));
    assert_eq!(patch["spec"]["pod"].get("hostname"), Some(&Value::Null));
    assert_eq!(merged(&before, &patch), after);
}

#[test]
fn a_pod_that_has_only_the_name_of_the_former_is_another_one() {
    let spec = json!({"containers": []});
    let before = sent(&pod(&meta(), &spec));
    let mut after = before.clone();
    annotations::ORIGIN_UID.put_on(&mut after.metadata, "u2");
    assert!(change(&before, &after).is_some());
}

/// What an API server makes of a merge patch.
fn merged(present: &ShadowPod, patch: &Value) -> ShadowPod {
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(changes) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in changes {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }
    let mut object = serde_json::to_value(present).unwrap();
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn any_pod(spec: impl Strategy<Value = k8s_openapi::api::core::v1::PodSpec>) -> impl Strategy<Value = Pod> {
    (spec, any_keys(), any_keys()).prop_map(|(spec, labels, notes)| {
        let mut pod = pod(&meta(), &json!({"containers": []}));
        pod.metadata.labels = Some(labels);
        pod.metadata.annotations = Some(notes);
        pod.spec = Some(spec);
        pod
    })
}

proptest! {
    #[test]
    fn the_same_pod_always_gives_the_same_and_needs_no_change(pod in any_pod(any_spec())) {
        let first = shadow(&pod, "shop-rome", "rome");
        prop_assert_eq!(&first, &shadow(&pod, "shop-rome", "rome"));
        if let Ok(first) = first {
            prop_assert_eq!(change(&first, &first), None);
        }
    }

    #[test]
    fn what_is_sent_would_be_sent_again_as_it_is(pod in any_pod(any_good_spec())) {
        let first = shadow(&pod, "shop-rome", "rome").unwrap();
        let again = Pod { metadata: pod.metadata.clone(), spec: Some(first.spec.pod.clone()), status: None };
        prop_assert_eq!(shadow(&again, "shop-rome", "rome").unwrap(), first);
    }

    #[test]
    fn only_the_origin_is_said_of_what_is_ours(pod in any_pod(any_good_spec())) {
        let meta = shadow(&pod, "shop-rome", "rome").unwrap().metadata;
        prop_assert_eq!(labels::ORIGIN_ID.of(&meta), Some("rome"));
        prop_assert_eq!(annotations::ORIGIN_UID.of(&meta), Some("u1"));
        let ours = |keys: Option<std::collections::BTreeMap<String, String>>| {
            keys.unwrap().into_keys().filter(|key| key.contains("liqo.io/")).count()
        };
        prop_assert_eq!((ours(meta.labels.clone()), ours(meta.annotations.clone())), (1, 3));
    }

    #[test]
    fn different_wishes_have_different_contents(a in any_pod(any_good_spec()), b in any_pod(any_good_spec())) {
        let (a, b) = (sent(&a), sent(&b));
        let content = annotations::POD_CONTENT;
        prop_assert_eq!(content.of(&a.metadata) == content.of(&b.metadata), a == b);
        if let Some(patch) = change(&a, &b) {
            let (metadata, labels) = (merged(&a, &patch).metadata, b.metadata.labels.clone());
            prop_assert_eq!(metadata.annotations, b.metadata.annotations);
            prop_assert_eq!(metadata.labels, labels);
        }
    }
}
