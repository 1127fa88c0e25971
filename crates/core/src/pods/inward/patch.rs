//! From one status of a pod to another, as a strategic merge patch: lists that several parties write are merged by key.
//!
//! A merge patch would replace the list of conditions as a whole, and with it what a controller of a readiness gate wrote
//! meanwhile.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

use crate::replication::difference;

const CONDITIONS: &str = "conditions";
/// Lists that API servers merge by address. We write them as a whole.
const ADDRESSES: [&str; 2] = ["podIPs", "hostIPs"];

/// The strategic merge patch that makes of the present status of a pod the wanted one; none when they are equal.
pub fn patch(present: Option<&PodStatus>, wanted: &PodStatus) -> Option<Value> {
    let value = |status| serde_json::to_value(status).unwrap_or_default();
    let (mut from, mut to) = (present.map_or_else(|| json!({}), value), value(wanted));
    let conditions = merge_conditions(&take(&mut from, CONDITIONS), &take(&mut to, CONDITIONS));
    let mut changes = match difference(&from, &to) {
        Some(Value::Object(changes)) => changes,
        _ => Map::new(),
    };
    for field in ADDRESSES {
        let is_merged = from.get(field).is_some();
        if let Some(Value::Array(list)) = changes.get_mut(field).filter(|_| is_merged) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    if !conditions.is_empty() {
        changes.insert(CONDITIONS.to_owned(), Value::Array(conditions));
    }
    (!changes.is_empty()).then(|| json!({"status": changes}))
}

fn take(status: &mut Value, field: &str) -> Vec<Value> {
    match status.as_object_mut().and_then(|fields| fields.remove(field)) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// What changes, by the type of each condition.
fn merge_conditions(from: &[Value], to: &[Value]) -> Vec<Value> {
    let find =
        |list: &[Value], type_: &Value| list.iter().find(|one| one.get("type") == Some(type_)).cloned();
    let type_of = |one: &Value| one.get("type").cloned().unwrap_or_default();
    let mut changes = Vec::new();
    for wanted in to {
        let type_ = type_of(wanted);
        let change = match find(from, &type_) {
            Some(present) => difference(&present, wanted),
            None => Some(wanted.clone()),
        };
        if let Some(mut change) = change {
            change["type"] = type_;
            changes.push(change);
        }
    }
    let gone = from.iter().map(type_of).filter(|type_| find(to, type_).is_none());
    changes.extend(gone.map(|type_| json!({"$patch": "delete", "type": type_})));
    changes
}
