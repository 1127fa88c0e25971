//! What went wrong with a peer, in the words of its `ForeignCluster`, and how long to wait.

use ferro_api::discovery::{AuthState, Authentication};
use ferro_core::auth::enrolment::Patience;
use ferro_core::auth::{BadGrant, Denial, HttpsUrl, ProofProblem};

use crate::contact::ContactError;

/// What went wrong, and how long to wait.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) shown: Authentication,
    pub(super) patience: Patience,
    /// Whether the peer could not be talked to, so that it should be looked for again.
    pub(super) lost: bool,
}

impl Problem {
    fn new(state: AuthState, reason: &str, message: String, patience: Patience) -> Self {
        let (reason, message) = (Some(reason.to_owned()), Some(message));
        let shown = Authentication { state, reason, message, expiration_time: None };
        Self { shown, patience, lost: false }
    }

    /// The `ForeignCluster` says something that cannot be.
    pub(super) fn in_spec(field: &str, error: &dyn std::error::Error) -> Self {
        let message = format!("{field} cannot be used: {error}");
        Self::new(AuthState::Refused, "BadSpec", message, Patience::with_little_hope())
    }

    /// The auth service was not reached, or not the right one.
    pub(super) fn contact(url: &HttpsUrl, error: &ContactError) -> Self {
        use ContactError::{
            Cut, Pin, Proof, Refused, Status, TimedOut, Tls, TooLong, UnknownHost, Unreachable, Unreadable,
        };
        let (state, reason) = match error {
            Pin(_) => (AuthState::Refused, "PinMismatch"),
            Proof(ProofProblem::AnotherCluster { .. }) => (AuthState::Refused, "AnotherCluster"),
            Proof(ProofProblem::Unproven(_) | ProofProblem::Expired) => (AuthState::Pending, "NotProved"),
            TimedOut(_) | Refused | UnknownHost | Unreachable(_) | Tls(_) | Cut(_) => {
                (AuthState::Pending, "Unreachable")
            }
            Status(_) | TooLong | Unreadable => (AuthState::Pending, "UnusableAnswer"),
        };
        Self { lost: true, ..Self::new(state, reason, format!("{url}: {error}"), Patience::BackOff) }
    }

    /// The peer said no.
    pub(super) fn denied(denial: Denial, holds_credential: bool) -> Self {
        let patience = Patience::after(denial, holds_credential);
        Self { shown: denial.status(), patience, lost: false }
    }

    /// The peer said yes, but not in a way that is of use.
    pub(super) fn unusable(error: &str) -> Self {
        Self::new(AuthState::Pending, "UnusableAnswer", error.to_owned(), Patience::BackOff)
    }
}

impl From<BadGrant> for Problem {
    fn from(error: BadGrant) -> Self {
        Self::unusable(&error.to_string())
    }
}
