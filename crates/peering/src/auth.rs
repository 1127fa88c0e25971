//! The auth service: the one part that strangers reach. It holds no identity key and few rights.
//!
//! It answers `GET /ids` with the endorsement that the controller published. Connections are bounded in number, each
//! has a limited time to say hello and to ask, and bodies are not read.

mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::identity::{ENDORSEMENT, NAME, SERVING};

/// Serves until the tasks end; ready once there is a certificate to serve with.
pub async fn serve(
    tasks: Tasks,
    client: Client,
    namespace: String,
    listen: SocketAddr,
    pending: Pending,
) -> Result<()> {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let secrets = Api::<Secret>::namespaced(client, &namespace);
    let identity = Watched::start(&tasks, "identity", maps, named(NAME));
    let certificate = Watched::start(&tasks, "certificate", secrets, named(SERVING));
    let router = Router::new().route("/ids", get(ids)).with_state(Arc::new(identity));
    tls::serve(listen, certificate, router, pending).await
}

/// Who this cluster is; not yet, while the controller has not said so.
async fn ids(State(identity): State<Arc<Watched<ConfigMap>>>) -> Response {
    let map = identity.all().into_iter().next();
    match map.as_ref().and_then(|map| map.data.as_ref()?.get(ENDORSEMENT)) {
        Some(endorsement) => {
            ([(header::CONTENT_TYPE, "application/json")], endorsement.clone()).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "this cluster has no identity yet; try again in a moment")
            .into_response(),
    }
}
