//! The end of the node role: routes stay for the one that comes next, unless none will come.

use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::network::routes::Wanted;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Kernel;

/// The object that starts one node role on each node.
const DAEMON_SET: &str = "ferro-node";
/// How long the API server has to say whether another one comes. After 30 s the process is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removes all that was made in the kernel, if the installation is being removed.
pub async fn farewell(client: Client, namespace: &str) {
    match timeout(PATIENCE, is_for_good(client, namespace)).await {
        Ok(true) => match clean() {
            Ok(changes) => info!(changes, "the installation is being removed; nothing is left in the kernel"),
            Err(error) => warn!(error = format!("{error:#}"), "something is left in the kernel"),
        },
        Ok(false) => {}
        Err(_) => {
            warn!("the API server does not say whether the installation stays; routes are left in place");
        }
    }
}

fn clean() -> Result<usize> {
    let changes = Kernel::open()?.become_like(&Wanted::default()).context("cannot remove routes")?;
    Ok(changes.len())
}

/// Whether no other node role will come after this one. Rights go with the installation, too. That the API server does
/// not know us says nothing: a token goes with its pod, which may have been deleted by force, and another one is here.
async fn is_for_good(client: Client, namespace: &str) -> bool {
    match Api::<DaemonSet>::namespaced(client, namespace).get_metadata(DAEMON_SET).await {
        Ok(object) => object.metadata.deletion_timestamp.is_some(),
        Err(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};
    use serde_json::{Value, json};

    use super::*;

    fn api(code: u16, answer: &Value) -> Client {
        let text = answer.to_string();
        let answer = tower::service_fn(move |_: Request<Body>| {
            let response = Response::builder().status(code).body(Body::from(text.clone().into_bytes()));
            std::future::ready(response)
        });
        ClientBuilder::new(answer, "liqo").build()
    }

    fn daemon_set(metadata: &Value) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    }

    #[tokio::test]
    async fn routes_go_only_with_the_installation() {
        let status = |code: u16| {
            json!({"kind": "Status", "apiVersion": "v1", "code": code, "status": "Failure",
            "message": "no", "reason": "No"})
        };
        let going = json!({"name": "ferro-node", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (code, answer, expected) in [
            (200, daemon_set(&json!({"name": "ferro-node"})), false),
            (200, daemon_set(&going), true),
            (404, status(404), true),
            (403, status(403), true),
            (401, status(401), false),
            (500, status(500), false),
        ] {
            assert_eq!(is_for_good(api(code, &answer), "liqo").await, expected, "{code} {answer}");
        }
    }
}
