//! What a filed request needs next.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::Timestamp;

use super::age;
use crate::filing::{self, Answer};

/// The auth service waits for less than half of this, and clears away what it filed; after this long it has not.
const FORGOTTEN: Duration = Duration::from_mins(1);
/// A signer takes much less; after this long there is none, and the auth service still waits for as long again.
const UNSIGNED: Duration = Duration::from_secs(5);

/// What a filed request needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A decision.
    Decide,
    /// A token in the place of the certificate, for this tenant namespace.
    Issue(String),
    /// To be cleared away.
    ClearAway,
    /// Nothing for so long.
    Wait(Duration),
}

/// What a request needs next, given whether a token was made for it.
pub(super) fn next(object: &CertificateSigningRequest, has_token: bool, now: Timestamp) -> Step {
    let left = FORGOTTEN.saturating_sub(age(&object.metadata, now));
    if left.is_zero() {
        return Step::ClearAway;
    }
    if filing::answer(object) == Answer::Undecided {
        return Step::Decide;
    }
    let Some((namespace, since)) = filing::unsigned(object).filter(|_| !has_token) else {
        return Step::Wait(left);
    };
    let waited = now.duration_since(since).try_into().unwrap_or_default();
    match UNSIGNED.saturating_sub(waited) {
        Duration::ZERO => Step::Issue(namespace),
        wait => Step::Wait(wait.min(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferro_core::auth::Reason;
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn filed(at: Timestamp) -> CertificateSigningRequest {
        let mut object = CertificateSigningRequest::default();
        object.metadata.creation_timestamp = Some(Time(at));
        object
    }

    fn approved(at: Timestamp) -> CertificateSigningRequest {
        filing::decided(&filed(at), &Ok("tenant".into()))
    }

    fn later(seconds: u64) -> Timestamp {
        Timestamp::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_request_is_decided_on_then_left_alone_then_cleared_away() {
        let now = Timestamp::now();
        assert_eq!(next(&filed(now), false, now), Step::Decide);
        let denied = filing::decided(&filed(now), &Err(Reason::UsedToken));
        assert_eq!(next(&denied, false, now), Step::Wait(FORGOTTEN));
        assert_eq!(next(&denied, false, now + Duration::from_secs(20)), Step::Wait(Duration::from_secs(40)));
        assert_eq!(next(&denied, false, now + FORGOTTEN), Step::ClearAway);
        assert_eq!(next(&filed(now), false, now + FORGOTTEN), Step::ClearAway);
    }

    #[test]
    fn a_token_is_made_when_nobody_has_signed_for_a_while_and_only_once() {
        let object = approved(Timestamp::now());
        assert!(matches!(next(&object, false, later(0)), Step::Wait(wait) if wait <= UNSIGNED));
        assert_eq!(next(&object, false, later(6)), Step::Issue("tenant".into()));
        assert!(matches!(next(&object, true, later(6)), Step::Wait(_)));
    }

    #[test]
    fn no_token_is_made_where_there_is_a_certificate_or_the_approval_is_not_ours() {
        let mut signed = approved(Timestamp::now());
        signed.status.get_or_insert_default().certificate = Some(ByteString(b"pem".to_vec()));
        assert!(matches!(next(&signed, false, later(6)), Step::Wait(_)));
        let mut by_hand = approved(Timestamp::now());
        let conditions = by_hand.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
        conditions.for_each(|condition| condition.reason = Some("KubectlApprove".into()));
        assert!(matches!(next(&by_hand, false, later(6)), Step::Wait(_)));
    }
}
