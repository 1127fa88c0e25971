//! Taking a finalizer off an object, whatever else has changed on it, as long as the list is still the same.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use serde_json::{Value, json};

/// Whether an object is to go, and this finalizer still holds it.
pub fn is_last_wish(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

/// The patch with which an object has one finalizer less.
pub fn without(meta: &ObjectMeta, finalizer: &str) -> Result<Patch<Value>> {
    Ok(Patch::Json(serde_json::from_value(operations(meta, finalizer)).context("not a patch")?))
}

fn operations(meta: &ObjectMeta, finalizer: &str) -> Value {
    let present: Vec<&String> = meta.finalizers.iter().flatten().collect();
    let others: Vec<&&String> = present.iter().filter(|name| **name != finalizer).collect();
    json!([
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "replace", "path": "/metadata/finalizers", "value": others},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_and_the_others_stay() {
        let meta = ObjectMeta {
            finalizers: Some(vec!["a.example/x".into(), "b.example/y".into()]),
            ..ObjectMeta::default()
        };
        let operations = operations(&meta, "a.example/x");
        assert_eq!(operations[0]["value"], json!(["a.example/x", "b.example/y"]));
        assert_eq!(operations[1]["value"], json!(["b.example/y"]));
        assert!(without(&meta, "a.example/x").is_ok());
        assert!(!is_last_wish(&meta, "a.example/x"), "it is not to go");
    }
}
