//! Tokens: the secret that lets a cluster in, and the one string that a person carries to the other side.
//!
//! The string holds all that the other side needs: where the auth service is, which cluster it belongs to,
//! the pin of its key, and the secret. With the pin a man in the middle gains nothing. A checksum tells a
//! mistyped string from a wrong one.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::{HttpsUrl, Pin};
use crate::identity::{Bytes, ClusterId, head, sha256};

/// Tells people, and programs that search for secrets, what the string is.
const PREFIX: &str = "ferro_";
const VERSION: u8 = 1;
const MAX_LENGTH: usize = 600;
const CHECKSUM: usize = 4;

/// The secret of a token: 256 random bits. It is written only where it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSecret(Bytes<32>);

impl TokenSecret {
    /// A secret of these random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(Bytes(random))
    }

    /// What is stored of the secret.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Bytes(sha256(&self.0.0)))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("TokenSecret(..)")
    }
}

/// The SHA-256 of a token's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(pub(super) Bytes<32>);

impl TokenHash {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }
}

/// What a person carries from the provider to the requester, as one string.
///
/// The string is `ferro_` and, in base64url: version (1 byte), clusterID (16), pin (32), secret (32), the URL
/// of the auth service, and the first 4 bytes of the SHA-256 of all that.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Where the auth service of the provider is.
    pub auth_url: HttpsUrl,
    /// Who the provider is.
    pub cluster_id: ClusterId,
    /// The key that its auth service shows.
    pub pin: Pin,
    /// The secret.
    pub secret: TokenSecret,
}

impl JoinToken {
    /// The string. It is a secret.
    pub fn reveal(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.cluster_id.to_bytes());
        bytes.extend(self.pin.0);
        bytes.extend(self.secret.as_bytes());
        bytes.extend(self.auth_url.to_string().as_bytes());
        bytes.extend(checksum(&bytes));
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for JoinToken {
    type Err = NotAJoinToken;

    /// Reads the string; white space around it, as copying leaves, does not matter.
    fn from_str(text: &str) -> Result<Self, NotAJoinToken> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(NotAJoinToken::AnotherThing)?;
        if encoded.len() > MAX_LENGTH {
            return Err(NotAJoinToken::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| NotAJoinToken::Damaged)?;
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(NotAJoinToken::Damaged)?;
        if *sum != checksum(content) {
            return Err(NotAJoinToken::Damaged);
        }
        match content.split_first() {
            Some((&VERSION, content)) => read_content(content).ok_or(NotAJoinToken::Damaged),
            Some(_) | None => Err(NotAJoinToken::AnotherVersion),
        }
    }
}

fn read_content(content: &[u8]) -> Option<JoinToken> {
    let (id, content) = content.split_first_chunk()?;
    let (pin, content) = content.split_first_chunk()?;
    let (secret, url) = content.split_first_chunk()?;
    Some(JoinToken {
        auth_url: std::str::from_utf8(url).ok()?.parse().ok()?,
        cluster_id: ClusterId::from_bytes(*id),
        pin: Pin(*pin),
        secret: TokenSecret::new(*secret),
    })
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    head(&sha256(bytes))
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { auth_url, cluster_id, pin, secret: _ } = self;
        to.debug_struct("JoinToken")
            .field("auth_url", auth_url)
            .field("cluster_id", cluster_id)
            .field("pin", pin)
            .finish_non_exhaustive()
    }
}

/// The string is not a token that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAJoinToken {
    /// It is something else.
    #[error("this is not a token: it must start with {PREFIX}")]
    AnotherThing,
    /// It is a token, but not as it was printed.
    #[error("the token is mistyped or cut off; copy it once more, as a whole")]
    Damaged,
    /// It was made by a program that we do not know.
    #[error("the token was made by another version; use the same version of ferro on both sides")]
    AnotherVersion,
}

#[cfg(test)]
mod tests {
    use super::{JoinToken, NotAJoinToken, TokenSecret};
    use crate::auth::Pin;
    use crate::identity::tests::cluster;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    fn token() -> JoinToken {
        JoinToken {
            auth_url: "https://auth.example.org:30443".parse().unwrap(),
            cluster_id: cluster(1).identity().id(),
            pin: Pin([2; 32]),
            secret: TokenSecret::new([0x41; 32]),
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_printed() {
        let text = token().reveal();
        assert!(text.len() < 180, "{}", text.len());
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!("  {text}\n").parse(), Ok(token()));
    }

    #[test]
    fn the_secret_is_not_printed() {
        let shown = format!("{:?} {:?}", token(), token().secret);
        assert!(shown.contains("auth.example.org"), "{shown}");
        for secret in ["AAAA", "QUFB", "41", "65, 65"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn every_sort_of_mistake_is_told_apart() {
        let text = token().reveal();
        assert_eq!("hello".parse::<JoinToken>(), Err(NotAJoinToken::AnotherThing));
        assert_eq!(text[..text.len() - 1].parse::<JoinToken>(), Err(NotAJoinToken::Damaged));
        let long = format!("ferro_{}", "A".repeat(10_000));
        assert_eq!(long.parse::<JoinToken>(), Err(NotAJoinToken::Damaged));
        let next = [2];
        let next = [&next[..], &super::checksum(&next)].concat();
        let next = format!("ferro_{}", URL_SAFE_NO_PAD.encode(next));
        assert_eq!(next.parse::<JoinToken>(), Err(NotAJoinToken::AnotherVersion));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}", encoded in "ferro_[A-Za-z0-9_-]{0,300}") {
            prop_assert!(text.parse::<JoinToken>().is_err());
            prop_assert!(encoded.parse::<JoinToken>().is_err());
        }

        #[test]
        fn one_wrong_character_is_noticed(place: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            let text = token().reveal();
            let place = 6 + place.index(text.len() - 6);
            let typed = format!("{}{with}{}", &text[..place], &text[place + 1..]);
            let expected = if typed == text { Ok(token()) } else { Err(NotAJoinToken::Damaged) };
            prop_assert_eq!(typed.parse(), expected);
        }

        #[test]
        fn tokens_of_all_contents_survive(id: [u8; 32], pin: [u8; 32], secret: [u8; 32], port in 1_u16..) {
            let key = crate::identity::PublicKey(crate::identity::Bytes(id));
            let token = JoinToken {
                auth_url: format!("https://192.0.2.7:{port}").parse().unwrap(),
                cluster_id: crate::identity::ClusterId::of(&key),
                pin: Pin(pin),
                secret: TokenSecret::new(secret),
            };
            prop_assert_eq!(token.reveal().parse(), Ok(token));
        }
    }
}
