//! How a pod that runs follows a new wish: what of it Kubernetes lets change in place, and what not.
//!
//! A pod that is there has more in it than was wished for, since API servers fill in what was left out. So a wish is
//! followed when all that it says is there. Of labels and annotations, those go that we put on and nobody wishes for now:
//! Kubernetes notes down who set what.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::resources::Amount;

/// Under this name our controller writes pods.
pub const MANAGER: &str = "ferro-shadows";

/// What can be changed without a new pod, beside the image.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const LISTS: [&str; 2] = ["containers", "initContainers"];
/// What is compared on its own.
const APART: [&str; 5] =
    ["containers", "initContainers", "ephemeralContainers", "tolerations", "activeDeadlineSeconds"];

/// One change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A strategic merge patch of the pod.
    Spec(Value),
    /// A strategic merge patch of its subresource `resize`.
    Resize(Value),
    /// A strategic merge patch of its subresource `ephemeralcontainers`.
    Debug(Value),
}

/// A part of a wish that a running pod does not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whether it is about how much the containers may use.
    pub is_size: bool,
    /// Why, in a sentence.
    pub message: String,
}

impl Refused {
    fn new(message: String) -> Self {
        Self { is_size: false, message }
    }
}

/// All that a new wish means for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// What changes in place. One does not depend on another.
    pub changes: Vec<Change>,
    /// What cannot.
    pub refused: Vec<Refused>,
    /// The merge patch of labels and annotations. With it the pod shows the wish, so that it comes last.
    pub metadata: Value,
}

/// From a pod as the API server has it, whole, to the one that is wanted.
pub fn changes(present: &Pod, wanted: &Pod) -> Changes {
    let (here, there) = (json!(present.spec), json!(wanted.spec));
    let mut work = Work::default();
    for list in LISTS {
        work.containers(list, &here[list], &there[list]);
    }
    work.deadline(&here, &there);
    work.tolerations(&here["tolerations"], &there["tolerations"]);
    for (field, value) in there.as_object().into_iter().flatten() {
        if !APART.contains(&field.as_str()) && !covers(field, &here[field], value) {
            work.refused.push(Refused::new(format!("{field} cannot be changed")));
        }
    }
    let debug = added(&here["ephemeralContainers"], &there["ephemeralContainers"]);
    let changes = [
        (!work.spec.is_empty()).then(|| Change::Spec(json!({"spec": work.spec}))),
        (!work.resize.is_empty()).then(|| Change::Resize(json!({"spec": work.resize}))),
    ];
    // Each by itself: one that the API server refuses does not keep out the others.
    let debug = debug
        .into_iter()
        .map(|container| Change::Debug(json!({"spec": {"ephemeralContainers": [container]}})));
    let metadata = json!({"metadata": {
        "uid": present.metadata.uid,
        "labels": entries(&present.metadata, "f:labels", |meta| meta.labels.as_ref(), wanted),
        "annotations": entries(&present.metadata, "f:annotations", |meta| meta.annotations.as_ref(), wanted),
    }});
    Changes { changes: changes.into_iter().flatten().chain(debug).collect(), refused: work.refused, metadata }
}

#[derive(Default)]
struct Work {
    spec: Map<String, Value>,
    resize: Map<String, Value>,
    refused: Vec<Refused>,
}

impl Work {
    fn containers(&mut self, list: &str, here: &Value, there: &Value) {
        let (mut images, mut sizes) = (Vec::new(), Vec::new());
        for wanted in there.as_array().into_iter().flatten() {
            let name = &wanted["name"];
            let Some(present) = named(here, name) else {
                self.refused.push(Refused::new(format!("container {} cannot be added", text(name))));
                continue;
            };
            if !covers("image", &present["image"], &wanted["image"]) {
                images.push(json!({"name": name, "image": wanted["image"]}));
            }
            if !covers("resources", &present["resources"], &wanted["resources"]) {
                if let Some(size) = resized(&present["resources"], &wanted["resources"]) {
                    sizes.push(json!({"name": name, "resources": size}));
                } else {
                    let message = format!("container {} cannot be resized so", text(name));
                    self.refused.push(Refused { is_size: true, message });
                }
            }
            for (field, value) in wanted.as_object().into_iter().flatten() {
                let is_apart = matches!(field.as_str(), "image" | "resources");
                if !is_apart && !covers(field, &present[field], value) {
                    let message = format!("{field} of container {} cannot be changed", text(name));
                    self.refused.push(Refused::new(message));
                }
            }
        }
        for (patch, entries) in [(&mut self.spec, images), (&mut self.resize, sizes)] {
            if !entries.is_empty() {
                patch.insert(list.to_owned(), Value::Array(entries));
            }
        }
    }

    fn deadline(&mut self, here: &Value, there: &Value) {
        const FIELD: &str = "activeDeadlineSeconds";
        match (&here[FIELD], &there[FIELD]) {
            (present, wanted) if present == wanted => {}
            (_, Value::Null) => {
                self.refused.push(Refused::new(format!("{FIELD} cannot be taken away")));
            }
            (_, wanted) => _ = self.spec.insert(FIELD.to_owned(), wanted.clone()),
        }
    }

    /// Tolerations can be added, and can last longer or shorter.
    fn tolerations(&mut self, here: &Value, there: &Value) {
        let apart = |toleration: &Value| {
            let field = |name: &str| toleration[name].clone();
            let operator = if toleration["operator"] == "Equal" { Value::Null } else { field("operator") };
            [field("key"), operator, field("value"), field("effect")]
        };
        let mut all: Vec<Value> = here.as_array().cloned().unwrap_or_default();
        let before = all.clone();
        for wanted in there.as_array().into_iter().flatten() {
            match all.iter_mut().find(|present| apart(present) == apart(wanted)) {
                Some(present) => *present = wanted.clone(),
                None => all.push(wanted.clone()),
            }
        }
        let seconds = |all: &[Value]| -> Vec<_> {
            all.iter().map(|one| (apart(one), one["tolerationSeconds"].clone())).collect()
        };
        if seconds(&all) != seconds(&before) {
            self.spec.insert("tolerations".to_owned(), Value::Array(all));
        }
    }
}

/// What of the resources is to be written; nothing where something else differs than can be resized.
fn resized(here: &Value, there: &Value) -> Option<Value> {
    let mut size = Map::new();
    for (kind, amounts) in there.as_object().into_iter().flatten() {
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            if covers(kind, &here[kind][name], amount) {
                continue;
            }
            if !RESIZABLE.contains(&name.as_str()) || !matches!(kind.as_str(), "requests" | "limits") {
                return None;
            }
            size.entry(kind.clone()).or_insert_with(|| json!({}))[name] = amount.clone();
        }
    }
    (!size.is_empty()).then_some(Value::Object(size))
}

/// Those that are not there under their names.
fn added(here: &Value, there: &Value) -> Vec<Value> {
    let wanted = there.as_array().into_iter().flatten();
    wanted.filter(|container| named(here, &container["name"]).is_none()).cloned().collect()
}

fn named<'a>(list: &'a Value, name: &Value) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == *name)
}

fn text(name: &Value) -> &str {
    name.as_str().unwrap_or_default()
}

/// Whether all that is wanted is there. What says nothing is what is left out.
fn covers(field: &str, present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(name, value)| {
            let is_amount = matches!(field, "requests" | "limits" | "overhead");
            covers(if is_amount { "amount" } else { name }, present.get(name).unwrap_or(&Value::Null), value)
        }),
        (Value::Array(present), Value::Array(wanted)) if wanted.iter().any(Value::is_object) => {
            wanted.iter().all(|wanted| present.iter().any(|present| covers(field, present, wanted)))
        }
        (Value::String(one), Value::String(other)) if matches!(field, "amount" | "sizeLimit" | "divisor") => {
            one == other || one.parse::<Amount>().ok().is_some_and(|one| other.parse() == Ok(one))
        }
        (present, wanted) => present == wanted || (present.is_null() && is_blank(wanted)),
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(is_blank),
    }
}

/// The labels or annotations that are put on, and those that are taken off.
fn entries(
    present: &ObjectMeta,
    field: &str,
    of: fn(&ObjectMeta) -> Option<&BTreeMap<String, String>>,
    wanted: &Pod,
) -> Map<String, Value> {
    let nothing = BTreeMap::new();
    let (here, there) = (of(present).unwrap_or(&nothing), of(&wanted.metadata).unwrap_or(&nothing));
    let ours = present.managed_fields.iter().flatten().filter(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.subresource.as_deref().is_none_or(str::is_empty)
    });
    let ours = ours.filter_map(|entry| entry.fields_v1.as_ref()?.0["f:metadata"][field].as_object());
    let ours = ours.flat_map(Map::keys).filter_map(|key| key.strip_prefix("f:"));
    let gone = ours.filter(|key| here.contains_key(*key) && !there.contains_key(*key));
    let gone = gone.map(|key| (key.to_owned(), Value::Null));
    let put = there.iter().filter(|(key, value)| here.get(*key) != Some(*value));
    gone.chain(put.map(|(key, value)| (key.clone(), json!(value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod as an API server has it, which was made from one with `spec` and something was added.
    fn present(spec: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "uid": "u1", "labels": {"app": "a", "old": "x", "webhook": "w"},
                "annotations": {"virtualkubelet.liqo.io/content": "1"},
                "managedFields": [{"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:metadata": {
                    "f:labels": {".": {}, "f:app": {}, "f:old": {}},
                    "f:annotations": {".": {}, "f:virtualkubelet.liqo.io/content": {}}}}}]},
            "spec": {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "nodeName": "n1",
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                    "effect": "NoExecute", "tolerationSeconds": 300}],
                "volumes": [{"name": "kube-api-access-x", "projected": {"sources": []}}]},
        });
        crate::replication::apply(&mut pod["spec"], spec);
        serde_json::from_value(pod).unwrap()
    }

    fn wanted(spec: &Value) -> Pod {
        let metadata = json!({"name": "p", "labels": {"app": "b"},
            "annotations": {"virtualkubelet.liqo.io/content": "2"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn container(image: &str, cpu: &str) -> Value {
        json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "0"}}})
    }

    #[test]
    fn labels_follow_and_what_others_put_on_stays() {
        let spec = || json!({"containers": [container("i", "1")]});
        let changes = changes(&present(&spec()), &wanted(&spec()));
        assert_eq!((changes.changes, changes.refused), (vec![], vec![]));
        let expected = json!({"metadata": {"uid": "u1", "labels": {"app": "b", "old": null},
            "annotations": {"virtualkubelet.liqo.io/content": "2"}}});
        assert_eq!(changes.metadata, expected);
    }

    #[test]
    fn what_an_api_server_adds_or_writes_otherwise_is_no_change() {
        let filled = json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
            "resources": {"requests": {"cpu": "1", "memory": "0"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "kube-api-access-x", "mountPath": "/x"}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "kube-api-access-x"}]});
        let said = json!({"hostNetwork": false, "securityContext": {}, "containers": [{"name": "c", "image": "i",
            "stdin": false, "env": [], "resources": {"requests": {"cpu": "1000m", "memory": "0"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}]});
        let changes = changes(&present(&filled), &wanted(&said));
        assert_eq!((changes.changes, changes.refused), (vec![], vec![]));
    }

    #[test]
    fn image_size_deadline_tolerations_and_debugging_change_in_place() {
        let here = present(&json!({"containers": [container("i:1", "1")]}));
        let there = wanted(&json!({"containers": [container("i:2", "2")], "activeDeadlineSeconds": 9,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 900},
                {"key": "gpu", "operator": "Exists"}],
            "ephemeralContainers": [{"name": "d", "image": "sh"}]}));
        let changes = changes(&here, &there);
        assert_eq!(changes.refused, []);
        let [Change::Spec(spec), Change::Resize(size), Change::Debug(debug)] = changes.changes.as_slice()
        else {
            panic!("{:?}", changes.changes)
        };
        assert_eq!(spec["spec"]["containers"], json!([{"name": "c", "image": "i:2"}]));
        assert_eq!(spec["spec"]["activeDeadlineSeconds"], 9);
        assert_eq!(spec["spec"]["tolerations"][0]["tolerationSeconds"], 900);
        assert_eq!(spec["spec"]["tolerations"][1]["key"], "gpu");
        let sizes = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
        assert_eq!(*size, sizes);
        assert_eq!(debug["spec"]["ephemeralContainers"][0]["name"], "d");
    }

    #[test]
    fn what_cannot_change_is_named() {
        let here = present(&json!({"containers": [container("i", "1")]}));
        let mut other = container("i", "1");
        other["env"] = json!([{"name": "A", "value": "1"}]);
        other["resources"]["limits"] = json!({"example.org/gpu": "1"});
        let there = wanted(&json!({"containers": [other, {"name": "more"}], "nodeSelector": {"pool": "x"}}));
        let refused = changes(&here, &there).refused;
        let sizes: Vec<bool> = refused.iter().map(|refused| refused.is_size).collect();
        assert_eq!(sizes, [true, false, false, false]);
        let refused: Vec<String> = refused.into_iter().map(|refused| refused.message).collect();
        let expected = [
            "container c cannot be resized so",
            "env of container c cannot be changed",
            "container more cannot be added",
            "nodeSelector cannot be changed",
        ];
        assert_eq!(refused, expected);
    }

    #[test]
    fn containers_for_debugging_are_added_one_by_one() {
        let names =
            |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"name": name})).collect() };
        let spec = |all: &[&str]| json!({"containers": [], "ephemeralContainers": names(all)});
        let changes = changes(&present(&spec(&["a"])), &wanted(&spec(&["a", "b", "c"]))).changes;
        let [Change::Debug(first), Change::Debug(second)] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(first["spec"]["ephemeralContainers"], json!([{"name": "b"}]));
        assert_eq!(second["spec"]["ephemeralContainers"], json!([{"name": "c"}]));
    }

    #[test]
    fn a_container_for_debugging_that_is_there_is_left_alone() {
        let spec =
            |image: &str| json!({"containers": [], "ephemeralContainers": [{"name": "d", "image": image}]});
        assert_eq!(changes(&present(&spec("a")), &wanted(&spec("b"))).changes, []);
    }
}
