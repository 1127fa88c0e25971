//! The tokens that a provider has given out: kept as hashes, with their terms and who has used them.
//!
//! Whoever reads the store cannot use what is in it. A token that is good for one use remembers its user, so
//! that the same cluster with the same key may repeat a request that was cut off, and nobody else; nor may it
//! come back with that token once its certificates were revoked.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::{Malformed, Pin, Reason, TokenHash, TokenSecret, UserName, later, read_json};
use crate::identity::ClusterId;

const MAX_TOKENS: usize = 1000;
const MAX_STORE: usize = 512 * 1024;
/// How long an expired token is remembered, so that it can be told from a wrong one.
const MEMORY: Duration = Duration::from_hours(24);

/// All tokens that were given out and are still remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenStore {
    #[serde(default)]
    tokens: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    hash: TokenHash,
    #[serde(flatten)]
    terms: Terms,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<Bearer>,
}

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// Until when.
    pub expires_at: Timestamp,
    /// Whether only the first cluster that shows it is let in.
    pub one_use: bool,
    /// The only cluster that may use it, if it was made for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<ClusterId>,
}

/// Who shows a token: the user that it wants to be, and the key that it wants a certificate for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bearer {
    /// The user.
    pub user: UserName,
    /// The key.
    pub key: Pin,
}

/// A token and who uses it: to be recorded before the user is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redemption {
    /// The token.
    pub token: TokenHash,
    /// Who uses it.
    pub bearer: Bearer,
}

impl TokenStore {
    /// Reads a store as [`to_json`](Self::to_json) wrote it.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        read_json(json, MAX_STORE)
    }

    /// The store as JSON, without any secret.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!(self)
    }

    /// Adds a token. Adding it again changes nothing.
    pub fn mint(&mut self, secret: &TokenSecret, terms: Terms, now: Timestamp) -> Result<(), StoreFull> {
        let hash = secret.hash();
        if self.find(&hash).is_some() {
            return Ok(());
        }
        if self.tokens.len() >= MAX_TOKENS {
            self.tokens.retain(|entry| entry.terms.expires_at > now);
        }
        if self.tokens.len() >= MAX_TOKENS {
            return Err(StoreFull);
        }
        self.tokens.push(Entry { hash, terms, used_by: None });
        Ok(())
    }

    /// Whether the token may be used by its bearer now.
    pub fn check(&self, redemption: &Redemption, now: Timestamp) -> Result<(), Reason> {
        let entry = self.find(&redemption.token).and_then(|place| self.tokens.get(place));
        entry.ok_or(Reason::InvalidToken)?.check(&redemption.bearer, now)
    }

    /// Records that the token is used by its bearer. Once recorded, doing so again changes nothing.
    pub fn redeem(&mut self, redemption: &Redemption, now: Timestamp) -> Result<(), Reason> {
        let entry = self.find(&redemption.token).and_then(|place| self.tokens.get_mut(place));
        let entry = entry.ok_or(Reason::InvalidToken)?;
        entry.check(&redemption.bearer, now)?;
        if entry.terms.one_use {
            entry.used_by = Some(redemption.bearer);
        }
        Ok(())
    }

    /// Forgets the tokens that expired long ago, and says whether there were any.
    pub fn sweep(&mut self, now: Timestamp) -> bool {
        let before = self.tokens.len();
        self.tokens.retain(|entry| later(entry.terms.expires_at, MEMORY) > now);
        self.tokens.len() < before
    }

    /// Where the token is. All entries are compared as a whole, so that the time taken tells nothing.
    fn find(&self, hash: &TokenHash) -> Option<usize> {
        let (mut found, mut place) = (subtle::Choice::from(0), 0_u64);
        for (index, entry) in (0_u64..).zip(&self.tokens) {
            let same = entry.hash.as_bytes().ct_eq(hash.as_bytes());
            place.conditional_assign(&index, same);
            found |= same;
        }
        bool::from(found).then(|| usize::try_from(place).ok()).flatten()
    }
}

impl Entry {
    fn check(&self, bearer: &Bearer, now: Timestamp) -> Result<(), Reason> {
        if self.terms.bound_to.is_some_and(|only| only != bearer.user.cluster) {
            Err(Reason::InvalidToken)
        } else if self.terms.expires_at <= now {
            Err(Reason::ExpiredToken)
        } else if self.used_by.is_some_and(|user| user != *bearer) {
            Err(Reason::UsedToken)
        } else {
            Ok(())
        }
    }
}

/// There are too many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_TOKENS} tokens are in use; wait until some have expired, or use a shorter lifetime")]
pub struct StoreFull;

#[cfg(test)]
mod tests {
    use super::{Bearer, Redemption, StoreFull, Terms, TokenStore};
    use crate::auth::{Malformed, Pin, Reason, TokenSecret, UserName, tests::at};
    use crate::identity::tests::cluster;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;

    fn secret(number: u64) -> TokenSecret {
        let mut random = [0; 32];
        random[..8].copy_from_slice(&number.to_be_bytes());
        TokenSecret::new(random)
    }

    fn terms() -> Terms {
        Terms { expires_at: at(HOUR), one_use: true, bound_to: None }
    }

    fn store_with(terms: Terms) -> TokenStore {
        let mut store = TokenStore::default();
        store.mint(&secret(1), terms, at(0)).unwrap();
        store
    }

    /// Cluster and key by number, with the token of `store_with`.
    fn shown_by(number: u8, key: u8) -> Redemption {
        let user = UserName { cluster: cluster(number).identity().id(), generation: 0 };
        Redemption { token: secret(1).hash(), bearer: Bearer { user, key: Pin([key; 32]) } }
    }

    #[test]
    fn a_token_lets_one_cluster_in() {
        let mut store = store_with(terms());
        assert_eq!(store.redeem(&shown_by(1, 1), at(1)), Ok(()));
        assert_eq!(store.check(&shown_by(2, 2), at(2)), Err(Reason::UsedToken));
        assert_eq!(store.redeem(&shown_by(2, 1), at(2)), Err(Reason::UsedToken));
    }

    #[test]
    fn the_same_cluster_may_repeat_itself_with_the_same_key_only() {
        let mut store = store_with(terms());
        assert_eq!(store.redeem(&shown_by(1, 1), at(1)), Ok(()));
        let once = store.clone();
        assert_eq!(store.redeem(&shown_by(1, 1), at(2)), Ok(()));
        assert_eq!(store, once);
        assert_eq!(store.redeem(&shown_by(1, 9), at(3)), Err(Reason::UsedToken));
        let mut revoked = shown_by(1, 1);
        revoked.bearer.user.generation += 1;
        assert_eq!(store.redeem(&revoked, at(4)), Err(Reason::UsedToken));
    }

    #[test]
    fn a_token_for_many_lets_many_in() {
        let mut store = store_with(Terms { one_use: false, ..terms() });
        for number in 1..5 {
            assert_eq!(store.redeem(&shown_by(number, number), at(1)), Ok(()));
        }
    }

    #[test]
    fn a_token_made_for_one_cluster_is_none_for_others() {
        let only = cluster(1).identity().id();
        let store = store_with(Terms { bound_to: Some(only), ..terms() });
        assert_eq!(store.check(&shown_by(1, 1), at(1)), Ok(()));
        assert_eq!(store.check(&shown_by(2, 1), at(1)), Err(Reason::InvalidToken));
    }

    #[test]
    fn an_expired_token_is_told_from_a_wrong_one_for_a_day() {
        let mut store = store_with(terms());
        assert_eq!(store.check(&shown_by(1, 1), at(HOUR)), Err(Reason::ExpiredToken));
        assert!(!store.sweep(at(DAY)));
        assert!(store.sweep(at(DAY + HOUR)));
        assert_eq!(store.check(&shown_by(1, 1), at(DAY + HOUR)), Err(Reason::InvalidToken));
    }

    #[test]
    fn every_token_is_found_wherever_it_stands() {
        let mut store = TokenStore::default();
        for number in 0..20 {
            store.mint(&secret(number), terms(), at(0)).unwrap();
        }
        let bearer = shown_by(1, 1).bearer;
        let check = |number| store.check(&Redemption { token: secret(number).hash(), bearer }, at(1));
        assert!((0..20).all(|number| check(number) == Ok(())));
        assert_eq!(check(20), Err(Reason::InvalidToken));
    }

    #[test]
    fn the_store_is_bounded_and_expired_tokens_make_room() {
        let mut store = TokenStore::default();
        let bearer = shown_by(1, 1).bearer;
        let bound = Terms { bound_to: Some(bearer.user.cluster), ..terms() };
        for number in 0..1000 {
            store.mint(&secret(number), bound.clone(), at(0)).unwrap();
            store.redeem(&Redemption { token: secret(number).hash(), bearer }, at(0)).unwrap();
        }
        let full = store.to_json().to_string();
        assert_eq!(TokenStore::parse(full.as_bytes()).as_ref(), Ok(&store));
        assert_eq!(store.mint(&secret(5000), terms(), at(1)), Err(StoreFull));
        assert_eq!(store.mint(&secret(5), terms(), at(1)), Ok(()));
        let later = Terms { expires_at: at(DAY), ..terms() };
        assert_eq!(store.mint(&secret(5000), later, at(HOUR)), Ok(()));
        assert_eq!(store.tokens.len(), 1);
    }

    #[test]
    fn a_store_is_read_as_it_was_written_and_holds_no_secret() {
        let mut store = store_with(Terms { bound_to: Some(cluster(1).identity().id()), ..terms() });
        store.redeem(&shown_by(1, 1), at(1)).unwrap();
        let json = store.to_json().to_string();
        assert_eq!(TokenStore::parse(json.as_bytes()), Ok(store));
        let secret = serde_json::to_string(&secret(1)).unwrap();
        assert!(!json.contains(secret.trim_matches('"')), "{json}");
        assert!(json.contains(r#""expiresAt":"2027-01-15T09:00:00Z""#), "{json}");
        let long = vec![b' '; 600_000];
        assert_eq!(TokenStore::parse(&long), Err(Malformed::TooLong { limit: 524_288 }));
    }
}
