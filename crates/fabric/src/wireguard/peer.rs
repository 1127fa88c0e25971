//! One peer: its sessions, the handshake under way, where it is, and what is to be sent to it.
//!
//! Packets that wait for a session are not held here; the caller keeps them, or drops them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use zerocopy::IntoBytes;

use super::cookie::Stamp;
use super::handshake::{Ephemeral, Initiator, Responder};
use super::message::{CookieReply, DataHeader, HEADER, Initiation, Response, TAG};
use super::session::{REJECT_AFTER_MESSAGES, Role, Session};
use super::sessions::{Confirmed, Sessions};
use super::timers::{Due, Event, Timers};
use super::{Drop, PresharedKey, PrivateKey, PublicKey, Timestamp};

/// Now, by two clocks: one that only goes forward, and the one that all the world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For everything that takes time.
    pub instant: Instant,
    /// For the timestamps in initiations.
    pub clock: SystemTime,
}

/// What is known of a peer from the beginning.
#[derive(Clone)]
pub struct PeerConfig {
    /// Who it is.
    pub key: PublicKey,
    /// The secret beside the keys.
    pub preshared: PresharedKey,
    /// Where it is, as far as that is known. From then on it is where its last genuine message came from.
    pub endpoint: Option<SocketAddr>,
    /// The interval of a persistent keepalive. With one, a session is begun and kept without being asked for.
    pub keepalive: Option<Duration>,
    /// The last timestamp that was sent to it, maybe by another gateway with the same key.
    pub sent: Option<Timestamp>,
}

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// What.
    pub datagram: Datagram,
}

/// What is sent besides packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// Begins a handshake.
    Initiation(Initiation),
    /// Answers it.
    Response(Response),
    /// Asks for it again, with a cookie.
    CookieReply(CookieReply),
    /// A sealed message without payload.
    Keepalive([u8; HEADER + TAG]),
}

impl Datagram {
    /// As it is sent.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Initiation(message) => message.as_bytes(),
            Self::Response(message) => message.as_bytes(),
            Self::CookieReply(message) => message.as_bytes(),
            Self::Keepalive(bytes) => bytes,
        }
    }
}

/// What was drawn at random for one handshake.
pub(super) struct Drawn {
    /// Unique among all peers.
    pub(super) index: u32,
    pub(super) ephemeral: Ephemeral,
    pub(super) jitter: Duration,
}

/// A packet that was opened.
pub(super) struct Opened {
    pub(super) payload: Range<usize>,
    /// Whether there is a new session to send by.
    pub(super) confirmed: Option<Confirmed>,
}

struct Pending {
    index: u32,
    handshake: Initiator,
}

pub(super) struct Peer {
    key: PublicKey,
    preshared: PresharedKey,
    endpoint: Option<SocketAddr>,
    stamp: Stamp,
    pending: Option<Pending>,
    sessions: Sessions,
    timers: Timers,
    sent: Option<Timestamp>,
    received: Option<Timestamp>,
}

impl Peer {
    pub(super) fn new(config: PeerConfig, now: Instant) -> Self {
        let PeerConfig { key, preshared, endpoint, keepalive, sent } = config;
        Self {
            key,
            preshared,
            endpoint,
            stamp: Stamp::new(&key),
            pending: None,
            sessions: Sessions::default(),
            timers: Timers::new(keepalive, now),
            sent,
            received: None,
        }
    }

    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }

    pub(super) fn endpoint(&self) -> Option<SocketAddr> {
        self.endpoint
    }

    pub(super) fn move_to(&mut self, endpoint: SocketAddr) {
        self.endpoint = Some(endpoint);
    }

    pub(super) fn set_keepalive(&mut self, interval: Option<Duration>, now: Instant) {
        self.timers.set_interval(interval, now);
    }

    pub(super) fn sent_timestamp(&self) -> Option<Timestamp> {
        self.sent
    }

    /// The session to send by.
    pub(super) fn session(&self, now: Instant) -> Option<&Arc<Session>> {
        self.sessions.current(now)
    }

    /// All indices by which the peer may address something here.
    pub(super) fn indices(&self) -> [Option<u32>; 4] {
        let [previous, current, next] = self.sessions.indices();
        [previous, current, next, self.pending.as_ref().map(|pending| pending.index)]
    }

    /// Begins a handshake, in place of one that is under way.
    pub(super) fn initiate(&mut self, own: &PrivateKey, drawn: Drawn, now: Moment) -> Option<Transmit> {
        let to = self.endpoint?;
        let Drawn { index, ephemeral, jitter } = drawn;
        let timestamp = Timestamp::after(self.sent, now.clock);
        let (handshake, noise) =
            Initiator::begin(own, &self.key, &self.preshared, ephemeral, timestamp).ok()?;
        let mut message = Initiation::new(index, noise);
        self.stamp.put(message.as_mut_bytes(), now.instant);
        self.sent = Some(timestamp);
        self.pending = Some(Pending { index, handshake });
        self.timers.note(Event::InitiationSent { jitter }, now.instant);
        Some(Transmit { to, datagram: Datagram::Initiation(message) })
    }

    /// Answers a handshake that the peer has begun.
    pub(super) fn respond(
        &mut self,
        handshake: Responder,
        sender: u32,
        index: u32,
        source: SocketAddr,
        now: Instant,
    ) -> Result<Transmit, Drop> {
        if self.received.is_some_and(|latest| handshake.timestamp <= latest) {
            return Err(Drop::OldInitiation);
        }
        let timestamp = handshake.timestamp;
        let (noise, keys) = handshake.answer(&self.preshared).map_err(|_| Drop::ForgedHandshake)?;
        let mut message = Response::new(index, sender, noise);
        self.stamp.put(message.as_mut_bytes(), now);
        let session = Session::new(index, sender, Role::Responder, now, keys);
        self.received = Some(timestamp);
        self.endpoint = Some(source);
        self.sessions.add(Arc::new(session), Role::Responder);
        self.timers.note(Event::EmptyReceived, now);
        self.timers.note(Event::KeysDerived, now);
        self.timers.note(Event::EmptySent, now);
        Ok(Transmit { to: source, datagram: Datagram::Response(message) })
    }

    /// Ends a handshake that was begun here. The first message by the new session tells the peer that it is there.
    pub(super) fn conclude(
        &mut self,
        response: &Response,
        source: SocketAddr,
        now: Instant,
    ) -> Result<Transmit, Drop> {
        let pending = self.pending.as_mut().filter(|pending| pending.index == response.receiver());
        pending
            .ok_or(Drop::UnknownIndex)?
            .handshake
            .read(&response.noise)
            .map_err(|_| Drop::ForgedHandshake)?;
        let Pending { index, handshake } = self.pending.take().ok_or(Drop::UnknownIndex)?;
        let keys = handshake.keys().map_err(|_| Drop::ForgedHandshake)?;
        let session = Session::new(index, response.sender(), Role::Initiator, now, keys);
        self.endpoint = Some(source);
        self.sessions.add(Arc::new(session), Role::Initiator);
        self.timers.note(Event::EmptyReceived, now);
        self.timers.note(Event::KeysDerived, now);
        self.timers.note(Event::Confirmed, now);
        self.keepalive(now).ok_or(Drop::Expired)
    }

    /// Takes a cookie for the next handshake message.
    pub(super) fn take_cookie(&mut self, reply: &CookieReply, now: Instant) -> Result<(), Drop> {
        if self.stamp.take(reply, now) { Ok(()) } else { Err(Drop::ForgedCookie) }
    }

    /// Opens a data message. The window is asked before, and told only after, the message proved genuine. The indices
    /// stay what they are.
    pub(super) fn open(
        &mut self,
        header: DataHeader,
        datagram: &mut [u8],
        source: SocketAddr,
        now: Instant,
    ) -> Result<Opened, Drop> {
        let slot = self.sessions.addressed(header.receiver()).ok_or(Drop::UnknownIndex)?;
        if !slot.session.is_alive(now) || header.counter() >= REJECT_AFTER_MESSAGES {
            return Err(Drop::Expired);
        }
        slot.window.check(header.counter()).map_err(|_| Drop::Replayed)?;
        let payload = slot.session.open(header.counter(), datagram).map_err(|_| Drop::ForgedData)?;
        slot.window.record(header.counter()).map_err(|_| Drop::Replayed)?;
        let ending = slot.session.is_ending(now);
        self.endpoint = Some(source);
        let confirmed = self.sessions.confirm(header.receiver());
        if confirmed.is_some() {
            self.timers.note(Event::Confirmed, now);
        }
        let event = if payload.is_empty() { Event::EmptyReceived } else { Event::DataReceived };
        self.timers.note(event, now);
        if ending && self.timers.may_initiate(now) {
            self.timers.want_handshake(now);
        }
        Ok(Opened { payload, confirmed })
    }

    /// A message without payload, if there is a session to send it by.
    pub(super) fn keepalive(&mut self, now: Instant) -> Option<Transmit> {
        let to = self.endpoint?;
        let mut bytes = [0; HEADER + TAG];
        let session = self.sessions.current(now)?;
        session.reserve(1, now).ok()?.seal(&mut bytes).ok()?;
        let ageing = session.is_ageing(now);
        self.timers.note(Event::EmptySent, now);
        if ageing && self.timers.may_initiate(now) {
            self.timers.want_handshake(now);
        }
        Some(Transmit { to, datagram: Datagram::Keepalive(bytes) })
    }

    /// Packets were sent. Whether a handshake should be begun, since the session ages.
    pub(super) fn note_sent(&mut self, now: Instant) -> bool {
        self.timers.note(Event::DataSent, now);
        self.session(now).is_none_or(|session| session.is_ageing(now)) && self.timers.may_initiate(now)
    }

    /// Somebody has packets for the peer. Whether a handshake should be begun, since there is no session.
    pub(super) fn want(&mut self, now: Instant) -> bool {
        if self.session(now).is_some() {
            return false;
        }
        self.timers.insist(now);
        self.timers.may_initiate(now)
    }

    /// What is due. Keys that are to be forgotten are forgotten.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        let due = self.timers.due(now)?;
        match due {
            Due::Initiation | Due::Keepalive => {}
            Due::GiveUp => self.pending = None,
            Due::Wipe => (self.pending, self.sessions) = (None, Sessions::default()),
        }
        Some(due)
    }

    pub(super) fn may_initiate(&self, now: Instant) -> bool {
        self.timers.may_initiate(now)
    }

    /// When to ask again what is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }
}
