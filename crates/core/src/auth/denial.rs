//! Every reason for which a cluster is not let in: what its user reads, and what its controller does next.

use ferro_api::discovery::{AuthState, Authentication};
use serde::{Deserialize, Serialize};

use super::{Malformed, read_json};

const MAX_DENIAL: usize = 4 * 1024;

/// The answer to a request that is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", reason.advice())]
#[serde(from = "Wire", into = "Wire")]
pub struct Denial {
    /// Why.
    pub reason: Reason,
}

impl Denial {
    /// Reads an answer that came over the network.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        read_json(json, MAX_DENIAL)
    }

    /// What the `ForeignCluster` shows.
    pub fn status(&self) -> Authentication {
        Authentication {
            state: self.reason.state(),
            reason: Some(format!("{:?}", self.reason)),
            message: Some(self.reason.advice().into()),
            expiration_time: None,
        }
    }
}

impl From<Reason> for Denial {
    fn from(reason: Reason) -> Self {
        Self { reason }
    }
}

/// How a denial is sent. The message is for people who read the answer itself; whoever receives it has the
/// same words by the reason, and shows no text that a peer has chosen.
#[derive(Serialize, Deserialize)]
struct Wire {
    reason: Reason,
    #[serde(default)]
    message: String,
}

impl From<Denial> for Wire {
    fn from(denial: Denial) -> Self {
        Self { reason: denial.reason, message: denial.reason.advice().into() }
    }
}

impl From<Wire> for Denial {
    fn from(wire: Wire) -> Self {
        Self { reason: wire.reason }
    }
}

/// Why a cluster is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The request could not be read.
    Malformed,
    /// The signature is not by the key.
    InvalidSignature,
    /// The key does not belong to the clusterID.
    IdentityMismatch,
    /// The request was meant for another cluster.
    WrongAudience,
    /// The challenge is too old, or not one of ours.
    ExpiredChallenge,
    /// The challenge was answered before.
    Replayed,
    /// A token is needed, and there was none.
    EmptyTokenNotAllowed,
    /// The token is not known.
    InvalidToken,
    /// The token is too old.
    ExpiredToken,
    /// The token was used before, by somebody else or for another key.
    UsedToken,
    /// The certificate signing request is not as it must be.
    InvalidCsr,
    /// Too many requests came.
    RateLimited,
    /// The request waits for its approval.
    NotApproved,
    /// The other cluster cannot answer now.
    Unavailable,
}

/// When to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once, with a new challenge.
    AtOnce,
    /// After a while, as it is.
    Later,
    /// When somebody has given another token.
    WithNewToken,
    /// When something has changed: address, key or version.
    Never,
}

impl Reason {
    /// When to ask again.
    pub fn retry(self) -> Retry {
        match self {
            Self::ExpiredChallenge | Self::Replayed => Retry::AtOnce,
            Self::RateLimited | Self::NotApproved | Self::Unavailable => Retry::Later,
            Self::EmptyTokenNotAllowed | Self::InvalidToken | Self::ExpiredToken | Self::UsedToken => {
                Retry::WithNewToken
            }
            Self::Malformed
            | Self::InvalidSignature
            | Self::IdentityMismatch
            | Self::WrongAudience
            | Self::InvalidCsr => Retry::Never,
        }
    }

    /// The state that the `ForeignCluster` shows: pending as long as asking again is enough.
    pub fn state(self) -> AuthState {
        match self.retry() {
            Retry::AtOnce | Retry::Later => AuthState::Pending,
            Retry::WithNewToken | Retry::Never => AuthState::Refused,
        }
    }

    /// What happened and what to do, for the user of the cluster that asked.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Malformed => {
                "the other cluster cannot read the request; run the same version of ferro on both sides"
            }
            Self::InvalidSignature => {
                "the signature of the request is not valid; is the identity key of this cluster damaged, or \
                 does a proxy change requests?"
            }
            Self::IdentityMismatch => {
                "the clusterID of this cluster does not belong to its key; restore the identity key that it \
                 had at first"
            }
            Self::WrongAudience => {
                "at this address is another cluster than expected; correct authUrl or clusterID of the \
                 ForeignCluster"
            }
            Self::ExpiredChallenge => "the exchange took too long; it is started again",
            Self::Replayed => "the challenge was answered before; the exchange is started again",
            Self::EmptyTokenNotAllowed => {
                "the other cluster wants a token; run ferro token there, and what it prints here"
            }
            Self::InvalidToken => {
                "the other cluster does not know the token; run ferro token there, and what it prints here"
            }
            Self::ExpiredToken => {
                "the token has expired; run ferro token on the other cluster, and what it prints here"
            }
            Self::UsedToken => {
                "the token was used before; run ferro token on the other cluster, and what it prints here. \
                 If this cluster did not use it, somebody else did"
            }
            Self::InvalidCsr => {
                "the other cluster does not sign such a request; run the same version of ferro on both sides"
            }
            Self::RateLimited => "the other cluster is asked too often; it is asked again later",
            Self::NotApproved => {
                "the other cluster has not approved the request yet; is its controller running?"
            }
            Self::Unavailable => "the other cluster cannot answer now; it is asked again later",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Denial, Reason};
    use ferro_api::discovery::AuthState;

    #[test]
    fn a_denial_is_read_as_it_was_sent() {
        let json = serde_json::to_string(&Denial::from(Reason::UsedToken)).unwrap();
        assert!(json.starts_with(r#"{"reason":"UsedToken","message":"the token was used"#), "{json}");
        assert_eq!(Denial::parse(json.as_bytes()), Ok(Denial { reason: Reason::UsedToken }));
    }

    #[test]
    fn what_the_peer_writes_is_not_shown() {
        let denial = Denial::parse(br#"{"reason":"InvalidToken","message":"<b>call 0900"}"#).unwrap();
        let status = denial.status();
        assert_eq!(status.state, AuthState::Refused);
        assert_eq!(status.reason.as_deref(), Some("InvalidToken"));
        assert!(status.message.unwrap().contains("ferro token"));
    }

    #[test]
    fn what_passes_by_itself_is_pending_and_the_rest_refused() {
        assert_eq!(Reason::RateLimited.state(), AuthState::Pending);
        assert_eq!(Reason::ExpiredChallenge.state(), AuthState::Pending);
        assert_eq!(Reason::EmptyTokenNotAllowed.state(), AuthState::Refused);
        assert_eq!(Reason::IdentityMismatch.state(), AuthState::Refused);
    }
}
