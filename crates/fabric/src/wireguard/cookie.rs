//! Proofs before work: a gateway under load answers only those who receive what is sent to their address.
//!
//! A handshake costs the responder several multiplications on a curve, and the address of a datagram may be made up.
//! So under load a cookie is sent to that address, a keyed hash of it that needs no memory here, and the handshake is
//! made only with somebody who shows the cookie.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::keys::draw;
use super::mac::{Mac, key_of, mac, verify};
use super::message::{CookieReply, Macs};
use super::{NoRandomness, PublicKey, Random};

/// How long a cookie is good, and the secret of cookies used.
const LIFETIME: Duration = Duration::from_mins(2);
const MAC1: [u8; 8] = *b"mac1----";
const COOKIE: [u8; 8] = *b"cookie--";

/// What the proofs in a handshake message are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// The sender does not know whom it talks to.
    Nothing,
    /// It does, but may not be at its address.
    Known,
    /// It receives what is sent to its address.
    Reachable,
}

/// The side that receives handshake messages.
pub(super) struct Gatekeeper {
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    secret: Option<Secret>,
}

struct Secret {
    bytes: Zeroizing<[u8; 32]>,
    until: Instant,
}

impl Gatekeeper {
    /// The gatekeeper of who has this key.
    pub(super) fn new(own: &PublicKey) -> Self {
        Self { mac1_key: key_of(MAC1, own), cookie_key: key_of(COOKIE, own), secret: None }
    }

    /// What the proofs at the end of a handshake message are worth.
    pub(super) fn judge(&self, message: &[u8], source: SocketAddr, now: Instant) -> Worth {
        let Ok((covered, macs)) = Macs::ref_from_suffix(message) else { return Worth::Nothing };
        if !verify(&self.mac1_key, &[covered], &macs.mac1) {
            return Worth::Nothing;
        }
        let secret = self.secret.as_ref().filter(|secret| now < secret.until);
        let cookie = secret.and_then(|secret| cookie(&secret.bytes, source));
        match cookie {
            Some(cookie) if verify(&cookie, &[covered, &macs.mac1], &macs.mac2) => Worth::Reachable,
            Some(_) | None => Worth::Known,
        }
    }

    /// A cookie for the sender of a handshake message, which alone can read it; none for want of random bytes.
    pub(super) fn reply(
        &mut self,
        sender: u32,
        mac1: &Mac,
        source: SocketAddr,
        now: Instant,
        random: &mut dyn Random,
    ) -> Option<CookieReply> {
        let nonce: [u8; 24] = draw(random).ok()?;
        let mut cookie = cookie(self.secret(now, random).ok()?, source)?;
        let cipher = XChaCha20Poly1305::new(&self.cookie_key.into());
        let tag = cipher.encrypt_in_place_detached(XNonce::from_slice(&nonce), mac1, &mut cookie).ok()?;
        Some(CookieReply::new(sender, nonce, cookie, tag.into()))
    }

    /// The secret of now. A new one makes all cookies void that were given before.
    fn secret(&mut self, now: Instant, random: &mut dyn Random) -> Result<&[u8; 32], NoRandomness> {
        let fresh = match self.secret.take().filter(|secret| now < secret.until) {
            Some(secret) => secret,
            None => Secret { bytes: Zeroizing::new(draw(random)?), until: now + LIFETIME },
        };
        Ok(&self.secret.insert(fresh).bytes)
    }
}

/// The cookie of an address.
fn cookie(secret: &[u8; 32], source: SocketAddr) -> Option<Mac> {
    let port = source.port().to_be_bytes();
    match source.ip().to_canonical() {
        IpAddr::V4(ip) => mac(secret, &[&ip.octets(), &port]),
        IpAddr::V6(ip) => mac(secret, &[&ip.octets(), &port]),
    }
}

/// The side that sends handshake messages, to one peer.
pub(super) struct Stamp {
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    /// Of the last message, to which a cookie may be the answer.
    last: Option<Mac>,
    cookie: Option<Cookie>,
}

struct Cookie {
    bytes: Zeroizing<Mac>,
    until: Instant,
}

impl Stamp {
    /// The stamp on messages to the peer with this key.
    pub(super) fn new(peer: &PublicKey) -> Self {
        Self { mac1_key: key_of(MAC1, peer), cookie_key: key_of(COOKIE, peer), last: None, cookie: None }
    }

    /// Puts the proofs at the end of a handshake message.
    pub(super) fn put(&mut self, message: &mut [u8], now: Instant) {
        let Ok((covered, macs)) = Macs::mut_from_suffix(message) else { return };
        // A key of 16 or 32 bytes always fits. Without a proof the message would only be refused.
        macs.mac1 = mac(&self.mac1_key, &[covered]).unwrap_or_default();
        let cookie = self.cookie.as_ref().filter(|cookie| now < cookie.until);
        let proof = cookie.and_then(|cookie| mac(cookie.bytes.as_slice(), &[covered, &macs.mac1]));
        macs.mac2 = proof.unwrap_or_default();
        self.last = Some(macs.mac1);
    }

    /// Takes the cookie that is the answer to the last message. Whether it was one.
    pub(super) fn take(&mut self, reply: &CookieReply, now: Instant) -> bool {
        let Some(last) = self.last else { return false };
        let mut bytes: Zeroizing<Mac> = Zeroizing::new(reply.cookie);
        let (nonce, tag) = (XNonce::from_slice(&reply.nonce), Tag::from_slice(&reply.tag));
        let cipher = XChaCha20Poly1305::new(&self.cookie_key.into());
        let opened = cipher.decrypt_in_place_detached(nonce, &last, bytes.as_mut_slice(), tag).is_ok();
        if opened {
            self.cookie = Some(Cookie { bytes, until: now + LIFETIME });
            self.last = None;
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use zerocopy::IntoBytes;

    use super::{Gatekeeper, Stamp, Worth};
    use crate::wireguard::message::{CookieReply, Initiation};
    use crate::wireguard::tests::Counting;
    use crate::wireguard::{PrivateKey, PublicKey};

    fn key(number: u8) -> PublicKey {
        PrivateKey::new([number; 32]).public()
    }

    fn at(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// One that asks and one that keeps the gate.
    struct Two {
        stamp: Stamp,
        gate: Gatekeeper,
        start: Instant,
        random: Counting,
    }

    impl Two {
        fn new() -> Self {
            let (stamp, gate) = (Stamp::new(&key(1)), Gatekeeper::new(&key(1)));
            Self { stamp, gate, start: Instant::now(), random: Counting::default() }
        }

        fn after(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn message(&mut self, seconds: u64) -> Initiation {
            let mut message = Initiation::new(7, [5; 108]);
            let now = self.after(seconds);
            self.stamp.put(message.as_mut_bytes(), now);
            message
        }

        fn judge(&self, message: &Initiation, port: u16, seconds: u64) -> Worth {
            self.gate.judge(message.as_bytes(), at(port), self.after(seconds))
        }

        fn reply(&mut self, message: &Initiation, port: u16, seconds: u64) -> CookieReply {
            let now = self.after(seconds);
            self.gate.reply(7, &message.macs.mac1, at(port), now, &mut self.random).unwrap()
        }
    }

    #[test]
    fn a_cookie_proves_one_address_for_two_minutes() {
        let mut two = Two::new();
        let first = two.message(0);
        assert_eq!(two.judge(&first, 1, 0), Worth::Known);
        assert_eq!(first.macs.mac2, [0; 16]);
        let reply = two.reply(&first, 1, 0);
        assert_eq!(reply.receiver(), 7);
        assert!(two.stamp.take(&reply, two.after(0)));
        let second = two.message(1);
        assert_eq!(two.judge(&second, 1, 1), Worth::Reachable);
        assert_eq!(two.judge(&second, 2, 1), Worth::Known, "from another port");
        assert_eq!(two.judge(&second, 1, 120), Worth::Known, "the secret is old");
        assert_eq!(two.message(120).macs.mac2, [0; 16], "the cookie is old");
    }

    #[test]
    fn a_new_secret_makes_old_cookies_void() {
        let mut two = Two::new();
        let first = two.message(0);
        two.reply(&first, 1, 0);
        let reply = two.reply(&first, 1, 119);
        assert!(two.stamp.take(&reply, two.after(119)));
        let stamped = two.message(121);
        two.reply(&first, 1, 121);
        assert_ne!(stamped.macs.mac2, [0; 16]);
        assert_eq!(two.judge(&stamped, 1, 121), Worth::Known);
    }

    #[test]
    fn a_message_for_another_or_with_any_other_byte_is_worth_nothing() {
        let mut two = Two::new();
        let message = two.message(0);
        for place in 0..132 {
            let mut forged = message.clone();
            forged.as_mut_bytes()[place] ^= 1;
            assert_eq!(two.judge(&forged, 1, 0), Worth::Nothing, "{place}");
        }
        let other = Gatekeeper::new(&key(2));
        assert_eq!(other.judge(message.as_bytes(), at(1), two.start), Worth::Nothing);
        assert_eq!(other.judge(&[0; 31], at(1), two.start), Worth::Nothing);
    }

    #[test]
    fn a_cookie_is_taken_once_and_only_as_the_answer_to_the_last_message() {
        let mut two = Two::new();
        let first = two.message(0);
        let reply = two.reply(&first, 1, 0);
        for place in 8..64 {
            let mut forged = reply.clone();
            forged.as_mut_bytes()[place] ^= 1;
            assert!(!two.stamp.take(&forged, two.start), "{place}");
        }
        assert!(two.stamp.take(&reply, two.start));
        assert!(!two.stamp.take(&reply, two.start));
        two.message(1);
        assert!(two.stamp.take(&reply, two.start), "the same bytes have the same proof");
        let mut other = Initiation::new(8, [5; 108]);
        two.stamp.put(other.as_mut_bytes(), two.start);
        assert!(!two.stamp.take(&reply, two.start));
    }

    #[test]
    fn an_address_has_the_same_cookie_in_both_notations() {
        let mut two = Two::new();
        let first = two.message(0);
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:1".parse().unwrap();
        let reply = two.gate.reply(7, &first.macs.mac1, mapped, two.start, &mut two.random).unwrap();
        assert!(two.stamp.take(&reply, two.start));
        let second = two.message(0);
        assert_eq!(two.judge(&second, 1, 0), Worth::Reachable);
    }
}
