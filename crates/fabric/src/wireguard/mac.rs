//! The keyed hashes around handshake messages, by which most rubbish is refused at the price of one hash.

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use subtle::ConstantTimeEq;

use super::PublicKey;

/// A keyed hash.
pub(super) type Mac = [u8; 16];

/// The key for one purpose that everybody can compute who knows the public key.
pub(super) fn key_of(label: [u8; 8], key: &PublicKey) -> [u8; 32] {
    <Blake2s256 as Digest>::new().chain_update(label).chain_update(key.0).finalize().into()
}

/// The keyed hash of the parts. There is none if the key is longer than 32 bytes.
pub(super) fn mac(key: &[u8], parts: &[&[u8]]) -> Option<Mac> {
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(key).ok()?;
    for part in parts {
        mac.update(part);
    }
    Some(mac.finalize_fixed().into())
}

/// Whether this is the keyed hash of the parts, in a time that does not tell how far it is.
pub(super) fn verify(key: &[u8], parts: &[&[u8]], claimed: &Mac) -> bool {
    mac(key, parts).is_some_and(|mac| mac.ct_eq(claimed).into())
}
