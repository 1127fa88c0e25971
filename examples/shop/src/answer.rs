//! What services say to each other: an answer with who has given it, or a refusal with its reason.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// One running instance of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Instance {
    /// What it does.
    pub(crate) service: String,
    /// Its host name.
    pub(crate) host: String,
    /// The node that it runs on.
    pub(crate) node: String,
}

impl Instance {
    /// This process, as its environment describes it.
    pub(crate) fn this(service: &str) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Self { service: service.into(), host: variable("HOSTNAME"), node: variable("NODE") }
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer<T> {
    /// Everybody who had a part in it.
    pub(crate) by: Vec<Instance>,
    /// What it is.
    pub(crate) said: T,
}

/// No answer, and why not.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

/// A refusal as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reason {
    pub(crate) why: String,
}

impl Refused {
    /// What was asked for contradicts what is: asking again changes nothing.
    pub(crate) fn conflict(why: &impl ToString) -> Self {
        Self { status: StatusCode::CONFLICT, why: why.to_string() }
    }

    /// Not now: asking again may help.
    pub(crate) fn unavailable(why: &impl ToString) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why: why.to_string() }
    }

    /// Whether asking again, or somebody else, may help.
    pub(crate) fn is_passing(&self) -> bool {
        self.status.is_server_error()
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(Reason { why: self.why })).into_response()
    }
}
