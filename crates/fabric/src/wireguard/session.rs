//! The keys of one session: packets are sealed and opened where they lie.
//!
//! A session is shared by all threads that send. Each reserves numbers for a batch of packets, and no number is ever
//! given out twice: it must not seal two packets.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ring::aead::{Aad, Nonce};
use zerocopy::IntoBytes;

use super::handshake::TransportKeys;
use super::message::{DataHeader, HEADER, TAG};
use super::timers::{KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_AFTER_TIME, REKEY_TIMEOUT};

/// After so many messages a new session is wanted.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// After so many messages this one is of no use.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Who began the handshake of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This side. It also sees to the next session.
    Initiator,
    /// The peer.
    Responder,
}

/// The session has had its time, or its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is used up; a handshake makes another one")]
pub struct UsedUp;

/// Why a packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSealed {
    /// All reserved numbers are used.
    #[error("more packets than were reserved")]
    MoreThanReserved,
    /// The buffer has no room for header and tag, or is longer than any packet.
    #[error("the buffer cannot hold a packet")]
    Unfit,
}

/// The message is not from the peer of this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not genuine")]
pub struct Forged;

/// One session with one peer.
pub struct Session {
    local: u32,
    remote: u32,
    role: Role,
    born: Instant,
    keys: TransportKeys,
    reserved: AtomicU64,
}

impl Session {
    pub(super) fn new(local: u32, remote: u32, role: Role, born: Instant, keys: TransportKeys) -> Self {
        Self { local, remote, role, born, keys, reserved: AtomicU64::new(0) }
    }

    /// The index by which the peer addresses it.
    pub fn local(&self) -> u32 {
        self.local
    }

    /// Whether messages can still be received by it.
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        self.age(now) < REJECT_AFTER_TIME
    }

    /// Whether messages can still be sent by it.
    pub(super) fn can_send(&self, now: Instant) -> bool {
        self.is_alive(now) && self.sent() < REJECT_AFTER_MESSAGES
    }

    /// Whether who sends by it should see to the next one.
    pub(super) fn is_ageing(&self, now: Instant) -> bool {
        let by_time = self.role == Role::Initiator && self.age(now) >= REKEY_AFTER_TIME;
        by_time || self.sent() >= REKEY_AFTER_MESSAGES
    }

    /// Whether who only receives by it should see to the next one.
    pub(super) fn is_ending(&self, now: Instant) -> bool {
        let rest = KEEPALIVE_TIMEOUT + REKEY_TIMEOUT;
        self.role == Role::Initiator && self.age(now) + rest >= REJECT_AFTER_TIME
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }

    fn sent(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves numbers for so many packets.
    pub fn reserve(&self, packets: u32, now: Instant) -> Result<Batch<'_>, UsedUp> {
        if !self.is_alive(now) {
            return Err(UsedUp);
        }
        let end = |next: u64| next.checked_add(packets.into()).filter(|end| *end <= REJECT_AFTER_MESSAGES);
        let next =
            self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).map_err(|_| UsedUp)?;
        Ok(Batch { session: self, numbers: next..next + u64::from(packets) })
    }

    /// Opens the message with this number in its datagram, and says where the payload lies.
    pub(super) fn open(&self, counter: u64, datagram: &mut [u8]) -> Result<Range<usize>, Forged> {
        let sealed = datagram.get_mut(HEADER..).ok_or(Forged)?;
        let opened = self.keys.opening.open_in_place(nonce(counter), Aad::empty(), sealed);
        let length = opened.map_err(|_| Forged)?.len();
        Ok(HEADER..HEADER + length)
    }

    #[cfg(test)]
    pub(super) fn use_up(&self, until: u64) {
        self.reserved.store(until, Ordering::Relaxed);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, remote, role, .. } = self;
        write!(to, "Session({local:08x} to {remote:08x}, {role:?})")
    }
}

/// Numbers that are reserved for packets of one sender.
#[derive(Debug)]
pub struct Batch<'a> {
    session: &'a Session,
    numbers: Range<u64>,
}

impl Batch<'_> {
    /// Seals one packet: a buffer of [`HEADER`] bytes, the payload, and [`TAG`] bytes becomes a data message.
    pub fn seal(&mut self, buffer: &mut [u8]) -> Result<(), NotSealed> {
        let (header, rest) = buffer.split_first_chunk_mut::<HEADER>().ok_or(NotSealed::Unfit)?;
        let (payload, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(NotSealed::Unfit)?;
        let counter = self.numbers.next().ok_or(NotSealed::MoreThanReserved)?;
        let sealed =
            self.session.keys.sealing.seal_in_place_separate_tag(nonce(counter), Aad::empty(), payload);
        tag.copy_from_slice(sealed.map_err(|_| NotSealed::Unfit)?.as_ref());
        header.copy_from_slice(DataHeader::new(self.session.remote, counter).as_bytes());
        Ok(())
    }
}

/// Four zero bytes and the number.
fn nonce(counter: u64) -> Nonce {
    let [nonce @ .., _, _, _, _] = (u128::from(counter) << 32).to_le_bytes();
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::{Forged, NotSealed, REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES, Role, Session, UsedUp};
    use crate::wireguard::handshake::{Initiator, Responder};
    use crate::wireguard::message::{DataHeader, Message, parse};
    use crate::wireguard::{PresharedKey, PrivateKey, Timestamp};

    /// The two ends of a session.
    fn ends(born: Instant) -> (Session, Session) {
        let (a, b) = (PrivateKey::new([1; 32]), PrivateKey::new([2; 32]));
        let (none, timestamp) = (PresharedKey::default(), Timestamp::from_bytes([0; 12]));
        let (mut initiator, initiation) =
            Initiator::begin(&a, &b.public(), &none, Zeroizing::new([3; 32]), timestamp).unwrap();
        let responder = Responder::read(&b, Zeroizing::new([4; 32]), &initiation).unwrap();
        let (response, keys) = responder.answer(&none).unwrap();
        initiator.read(&response).unwrap();
        let first = Session::new(10, 20, Role::Initiator, born, initiator.keys().unwrap());
        (first, Session::new(20, 10, Role::Responder, born, keys))
    }

    /// One end of a session with this index, born now.
    pub fn with_index(local: u32) -> Session {
        Session { local, ..ends(Instant::now()).0 }
    }

    fn buffer(payload: &[u8]) -> Vec<u8> {
        [&[0; 16], payload, &[0; 16]].concat()
    }

    #[test]
    fn a_packet_goes_both_ways_in_its_buffer() {
        let now = Instant::now();
        let (a, b) = ends(now);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let mut batch = from.reserve(2, now).unwrap();
            for (number, payload) in [&b"packet"[..], b""].into_iter().enumerate() {
                let mut datagram = buffer(payload);
                batch.seal(&mut datagram).unwrap();
                let number = u64::try_from(number).unwrap();
                assert_eq!(parse(&datagram), Ok(Message::Data(DataHeader::new(to.local(), number))));
                let range = to.open(number, &mut datagram).unwrap();
                assert_eq!(&datagram[range], payload);
            }
            assert_eq!(batch.seal(&mut buffer(b"")), Err(NotSealed::MoreThanReserved));
        }
    }

    #[test]
    fn a_buffer_without_room_uses_no_number() {
        let now = Instant::now();
        let (a, _) = ends(now);
        let mut batch = a.reserve(1, now).unwrap();
        assert_eq!(batch.seal(&mut [0; 31]), Err(NotSealed::Unfit));
        assert_eq!(batch.seal(&mut [0; 32]), Ok(()));
    }

    #[test]
    fn another_number_or_byte_is_refused() {
        let now = Instant::now();
        let (a, b) = ends(now);
        let mut datagram = buffer(b"packet");
        a.reserve(1, now).unwrap().seal(&mut datagram).unwrap();
        assert_eq!(b.open(1, &mut datagram.clone()), Err(Forged));
        assert_eq!(a.open(0, &mut datagram.clone()), Err(Forged), "the sender's own");
        for place in 16..datagram.len() {
            let mut forged = datagram.clone();
            forged[place] ^= 1;
            assert_eq!(b.open(0, &mut forged), Err(Forged), "{place}");
        }
        assert_eq!(b.open(0, &mut []), Err(Forged));
    }

    #[test]
    fn numbers_end_before_the_limit() {
        let now = Instant::now();
        let (a, b) = ends(now);
        assert!(!b.is_ageing(now));
        b.use_up(REKEY_AFTER_MESSAGES);
        assert!(b.is_ageing(now) && b.is_alive(now));
        a.use_up(REJECT_AFTER_MESSAGES - 2);
        assert!(matches!(a.reserve(3, now), Err(UsedUp)));
        let mut batch = a.reserve(2, now).unwrap();
        assert_eq!(batch.seal(&mut buffer(b"")), Ok(()));
        assert_eq!(batch.seal(&mut buffer(b"")), Ok(()));
        assert!(matches!(a.reserve(1, now), Err(UsedUp)));
        assert!(!a.can_send(now) && a.is_alive(now));
    }

    #[test]
    fn a_session_ages_with_who_began_it() {
        let born = Instant::now();
        let (a, b) = ends(born);
        let at = |seconds| born + Duration::from_secs(seconds);
        assert!(!a.is_ageing(at(119)) && a.is_ageing(at(120)) && !b.is_ageing(at(179)));
        assert!(!a.is_ending(at(164)) && a.is_ending(at(165)) && !b.is_ending(at(179)));
        assert!(a.is_alive(at(179)) && a.reserve(1, at(179)).is_ok());
        assert!(!b.is_alive(at(180)) && b.reserve(1, at(180)).is_err());
    }

    #[test]
    fn what_is_printed_has_no_keys() {
        let (a, _) = ends(Instant::now());
        assert_eq!(format!("{a:?}"), "Session(0000000a to 00000014, Initiator)");
    }

    proptest! {
        #[test]
        fn no_number_is_given_out_twice(sizes in proptest::collection::vec(0_u32..50, 1..8)) {
            let now = Instant::now();
            let (a, _) = ends(now);
            let numbers: Vec<u64> = std::thread::scope(|scope| {
                let senders: Vec<_> = sizes
                    .iter()
                    .map(|size| scope.spawn(|| a.reserve(*size, now).unwrap().numbers.collect::<Vec<_>>()))
                    .collect();
                senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
            });
            let total: u32 = sizes.iter().sum();
            prop_assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (0..u64::from(total)).collect());
        }
    }
}
