//! From the interface to the wire: packets of this cluster are translated, cut, sealed, and sent to their peers.

use std::io;
use std::os::fd::AsFd;

use ferro_core::network::PeerTable;

use super::drops::Reason;
use super::outbox::{Outbox, Without};
use super::rules::{Entry, Rules};
use super::shared::Shared;
use super::wire::Patience;
use crate::packet::{
    Checksum, Flow, Header, Malformed, Offload, Segments, clamp, complete, translate_with_router,
};

/// So many packets are read before the rules are looked up again.
const BURST: usize = 64;
/// As long as a super-packet can be.
const LONGEST: usize = 65_535;

/// The worker that sends.
pub(super) struct Outward<'a> {
    shared: &'a Shared,
    buffer: Box<[u8]>,
    outbox: Outbox,
}

impl<'a> Outward<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        let buffer = vec![0; Offload::LENGTH + LONGEST].into_boxed_slice();
        Self { shared, buffer, outbox: Outbox::new(shared.mtu) }
    }

    /// Works until the end.
    pub(super) fn run(&mut self) -> io::Result<()> {
        while !self.shared.is_stopping() {
            let is_empty = self.burst(&self.shared.rules.load())?;
            if is_empty {
                self.shared.wait(self.shared.tun.as_fd(), None)?;
            }
        }
        Ok(())
    }

    /// Sends packets that are there; whether there are no more.
    fn burst(&mut self, rules: &Rules) -> io::Result<bool> {
        let mut to = None;
        let mut is_empty = false;
        for _ in 0..BURST {
            match self.shared.tun.read(&mut self.buffer) {
                Ok(length) => self.handle(length, rules, &mut to),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_empty = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        flush(self.shared, &mut self.outbox, to);
        Ok(is_empty)
    }

    fn handle<'r>(&mut self, length: usize, rules: &'r Rules, to: &mut Option<&'r Entry>) {
        if let Err(reason) = self.try_handle(length, rules, to) {
            self.shared.drops.add(reason, 1);
        }
    }

    fn try_handle<'r>(
        &mut self,
        length: usize,
        rules: &'r Rules,
        to: &mut Option<&'r Entry>,
    ) -> Result<(), Reason> {
        let read = self.buffer.get_mut(..length).unwrap_or_default();
        let (offload, packet) =
            read.split_first_chunk_mut::<{ Offload::LENGTH }>().ok_or(Reason::Malformed)?;
        let offload = Offload::parse(offload)?;
        let checksum = if offload.checksum.is_some() { Checksum::Partial } else { Checksum::Whole };
        let header = Header::parse(packet)?;
        let packet = packet.get_mut(..header.length).ok_or(Reason::Malformed)?;
        let entry = rules.towards(header.addresses.destination)?;
        let source = header.addresses.source;
        let begun = if is_noted(&entry.table, &header) { Flow::begun(packet, &header) } else { None };
        let router = entry.probe.map(|probe| probe.ours);
        translate_with_router(packet, checksum, |packet| entry.table.outbound(packet), router)?;
        if let (Some((flow, stage)), Some(flows)) = (begun, self.shared.flows.get()) {
            if entry.table.is_open(&source) {
                flows.note_open(flow, stage);
            } else {
                flows.note(flow, stage);
            }
        }
        clamp(packet, &header, self.shared.mtu, checksum);
        if to.is_some_and(|before| !std::ptr::eq(before, entry)) {
            flush(self.shared, &mut self.outbox, *to);
        }
        *to = Some(entry);
        if let Some(size) = offload.size {
            return cut(self.shared, &mut self.outbox, entry, packet, size);
        }
        if let Some(places) = offload.checksum {
            complete(packet, places)?;
        }
        put(self.shared, &mut self.outbox, entry, packet)
    }
}

/// Whether it is noted what a packet begins. A connection of a pod that is open now must not break when it is closed; of all
/// else it cannot be told who began, so that it would stay open for the peer.
fn is_noted(table: &PeerTable, header: &Header) -> bool {
    let source = &header.addresses.source;
    table.has_closed() && if header.is_tcp() { table.is_pod(source) } else { !table.is_open(source) }
}

impl From<Malformed> for Reason {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

fn flush(shared: &Shared, outbox: &mut Outbox, to: Option<&Entry>) {
    if let Some(to) = to {
        outbox.send(shared, &to.link, Without::Hold, Patience::Wait);
    }
}

/// Adds one packet as it is.
fn put(shared: &Shared, outbox: &mut Outbox, to: &Entry, packet: &[u8]) -> Result<(), Reason> {
    if packet.len() > shared.mtu {
        return Err(Reason::TooLong);
    }
    if !outbox.fits(packet.len()) {
        flush(shared, outbox, Some(to));
    }
    outbox.add(packet.len(), |place| {
        place.copy_from_slice(packet);
        Some(packet.len())
    });
    Ok(())
}

/// Adds the packets that a super-packet becomes.
fn cut(shared: &Shared, outbox: &mut Outbox, to: &Entry, packet: &[u8], size: u16) -> Result<(), Reason> {
    let mut segments = Segments::new(packet, size)?;
    let longest = segments.longest();
    if longest > shared.mtu {
        return Err(Reason::TooLong);
    }
    // Behind packets of another size only the first of them could go.
    if !outbox.is_of_size(longest) {
        flush(shared, outbox, Some(to));
    }
    loop {
        if !outbox.fits(longest) {
            flush(shared, outbox, Some(to));
        }
        if !outbox.add(longest, |place| segments.write_next(place)) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etherparse::PacketBuilder;
    use ferro_core::network::{Agreement, Ours, ReachablePods, Translation};

    use super::*;

    #[test]
    fn connections_of_all_pods_are_noted_and_all_else_of_closed_ones() {
        let network = |text: &str| Translation::identity(text.parse().unwrap());
        let ours = Some(Ours { pods: network("10.1.0.0/16"), external: None });
        let agreement = Agreement { their_pods: network("10.2.0.0/16"), their_external: None, ours };
        let table = PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).unwrap();
        let strict = ReachablePods::Only([[10, 1, 0, 7].into()].into());
        let strict = table.clone().reaching(strict);
        let header = |source, is_tcp| {
            let (builder, mut packet) = (PacketBuilder::ipv4(source, [10, 2, 0, 5], 64), Vec::new());
            let built = if is_tcp {
                builder.tcp(80, 4000, 1, 1000).write(&mut packet, &[])
            } else {
                builder.udp(80, 4000).write(&mut packet, &[])
            };
            built.unwrap();
            Header::parse(&packet).unwrap()
        };
        let noted =
            |table: &PeerTable, source| [true, false].map(|is_tcp| is_noted(table, &header(source, is_tcp)));
        let (open, closed, node) = ([10, 1, 0, 7], [10, 1, 0, 8], [172, 18, 0, 3]);
        assert_eq!(noted(&strict, closed), [true, true]);
        assert_eq!(noted(&strict, open), [true, false], "an answer of UDP would keep it open for the peer");
        assert_eq!(noted(&strict, node), [false, false], "it is never closed");
        assert_eq!(noted(&table, closed), [false, false]);
    }
}
