//! `POST /challenge`: a nonce that makes every request a new one, without remembering who asked for one.
//!
//! The nonce is sealed with a key of the auth service, and holds the time at which it expires. So any number
//! may be given out to anybody at no cost; only answers to one are remembered, until it expires.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{Malformed, Reason, UserName, later, read_json};
use crate::identity::{Bytes, ClusterId, PublicKey, Statement, head};

const PURPOSE: &str = "ferrofluid challenge v1";
const LIFETIME: Duration = Duration::from_mins(2);
const MAX_MESSAGE: usize = 1024;
const MAX_ANSWERED: usize = 8192;

/// Whom the challenge is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChallengeRequest {
    /// The cluster.
    #[serde(rename = "clusterID")]
    pub cluster_id: ClusterId,
    /// Its key.
    pub public_key: PublicKey,
}

impl ChallengeRequest {
    /// Reads a request that came over the network. The key is that of the cluster.
    pub fn parse(json: &[u8]) -> Result<Self, Reason> {
        let request: Self = read_json(json, MAX_MESSAGE).map_err(|_| Reason::Malformed)?;
        if ClusterId::of(&request.public_key) == request.cluster_id {
            Ok(request)
        } else {
            Err(Reason::IdentityMismatch)
        }
    }
}

/// What a request must contain to be taken for a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// To be signed.
    pub nonce: ChallengeNonce,
    /// The subject of the certificate signing request.
    pub common_name: UserName,
    /// Until when the request must have come.
    pub expires_at: Timestamp,
}

impl Challenge {
    /// Reads a challenge that came over the network.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        read_json(json, MAX_MESSAGE)
    }
}

/// The expiry in seconds since 1970 (8 bytes), random bytes (16), and an HMAC-SHA256 over clusterID and both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChallengeNonce(Bytes<56>);

impl ChallengeNonce {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    fn expires_at(&self) -> Timestamp {
        let seconds = i64::from_be_bytes(head(self.as_bytes()));
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MIN)
    }

    /// Whether the nonce says that it is still good, and not for longer than any nonce is.
    ///
    /// This is what somebody without the key can tell. It is enough where an honest requester has signed the
    /// nonce, since nobody else can put another one into that request.
    pub fn check_time(&self, now: Timestamp) -> Result<(), Reason> {
        let expires_at = self.expires_at();
        if now < expires_at && expires_at <= later(now, LIFETIME) {
            Ok(())
        } else {
            Err(Reason::ExpiredChallenge)
        }
    }
}

/// The key of an auth service by which it knows the challenges that it gave out.
pub struct ChallengeKey(hmac::Key);

impl ChallengeKey {
    /// The key of these random bytes. All replicas of an auth service must have the same.
    pub fn new(random: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, random))
    }

    /// A challenge for the user that the cluster is to become.
    pub fn issue(&self, user: UserName, random: &[u8; 16], now: Timestamp) -> Challenge {
        let expiry = later(now, LIFETIME).as_second();
        let content = [&expiry.to_be_bytes()[..], random].concat();
        let seal = hmac::sign(&self.0, sealed(&user.cluster, &content).as_bytes());
        let nonce = ChallengeNonce(Bytes(head(&[&content, seal.as_ref()].concat())));
        Challenge { nonce, common_name: user, expires_at: nonce.expires_at() }
    }

    /// Whether the nonce was given to this cluster and is still good. One that was sealed with another key,
    /// as after a restart, is treated as expired: the requester asks for a new one.
    pub fn check(&self, cluster: &ClusterId, nonce: &ChallengeNonce, now: Timestamp) -> Result<(), Reason> {
        let (content, seal) = nonce.as_bytes().split_at(24);
        hmac::verify(&self.0, sealed(cluster, content).as_bytes(), seal)
            .map_err(|_| Reason::ExpiredChallenge)?;
        nonce.check_time(now)
    }
}

fn sealed(cluster: &ClusterId, content: &[u8]) -> Statement {
    Statement::new(PURPOSE).field(cluster.to_string()).field(content)
}

/// The challenges that have been answered and are not expired yet. An answer counts once.
#[derive(Clone, Debug, Default)]
pub struct AnsweredChallenges {
    until: HashMap<ChallengeNonce, Timestamp>,
}

impl AnsweredChallenges {
    /// Records an answer whose signature was verified.
    ///
    /// When there is no room for more, nobody is let in for a moment: to forget one would allow its replay.
    pub fn record(&mut self, nonce: &ChallengeNonce, now: Timestamp) -> Result<(), Reason> {
        if self.until.len() >= MAX_ANSWERED {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.contains_key(nonce) {
            Err(Reason::Replayed)
        } else if self.until.len() >= MAX_ANSWERED {
            Err(Reason::RateLimited)
        } else {
            self.until.insert(*nonce, nonce.expires_at());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AnsweredChallenges, Challenge, ChallengeKey, ChallengeNonce, ChallengeRequest};
    use crate::auth::{Reason, UserName, tests::at};
    use crate::identity::{Bytes, ClusterId, tests::cluster};
    use proptest::prelude::*;

    fn key() -> ChallengeKey {
        ChallengeKey::new(&[3; 32])
    }

    fn id(number: u8) -> ClusterId {
        ClusterId::from_bytes([number; 16])
    }

    fn issue(random: u128, seconds: u64) -> Challenge {
        let user = UserName { cluster: id(1), generation: 0 };
        key().issue(user, &random.to_be_bytes(), at(seconds))
    }

    #[test]
    fn a_challenge_is_good_for_its_cluster_and_two_minutes() {
        let challenge = issue(1, 0);
        let json = serde_json::to_vec(&challenge).unwrap();
        assert_eq!(Challenge::parse(&json), Ok(challenge.clone()));
        assert_eq!(challenge.expires_at, at(120));

        let check = |number, seconds| key().check(&id(number), &challenge.nonce, at(seconds));
        assert_eq!(check(1, 0), Ok(()));
        assert_eq!(check(1, 119), Ok(()));
        assert_eq!(check(1, 120), Err(Reason::ExpiredChallenge));
        assert_eq!(check(2, 0), Err(Reason::ExpiredChallenge));
    }

    #[test]
    fn a_challenge_that_was_made_up_or_stretched_is_not_good() {
        let mut stretched = issue(1, 0).nonce;
        stretched.0.0[7] ^= 1;
        let made_up = ChallengeNonce(Bytes([0; 56]));
        let endless = ChallengeNonce(Bytes([0x7f; 56]));
        for nonce in [stretched, made_up, endless] {
            assert_eq!(key().check(&id(1), &nonce, at(0)), Err(Reason::ExpiredChallenge));
        }
        assert_eq!(endless.check_time(at(0)), Err(Reason::ExpiredChallenge));
        let elsewhere = ChallengeKey::new(&[4; 32]);
        assert_eq!(elsewhere.check(&id(1), &issue(1, 0).nonce, at(0)), Err(Reason::ExpiredChallenge));
    }

    #[test]
    fn an_answer_counts_once() {
        let mut answered = AnsweredChallenges::default();
        assert_eq!(answered.record(&issue(1, 0).nonce, at(0)), Ok(()));
        assert_eq!(answered.record(&issue(1, 0).nonce, at(1)), Err(Reason::Replayed));
        assert_eq!(answered.record(&issue(2, 0).nonce, at(1)), Ok(()));
    }

    #[test]
    fn what_was_answered_is_never_forgotten_before_it_expires() {
        let mut answered = AnsweredChallenges::default();
        for random in 0..8192 {
            assert_eq!(answered.record(&issue(random, 0).nonce, at(0)), Ok(()));
        }
        assert_eq!(answered.record(&issue(9000, 0).nonce, at(1)), Err(Reason::RateLimited));
        assert_eq!(answered.record(&issue(0, 0).nonce, at(1)), Err(Reason::Replayed));
        assert_eq!(answered.record(&issue(9000, 100).nonce, at(120)), Ok(()));
        assert_eq!(answered.until.len(), 1);
    }

    #[test]
    fn a_key_that_is_not_the_clusters_gets_no_challenge() {
        let request = |number| ChallengeRequest {
            cluster_id: cluster(number).identity().id(),
            public_key: *cluster(1).identity().public_key(),
        };
        let parse = |request| ChallengeRequest::parse(&serde_json::to_vec(&request).unwrap());
        assert_eq!(parse(request(1)), Ok(request(1)));
        assert_eq!(parse(request(2)), Err(Reason::IdentityMismatch));
        assert_eq!(ChallengeRequest::parse(b"{}"), Err(Reason::Malformed));
    }

    proptest! {
        #[test]
        fn a_nonce_of_any_bytes_is_refused(bytes: [u8; 28], more: [u8; 28], seconds in 0_u64..1000) {
            let nonce = ChallengeNonce(Bytes(super::head(&[bytes, more].concat())));
            prop_assert_eq!(key().check(&id(1), &nonce, at(seconds)), Err(Reason::ExpiredChallenge));
        }
    }
}
