//! A mutating webhook that marks what it saw, so that a test can tell that the API server called it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::tls::TlsListener;

/// Serves until the pod ends.
pub(crate) async fn serve(listen: SocketAddr, certificate: &Path) -> Result<()> {
    let router = Router::new().route("/", post(admit));
    let listener = TlsListener::bind(listen, certificate).await?;
    println!("listening on {listen}");
    Ok(axum::serve(listener, router).await?)
}

/// Allows the object and adds the label `rig/admitted-by` with the name of this pod's node.
async fn admit(Json(review): Json<Value>) -> Json<Value> {
    let node = std::env::var("NODE").unwrap_or_default();
    let operation = if review["request"]["object"]["metadata"]["labels"].is_object() {
        json!([{"op": "add", "path": "/metadata/labels/rig~1admitted-by", "value": node}])
    } else {
        json!([{"op": "add", "path": "/metadata/labels", "value": {"rig/admitted-by": node}}])
    };
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": STANDARD.encode(operation.to_string()),
        },
    }))
}
