//! The webhook by which pods of offloaded namespaces stay where they may run; what it decides is
//! [`ferro_core::admission`].
//!
//! - Flow: an API server shows every pod that is created in a namespace with the mark of offloaded ones, and no other.
//!   Every replica of the controller answers, from a watch and without a request of its own.
//! - Guarantees: a pod of such a namespace is not created without its policy. Where the watch does not know one yet, the
//!   API server is asked; where that fails, the pod is refused and its owner tries again.
//! - Everybody in the cluster can reach the port: questions are short, few are read at once, each in limited time, and an
//!   answer tells nothing that is not in the question or in the policy of its namespace.

mod certificates;
mod metrics;

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use ferro_api::offloading::NamespaceOffloading;
use ferro_core::admission::{BadReview, LARGEST, Review, admit};
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::tls;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

pub use certificates::keep;
pub use metrics::{Metrics, Outcome};

/// The configuration of the webhook, its Service, and the Secret with its certificates.
pub const NAME: &str = "ferro-webhook";
/// The name by which an API server speaks of it.
pub const WEBHOOK: &str = "pods.offloading.liqo.io";
/// The port that every replica serves on.
pub const PORT: u16 = 9443;

/// The one offloading that a namespace can have.
const OFFLOADING: &str = "offloading";
/// Connections from one address: an API server reviews so many at once, and nobody takes all places.
const EACH: usize = 200;
/// Questions that are read at once, and how long one may take to come.
const READING: usize = 64;
const BODY: Duration = Duration::from_secs(1);
/// How long the API server may take where the watch does not know.
const LOOKUP: Duration = Duration::from_secs(2);

/// Serves until the tasks end; ready once all offloadings are known and there is a certificate.
pub async fn serve(
    tasks: Tasks,
    client: Client,
    namespace: String,
    offloadings: Watched<NamespaceOffloading>,
    metrics: Metrics,
    pending: Pending,
) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let certificate = Watched::start(&tasks, "certificate of the webhook", secrets, named(NAME));
    let listener = tls::listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))).await?;
    offloadings.ready().await?;
    let desk = Desk { offloadings, client, reading: Arc::new(Semaphore::new(READING)), metrics };
    let router = Router::new().route("/mutate-pods", post(mutate)).with_state(desk);
    tls::serve(listener, certificate, router, EACH, pending).await
}

/// Only the object of that name.
fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

#[derive(Clone)]
struct Desk {
    offloadings: Watched<NamespaceOffloading>,
    client: Client,
    reading: Arc<Semaphore>,
    metrics: Metrics,
}

async fn mutate(State(desk): State<Desk>, body: Body) -> Response {
    let (outcome, response) = match desk.read(body).await {
        Err(status) => (Outcome::Malformed, status.into_response()),
        Ok(body) => match answer(&body, async |namespace| desk.policy(namespace).await).await {
            Ok((outcome, answer)) => (outcome, Json(answer).into_response()),
            Err(bad) => (Outcome::Malformed, (StatusCode::BAD_REQUEST, bad.to_string()).into_response()),
        },
    };
    desk.metrics.count(outcome);
    response
}

impl Desk {
    async fn read(&self, body: Body) -> Result<Bytes, StatusCode> {
        let _place = self.reading.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        match tokio::time::timeout(BODY, to_bytes(body, LARGEST)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
            Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
        }
    }

    /// The policy of a namespace. The mark that brings its pods here may be known before the offloading that it is for, and
    /// one that goes may be gone, with another in its place, while the watch is taken up again.
    async fn policy(&self, namespace: &str) -> Result<Option<Arc<NamespaceOffloading>>> {
        let known = self.offloadings.get(Some(namespace), OFFLOADING);
        if let Some(lasting) = known.filter(|known| known.metadata.deletion_timestamp.is_none()) {
            return Ok(Some(lasting));
        }
        let api: Api<NamespaceOffloading> = Api::namespaced(self.client.clone(), namespace);
        let found = tokio::time::timeout(LOOKUP, api.get_opt(OFFLOADING)).await;
        let found = found.context("the API server does not answer")?;
        Ok(found.context("the API server does not tell")?.map(Arc::new))
    }
}

/// What is answered to a question.
async fn answer(
    body: &[u8],
    policy: impl AsyncFnOnce(&str) -> Result<Option<Arc<NamespaceOffloading>>>,
) -> Result<(Outcome, Value), BadReview> {
    let review = Review::parse(body).inspect_err(|bad| debug!(%bad, "a question is not answered"))?;
    let namespace = &review.namespace;
    let offloading = match policy(namespace).await {
        Ok(Some(offloading)) => offloading,
        Ok(None) => return Ok((Outcome::Unchanged, review.allow(&[]))),
        Err(error) => {
            let error = format!("{error:#}");
            warn!(namespace, error, "cannot read the policy of a namespace, and so admits no pod there");
            let why =
                format!("cannot read the NamespaceOffloading of {namespace}: {error}; try again in a moment");
            return Ok((Outcome::Postponed, review.postpone(&why)));
        }
    };
    Ok(match admit(&review.pod, &offloading) {
        Ok(additions) if additions.is_empty() => (Outcome::Unchanged, review.allow(&[])),
        Ok(additions) => (Outcome::Changed, review.allow(&additions)),
        Err(refusal) => (Outcome::Refused, review.refuse(&refusal)),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use serde_json::json;

    use super::*;

    fn question(spec: &Value) -> Vec<u8> {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "CREATE", "namespace": "shop",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec},
            },
        })
        .to_string()
        .into_bytes()
    }

    fn offloading(spec: &Value) -> Arc<NamespaceOffloading> {
        let metadata = json!({"name": "offloading", "namespace": "shop"});
        let version = "offloading.liqo.io/v1alpha1";
        let object =
            json!({"apiVersion": version, "kind": "NamespaceOffloading", "metadata": metadata, "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    async fn told(spec: Value, policy: Option<Value>) -> (Outcome, Value) {
        let pod = question(&spec);
        answer(&pod, async |namespace| {
            assert_eq!(namespace, "shop");
            Ok(policy.as_ref().map(offloading))
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn pods_get_their_policy_and_without_one_nothing() {
        let pod = || json!({"containers": []});
        let (outcome, answer) = told(pod(), Some(json!({"podOffloadingStrategy": "Remote"}))).await;
        assert_eq!(outcome, Outcome::Changed);
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        for policy in [None, Some(json!({"podOffloadingStrategy": "Local"}))] {
            let (outcome, answer) = told(pod(), policy).await;
            assert_eq!(outcome, Outcome::Unchanged);
            assert_eq!(answer["response"], json!({"uid": "1", "allowed": true}));
        }
        let wrong = json!({"clusterSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]},
        ]}});
        let (outcome, answer) = told(pod(), Some(wrong)).await;
        assert_eq!((outcome, &answer["response"]["allowed"]), (Outcome::Refused, &json!(false)));
    }

    #[tokio::test]
    async fn no_pod_is_admitted_while_its_policy_cannot_be_read() {
        let pod = question(&json!({"containers": []}));
        let (outcome, answer) = answer(&pod, async |_| bail!("no answer")).await.unwrap();
        assert_eq!(outcome, Outcome::Postponed);
        assert_eq!(answer["response"]["allowed"], false);
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("NamespaceOffloading of shop") && message.contains("try again"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn what_is_no_question_is_not_answered() {
        assert!(answer(b"{}", async |_| Ok(None)).await.is_err());
    }
}
