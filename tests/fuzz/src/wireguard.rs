//! Datagrams from anybody: read alone, and by two gateways between which somebody changes, repeats and forges them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use blake2::digest::consts::U16;
use blake2::digest::{Digest as _, FixedOutput as _, KeyInit, Update as _};
use blake2::{Blake2s256, Blake2sMac};
use ferro_fabric::wireguard::message::{HEADER, Message, TAG, parse};
use ferro_fabric::wireguard::{
    Datagram, Device, Incoming, Load, Moment, NoRandomness, PeerConfig, PeerId, PresharedKey, PrivateKey,
    Random, Transmit, Work,
};
use zerocopy::IntoBytes as _;

use crate::{NOW, Read};

/// As many things happen at most: each may cost some multiplications on a curve.
const MOST: usize = 24;
/// What the Noise protocol protects, in an initiation and in a response.
const IN_INITIATION: Range<usize> = 8..116;
const IN_RESPONSE: Range<usize> = 12..60;
/// The two proofs at the end of a handshake message.
const MACS: usize = 32;

/// One datagram.
pub fn wireguard_message(data: &[u8]) -> Read {
    match parse(data).ok()? {
        Message::Initiation(message) => assert_eq!(message.as_bytes(), data),
        Message::Response(message) => assert_eq!(message.as_bytes(), data),
        Message::CookieReply(message) => assert_eq!(message.as_bytes(), data),
        Message::Data(header) => assert!(data.len() >= HEADER + TAG && data.starts_with(header.as_bytes())),
    }
    Some(())
}

/// Bytes that are never the same again, and always the same in the next run.
struct Counting(u64);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        for chunk in bytes.chunks_mut(8) {
            // Any odd number with bits all over it.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// A datagram on its way.
#[derive(Clone)]
struct Sent {
    to: usize,
    bytes: Vec<u8>,
    /// What is sealed in it, if that is known.
    payload: Option<Vec<u8>>,
}

/// Two gateways that know each other, and all that was ever sent between them.
struct Two {
    now: Moment,
    devices: [Device; 2],
    peers: [PeerId; 2],
    load: Load,
    sent: Vec<Sent>,
    /// The data messages that were taken: none is taken twice.
    taken: BTreeSet<usize>,
}

fn key(side: usize) -> PrivateKey {
    PrivateKey::new([if side == 0 { 1 } else { 2 }; 32])
}

fn address(side: usize) -> SocketAddr {
    ([192, 0, 2, if side == 0 { 1 } else { 2 }], 51820).into()
}

fn device(side: usize, now: Moment) -> Option<(Device, PeerId)> {
    let mut device = Device::new(key(side), Box::new(Counting(if side == 0 { 1 << 32 } else { 1 << 40 })));
    let config = PeerConfig {
        key: key(1 - side).public(),
        preshared: PresharedKey::new([9; 32]),
        endpoint: Some(address(1 - side)),
        keepalive: None,
        sent: None,
    };
    let peer = device.add(config, now).ok()?;
    Some((device, peer))
}

impl Two {
    fn new() -> Option<Self> {
        let clock = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs());
        let now = Moment { instant: Instant::now(), clock };
        let ((a, of_a), (b, of_b)) = (device(0, now)?, device(1, now)?);
        let (sent, taken) = (Vec::new(), BTreeSet::new());
        Some(Self { now, devices: [a, b], peers: [of_a, of_b], load: Load::Normal, sent, taken })
    }

    /// With a session that the first of them has begun.
    fn joined() -> Option<Self> {
        let mut two = Self::new()?;
        two.want(0);
        for place in 0..3 {
            two.deliver(place);
        }
        assert!((0..2).all(|side| two.devices[side].session(two.peers[side], two.now).is_some()));
        Some(two)
    }

    fn want(&mut self, side: usize) {
        let transmit = self.devices[side].want(self.peers[side], self.now);
        self.send(side, transmit);
    }

    fn send(&mut self, from: usize, transmit: Option<Transmit>) {
        let Some(Transmit { datagram, .. }) = transmit else { return };
        let payload = matches!(datagram, Datagram::Keepalive(_)).then(Vec::new);
        self.sent.push(Sent { to: 1 - from, bytes: datagram.bytes().to_vec(), payload });
    }

    fn seal(&mut self, side: usize, payload: &[u8]) -> Option<()> {
        let session = self.devices[side].session(self.peers[side], self.now)?;
        let mut bytes = [&[0; HEADER], payload, &[0; TAG]].concat();
        session.reserve(1, self.now.instant).ok()?.seal(&mut bytes).ok()?;
        self.sent.push(Sent { to: 1 - side, bytes, payload: Some(payload.to_vec()) });
        let transmit = self.devices[side].sent(self.peers[side], self.now);
        self.send(side, transmit);
        Some(())
    }

    /// A datagram that was sent arrives, maybe not for the first time.
    fn deliver(&mut self, place: usize) {
        let Some(Sent { to, bytes, payload }) = self.sent.get(place).cloned() else { return };
        let mut datagram = bytes.clone();
        let Some(incoming) = self.receive(to, &mut datagram) else { return };
        if let Incoming::Data { payload: range, .. } = &incoming {
            assert_eq!(Some(&datagram[range.clone()]), payload.as_deref());
            assert!(self.taken.insert(place), "nothing is taken twice");
        }
        self.answer(to, incoming);
    }

    fn receive(&mut self, side: usize, datagram: &mut [u8]) -> Option<Incoming> {
        self.devices[side].receive(datagram, address(1 - side), self.load, self.now).ok()
    }

    fn answer(&mut self, side: usize, incoming: Incoming) {
        match incoming {
            Incoming::Reply(transmit) | Incoming::Established { confirmation: transmit, .. } => {
                self.send(side, Some(transmit));
            }
            Incoming::Nothing | Incoming::Data { .. } => {}
        }
    }

    /// A datagram that nobody of the two has sent arrives. All that may come of it is that its sender is to come again
    /// with a cookie.
    fn forge(&mut self, side: usize, mut datagram: Vec<u8>) {
        let incoming = self.receive(side, &mut datagram);
        let is_cookie = |incoming: &Incoming| {
            matches!(incoming, Incoming::Reply(Transmit { datagram: Datagram::CookieReply(_), .. }))
        };
        assert!(incoming.as_ref().is_none_or(is_cookie), "{incoming:?}");
    }

    fn pass(&mut self, time: Duration) {
        self.now = Moment { instant: self.now.instant + time, clock: self.now.clock + time };
        for side in 0..2 {
            for work in self.devices[side].poll(self.now) {
                if let Work::Send(transmit) = work {
                    self.send(side, Some(transmit));
                }
            }
        }
    }
}

/// Puts the proof on a handshake message that anybody can make who knows the public key.
fn stamp(datagram: &mut [u8], to: usize) -> Option<()> {
    let end = datagram.len().checked_sub(MACS)?;
    let key = Blake2s256::new().chain_update(b"mac1----").chain_update(key(to).public().0).finalize();
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&key).ok()?;
    mac.update(datagram.get(..end)?);
    datagram.get_mut(end..end + MACS / 2)?.copy_from_slice(&mac.finalize_fixed());
    Some(())
}

/// One of those that were sent, by a number that may be larger than there are.
fn pick<T: Clone>(all: &[T], number: u8) -> Option<(usize, T)> {
    let place = usize::from(number).checked_rem(all.len())?;
    Some((place, all[place].clone()))
}

/// Two gateways that want to talk to each other, and somebody between them. What happens is said by bytes: what, to
/// whom or with which datagram, and where in it.
pub fn wireguard_handshake(data: &[u8]) -> Read {
    let mut two = Two::new()?;
    let (script, rest) = data.split_at(data.len().min(3 * MOST));
    let (steps, _) = script.as_chunks();
    for [what, which, at] in steps.iter().copied() {
        let side = usize::from(which & 1);
        match what % 8 {
            0 => two.want(side),
            1..=3 => two.deliver(pick(&two.sent, which).map_or(usize::MAX, |(place, _)| place)),
            4 => _ = forge_noise(&mut two, which, at, what),
            5 => two.load = if which & 1 == 0 { Load::Normal } else { Load::High },
            6 => two.pass(Duration::from_secs(which.into())),
            _ => _ = forge_whole(&mut two, side, at, rest),
        }
    }
    let is_joined = (0..2).all(|side| two.devices[side].session(two.peers[side], two.now).is_some());
    is_joined.then_some(())
}

/// A handshake message with another byte in what the Noise protocol protects.
fn forge_noise(two: &mut Two, which: u8, at: u8, change: u8) -> Option<()> {
    let (_, Sent { to, mut bytes, .. }) = pick(&two.sent, which)?;
    let protected = match parse(&bytes).ok()? {
        Message::Initiation(_) => IN_INITIATION,
        Message::Response(_) => IN_RESPONSE,
        Message::CookieReply(_) | Message::Data(_) => return None,
    };
    let at = protected.start + usize::from(at) % protected.len();
    *bytes.get_mut(at)? ^= change | 1;
    stamp(&mut bytes, to)?;
    two.forge(to, bytes);
    Some(())
}

/// A handshake message of which everything is made up but its length and kind.
fn forge_whole(two: &mut Two, side: usize, kind: u8, content: &[u8]) -> Option<()> {
    let (kind, length) = [(1, 148), (2, 92), (3, 64)][usize::from(kind) % 3];
    let mut datagram = [&[kind, 0, 0, 0], content].concat();
    datagram.resize(length, 0);
    if kind != 3 {
        stamp(&mut datagram, side)?;
    }
    two.forge(side, datagram);
    Some(())
}

/// Two gateways with a session, and somebody between them. What happens is said by bytes, as above.
pub fn wireguard_session(data: &[u8]) -> Read {
    let mut two = Two::joined()?;
    let (script, rest) = data.split_at(data.len().min(3 * MOST));
    let (steps, _) = script.as_chunks();
    for [what, which, at] in steps.iter().copied() {
        let side = usize::from(which & 1);
        match what % 8 {
            0 | 1 => _ = two.seal(side, &rest[..rest.len().min(at.into())]),
            2 | 3 => two.deliver(pick(&two.sent, which).map_or(usize::MAX, |(place, _)| place)),
            4 => _ = forge_data(&mut two, which, at, what),
            5 => _ = forge_length(&mut two, which, at),
            6 => two.pass(Duration::from_millis(100 * u64::from(which))),
            _ => two.forge(side, rest.to_vec()),
        }
    }
    (two.taken.len() > 1).then_some(())
}

/// A data message with another byte somewhere.
fn forge_data(two: &mut Two, which: u8, at: u8, change: u8) -> Option<()> {
    let (_, Sent { to, mut bytes, payload }) = pick(&two.sent, which)?;
    payload?;
    let at = usize::from(at) % bytes.len();
    *bytes.get_mut(at)? ^= change | 1;
    two.forge(to, bytes);
    Some(())
}

/// A data message of another length.
fn forge_length(two: &mut Two, which: u8, length: u8) -> Option<()> {
    let (_, Sent { to, mut bytes, payload }) = pick(&two.sent, which)?;
    payload?;
    let length = usize::from(length);
    bytes.resize(if length == bytes.len() { length + 1 } else { length }, 0);
    two.forge(to, bytes);
    Some(())
}
