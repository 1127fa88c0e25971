//! Packets for one peer that are sealed and sent together: of one size, but for the last.

use std::net::SocketAddr;
use std::time::Instant;

use super::drops::Reason;
use super::link::Link;
use super::shared::Shared;
use super::wire::{LONGEST, MOST_AT_ONCE, Patience};
use crate::wireguard::message::{HEADER, TAG};

/// Packets are padded to a multiple of this, so that their lengths tell less.
const PADDING: usize = 16;

/// What becomes of packets while there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// They wait for one.
    Hold,
    /// They are of use now, or never.
    Drop,
}

/// Packets that lie one after the other, each with room for header and tag.
#[derive(Debug)]
pub(super) struct Outbox {
    buffer: Box<[u8]>,
    mtu: usize,
    used: usize,
    count: u32,
    /// Of the first datagram, and so of all but the last.
    size: usize,
    is_closed: bool,
}

impl Outbox {
    /// An empty one.
    pub(super) fn new(mtu: usize) -> Self {
        let buffer = vec![0; LONGEST].into_boxed_slice();
        Self { buffer, mtu, used: 0, count: 0, size: 0, is_closed: false }
    }

    /// With padding, which does not make a packet longer than the tunnel lets through.
    fn padded(&self, length: usize) -> usize {
        length.next_multiple_of(PADDING).min(self.mtu.max(length))
    }

    /// Whether another packet of at most this length can go with those that are here.
    pub(super) fn fits(&self, length: usize) -> bool {
        let datagram = HEADER + self.padded(length) + TAG;
        let is_there_room = self.count == 0 || (self.count as usize) < MOST_AT_ONCE;
        is_there_room
            && self.used + datagram <= self.buffer.len()
            && (self.count == 0 || !self.is_closed && datagram <= self.size)
    }

    /// Whether packets of this length are of the size of those that are here, or there are none.
    pub(super) fn is_of_size(&self, length: usize) -> bool {
        self.count == 0 || self.size == HEADER + self.padded(length) + TAG
    }

    /// Adds a packet that was said to fit: it is written to its place. Whether there was one.
    pub(super) fn add(&mut self, length: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.try_add(length, write).is_some()
    }

    fn try_add(&mut self, length: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<()> {
        let start = self.used + HEADER;
        let length = write(self.buffer.get_mut(start..start + length)?)?;
        let padded = self.padded(length);
        self.buffer.get_mut(start + length..start + padded)?.fill(0);
        let datagram = HEADER + padded + TAG;
        if self.count == 0 {
            self.size = datagram;
        }
        self.is_closed = datagram < self.size;
        self.used += datagram;
        self.count += 1;
        Some(())
    }

    /// Seals and sends all that is here, and is empty again.
    pub(super) fn send(&mut self, shared: &Shared, link: &Link, without: Without, patience: Patience) {
        if self.count == 0 {
            return;
        }
        let now = Instant::now();
        if let Some(endpoint) = self.seal(link, now) {
            self.hand_over(shared, link, endpoint, patience);
            if link.should_tell(now) {
                shared.tell_sent(link);
            }
        } else if without == Without::Drop {
            shared.want(link);
        } else {
            self.hold(shared, link);
            shared.want(link);
            self.clear();
            // A session may have come just before they were held.
            if link.way().is_some() {
                self.send_held(shared, link);
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        (self.used, self.count, self.is_closed) = (0, 0, false);
    }

    /// Where it goes then; none if there is no session.
    fn seal(&mut self, link: &Link, now: Instant) -> Option<SocketAddr> {
        let way = link.way();
        let way = way.as_ref()?;
        let mut batch = way.session.reserve(self.count, now).ok()?;
        for datagram in self.buffer.get_mut(..self.used)?.chunks_mut(self.size) {
            batch.seal(datagram).ok()?;
        }
        Some(way.endpoint)
    }

    fn hand_over(&self, shared: &Shared, link: &Link, endpoint: SocketAddr, patience: Patience) {
        let bytes = self.buffer.get(..self.used).unwrap_or_default();
        let count = self.count as usize;
        match shared.wire.send(endpoint, bytes, self.size, patience) {
            Ok(()) => link.sent.add(count, self.used - count * (HEADER + TAG)),
            Err(_) => shared.drops.add(Reason::NotSent, self.count.into()),
        }
    }

    fn hold(&self, shared: &Shared, link: &Link) {
        for datagram in self.buffer.get(..self.used).unwrap_or_default().chunks(self.size) {
            let packet = datagram.get(HEADER..datagram.len() - TAG).unwrap_or_default();
            shared.drops.add(Reason::NoSession, link.hold(packet));
        }
    }

    /// Sends what waits for a session, now that there is one.
    pub(super) fn send_held(&mut self, shared: &Shared, link: &Link) {
        for packet in link.take_held() {
            if !self.fits(packet.len()) {
                self.send(shared, link, Without::Drop, Patience::Drop);
            }
            self.add(packet.len(), |to| {
                to.copy_from_slice(&packet);
                Some(packet.len())
            });
        }
        self.send(shared, link, Without::Drop, Patience::Drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(outbox: &mut Outbox, length: usize) -> bool {
        outbox.fits(length)
            && outbox.add(length, |to| {
                to.fill(7);
                Some(length)
            })
    }

    #[test]
    fn packets_are_padded_but_not_beyond_the_mtu() {
        let outbox = Outbox::new(1420);
        let padded = [0, 1, 16, 17, 1408, 1409, 1420].map(|length| outbox.padded(length));
        assert_eq!(padded, [0, 16, 16, 32, 1408, 1420, 1420]);
    }

    #[test]
    fn padding_is_zero_whatever_was_there_before() {
        let mut outbox = Outbox::new(1420);
        assert!(add(&mut outbox, 64));
        outbox.clear();
        assert!(add(&mut outbox, 33));
        assert_eq!(outbox.used, 16 + 48 + 16);
        assert_eq!(outbox.buffer[16 + 33..16 + 48], [0; 15]);
    }

    #[test]
    fn after_a_shorter_one_comes_none() {
        let mut outbox = Outbox::new(1420);
        assert!(add(&mut outbox, 100) && add(&mut outbox, 100));
        assert!(!outbox.fits(200) && outbox.is_of_size(112) && !outbox.is_of_size(113));
        assert!(add(&mut outbox, 50) && !outbox.fits(100) && !outbox.fits(10));
        outbox.clear();
        assert!(outbox.fits(1420));
    }

    #[test]
    fn no_more_go_together_than_the_kernel_takes() {
        let mut outbox = Outbox::new(1420);
        assert_eq!((0..100).filter(|_| add(&mut outbox, 100)).count(), MOST_AT_ONCE);
        outbox.clear();
        assert_eq!((0..100).filter(|_| add(&mut outbox, 1420)).count(), 45);
        assert!(outbox.used <= LONGEST);
    }
}
