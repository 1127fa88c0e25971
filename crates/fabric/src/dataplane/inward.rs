//! From the wire to the interface: datagrams are opened, checked, translated, and handed over together.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::MTU;
use super::drops::Reason;
use super::link::lock;
use super::load;
use super::outbox::{Outbox, Without};
use super::rules::{Entry, Rules};
use super::shared::{Shared, now};
use super::wire::{Arrival, Patience, Wire};
use crate::packet::{Checksum, Coalesce, Echo, Header, Numbers, clamp, translate};
use crate::wireguard::{Incoming, Load, PeerId, Transmit};

use ferro_core::network::Drop as Rule;

/// So many calls bring datagrams before they are handed over: a super-packet of the sender comes with two.
const CALLS: usize = 4;
/// So often one socket is emptied before the other one is looked at: who floods one does not silence the other.
const ROUNDS: usize = 16;
/// No datagram is longer, nor are those together that come with one call.
const LONGEST: usize = 1 << 16;
/// The first bytes of the two messages that cost something.
const COSTLY: [u8; 2] = [1, 2];
/// By which answers to our own requests are known.
pub(super) const IDENTIFIER: u16 = 0x4665;

/// The worker that receives.
pub(super) struct Inward<'a> {
    shared: &'a Shared,
    buffer: Box<[u8]>,
    opened: Opened,
    coalesce: Coalesce,
    outbox: Outbox,
}

/// What was found in the datagrams of one call.
struct Opened {
    meter: load::Meter,
    packets: Vec<(PeerId, Range<usize>)>,
    replies: Vec<Transmit>,
    /// Those of whom something came, and those of them with whom there is a new session.
    heard: Vec<PeerId>,
    established: Vec<PeerId>,
}

impl<'a> Inward<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            buffer: vec![0; CALLS * LONGEST].into_boxed_slice(),
            opened: Opened {
                meter: load::Meter::new(Instant::now()),
                packets: Vec::new(),
                replies: Vec::new(),
                heard: Vec::new(),
                established: Vec::new(),
            },
            coalesce: Coalesce::new(shared.tun.with_datagrams()),
            outbox: Outbox::new(shared.mtu),
        }
    }

    /// Works until the end.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let (v4, v6) = self.shared.wire.sockets();
        while !self.shared.is_stopping() {
            let [v4_is_ready, v6_is_ready] = self.shared.wait(v4, v6)?;
            if v4_is_ready {
                self.burst(v4)?;
            }
            if let Some(v6) = v6.filter(|_| v6_is_ready) {
                self.burst(v6)?;
            }
        }
        Ok(())
    }

    /// Takes what is there, some calls at a time, until there is no more or the other socket has its turn.
    fn burst(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let rules = self.shared.rules.load();
            let is_empty = self.receive(socket, &rules)?;
            self.deliver(&rules);
            if is_empty || self.shared.is_stopping() {
                break;
            }
        }
        Ok(())
    }

    /// Receives and opens what some calls bring; whether there is no more.
    fn receive(&mut self, socket: BorrowedFd<'_>, rules: &Rules) -> io::Result<bool> {
        for call in 0..CALLS {
            let start = call * LONGEST;
            let room = self.buffer.get_mut(start..start + LONGEST).unwrap_or_default();
            match Wire::receive(socket, room) {
                Ok(Some(arrival)) => {
                    self.opened.open(self.shared, rules, room, arrival, start);
                    self.answer(rules);
                }
                Ok(None) => return Ok(true),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Sends what handshakes want to be sent, and what waited for them.
    fn answer(&mut self, rules: &Rules) {
        for reply in self.opened.replies.drain(..) {
            self.shared.transmit(&reply);
        }
        for peer in self.opened.established.drain(..) {
            if let Some(entry) = rules.of(peer) {
                self.outbox.send_held(self.shared, &entry.link);
            }
        }
    }

    /// Hands over the packets that were found.
    fn deliver(&mut self, rules: &Rules) {
        self.coalesce.clear();
        let mut from: Option<(PeerId, Option<&Entry>)> = None;
        let (mut packets, mut bytes) = (0, 0);
        for place in 0..self.opened.packets.len() {
            let Some((peer, range)) = self.opened.packets.get(place).cloned() else { break };
            let entry = match from {
                Some((before, entry)) if before == peer => entry,
                _ => {
                    note(from, &mut packets, &mut bytes);
                    rules.of(peer)
                }
            };
            from = Some((peer, entry));
            (packets, bytes) = (packets + 1, bytes + range.len());
            let result =
                entry.ok_or(Reason::Rule(Rule::UnknownPeer)).and_then(|entry| self.pass(entry, range));
            if let Err(reason) = result {
                self.shared.drops.add(reason, 1);
            }
        }
        note(from, &mut packets, &mut bytes);
        self.opened.packets.clear();
        for train in self.coalesce.finish(&mut self.buffer) {
            if self.shared.tun.write(&self.buffer, train).is_err() {
                self.shared.drops.add(Reason::NotWritten, train.parts().len() as u64);
            }
        }
    }

    /// Checks and translates a packet of a peer.
    fn pass(&mut self, from: &Entry, range: Range<usize>) -> Result<(), Reason> {
        let packet = self.buffer.get_mut(range.clone()).unwrap_or_default();
        let header = Header::parse(packet)?;
        // The peer's tunnel may be wider than ours, but not than any.
        if header.length > usize::from(*MTU.end()) {
            return Err(Reason::TooLong);
        }
        // Behind it is padding.
        let packet = packet.get_mut(..header.length).ok_or(Reason::Malformed)?;
        if from.probe.is_some_and(|probe| probe.ours == header.addresses.destination) {
            return echo(self.shared, &mut self.outbox, from, packet, &header);
        }
        translate(packet, Checksum::Whole, |packet| from.table.answer(packet))?;
        if from.table.has_closed() && !self.shared.lets_in(&from.table, packet)? {
            return Err(Reason::Rule(Rule::ForeignDestination));
        }
        clamp(packet, &header, self.shared.mtu, Checksum::Whole);
        self.coalesce.add(&self.buffer, range.start..range.start + header.length, &header);
        Ok(())
    }
}

impl Opened {
    /// Opens all datagrams that came with one call, and lie from this place on.
    fn open(&mut self, shared: &Shared, rules: &Rules, room: &mut [u8], arrival: Arrival, mut start: usize) {
        let now = now();
        let mut device = shared.device();
        for datagram in room.get_mut(..arrival.length).unwrap_or_default().chunks_mut(arrival.size.max(1)) {
            let is_costly = datagram.first().is_some_and(|kind| COSTLY.contains(kind));
            let begin = is_costly.then(Instant::now);
            let load = begin.map_or(Load::Normal, |begin| self.meter.load(begin));
            let length = datagram.len();
            // What is refused is counted over there.
            if let Ok(incoming) = device.receive(datagram, arrival.from, load, now) {
                self.sort(incoming, start);
            }
            if let Some(begin) = begin {
                self.meter.spend(begin, Instant::now());
            }
            start += length;
        }
        for peer in self.heard.drain(..) {
            if let Some(entry) = rules.of(peer) {
                entry.link.refresh(&device, now);
            }
        }
    }

    fn sort(&mut self, incoming: Incoming, start: usize) {
        match incoming {
            Incoming::Nothing => {}
            Incoming::Reply(reply) => self.replies.push(reply),
            Incoming::Established { peer, confirmation } => {
                self.replies.push(confirmation);
                self.hear(peer);
                self.established.push(peer);
            }
            Incoming::Data { peer, payload, established } => {
                self.hear(peer);
                if established {
                    self.established.push(peer);
                }
                if !payload.is_empty() {
                    self.packets.push((peer, start + payload.start..start + payload.end));
                }
            }
        }
    }

    fn hear(&mut self, peer: PeerId) {
        if !self.heard.contains(&peer) {
            self.heard.push(peer);
        }
    }
}

/// Counts what came from a peer.
fn note(from: Option<(PeerId, Option<&Entry>)>, packets: &mut usize, bytes: &mut usize) {
    if let Some((_, Some(entry))) = from {
        entry.link.received.add(*packets, *bytes);
    }
    (*packets, *bytes) = (0, 0);
}

/// A packet to this gateway itself: requests are answered, and answers to our own noted down.
fn echo(
    shared: &Shared,
    outbox: &mut Outbox,
    from: &Entry,
    packet: &mut [u8],
    header: &Header,
) -> Result<(), Reason> {
    let source = header.addresses.source;
    let is_gateway = from.probe.is_some_and(|probe| probe.theirs == source);
    if !is_gateway && !from.table.is_peers(&source) {
        return Err(Reason::Rule(Rule::SpoofedSource));
    }
    match Echo::read(packet, header) {
        Some(Echo::Reply(Numbers { identifier: IDENTIFIER, sequence })) if is_gateway => {
            lock(&from.link.probe).answered(sequence, Instant::now());
            Ok(())
        }
        Some(Echo::Request(_)) if outbox.fits(packet.len()) => {
            Echo::answer(packet, header).ok_or(Reason::Malformed)?;
            outbox.add(packet.len(), |place| {
                place.copy_from_slice(packet);
                Some(packet.len())
            });
            outbox.send(shared, &from.link, Without::Drop, Patience::Drop);
            Ok(())
        }
        Some(Echo::Reply(_) | Echo::Request(_)) | None => Err(Reason::NotForGateway),
    }
}

/// Errors that are about one datagram and not about the socket.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::InvalidData
            | io::ErrorKind::OutOfMemory
    )
}
