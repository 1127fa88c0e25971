//! Why a request is not answered as wished: a status, and a sentence that reaches whoever typed the command.
//!
//! API servers read a refused upgrade as an object, and anything else as text; each gets what it reads.

use axum::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// So much of a peer's sentence is passed on.
const MOST: usize = 2048;

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    /// What the API server of a peer answered in the place of what was asked for. It is not trusted: only a sentence is
    /// taken from it, and a status that says what is wrong with the request.
    pub(super) fn of_peer(status: StatusCode, body: &[u8], node: &str) -> Self {
        let said = sentence(body);
        let because = if said.is_empty() { String::new() } else { format!(": {said}") };
        match status {
            // Whoever asks is known here; it is this cluster that is not known there.
            StatusCode::UNAUTHORIZED => Self::new(
                StatusCode::BAD_GATEWAY,
                format!("the cluster behind node {node} does not accept the credential of this one{because}"),
            ),
            _ if !status.is_client_error() && !status.is_server_error() => Self::new(
                StatusCode::BAD_GATEWAY,
                format!(
                    "the cluster behind node {node} answers with the unexpected status {}",
                    status.as_u16()
                ),
            ),
            _ if said.is_empty() => Self::new(
                status,
                format!("the cluster behind node {node} answers with the status {}", status.as_u16()),
            ),
            _ => Self::new(status, said),
        }
    }

    /// As an object where an upgrade was wished, and else as text.
    pub(super) fn into_response(self, was_upgrade: bool) -> Response<Body> {
        let (kind, body) = if was_upgrade {
            ("application/json", self.object().to_string())
        } else {
            ("text/plain; charset=utf-8", self.message)
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    fn object(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason(self.status), "code": self.status.as_u16(),
        })
    }
}

/// What Kubernetes calls a status, as far as it has a name for it.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

/// The message of a status object, or a text as it is; nothing that could steer a terminal.
fn sentence(body: &[u8]) -> String {
    let object: Option<Value> = serde_json::from_slice(body).ok();
    let message = object.as_ref().and_then(|object| object.get("message")).and_then(Value::as_str);
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let plain = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char });
    plain.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_quoted_but_not_obeyed() {
        let of = |status: u16, body: &str| {
            let refusal =
                Refusal::of_peer(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "liqo-turin");
            (refusal.status.as_u16(), refusal.message)
        };
        let object =
            json!({"kind": "Status", "message": "container x is not valid", "code": 200}).to_string();
        assert_eq!(of(400, &object), (400, "container x is not valid".into()));
        assert_eq!(of(404, "no\u{1b}[2J such\npod"), (404, "no [2J such pod".into()));
        assert_eq!(of(500, &"x".repeat(10_000)).1.len(), MOST);
        let (status, message) = of(401, "Unauthorized");
        assert_eq!(status, 502);
        assert!(message.contains("liqo-turin") && message.contains("credential"), "{message}");
        assert_eq!(of(302, "elsewhere").0, 502);
        assert_eq!(of(200, "").0, 502);
        assert_eq!(
            of(503, ""),
            (503, "the cluster behind node liqo-turin answers with the status 503".into())
        );
    }
}
