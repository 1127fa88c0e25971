//! Endpoints of a cluster that is not heard any more are taken out of use where they are reflected to, and are back when
//! it is heard again.
//!
//! Only the cluster that uses them can do so: the one that they are from is cut off. What they were is noted on the slice,
//! so that their own cluster finds its copy as it was, and does not put it right.

use ferro_api::names::annotations;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// What to merge into a reflected slice, so that its endpoints are used exactly if their cluster is heard.
pub fn patch(slice: &EndpointSlice, is_heard: bool) -> Option<Value> {
    let noted = annotations::SILENCED.of(&slice.metadata);
    let mut endpoints = slice.endpoints.clone();
    let note = if is_heard {
        restore(&mut endpoints, noted?);
        None
    } else {
        if noted.is_some() || endpoints.iter().all(|endpoint| ready(endpoint) == Some(false)) {
            return None;
        }
        let note: String = endpoints.iter().map(|endpoint| letter(ready(endpoint))).collect();
        for endpoint in &mut endpoints {
            endpoint.conditions.get_or_insert_default().ready = Some(false);
        }
        Some(note)
    };
    let version = &slice.metadata.resource_version;
    let annotations = json!({annotations::SILENCED.key(): note});
    Some(
        json!({"metadata": {"resourceVersion": version, "annotations": annotations}, "endpoints": endpoints}),
    )
}

/// Makes of a slice what its own cluster wrote.
pub(super) fn undo(slice: &mut DynamicObject) {
    let Some(noted) = annotations::SILENCED.of(&slice.metadata).map(str::to_owned) else { return };
    annotations::SILENCED.take_off(&mut slice.metadata);
    let given = serde_json::from_value::<Vec<Endpoint>>(slice.data["endpoints"].clone());
    if let Ok(mut endpoints) = given {
        restore(&mut endpoints, &noted);
        slice.data["endpoints"] = json!(endpoints);
    }
}

fn restore(endpoints: &mut [Endpoint], noted: &str) {
    for (endpoint, letter) in endpoints.iter_mut().zip(noted.chars()) {
        let conditions = endpoint.conditions.get_or_insert_default();
        conditions.ready = match letter {
            'r' => Some(true),
            'n' => Some(false),
            _ => None,
        };
        if *conditions == k8s_openapi::api::discovery::v1::EndpointConditions::default() {
            endpoint.conditions = None;
        }
    }
}

fn ready(endpoint: &Endpoint) -> Option<bool> {
    endpoint.conditions.as_ref()?.ready
}

fn letter(ready: Option<bool>) -> char {
    match ready {
        Some(true) => 'r',
        Some(false) => 'n',
        None => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, digest};
    use super::*;
    use crate::replication::apply;

    fn slice() -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "annotations": {"a": "b"}}, "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.5"], "conditions": {"ready": true, "serving": false}},
                {"addresses": ["10.0.0.6"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.7"]},
            ],
        })
    }

    fn patched(slice: &Value, is_heard: bool) -> Option<Value> {
        let mut after = slice.clone();
        let patch = patch(&serde_json::from_value(slice.clone()).unwrap(), is_heard)?;
        apply(&mut after, &patch);
        Some(after)
    }

    #[test]
    fn a_silent_cluster_has_no_endpoints_in_use_and_has_them_back_as_they_were() {
        let silent = patched(&slice(), false).unwrap();
        let ready: Vec<&Value> =
            silent["endpoints"].as_array().unwrap().iter().map(|one| &one["conditions"]["ready"]).collect();
        assert_eq!(ready, [false, false, false]);
        assert_eq!(patched(&silent, false), None, "once is enough");
        let heard = patched(&silent, true).unwrap();
        assert_eq!(
            (&heard["endpoints"], &heard["metadata"]["annotations"]),
            (&slice()["endpoints"], &json!({"a": "b"}))
        );
        assert_eq!(patched(&slice(), true), None);
    }

    #[test]
    fn for_its_own_cluster_a_silenced_copy_is_as_it_was() {
        let kept = |value: Value| {
            let mut object: DynamicObject = serde_json::from_value(value).unwrap();
            undo(&mut object);
            digest(&Kind::EndpointSlice.content(&object))
        };
        assert_eq!(kept(patched(&slice(), false).unwrap()), kept(slice()));
    }
}
