//! The pin of a key, and what the certificate that a peer shows says about it.
//!
//! A certificate may change while its key stays, so a pin is the SHA-256 of the key alone, in the form that
//! HTTP public key pinning made common.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferro_api::discovery::TrustMode;

use super::x509::{BadPem, certificate_key};
use crate::identity::{serde_as_text, sha256};

const PREFIX: &str = "sha256/";
const ENCODED: usize = 44;

/// The SHA-256 of a public key, as its `SubjectPublicKeyInfo`; written `sha256/` and base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// The pin of a key that is given as `SubjectPublicKeyInfo` in DER.
    pub fn of_key(spki: &[u8]) -> Self {
        Self(sha256(spki))
    }

    /// The pin of the key in a certificate in DER.
    pub fn of_certificate(der: &[u8]) -> Result<Self, BadPem> {
        certificate_key(der)
    }
}

impl FromStr for Pin {
    type Err = NotAPin;

    fn from_str(text: &str) -> Result<Self, NotAPin> {
        let encoded = text.strip_prefix(PREFIX).filter(|encoded| encoded.len() == ENCODED).ok_or(NotAPin)?;
        let hash = STANDARD.decode(encoded).map_err(|_| NotAPin)?;
        hash.try_into().map(Self).map_err(|_| NotAPin)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

serde_as_text!(Pin);

/// The text is not a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pin is sha256/ followed by 32 bytes in base64")]
pub struct NotAPin;

/// What a TLS server has shown of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The pin of its key.
    pub pin: Pin,
    /// Whether its certificate is for the name asked for, and comes from a trusted authority.
    pub chain_verified: bool,
}

/// How far the server is trusted, given what it has shown, if it was contacted, and the pin it must have.
///
/// A pin that fits protects the connection, but makes nobody Trusted: that word tells of the authority. A pin
/// that does not fit ends the matter, whatever the authority says.
pub fn trust(expected: Option<&Pin>, shown: Option<&Shown>) -> Result<TrustMode, PinMismatch> {
    let Some(shown) = shown else { return Ok(TrustMode::Unknown) };
    match expected {
        Some(expected) if *expected != shown.pin => {
            Err(PinMismatch { expected: *expected, shown: shown.pin })
        }
        Some(_) | None if shown.chain_verified => Ok(TrustMode::Trusted),
        Some(_) | None => Ok(TrustMode::Untrusted),
    }
}

/// The server has another key than it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the auth service shows the key {shown} instead of {expected}: either its key was replaced, then ask for \
     a new token, or somebody stands between"
)]
pub struct PinMismatch {
    /// The key it must have.
    pub expected: Pin,
    /// The key it has.
    pub shown: Pin,
}

#[cfg(test)]
mod tests {
    use super::{Pin, PinMismatch, Shown, trust};
    use ferro_api::discovery::TrustMode;
    use proptest::prelude::*;

    const PIN: Pin = Pin([1; 32]);
    const OTHER: Pin = Pin([2; 32]);

    #[test]
    fn the_authority_decides_on_trust_and_the_pin_on_refusal() {
        let shown = |chain_verified| Shown { pin: PIN, chain_verified };
        for expected in [None, Some(&PIN)] {
            assert_eq!(trust(expected, None), Ok(TrustMode::Unknown));
            assert_eq!(trust(expected, Some(&shown(true))), Ok(TrustMode::Trusted));
            assert_eq!(trust(expected, Some(&shown(false))), Ok(TrustMode::Untrusted));
        }
        for chain_verified in [true, false] {
            let mismatch = PinMismatch { expected: OTHER, shown: PIN };
            assert_eq!(trust(Some(&OTHER), Some(&shown(chain_verified))), Err(mismatch));
        }
    }

    #[test]
    fn a_pin_follows_the_key_of_the_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str| {
            let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
            params.self_signed(&key).unwrap()
        };
        let pin = Pin::of_key(&rcgen::PublicKeyData::subject_public_key_info(&key));
        assert_eq!(Pin::of_certificate(certificate("a").der()), Ok(pin));
        assert_eq!(Pin::of_certificate(certificate("b").der()), Ok(pin));
        assert!(Pin::of_certificate(b"rubbish").is_err());
    }

    proptest! {
        #[test]
        fn a_pin_is_read_as_it_was_written(hash: [u8; 32], text in "(sha256/)?[A-Za-z0-9+/=]{40,46}") {
            prop_assert_eq!(Pin(hash).to_string().parse(), Ok(Pin(hash)));
            if let Ok(pin) = text.parse::<Pin>() {
                prop_assert_eq!(pin.to_string(), text);
            }
        }
    }
}
