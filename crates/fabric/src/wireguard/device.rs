//! All peers of a gateway: whom an incoming datagram is from, what is to be sent, and what was dropped and why.
//!
//! - Flow: [`receive`](Device::receive) every datagram; [`poll`](Device::poll) at the [`deadline`](Device::deadline);
//!   seal packets by the [`session`](Device::session) of their peer and tell [`sent`](Device::sent), once for a batch;
//!   where there is no session, [`want`](Device::want) one and hold the packets.
//! - Guarantees: the same calls with the same times and random bytes give the same results; a datagram of a stranger
//!   changes nothing; no datagram makes it panic.
//! - Assumptions: times do not go backwards; whoever has the session of a peer drops it when it is told
//!   [`Work::Wiped`].

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::cookie::{Gatekeeper, Worth};
use super::handshake::Responder;
use super::keys::draw;
use super::message::{DataHeader, Initiation, Message, Response, parse};
use super::peer::{Drawn, Opened, Peer};
use super::timers::{Due, REKEY_JITTER};
use super::turns::Turns;
use super::{
    Datagram, Drop, Moment, NoRandomness, PeerConfig, PrivateKey, PublicKey, Random, Session, Timestamp,
    Transmit,
};

/// A peer of a device. No two have the same, even one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u64);

/// Whether there are more handshake messages than can be handled, which the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// All are handled.
    Normal,
    /// Only those whose sender is at its address, and only so many of each.
    High,
}

/// What a datagram has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Nothing to do.
    Nothing,
    /// This is to be sent back.
    Reply(Transmit),
    /// There is a new session to send by. This goes first, then what was held for the peer.
    Established {
        /// The peer.
        peer: PeerId,
        /// Tells it that the session is there.
        confirmation: Transmit,
    },
    /// A packet, with its padding; none if the range is empty.
    Data {
        /// The peer.
        peer: PeerId,
        /// Where in the datagram it lies.
        payload: Range<usize>,
        /// Whether there is a new session to send by, and so what was held for the peer can go.
        established: bool,
    },
}

/// What is to be done because it is time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Send this.
    Send(Transmit),
    /// The peer does not answer: drop what is held for it.
    GaveUp(PeerId),
    /// There is no session with the peer any more.
    Wiped(PeerId),
}

/// A peer cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// There is one with this key.
    #[error("another peer has the same key")]
    AlreadyThere,
    /// It has the key of this device.
    #[error("the key of the peer is that of this gateway")]
    Ourselves,
}

/// A gateway, with all its peers.
pub struct Device {
    key: PrivateKey,
    public: PublicKey,
    gate: Gatekeeper,
    turns: Turns,
    random: Box<dyn Random>,
    added: u64,
    peers: BTreeMap<PeerId, Peer>,
    by_key: HashMap<PublicKey, PeerId>,
    by_index: HashMap<u32, PeerId>,
    drops: BTreeMap<Drop, u64>,
}

impl Device {
    /// A gateway with this key, and no peers yet.
    pub fn new(key: PrivateKey, random: Box<dyn Random>) -> Self {
        let public = key.public();
        Self {
            gate: Gatekeeper::new(&public),
            turns: Turns::default(),
            key,
            public,
            random,
            added: 0,
            peers: BTreeMap::new(),
            by_key: HashMap::new(),
            by_index: HashMap::new(),
            drops: BTreeMap::new(),
        }
    }

    /// Adds a peer.
    pub fn add(&mut self, config: PeerConfig, now: Moment) -> Result<PeerId, Unfit> {
        if config.key == self.public {
            return Err(Unfit::Ourselves);
        }
        if self.by_key.contains_key(&config.key) {
            return Err(Unfit::AlreadyThere);
        }
        let id = PeerId(self.added);
        self.added += 1;
        self.by_key.insert(config.key, id);
        self.peers.insert(id, Peer::new(config, now.instant));
        Ok(id)
    }

    /// Forgets a peer and its keys.
    pub fn remove(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.remove(&id) {
            self.by_key.remove(peer.key());
            self.by_index.retain(|_, of| *of != id);
        }
    }

    /// The session to send packets to the peer by. It stays good until [`Session::reserve`] refuses.
    pub fn session(&self, id: PeerId, now: Moment) -> Option<&Arc<Session>> {
        self.peers.get(&id)?.session(now.instant)
    }

    /// Where the peer is.
    pub fn endpoint(&self, id: PeerId) -> Option<SocketAddr> {
        self.peers.get(&id)?.endpoint()
    }

    /// Says where the peer is, until a message of its own says something else.
    pub fn set_endpoint(&mut self, id: PeerId, endpoint: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.move_to(endpoint);
        }
    }

    /// Gives the peer another interval of a persistent keepalive, or none; a new one begins at once.
    pub fn set_keepalive(&mut self, id: PeerId, interval: Option<Duration>, now: Moment) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.set_keepalive(interval, now.instant);
        }
    }

    /// The last timestamp that was sent to the peer, for who goes on with the same key.
    pub fn sent_timestamp(&self, id: PeerId) -> Option<Timestamp> {
        self.peers.get(&id)?.sent_timestamp()
    }

    /// How many datagrams were dropped, by reason.
    pub fn drops(&self) -> &BTreeMap<Drop, u64> {
        &self.drops
    }

    /// Handles a datagram. A packet is opened where it lies.
    pub fn receive(
        &mut self,
        datagram: &mut [u8],
        source: SocketAddr,
        load: Load,
        now: Moment,
    ) -> Result<Incoming, Drop> {
        let received = self.dispatch(datagram, source, load, now.instant);
        received.inspect_err(|reason| *self.drops.entry(*reason).or_default() += 1)
    }

    fn dispatch(
        &mut self,
        datagram: &mut [u8],
        source: SocketAddr,
        load: Load,
        now: Instant,
    ) -> Result<Incoming, Drop> {
        match parse(datagram)? {
            Message::Data(header) => self.receive_data(header, datagram, source, now),
            Message::Initiation(message) => {
                match self.cookie(datagram, message.sender(), &message.macs.mac1, source, load, now)? {
                    Some(reply) => Ok(Incoming::Reply(reply)),
                    None => self.receive_initiation(message, source, now),
                }
            }
            Message::Response(message) => {
                match self.cookie(datagram, message.sender(), &message.macs.mac1, source, load, now)? {
                    Some(reply) => Ok(Incoming::Reply(reply)),
                    None => self.receive_response(message, source, now),
                }
            }
            Message::CookieReply(message) => {
                let (_, peer) = self.addressed(message.receiver())?;
                peer.take_cookie(message, now)?;
                Ok(Incoming::Nothing)
            }
        }
    }

    /// Whether the sender of a handshake message is to come again, with a cookie.
    fn cookie(
        &mut self,
        message: &[u8],
        sender: u32,
        mac1: &[u8; 16],
        source: SocketAddr,
        load: Load,
        now: Instant,
    ) -> Result<Option<Transmit>, Drop> {
        match (self.gate.judge(message, source, now), load) {
            (Worth::Nothing, Load::Normal | Load::High) => Err(Drop::NotForUs),
            (Worth::Known | Worth::Reachable, Load::Normal) => Ok(None),
            (Worth::Reachable, Load::High) if self.turns.take(source.ip(), now) => Ok(None),
            (Worth::Reachable, Load::High) => Err(Drop::TooMany),
            (Worth::Known, Load::High) => {
                let reply = self.gate.reply(sender, mac1, source, now, &mut *self.random);
                let datagram = Datagram::CookieReply(reply.ok_or(Drop::Unanswered)?);
                Ok(Some(Transmit { to: source, datagram }))
            }
        }
    }

    fn receive_initiation(
        &mut self,
        message: &Initiation,
        source: SocketAddr,
        now: Instant,
    ) -> Result<Incoming, Drop> {
        let Drawn { index, ephemeral, .. } = self.draw()?;
        let handshake =
            Responder::read(&self.key, ephemeral, &message.noise).map_err(|_| Drop::ForgedHandshake)?;
        let id = *self.by_key.get(&handshake.peer).ok_or(Drop::UnknownPeer)?;
        let response =
            self.change(id, |peer, _| peer.respond(handshake, message.sender(), index, source, now));
        Ok(Incoming::Reply(response.ok_or(Drop::UnknownPeer)??))
    }

    fn receive_response(
        &mut self,
        message: &Response,
        source: SocketAddr,
        now: Instant,
    ) -> Result<Incoming, Drop> {
        let (id, _) = self.addressed(message.receiver())?;
        let concluded = self.change(id, |peer, _| peer.conclude(message, source, now));
        let confirmation = concluded.ok_or(Drop::UnknownIndex)??;
        Ok(Incoming::Established { peer: id, confirmation })
    }

    fn receive_data(
        &mut self,
        header: DataHeader,
        datagram: &mut [u8],
        source: SocketAddr,
        now: Instant,
    ) -> Result<Incoming, Drop> {
        let (id, peer) = self.addressed(header.receiver())?;
        let Opened { payload, confirmed } = peer.open(header, datagram, source, now)?;
        if let Some(index) = confirmed.and_then(|confirmed| confirmed.forgotten) {
            self.by_index.remove(&index);
        }
        Ok(Incoming::Data { peer: id, payload, established: confirmed.is_some() })
    }

    fn addressed(&mut self, index: u32) -> Result<(PeerId, &mut Peer), Drop> {
        let id = *self.by_index.get(&index).ok_or(Drop::UnknownIndex)?;
        self.peers.get_mut(&id).map(|peer| (id, peer)).ok_or(Drop::UnknownIndex)
    }

    /// Somebody has packets for the peer, and there is no session to send them by. What begins one, if that is not
    /// under way.
    pub fn want(&mut self, id: PeerId, now: Moment) -> Option<Transmit> {
        if self.peers.get_mut(&id)?.want(now.instant) { self.initiate(id, now) } else { None }
    }

    /// Packets were sent to the peer, one or a whole batch. What begins the next session, if it is time for that.
    pub fn sent(&mut self, id: PeerId, now: Moment) -> Option<Transmit> {
        if self.peers.get_mut(&id)?.note_sent(now.instant) { self.initiate(id, now) } else { None }
    }

    /// What is to be done because it is time.
    pub fn poll(&mut self, now: Moment) -> Vec<Work> {
        let ready = |peer: &Peer| peer.deadline().is_some_and(|deadline| deadline <= now.instant);
        let ids: Vec<PeerId> = self.peers.iter().filter(|(_, peer)| ready(peer)).map(|(id, _)| *id).collect();
        let mut work = Vec::new();
        for id in ids {
            while let Some(due) = self.change(id, |peer, _| peer.due(now.instant)).flatten() {
                work.extend(self.perform(id, due, now));
            }
        }
        work
    }

    fn perform(&mut self, id: PeerId, due: Due, now: Moment) -> Option<Work> {
        match due {
            Due::Initiation => self.initiate(id, now).map(Work::Send),
            Due::Keepalive => {
                let keepalive = self.peers.get_mut(&id)?.keepalive(now.instant);
                keepalive.or_else(|| self.initiate(id, now)).map(Work::Send)
            }
            Due::GiveUp => Some(Work::GaveUp(id)),
            Due::Wipe => Some(Work::Wiped(id)),
        }
    }

    /// When to poll.
    pub fn deadline(&self) -> Option<Instant> {
        self.peers.values().filter_map(Peer::deadline).min()
    }

    fn initiate(&mut self, id: PeerId, now: Moment) -> Option<Transmit> {
        if !self.peers.get(&id)?.may_initiate(now.instant) {
            return None;
        }
        let drawn = self.draw().ok()?;
        self.change(id, |peer, own| peer.initiate(own, drawn, now)).flatten()
    }

    fn draw(&mut self) -> Result<Drawn, NoRandomness> {
        let mut index = u32::from_ne_bytes(draw(&mut *self.random)?);
        while self.by_index.contains_key(&index) {
            index = u32::from_ne_bytes(draw(&mut *self.random)?);
        }
        let ephemeral = Zeroizing::new(draw(&mut *self.random)?);
        let [share] = draw(&mut *self.random)?;
        let jitter: Duration = REKEY_JITTER * u32::from(share) / u32::from(u8::MAX);
        Ok(Drawn { index, ephemeral, jitter })
    }

    /// Changes a peer. Which indices are its own afterwards is looked up and not remembered.
    fn change<T>(&mut self, id: PeerId, change: impl FnOnce(&mut Peer, &PrivateKey) -> T) -> Option<T> {
        let peer = self.peers.get_mut(&id)?;
        for index in peer.indices().into_iter().flatten() {
            self.by_index.remove(&index);
        }
        let result = change(peer, &self.key);
        self.by_index.extend(peer.indices().into_iter().flatten().map(|index| (index, id)));
        Some(result)
    }
}

#[cfg(test)]
mod tests;
