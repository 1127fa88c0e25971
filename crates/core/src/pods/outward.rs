//! What of a pod travels: from a pod at home to the ShadowPod that is wanted for it.
//!
//! [`super::fields`] says what becomes of each field. What may not cross, and what does not mean anything elsewhere, is
//! asked of the same functions by home and by the provider, who does not rely on home having done so.

pub mod access;
pub(in crate::pods) mod barred;
mod claims;
pub(in crate::pods) mod content;
mod debugging;
mod downward;
pub(crate) mod keys;
pub(in crate::pods) mod portable;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodSpec};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::{Refusal, fields, tokens};
use access::Access;

/// What a user can do who wants what cannot travel.
const ADVICE: &str =
    "take it out, or keep the pod in this cluster with the node affinity liqo.io/type NotIn [virtual-node]";

/// The ShadowPod that is wanted for a pod, in this namespace over there; `home` is the identifier of this cluster.
///
/// Which wish it shows does not depend on the access to the API server: that may change while the pod runs, which could not
/// follow it.
pub fn shadow(pod: &Pod, namespace: &str, home: &str, access: &Access) -> Result<ShadowPod, Refusal> {
    let mut spec = spec(pod)?;
    let given = &pod.metadata;
    let mut metadata = ObjectMeta {
        name: given.name.clone(),
        namespace: Some(namespace.to_owned()),
        labels: Some(kept(given.labels.as_ref(), |key, _| keys::label_travels(key))),
        annotations: Some(kept(given.annotations.as_ref(), |key, _| keys::annotation_travels(key))),
        ..ObjectMeta::default()
    };
    labels::ORIGIN_ID.put_on(&mut metadata, home);
    annotations::ORIGIN_UID.put_on(&mut metadata, given.uid.clone().unwrap_or_default());
    annotations::ORIGIN_NAMESPACE.put_on(&mut metadata, given.namespace.clone().unwrap_or_default());
    content::put_on(&mut metadata, &spec);
    if let Access::Open(server) = access
        && !tokens::wanted(pod).is_empty()
    {
        access::grant(&mut spec, pod, server);
        // The token comes with the name of its namespace: that of home.
        downward::translate(&mut spec, pod);
    }
    Ok(ShadowPod { metadata, spec: ShadowPodSpec { pod: spec }, status: None })
}

fn spec(pod: &Pod) -> Result<PodSpec, Refusal> {
    let mut spec = pod.spec.clone().unwrap_or_default();
    portable::without_own_token(&mut spec);
    debugging::without_ended(&mut spec, pod);
    access::translate(&mut spec, pod);
    if let Some(barred) = barred::find(&spec) {
        let message = format!("{} cannot run on another cluster: {}; {ADVICE}", barred.what, barred.why);
        return Err(Refusal::new(barred.word, message));
    }
    let mut spec = portable::spec(spec);
    claims::translate(&mut spec, pod);
    downward::translate(&mut spec, pod);
    Ok(spec)
}

/// Whether a pod cannot run elsewhere because of what never changes of it: containers for debugging come and stay.
pub(super) fn never_travels(pod: &Pod) -> bool {
    let mut first = pod.clone();
    if let Some(spec) = &mut first.spec {
        spec.ephemeral_containers = None;
    }
    spec(&first).is_err()
}

/// Those that pass.
pub(in crate::pods) fn kept(
    all: Option<&BTreeMap<String, String>>,
    passes: impl Fn(&str, &str) -> bool,
) -> BTreeMap<String, String> {
    let kept = all.into_iter().flatten().filter(|(key, value)| passes(key, value));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The merge patch that makes of the ShadowPod that is there the one that is wanted; of the former only the metadata is
/// looked at.
///
/// A merge leaves alone what it does not name, so every field of the pod that is not wanted is named as gone.
pub fn change(present: &ShadowPod, wanted: &ShadowPod) -> Option<Value> {
    let (present, meta) = (&present.metadata, &wanted.metadata);
    let same = |annotation: annotations::Annotation| annotation.of(present) == annotation.of(meta);
    if same(annotations::POD_CONTENT) && same(annotations::ORIGIN_UID) {
        return None;
    }
    let mut pod: Map<String, Value> =
        fields::POD.fields.iter().map(|field| (field.name.to_owned(), Value::Null)).collect();
    if let Ok(Value::Object(spec)) = serde_json::to_value(&wanted.spec.pod) {
        pod.extend(spec);
    }
    let mut metadata = Map::new();
    let parts = [
        ("labels", difference(present.labels.as_ref(), meta.labels.as_ref())),
        ("annotations", difference(present.annotations.as_ref(), meta.annotations.as_ref())),
    ];
    for (name, part) in parts {
        if !part.is_empty() {
            metadata.insert(name.to_owned(), part.into());
        }
    }
    Some(json!({"metadata": metadata, "spec": {"pod": pod}}))
}

/// What to merge into a map, so that it becomes the wanted one.
fn difference(
    present: Option<&BTreeMap<String, String>>,
    wanted: Option<&BTreeMap<String, String>>,
) -> Map<String, Value> {
    let (none, no) = (BTreeMap::new(), BTreeMap::new());
    let (present, wanted) = (present.unwrap_or(&none), wanted.unwrap_or(&no));
    let gone = present.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let new = wanted.iter().filter(|(key, value)| present.get(*key) != Some(value));
    gone.chain(new.map(|(key, value)| (key.clone(), value.clone().into()))).collect()
}
