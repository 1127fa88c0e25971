//! Packets of one flow that follow one another, put together to super-packets for the kernel: `segment` turned round.
//!
//! The kernel goes through its layers once for each super-packet. Nothing is copied: one is the first packet, whose
//! header then speaks for all, and the payloads of the others where they lie. Only what can be cut again into the
//! same packets is put together, and only what has a right checksum, since the kernel makes a new one.

use std::ops::Range;

use super::checksum::Sum;
use super::header::{Header, Upper};
use super::segment::{Offload, TCP, UDP, put};

/// No packet is longer.
const LONGEST: usize = 65_535;
/// The kernel takes no more datagrams at once.
const MOST_DATAGRAMS: usize = 64;
/// How far back the flow of a packet is looked for.
const LOOK_BACK: usize = 16;
const DONT_FRAGMENT: u8 = 0x40;
const ACKNOWLEDGED: u8 = 0x10;
const PUSH: u8 = 8;
const ECHO: u8 = 0x40;

/// One packet, or several that the kernel gets as one.
#[derive(Debug, Default)]
pub struct Train {
    offload: [u8; Offload::LENGTH],
    parts: Vec<Range<usize>>,
    head: Option<Car>,
    /// Whether the checksums of the first are known to be right.
    is_checked: bool,
    is_open: bool,
    /// Of all parts.
    length: usize,
    pushed: bool,
}

/// A packet that may be part of a train.
#[derive(Clone, Copy, Debug)]
struct Car {
    at: usize,
    upper_at: usize,
    payload_at: usize,
    end: usize,
    is_tcp: bool,
    is_v4: bool,
}

impl Train {
    /// The most parts that a train has.
    pub const MOST_PARTS: usize = 128;

    /// What the kernel has to know, in front of the packet.
    pub fn offload(&self) -> &[u8; Offload::LENGTH] {
        &self.offload
    }

    /// Where its parts lie.
    pub fn parts(&self) -> &[Range<usize>] {
        &self.parts
    }

    fn begin(&mut self, packet: Range<usize>, head: Option<Car>, is_open: bool) {
        self.offload = [0; Offload::LENGTH];
        (self.head, self.is_checked, self.is_open, self.pushed) = (head, false, is_open, false);
        self.length = packet.len();
        self.parts.clear();
        self.parts.push(packet);
    }

    /// Takes a packet of the same flow, if it is the very next one.
    fn take(&mut self, bytes: &[u8], car: &Car) -> bool {
        let Some(head) = self.head.filter(|_| self.is_open) else { return false };
        let most = if car.is_tcp { Self::MOST_PARTS } else { MOST_DATAGRAMS };
        let fits = self.parts.len() < most
            && self.length + car.payload() <= LONGEST
            && (1..=head.payload()).contains(&car.payload())
            && head.is_followed_by(bytes, car, self.parts.len(), self.length).unwrap_or(false);
        self.is_checked = fits && (self.is_checked || head.is_right(bytes));
        if !self.is_checked || !car.is_right(bytes) {
            return false;
        }
        self.parts.push(car.payload_at..car.end);
        self.length += car.payload();
        self.pushed = car.flags(bytes) & PUSH != 0;
        self.is_open = car.payload() == head.payload() && !self.pushed;
        true
    }

    /// Makes the header of the first packet that of all.
    fn finish(&mut self, bytes: &mut [u8]) {
        if self.parts.len() > 1
            && let Some(head) = self.head
        {
            // All of these places were read before.
            let _ = self.write(bytes, &head);
        }
    }

    fn write(&mut self, bytes: &mut [u8], head: &Car) -> Option<()> {
        let packet = bytes.get_mut(head.at..head.end)?;
        let (upper_at, header) = (head.upper_at - head.at, head.payload_at - head.at);
        let upper = self.length - upper_at;
        let length = u16::try_from(self.length).ok()?;
        if head.is_v4 {
            put(packet, 2, length)?;
            put(packet, 10, 0)?;
            let checksum = Sum::default().with(packet.get(..upper_at)?).checksum();
            put(packet, 10, checksum)?;
        } else {
            put(packet, 4, length.checked_sub(40)?)?;
        }
        let addresses = Header::parse_start(packet).ok()?.addresses;
        let (protocol, offset, kind) = match (head.is_tcp, head.is_v4) {
            (true, true) => (TCP, 16, Offload::TCP_V4),
            (true, false) => (TCP, 16, Offload::TCP_V6),
            (false, _) => (UDP, 6, Offload::UDP),
        };
        if !head.is_tcp {
            put(packet, upper_at + 4, u16::try_from(upper).ok()?)?;
        } else if self.pushed {
            *packet.get_mut(upper_at + 13)? |= PUSH;
        }
        let sum = Sum::of_addresses(&addresses).with_length(upper, protocol).partial();
        put(packet, upper_at + usize::from(offset), sum)?;
        self.offload[0] = Offload::NEEDS_CHECKSUM;
        self.offload[1] = kind;
        let fields = [u16::try_from(header).ok()?, u16::try_from(head.payload()).ok()?];
        let fields = fields.into_iter().chain([u16::try_from(upper_at).ok()?, offset]);
        for (place, field) in self.offload[2..].as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *place = field.to_ne_bytes();
        }
        Some(())
    }
}

impl Car {
    /// Reads a packet; none if it is not one that could be put together with others.
    fn read(bytes: &[u8], packet: &Range<usize>, header: &Header) -> Option<Self> {
        let upper_at = header.upper_at.filter(|_| !header.is_fragment())?;
        let is_v4 = header.addresses.source.is_ipv4();
        // Options of IP are nobody's.
        if upper_at != if is_v4 { 20 } else { 40 } || packet.len() != header.length {
            return None;
        }
        let upper = bytes.get(packet.start + upper_at..packet.end)?;
        let (is_tcp, length) = match header.upper {
            Upper::Tcp => (true, usize::from(upper.get(12)? >> 4) * 4),
            Upper::Udp => (false, 8),
            Upper::Icmp | Upper::IcmpV6 | Upper::Other(_) => return None,
        };
        let said = usize::from(u16::from_be_bytes(*upper.get(4..)?.first_chunk()?));
        let is_whole = if is_tcp { length >= 20 } else { said == upper.len() };
        let upper_at = packet.start + upper_at;
        let (payload_at, end) = (upper_at + length, packet.end);
        let car = Self { at: packet.start, upper_at, payload_at, end, is_tcp, is_v4 };
        (is_whole && payload_at <= end).then_some(car)
    }

    fn payload(&self) -> usize {
        self.end - self.payload_at
    }

    fn ip<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.at..self.upper_at).unwrap_or_default()
    }

    fn upper<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.upper_at..self.payload_at).unwrap_or_default()
    }

    /// The flags of TCP, and none for UDP.
    fn flags(&self, bytes: &[u8]) -> u8 {
        self.upper(bytes).get(13).copied().unwrap_or_default()
    }

    /// Whether others may follow it.
    fn may_lead(&self, bytes: &[u8]) -> bool {
        let is_plain = if self.is_tcp {
            self.flags(bytes) & !ECHO == ACKNOWLEDGED
        } else {
            self.upper(bytes).get(6..8) != Some(&[0, 0])
        };
        is_plain && self.payload() > 0
    }

    /// Whether both are of one connection.
    fn is_same_flow(&self, other: &Self, bytes: &[u8]) -> bool {
        self.upper(bytes).get(..4) == other.upper(bytes).get(..4)
            && self.is_like(bytes, other.at, other.is_tcp, other.is_v4)
    }

    /// Whether a packet that lies there is of the same protocol, and between the same addresses.
    fn is_like(&self, bytes: &[u8], at: usize, is_tcp: bool, is_v4: bool) -> bool {
        let addresses = |at| bytes.get(if is_v4 { at + 12..at + 20 } else { at + 8..at + 40 });
        (self.is_tcp, self.is_v4) == (is_tcp, is_v4) && addresses(self.at) == addresses(at)
    }

    /// Whether that one, of the same flow, is what cutting would make of the packet so many places after this one.
    fn is_followed_by(&self, bytes: &[u8], other: &Self, place: usize, length: usize) -> Option<bool> {
        let (ours, theirs) = (self.ip(bytes), other.ip(bytes));
        let same_ip = if self.is_v4 {
            let number = |ip: &[u8]| ip.get(4..)?.first_chunk().map(|number| u16::from_be_bytes(*number));
            let place = u16::try_from(place).ok()?;
            // The number of a packet that is never cut means nothing (RFC 6864).
            let is_atomic = ours.get(6)? & DONT_FRAGMENT != 0;
            ours.get(..2)? == theirs.get(..2)?
                && ours.get(6..10)? == theirs.get(6..10)?
                && (is_atomic || number(ours)?.wrapping_add(place) == number(theirs)?)
        } else {
            ours.get(..4)? == theirs.get(..4)? && ours.get(6..8)? == theirs.get(6..8)?
        };
        let (ours, theirs) = (self.upper(bytes), other.upper(bytes));
        let same_upper = if self.is_tcp {
            let sequence = |tcp: &[u8]| tcp.get(4..)?.first_chunk().map(|number| u32::from_be_bytes(*number));
            let done = u32::try_from(length - (self.payload_at - self.at)).ok()?;
            sequence(ours)?.wrapping_add(done) == sequence(theirs)?
                && ours.get(8..13)? == theirs.get(8..13)?
                && *ours.get(13)? == theirs.get(13)? & !PUSH
                && ours.get(14..16)? == theirs.get(14..16)?
                && ours.get(18..)? == theirs.get(18..)?
        } else {
            theirs.get(6..8)? != [0, 0]
        };
        Some(same_ip && same_upper)
    }

    /// Whether the checksums are.
    fn is_right(&self, bytes: &[u8]) -> bool {
        if self.is_v4 && Sum::default().with(self.ip(bytes)).checksum() != 0 {
            return false;
        }
        let Some(packet) = bytes.get(self.at..self.end) else { return false };
        let Ok(header) = Header::parse_start(packet) else { return false };
        let upper = bytes.get(self.upper_at..self.end).unwrap_or_default();
        let protocol = if self.is_tcp { TCP } else { UDP };
        Sum::of_addresses(&header.addresses).with_length(upper.len(), protocol).with(upper).checksum() == 0
    }
}

/// Puts packets of one buffer together. It is used again and again, so that nothing is allocated.
#[derive(Debug)]
pub struct Coalesce {
    trains: Vec<Train>,
    used: usize,
    with_datagrams: bool,
}

impl Coalesce {
    /// For TCP, and for UDP if the kernel knows such super-packets of it.
    pub fn new(with_datagrams: bool) -> Self {
        Self { trains: Vec::new(), used: 0, with_datagrams }
    }

    /// Begins anew, with another buffer.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds the packet that lies there in the buffer. The order of packets of one flow is kept.
    pub fn add(&mut self, bytes: &[u8], packet: Range<usize>, header: &Header) {
        let car = Car::read(bytes, &packet, header);
        if car.is_none() {
            self.close(bytes, packet.start, header);
        }
        let car = car.filter(|car| car.is_tcp || self.with_datagrams);
        if let Some(car) = &car {
            let is_same = |train: &Train| train.head.is_some_and(|head| head.is_same_flow(car, bytes));
            if let Some(train) = self.recent().find(|train| is_same(train)) {
                if train.take(bytes, car) {
                    return;
                }
                train.is_open = false;
            }
        }
        if self.used == self.trains.len() {
            self.trains.push(Train::default());
        }
        if let Some(train) = self.trains.get_mut(self.used) {
            train.begin(packet, car, car.is_some_and(|car| car.may_lead(bytes)));
            self.used += 1;
        }
    }

    fn recent(&mut self) -> impl Iterator<Item = &mut Train> {
        self.trains.get_mut(..self.used).unwrap_or_default().iter_mut().rev().take(LOOK_BACK)
    }

    /// A packet that lies there is never part of a train, and of a flow that is not looked for: nothing that comes after
    /// it may overtake it in a train from before.
    fn close(&mut self, bytes: &[u8], at: usize, header: &Header) {
        let is_tcp = match header.upper {
            Upper::Tcp => true,
            Upper::Udp => false,
            Upper::Icmp | Upper::IcmpV6 | Upper::Other(_) => return,
        };
        let is_v4 = header.addresses.source.is_ipv4();
        for train in self.recent() {
            if train.head.is_some_and(|head| head.is_like(bytes, at, is_tcp, is_v4)) {
                train.is_open = false;
            }
        }
    }

    /// Writes the headers. What is to be handed over, in this order.
    pub fn finish(&mut self, bytes: &mut [u8]) -> &[Train] {
        let trains = self.trains.get_mut(..self.used).unwrap_or_default();
        for train in trains.iter_mut() {
            train.finish(bytes);
        }
        trains
    }
}

#[cfg(test)]
mod tests;
