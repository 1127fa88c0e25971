//! Pods for tests, made from the schema of a pod, so that they have whatever fields there are.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::PodSpec;
use kube::CustomResourceExt as _;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Field, SECTIONS};
use ferro_api::virtualkubelet::ShadowPod;

/// The schema of a pod's spec.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(ShadowPod::crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["pod"].clone()
});

/// The schema of the part of a pod's spec at this path, such as `containers[].ports[]`.
pub fn schema(path: &str) -> &'static Value {
    path.split('.').filter(|step| !step.is_empty()).fold(&*SCHEMA, |schema, step| {
        let next = &schema["properties"][step.trim_end_matches("[]")];
        if step.ends_with("[]") { &next["items"] } else { next }
    })
}

/// Every place in a pod, with each of its fields that exists there.
pub fn places() -> impl Iterator<Item = (&'static str, &'static Field)> {
    let places = SECTIONS.iter().flat_map(|part| part.at.iter().map(move |at| (*at, part.fields)));
    places.flat_map(|(at, fields)| {
        fields
            .iter()
            .filter(move |field| schema(at)["properties"].get(field.name).is_some())
            .map(move |field| (at, field))
    })
}

/// A value for a field, of which the table tells what becomes.
pub fn sample(at: &str, field: &str) -> Value {
    let (_, part) = at.rsplit_once('.').unwrap_or(("", at));
    match (part, field) {
        (_, "os") => json!({"name": "linux"}),
        (_, "procMount") => json!("Default"),
        (_, "requests") => json!({"cpu": "1", "memory": "1Gi"}),
        (_, "resources") => json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
        (_, "fieldRef") => json!({"fieldPath": "metadata.namespace"}),
        (_, "downwardAPI") => {
            json!({"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]})
        }
        ("", "containers" | "initContainers") => {
            json!([{"name": "other", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}])
        }
        _ => plainest(&schema(at)["properties"][field]),
    }
}

/// The smallest value that a schema allows and that says something.
fn plainest(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(1),
        Some("array") => json!([plainest(&schema["items"])]),
        Some("object") => match schema.get("additionalProperties") {
            Some(value) => json!({"key": plainest(value)}),
            None => required(schema).into(),
        },
        Some(_) | None => json!("1"),
    }
}

fn required(schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| (name.to_owned(), plainest(&schema["properties"][name]))).collect()
}

/// Puts a value into the spec of a pod, into the first one of every list on the way.
pub fn put(spec: &mut Value, at: &str, field: &str, value: Value) {
    let (mut here, mut path) = (spec, String::new());
    for step in at.split('.').filter(|step| !step.is_empty()) {
        path = if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") };
        let name = step.trim_end_matches("[]");
        let empty = || Value::from(required(schema(&path)));
        let next = &mut here[name];
        if next.is_null() {
            *next = if step.ends_with("[]") { json!([empty()]) } else { empty() };
        }
        here = if step.ends_with("[]") { &mut next[0] } else { next };
    }
    here[field] = value;
}

/// What is there in the spec of a pod.
pub fn get(spec: &Value, at: &str, field: &str) -> Value {
    let steps = at.split('.').filter(|step| !step.is_empty());
    let here = steps.fold(spec, |here, step| {
        let next = &here[step.trim_end_matches("[]")];
        if step.ends_with("[]") { &next[0] } else { next }
    });
    here[field].clone()
}

/// A spec with just one container.
pub fn plain() -> Value {
    json!({"containers": [{"name": "main", "image": "app"}]})
}

/// A spec of which only this field is said.
pub fn with(at: &str, field: &str) -> Value {
    let mut spec = plain();
    put(&mut spec, at, field, sample(at, field));
    spec
}

/// A spec from JSON.
pub fn read(spec: &Value) -> PodSpec {
    serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Any spec: some fields that are there, whatever becomes of them.
pub fn any_spec() -> impl Strategy<Value = PodSpec> {
    specs(places().collect())
}

/// Any spec with nothing in it that is refused by either side.
pub fn any_good_spec() -> impl Strategy<Value = PodSpec> {
    let is_good =
        |field: &Field| field.home != super::Home::Refused && field.provider != super::Provider::Refused;
    specs(places().filter(|(_, field)| is_good(field)).collect())
}

fn specs(all: Vec<(&'static str, &'static Field)>) -> impl Strategy<Value = PodSpec> {
    let most = all.len().min(40);
    proptest::sample::subsequence(all, 0..most).prop_map(|chosen| {
        let mut spec = plain();
        for (at, field) in chosen {
            put(&mut spec, at, field.name, sample(at, field.name));
        }
        read(&spec)
    })
}

/// Keys of labels and annotations of all sorts, with values.
pub fn any_keys() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    let key = prop_oneof![
        Just("app".to_owned()),
        Just("liqo.io/type".to_owned()),
        Just("virtualkubelet.liqo.io/shadowed".to_owned()),
        Just("virtualkubelet.liqo.io/origin-uid".to_owned()),
        Just("virtualkubelet.liqo.io/content".to_owned()),
        Just("app.kubernetes.io/part-of".to_owned()),
        Just("k8s.v1.cni.cncf.io/networks".to_owned()),
        "[a-z]{1,3}(\\.kubernetes\\.io|\\.liqo\\.io|\\.org)/[a-z]{1,2}",
    ];
    let value = prop_oneof![Just("ferrofluid".to_owned()), "[a-z ]{0,4}"];
    proptest::collection::btree_map(key, value, 0..8)
}
