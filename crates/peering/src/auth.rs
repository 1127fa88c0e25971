//! The auth service: the one part that strangers reach. It holds no identity key and few rights.
//!
//! It answers `GET /ids` with the endorsement that the controller published, `POST /challenge` with a nonce, and
//! `POST /identity` with what the controller makes of the request that it files. Connections are bounded in number,
//! each has a limited time to say hello and to ask, bodies are short, and nobody may ask too often.

mod desk;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use ferro_core::auth::{Denial, Reason};
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::tls::{self, Caller};
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::oneshot;

use self::desk::{Desk, named};
use crate::identity::SERVING;

/// The Secret with the key of the challenges.
pub const CHALLENGE: &str = "ferro-challenge";
/// The part of that Secret which is the key.
pub(crate) const CHALLENGE_KEY: &str = "key";

/// The longest body that is read.
const MOST_BODY: usize = 16 * 1024;
/// How long a body may take.
const BODY: Duration = Duration::from_secs(5);
/// When to come back, where nothing says so.
const LATER: Duration = Duration::from_secs(2);

/// Serves until the tasks end; ready once there is a certificate to serve with.
pub async fn serve(
    tasks: Tasks,
    client: Client,
    namespace: String,
    listen: SocketAddr,
    pending: Pending,
) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let certificate = Watched::start(&tasks, "certificate", secrets, named(SERVING));
    let desk = Arc::new(Desk::open(&tasks, client, &namespace));
    let router = Router::new()
        .route("/ids", get(ids))
        .route("/challenge", post(challenge))
        .route("/identity", post(identity))
        .with_state(Service { desk, tasks });
    // Those who come through a node's port may all have its address.
    tls::serve(tls::listen(listen).await?, certificate, router, tls::MOST, pending).await
}

#[derive(Clone)]
struct Service {
    desk: Arc<Desk>,
    tasks: Tasks,
}

/// Who this cluster is; not yet, while the controller has not said so.
async fn ids(State(service): State<Service>) -> Response {
    match service.desk.endorsement() {
        Some(endorsement) => ([(header::CONTENT_TYPE, "application/json")], endorsement).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "this cluster has no identity yet; try again in a moment")
            .into_response(),
    }
}

async fn challenge(
    State(service): State<Service>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    let challenge = async {
        let body = attended(&service, caller, body).await?;
        Ok(Json(service.desk.challenge(&body)?).into_response())
    };
    challenge.await.unwrap_or_else(Refused::into_response)
}

/// A request is followed to its end even when whoever made it has gone: nothing is left lying about then.
async fn identity(
    State(service): State<Service>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    let grant = async {
        let body = attended(&service, caller, body).await?;
        let (tell, told) = oneshot::channel();
        let desk = Arc::clone(&service.desk);
        // Strangers make requests: a fault in one of them ends no other.
        service.tasks.child().spawn("request", async move {
            // Nobody listens any more: that is all right.
            _ = tell.send(desk.identity(&body).await);
            Ok(())
        });
        let grant = told.await.map_err(|_| Denial::from(Reason::Unavailable))??;
        Ok(Json(grant).into_response())
    };
    grant.await.unwrap_or_else(Refused::into_response)
}

/// The body of a request, from somebody who may ask now.
async fn attended(service: &Service, caller: Caller, body: Body) -> Result<Bytes, Refused> {
    service.desk.admit(caller.0).map_err(|wait| Refused { reason: Reason::RateLimited, wait })?;
    match tokio::time::timeout(BODY, to_bytes(body, MOST_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) | Err(_) => Err(Denial::from(Reason::Malformed).into()),
    }
}

/// A denial, and when to come back if that may help.
struct Refused {
    reason: Reason,
    wait: Duration,
}

impl From<Denial> for Refused {
    fn from(denial: Denial) -> Self {
        Self { reason: denial.reason, wait: LATER }
    }
}

impl Refused {
    fn into_response(self) -> Response {
        let status = status(self.reason);
        let body = Json(Denial::from(self.reason));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let seconds = self.wait.as_millis().div_ceil(1000).to_string();
            return (status, [(header::RETRY_AFTER, seconds)], body).into_response();
        }
        (status, body).into_response()
    }
}

fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::Malformed => StatusCode::BAD_REQUEST,
        Reason::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Reason::NotApproved | Reason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Reason::InvalidSignature
        | Reason::IdentityMismatch
        | Reason::WrongAudience
        | Reason::ExpiredChallenge
        | Reason::Replayed
        | Reason::EmptyTokenNotAllowed
        | Reason::InvalidToken
        | Reason::ExpiredToken
        | Reason::UsedToken
        | Reason::InvalidCsr => StatusCode::FORBIDDEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_if_that_may_help() {
        let limited =
            Refused { reason: Reason::RateLimited, wait: Duration::from_millis(1001) }.into_response();
        assert_eq!(limited.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(limited.headers()[header::RETRY_AFTER], "2");
        let wrong = Refused::from(Denial::from(Reason::InvalidToken)).into_response();
        assert_eq!(wrong.status(), StatusCode::FORBIDDEN);
        assert!(!wrong.headers().contains_key(header::RETRY_AFTER));
    }
}
