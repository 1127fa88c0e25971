//! The keys that gateways have for good, and where random bytes come from.

use ring::rand::{SecureRandom, SystemRandom};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// The key that a gateway keeps to itself. It is wiped from memory when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(pub(super) StaticSecret);

impl PrivateKey {
    /// The key of these random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(StaticSecret::from(bytes))
    }

    /// The key by which others know the gateway.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }
}

/// The key by which others know a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A secret of two gateways beside their keys; zero where there is none.
#[derive(Clone, Default)]
pub struct PresharedKey(pub(super) Zeroizing<[u8; 32]>);

impl PresharedKey {
    /// The secret of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

/// Where random bytes come from: the system, or a test.
pub trait Random: Send {
    /// Fills all of it.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness>;
}

/// The system has no random bytes to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        SecureRandom::fill(self, bytes).map_err(|_| NoRandomness)
    }
}

/// So many random bytes.
pub(super) fn draw<const N: usize>(random: &mut dyn Random) -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(bytes)
}
