//! A cluster that a target plays: always the same, so that what it signs is, too.

use std::sync::LazyLock;

use ferro_core::identity::{ClusterId, SigningIdentity};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// When all targets believe to run, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

/// The frame of an Ed25519 key in PKCS#8, around the private and before the public half (RFC 5958, RFC 8410).
const BEFORE_PRIVATE: [u8; 16] = [0x30, 0x51, 2, 1, 1, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const BEFORE_PUBLIC: [u8; 3] = [0x81, 0x21, 0];

/// The key of the cluster that is played, as it would be stored.
pub fn private_key() -> Vec<u8> {
    let seed = [7; 32];
    let public = Ed25519KeyPair::from_seed_unchecked(&seed).map(|key| key.public_key().as_ref().to_vec());
    [&BEFORE_PRIVATE[..], &seed, &BEFORE_PUBLIC, &public.unwrap_or_default()].concat()
}

static SIGNER: LazyLock<Option<SigningIdentity>> =
    LazyLock::new(|| SigningIdentity::from_pkcs8("rome".parse().ok()?, &private_key()).ok());

/// The cluster that is played.
pub fn signer() -> Option<&'static SigningIdentity> {
    SIGNER.as_ref()
}

/// Who the other side believes to be.
pub fn own_id() -> Option<ClusterId> {
    "34750f98-bd59-8cfc-946d-a45aaabe933b".parse().ok()
}
