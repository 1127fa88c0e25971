//! Which wish an object shows, as a hash: who compares two needs to keep neither.

use std::fmt::Write as _;

use ferro_api::names::annotations;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::identity::sha256;

const BYTES: usize = 16;

/// Writes on an object what it shows: its labels, its other annotations and this spec.
pub fn put_on(meta: &mut ObjectMeta, spec: &PodSpec) {
    annotations::POD_CONTENT.take_off(meta);
    // All keys are strings, so writing cannot fail.
    let content = serde_json::to_vec(&(&meta.labels, &meta.annotations, spec)).unwrap_or_default();
    let mut hash = String::new();
    for byte in sha256(&content).iter().take(BYTES) {
        // Writing to a string cannot fail.
        _ = write!(hash, "{byte:02x}");
    }
    annotations::POD_CONTENT.put_on(meta, hash);
}
