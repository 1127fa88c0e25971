//! What is right in a packet, found in the plainest way: two bytes at a time, and nothing from the code that is tested.

use std::ops::Range;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMP_V6: u8 = 58;
/// Where a fragment belongs, in the field of IPv4 and in that of IPv6.
const OFFSETS: [u16; 2] = [0x1fff, 0xfff8];
/// Whether more of them follow.
const MORE_FRAGMENTS: u16 = 0x2000;

/// What is above IP in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upper {
    pub(super) protocol: u8,
    pub(super) at: usize,
}

/// What is above IP; none in a fragment, or where it does not begin within the packet.
pub(super) fn upper(packet: &[u8]) -> Option<Upper> {
    beginning(packet).filter(|(_, is_fragment)| !is_fragment).map(|(upper, _)| upper)
}

/// What is above IP, also in the first of several fragments, and whether it is one.
fn beginning(packet: &[u8]) -> Option<(Upper, bool)> {
    let found = match packet.first()? >> 4 {
        4 if word(packet, 6)? & OFFSETS[0] == 0 => {
            let upper = Upper { protocol: *packet.get(9)?, at: usize::from(packet.first()? & 0xf) * 4 };
            (upper, word(packet, 6)? & MORE_FRAGMENTS != 0)
        }
        6 => extensions(packet)?,
        _ => return None,
    };
    (found.0.at <= packet.len()).then_some(found)
}

fn extensions(packet: &[u8]) -> Option<(Upper, bool)> {
    let (mut protocol, mut at, mut is_fragment) = (*packet.get(6)?, 40, false);
    loop {
        let length = match protocol {
            0 | 43 | 60 => usize::from(*packet.get(at + 1)?) * 8 + 8,
            44 if word(packet, at + 2)? & OFFSETS[1] == 0 => 8,
            44 => return None,
            _ => return Some((Upper { protocol, at }, is_fragment)),
        };
        is_fragment |= protocol == 44;
        protocol = *packet.get(at)?;
        at += length;
    }
}

impl Upper {
    /// Where its checksum is; none for a protocol that is not looked into.
    pub(super) fn checksum_at(self) -> Option<usize> {
        match self.protocol {
            TCP => Some(self.at + 16),
            UDP => Some(self.at + 6),
            ICMP | ICMP_V6 => Some(self.at + 2),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The sum of one's complement over the bytes.
fn sum(bytes: &[u8], before: u16) -> u16 {
    bytes.chunks(2).fold(before, |sum, pair| {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// The sum over the addresses, the length and the protocol, with which checksums above IP begin.
pub(super) fn pseudo(packet: &[u8], upper: Upper) -> Option<u16> {
    let is_v4 = packet.first()? >> 4 == 4;
    if upper.protocol == ICMP {
        return Some(0);
    }
    let addresses: Range<usize> = if is_v4 { 12..20 } else { 8..40 };
    let length = u32::try_from(packet.len() - upper.at).ok()?.to_be_bytes();
    Some(sum(&[0, upper.protocol], sum(&length, sum(packet.get(addresses)?, 0))))
}

/// Whether every checksum is right; also of a packet that has none.
pub(super) fn is_right(packet: &[u8]) -> bool {
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let header = usize::from(packet.first().copied().unwrap_or_default() & 0xf) * 4;
    let is_ip_right = !is_v4 || packet.get(..header).is_some_and(|header| sum(header, 0) == 0xffff);
    is_ip_right && upper(packet).is_none_or(|upper| is_upper_right(packet, upper).unwrap_or(true))
}

fn is_upper_right(packet: &[u8], upper: Upper) -> Option<bool> {
    let is_v4 = packet.first()? >> 4 == 4;
    if (upper.protocol == ICMP) != is_v4 && matches!(upper.protocol, ICMP | ICMP_V6) {
        return None;
    }
    word(packet, upper.checksum_at()?)?;
    Some(is_unsummed(packet) || sum(packet.get(upper.at..)?, pseudo(packet, upper)?) == 0xffff)
}

/// Whether it is a datagram without a checksum.
pub(super) fn is_unsummed(packet: &[u8]) -> bool {
    let udp = upper(packet).filter(|upper| upper.protocol == UDP);
    udp.and_then(Upper::checksum_at).and_then(|at| word(packet, at)) == Some(0)
}

/// Makes every checksum right.
pub(super) fn put_right(packet: &mut [u8]) -> Option<()> {
    if packet.first()? >> 4 == 4 {
        let header = usize::from(packet.first()? & 0xf) * 4;
        put(packet, 10, 0)?;
        let right = !sum(packet.get(..header)?, 0);
        put(packet, 10, right)?;
    }
    let upper = upper(packet)?;
    let at = upper.checksum_at()?;
    put(packet, at, 0)?;
    let right = !sum(packet.get(upper.at..)?, pseudo(packet, upper)?);
    put(packet, at, if upper.protocol == UDP && right == 0 { 0xffff } else { right })
}

pub(super) fn put(packet: &mut [u8], at: usize, value: u16) -> Option<()> {
    *packet.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

/// The packet with its checksums set to zero: those of one's complement have two zeros.
pub(super) fn without_checksums(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let upper = take_checksums(&mut packet);
    // Maybe it is an error that quotes another packet.
    if let Some(quote) = upper.and_then(|upper| packet.get_mut(upper.at + 8..)) {
        take_checksums(quote);
    }
    packet
}

fn take_checksums(packet: &mut [u8]) -> Option<Upper> {
    if packet.first()? >> 4 == 4 {
        put(packet, 10, 0)?;
    }
    let (upper, _) = beginning(packet)?;
    put(packet, upper.checksum_at()?, 0)?;
    Some(upper).filter(|upper| matches!(upper.protocol, ICMP | ICMP_V6))
}
