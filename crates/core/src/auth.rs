//! How one cluster lets another in: proof of identity, tokens, certificates, and every reason to say no.
//!
//! The requester (which wants a certificate) talks to the auth service of the provider (which gives one), in
//! JSON over HTTPS:
//!
//! | call | sent | answered |
//! | --- | --- | --- |
//! | `GET /ids` | nothing | [`Endorsement`]: who this is, for the TLS key of this connection |
//! | `POST /challenge` | [`ChallengeRequest`] | [`Challenge`]: a nonce, and the user name for the CSR |
//! | `POST /identity` | [`IdentityRequest`]: signed, with CSR and token | [`IdentityGrant`] or [`Denial`] |
//!
//! The auth service is the only part that strangers reach, so it decides little: it [`screen`]s a request and
//! files it as a Kubernetes CSR whose annotation holds the [`SignedRequest`]. The controller believes nothing
//! of that and [`judge`]s the request from the beginning, redeems the token, and only then approves.
//!
//! All times are parameters, all sizes are bounded, and no secret is ever printed.

mod challenge;
mod denial;
pub mod enrolment;
mod generations;
mod grant;
mod judge;
mod pin;
mod proof;
mod rate;
mod request;
mod rotation;
mod store;
mod token;
pub(crate) mod url;
mod x509;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;

pub use challenge::{AnsweredChallenges, Challenge, ChallengeKey, ChallengeNonce, ChallengeRequest};
pub use denial::{Denial, Reason, Retry};
pub use generations::{DamagedGeneration, Generations};
pub use grant::{BadGrant, Credential, IdentityGrant};
pub use judge::{Admission, Approved, Doorstep, Facts, Screened, Standing, judge, screen};
pub use pin::{NotAPin, Pin, PinMismatch, Shown, trust};
pub use proof::{Endorsement, ProofProblem};
pub use rate::{Meter, Pace, RateLimiter, RateLimits};
pub use request::{Ask, IdentityRequest, SignedRequest};
pub use rotation::{NotAUserName, Rotation, UserName, rotation};
pub use store::{Bearer, Redemption, StoreFull, Terms, TokenStore};
pub use token::{JoinToken, NotAJoinToken, TokenHash, TokenSecret};
pub use url::{Host, HttpsUrl, NotAnHttpsUrl};
pub use x509::{BadCsr, BadPem, Csr, Issued};

/// What came over the network is not what it should be. It does not say what came: that may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is longer than anything of its sort.
    #[error("more than {limit} bytes")]
    TooLong {
        /// The most that is read.
        limit: usize,
    },
    /// It is not JSON of the expected form.
    #[error("not JSON of the expected form, at line {line}, column {column}")]
    Unexpected {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
}

/// Reads JSON of at most so many bytes.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, Malformed> {
    if bytes.len() > limit {
        return Err(Malformed::TooLong { limit });
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Malformed::Unexpected { line: error.line(), column: error.column() })
}

/// The moment that comes so much later, or the last one there is.
pub(crate) fn later(moment: Timestamp, wait: Duration) -> Timestamp {
    moment.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// How long it is from one moment to a later one; nothing when it is not later.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;

    use super::{Malformed, later, read_json};

    /// A moment, as seconds after some beginning.
    pub(crate) fn at(seconds: u64) -> Timestamp {
        later(Timestamp::UNIX_EPOCH, Duration::from_secs(1_800_000_000 + seconds))
    }

    #[test]
    fn errors_in_what_was_sent_do_not_repeat_it() {
        let error = read_json::<u32>(br#""a secret""#, 100).unwrap_err();
        assert_eq!(error, Malformed::Unexpected { line: 1, column: 10 });
        assert!(!error.to_string().contains("secret"));
        assert_eq!(read_json::<u32>(b"12345", 4), Err(Malformed::TooLong { limit: 4 }));
    }
}
