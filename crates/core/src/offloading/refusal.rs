//! What a Namespace is told whose label cannot be followed: a condition on itself, since there is no other object.

use ferro_api::names::labels;
use ferro_api::offloading::NamespaceOffloadingSpec;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::name::{NameError, offloaded_name};
use super::{Notice, Write};

/// The condition of a Namespace whose label `liqo.io/enabled` makes no offloading.
pub const REFUSED: &str = "OffloadingRefused";

/// The reason that a Namespace has been told.
pub(super) fn of(namespace: &Namespace) -> Option<&str> {
    let conditions = namespace.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == REFUSED)?.reason.as_deref()
}

/// Why the label on a namespace cannot be followed.
pub(super) fn of_label(namespace: &str, own_cluster_id: &str, installation: &str) -> Option<NameError> {
    offloaded_name(&NamespaceOffloadingSpec::default(), namespace, own_cluster_id, installation).err()
}

/// Tells it.
pub(super) fn tell(namespace: &str, why: &NameError, now: Timestamp) -> Write {
    let label = labels::ENABLED.key();
    let message = format!("the label {label} has no effect: {why}");
    let condition = json!({
        "type": REFUSED, "status": "True", "reason": why.word(), "message": message, "lastTransitionTime": Time(now),
    });
    let notice = Notice { warning: true, reason: why.word().to_owned(), note: message };
    Write::Refuse(namespace.to_owned(), in_status(&condition), Some(notice))
}

/// Takes it back.
pub(super) fn take_back(namespace: &str) -> Write {
    let condition = json!({"type": REFUSED, "$patch": "delete"});
    Write::Refuse(namespace.to_owned(), in_status(&condition), None)
}

/// Conditions are merged by their type, so that those of others stay.
fn in_status(condition: &Value) -> Value {
    json!({"status": {"conditions": [condition]}})
}
