//! The internet checksum: kept right while words change, or summed anew where there is none yet.

use std::net::IpAddr;

use ferro_core::network::Packet;

/// How much a checksum changes, when words of what it is over do (RFC 1624).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change(u64);

impl Change {
    /// Notes that these bytes are replaced by those. Both begin at an even place of what is summed.
    pub(super) fn replace(&mut self, old: &[u8], new: &[u8]) {
        self.0 += sum(new) + complement(sum(old));
    }

    /// Brings a checksum up to date: it is the complement of the sum.
    pub(super) fn apply(self, field: &mut [u8; 2]) {
        let sum = u64::from(!u16::from_be_bytes(*field));
        *field = (!fold(sum + self.0)).to_be_bytes();
    }

    /// Brings a sum up to date that somebody else will complete and complement.
    pub(super) fn apply_to_sum(self, field: &mut [u8; 2]) {
        let before = u64::from(u16::from_be_bytes(*field));
        *field = fold(before + self.0).to_be_bytes();
    }
}

/// A sum in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum(u64);

impl Sum {
    /// Over the two addresses of a packet, with which the checksums of TCP and UDP begin.
    pub(super) fn of_addresses(packet: &Packet) -> Self {
        let of = |ip| match ip {
            IpAddr::V4(ip) => sum(&ip.octets()),
            IpAddr::V6(ip) => sum(&ip.octets()),
        };
        Self(of(packet.source) + of(packet.destination))
    }

    /// And the length and the number of the protocol.
    pub(super) fn with_length(self, length: usize, protocol: u8) -> Self {
        Self(self.0 + length as u64 + u64::from(protocol))
    }

    /// And these bytes. Only the last ones may be of an odd number.
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        Self(self.0 + sum(bytes))
    }

    /// The sum so far, for somebody else to go on with.
    pub(super) fn partial(self) -> u16 {
        fold(self.0)
    }

    /// The checksum over all of it.
    pub(super) fn checksum(self) -> u16 {
        !fold(self.0)
    }
}

/// Sums words of 32 bits as the machine has them, which folds to the same: carries go to the same place, and the order of
/// bytes is put right once, at the end.
fn sum(bytes: &[u8]) -> u64 {
    let (long, rest) = bytes.as_chunks::<4>();
    let (words, last) = rest.as_chunks::<2>();
    let long = fold(long.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>());
    let words = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    u64::from(u16::from_be(long)) + words + last.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// What takes a sum away, in one's complement.
fn complement(sum: u64) -> u64 {
    u64::from(!fold(sum))
}

fn fold(mut sum: u64) -> u16 {
    loop {
        match u16::try_from(sum) {
            Ok(sum) => return sum,
            Err(_) => sum = (sum & 0xffff) + (sum >> 16),
        }
    }
}
