//! Super-packets, as the kernel hands them over, cut into packets that fit a wire.
//!
//! The kernel leaves the cutting and the checksums to the device, and the device is this program. One super-packet is
//! translated once, however many packets it becomes.

use super::checksum::Sum;
use super::header::{Header, Malformed, Upper};

/// What the kernel says of a packet, in front of it: `virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Where to cut, if it is to be cut: as much payload in each packet.
    pub size: Option<u16>,
    /// From where on to sum, and where behind that the sum goes, if that is left to us.
    pub checksum: Option<(u16, u16)>,
}

impl Offload {
    /// How long it is in front of a packet.
    pub const LENGTH: usize = 10;
    pub(super) const NEEDS_CHECKSUM: u8 = 1;
    pub(super) const TCP_V4: u8 = 1;
    pub(super) const TCP_V6: u8 = 4;
    pub(super) const UDP: u8 = 5;
    /// Each may be marked for explicit congestion notification.
    const KINDS: [u8; 3] = [Self::TCP_V4, Self::TCP_V6, Self::UDP];
    const ECN: u8 = 0x80;

    /// Reads it; kinds that were not asked for are refused.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, Malformed> {
        let [flags, kind, _, _, size, size_high, start, start_high, offset, offset_high] = *bytes;
        let checksum = (flags & Self::NEEDS_CHECKSUM != 0)
            .then_some((u16::from_ne_bytes([start, start_high]), u16::from_ne_bytes([offset, offset_high])));
        let size = match kind & !Self::ECN {
            0 => None,
            kind if Self::KINDS.contains(&kind) => Some(u16::from_ne_bytes([size, size_high])),
            _ => return Err(Malformed),
        };
        if size == Some(0) { Err(Malformed) } else { Ok(Self { size, checksum }) }
    }
}

/// The packets that a super-packet becomes, one after the other.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    packet: &'a [u8],
    header: Header,
    /// Where what is above IP begins, and where its payload does.
    upper_at: usize,
    payload_at: usize,
    size: usize,
    /// How much of the payload was handed out.
    done: usize,
    count: u16,
}

impl<'a> Segments<'a> {
    /// Cuts a super-packet into packets with so much payload each.
    pub fn new(packet: &'a [u8], size: u16) -> Result<Self, Malformed> {
        let header = Header::parse(packet)?;
        let packet = packet.get(..header.length).ok_or(Malformed)?;
        let upper_at = header.upper_at.filter(|_| !header.is_fragment()).ok_or(Malformed)?;
        let length = match header.upper {
            Upper::Tcp => usize::from(packet.get(upper_at + 12).ok_or(Malformed)? >> 4) * 4,
            Upper::Udp => 8,
            Upper::Icmp | Upper::IcmpV6 | Upper::Other(_) => return Err(Malformed),
        };
        let payload_at = upper_at + length;
        let is_whole = match header.upper {
            Upper::Tcp => length >= 20,
            _ => true,
        };
        if !is_whole || payload_at > packet.len() || size == 0 {
            return Err(Malformed);
        }
        Ok(Self { packet, header, upper_at, payload_at, size: size.into(), done: 0, count: 0 })
    }

    /// How long the longest of them is.
    pub fn longest(&self) -> usize {
        self.payload_at + self.size.min(self.packet.len() - self.payload_at)
    }

    /// Writes the next packet, and says how long it is; none when there is no more, or no room for it.
    pub fn write_next(&mut self, to: &mut [u8]) -> Option<usize> {
        let payload = self.packet.get(self.payload_at + self.done..)?;
        if payload.is_empty() && self.count > 0 {
            return None;
        }
        let payload = payload.get(..self.size).unwrap_or(payload);
        let length = self.payload_at + payload.len();
        let to = to.get_mut(..length)?;
        to.get_mut(..self.payload_at)?.copy_from_slice(self.packet.get(..self.payload_at)?);
        to.get_mut(self.payload_at..)?.copy_from_slice(payload);
        self.fit_ip(to)?;
        self.fit_upper(to)?;
        self.done += payload.len();
        self.count = self.count.wrapping_add(1);
        Some(length)
    }

    fn is_last(&self, length: usize) -> bool {
        self.payload_at + self.done + (length - self.payload_at) >= self.packet.len()
    }

    fn fit_ip(&self, to: &mut [u8]) -> Option<()> {
        let length = u16::try_from(to.len()).ok()?;
        if self.header.addresses.source.is_ipv4() {
            put(to, 2, length)?;
            let number = u16::from_be_bytes(*to.get(4..)?.first_chunk()?);
            put(to, 4, number.wrapping_add(self.count))?;
            put(to, 10, 0)?;
            let header_length = usize::from(to.first()? & 0xf) * 4;
            let checksum = Sum::default().with(to.get(..header_length)?).checksum();
            put(to, 10, checksum)
        } else {
            put(to, 4, length.checked_sub(40)?)
        }
    }

    fn fit_upper(&self, to: &mut [u8]) -> Option<()> {
        let at = self.upper_at;
        let (protocol, checksum_at) = if self.header.upper == Upper::Tcp {
            self.fit_tcp(to)?;
            (TCP, at + 16)
        } else {
            let length = u16::try_from(to.len().checked_sub(at)?).ok()?;
            put(to, at + 4, length)?;
            (UDP, at + 6)
        };
        put(to, checksum_at, 0)?;
        let upper = to.get(at..)?;
        let sum = Sum::of_addresses(&self.header.addresses).with_length(upper.len(), protocol).with(upper);
        let checksum = match (protocol, sum.checksum()) {
            // In UDP that would mean that there is none.
            (UDP, 0) => 0xffff,
            (_, checksum) => checksum,
        };
        put(to, checksum_at, checksum)
    }

    fn fit_tcp(&self, to: &mut [u8]) -> Option<()> {
        let (at, is_last) = (self.upper_at, self.is_last(to.len()));
        let sequence: &mut [u8; 4] = to.get_mut(at + 4..)?.first_chunk_mut()?;
        let number = u32::from_be_bytes(*sequence).wrapping_add(u32::try_from(self.done).ok()?);
        *sequence = number.to_be_bytes();
        let flags = to.get_mut(at + 13)?;
        if !is_last {
            *flags &= !(FIN | PUSH);
        }
        if self.count > 0 {
            *flags &= !CONGESTION_REDUCED;
        }
        Some(())
    }
}

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const FIN: u8 = 1;
const PUSH: u8 = 8;
const CONGESTION_REDUCED: u8 = 0x80;

pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    let field: &mut [u8; 2] = bytes.get_mut(at..)?.first_chunk_mut()?;
    *field = value.to_be_bytes();
    Some(())
}

/// Completes a checksum of which only the sum over the addresses is there.
pub fn complete(packet: &mut [u8], (start, offset): (u16, u16)) -> Result<(), Malformed> {
    let upper = packet.get_mut(usize::from(start)..).ok_or(Malformed)?;
    let checksum = Sum::default().with(upper).checksum();
    let is_udp = offset == 6;
    let checksum = if is_udp && checksum == 0 { 0xffff } else { checksum };
    put(upper, offset.into(), checksum).ok_or(Malformed)
}

#[cfg(test)]
mod tests;
