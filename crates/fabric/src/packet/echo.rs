//! Echo requests and replies of ICMP: made, known and answered, for both families.

use std::net::IpAddr;

use ferro_core::network::Packet;

use super::checksum::Sum;
use super::header::{Header, Upper};
use super::segment::put;

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
const HOPS: u8 = 64;
/// Request and reply, of IPv4 and of IPv6.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);
const LENGTH: usize = 8;

/// By which a reply is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of who asks.
    pub identifier: u16,
    /// Of the request.
    pub sequence: u16,
}

/// What an echo packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// A question.
    Request(Numbers),
    /// The answer to one.
    Reply(Numbers),
}

impl Echo {
    /// As much room as a request needs.
    pub const LONGEST_REQUEST: usize = 40 + LENGTH;

    /// Reads one that is whole; none if it is anything else.
    pub fn read(packet: &[u8], header: &Header) -> Option<Self> {
        let (at, (request, reply)) = place(header)?;
        let [kind, code, _, _, a, b, c, d] = *packet.get(at..header.length)?.first_chunk()?;
        let numbers =
            Numbers { identifier: u16::from_be_bytes([a, b]), sequence: u16::from_be_bytes([c, d]) };
        match kind {
            _ if code != 0 => None,
            kind if kind == request => Some(Self::Request(numbers)),
            kind if kind == reply => Some(Self::Reply(numbers)),
            _ => None,
        }
    }

    /// Writes a request, and says how long it is; none where addresses are of two families, or there is no room.
    pub fn write_request(to: &mut [u8], addresses: Packet, numbers: Numbers) -> Option<usize> {
        let at = write_ip(to, addresses)?;
        let length = at + LENGTH;
        let packet = to.get_mut(..length)?;
        let (request, _) = if addresses.source.is_ipv4() { V4 } else { V6 };
        put(packet, at, u16::from(request) << 8)?;
        put(packet, at + 2, 0)?;
        put(packet, at + 4, numbers.identifier)?;
        put(packet, at + 6, numbers.sequence)?;
        let checksum = sum(packet.get(at..)?, addresses).checksum();
        put(packet, at + 2, checksum)?;
        Some(length)
    }

    /// Makes a request its own answer, where it lies.
    pub fn answer(packet: &mut [u8], header: &Header) -> Option<()> {
        let (at, (_, reply)) = place(header)?;
        let packet = packet.get_mut(..header.length)?;
        let is_v4 = header.addresses.source.is_ipv4();
        let (first, length, hops) = if is_v4 { (12, 4, 8) } else { (8, 16, 7) };
        let (before, after) = packet.split_at_mut_checked(first + length)?;
        before.get_mut(first..)?.swap_with_slice(after.get_mut(..length)?);
        *packet.get_mut(hops)? = HOPS;
        if is_v4 {
            put(packet, 10, 0)?;
            let checksum = Sum::default().with(packet.get(..at)?).checksum();
            put(packet, 10, checksum)?;
        }
        *packet.get_mut(at)? = reply;
        put(packet, at + 2, 0)?;
        let checksum = sum(packet.get(at..)?, header.addresses).checksum();
        put(packet, at + 2, checksum)
    }
}

/// Where it begins, and the kinds of its family.
fn place(header: &Header) -> Option<(usize, (u8, u8))> {
    let kinds = match header.upper {
        Upper::Icmp => V4,
        Upper::IcmpV6 => V6,
        Upper::Tcp | Upper::Udp | Upper::Other(_) => return None,
    };
    header.upper_at.filter(|_| !header.is_fragment()).map(|at| (at, kinds))
}

/// Only in IPv6 it is over the addresses, too.
fn sum(message: &[u8], addresses: Packet) -> Sum {
    let sum = if addresses.source.is_ipv4() {
        Sum::default()
    } else {
        Sum::of_addresses(&addresses).with_length(message.len(), ICMP_V6)
    };
    sum.with(message)
}

/// Writes the header of IP, and says how long it is.
fn write_ip(to: &mut [u8], addresses: Packet) -> Option<usize> {
    match (addresses.source, addresses.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fixed: &mut [u8; 20] = to.first_chunk_mut()?;
            *fixed = [0x45, 0, 0, 28, 0, 0, 0x40, 0, HOPS, ICMP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            fixed[12..16].copy_from_slice(&source.octets());
            fixed[16..].copy_from_slice(&destination.octets());
            let checksum = Sum::default().with(fixed).checksum();
            put(fixed, 10, checksum)?;
            Some(fixed.len())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let fixed: &mut [u8; 40] = to.first_chunk_mut()?;
            fixed[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, ICMP_V6, HOPS]);
            fixed[8..24].copy_from_slice(&source.octets());
            fixed[24..].copy_from_slice(&destination.octets());
            Some(fixed.len())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::packet::sample::{addresses, built};

    const NUMBERS: Numbers = Numbers { identifier: 7, sequence: 500 };

    fn pairs() -> [Packet; 2] {
        [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")].map(|(source, destination)| Packet {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        })
    }

    #[test]
    fn a_request_is_right_and_becomes_its_answer() {
        for pair in pairs() {
            let mut buffer = [0xff; Echo::LONGEST_REQUEST];
            let length = Echo::write_request(&mut buffer, pair, NUMBERS).unwrap();
            let packet = &mut buffer[..length];
            assert_eq!(addresses(packet), (pair.source.to_string(), pair.destination.to_string()));
            let header = Header::parse(packet).unwrap();
            assert_eq!((header.length, Echo::read(packet, &header)), (length, Some(Echo::Request(NUMBERS))));
            Echo::answer(packet, &header).unwrap();
            assert_eq!(addresses(packet), (pair.destination.to_string(), pair.source.to_string()));
            let header = Header::parse(packet).unwrap();
            assert_eq!(Echo::read(packet, &header), Some(Echo::Reply(NUMBERS)));
        }
    }

    #[test]
    fn a_request_with_a_payload_is_answered_with_it() {
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 3).icmpv4_echo_request(7, 500);
        let mut packet = built(builder, b"hello, world");
        let header = Header::parse(&packet).unwrap();
        Echo::answer(&mut packet, &header).unwrap();
        assert_eq!(addresses(&packet), ("10.0.0.2".into(), "10.0.0.1".into()));
        assert!(packet.ends_with(b"hello, world") && packet[8] == HOPS);
    }

    #[test]
    fn nothing_else_is_an_echo() {
        let udp = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(8, 2), b"hello, world");
        assert_eq!(Echo::read(&udp, &Header::parse(&udp).unwrap()), None);
        let [v4, v6] = pairs();
        let mixed = Packet { source: v4.source, destination: v6.destination };
        assert_eq!(Echo::write_request(&mut [0; 100], mixed, NUMBERS), None);
        assert_eq!(Echo::write_request(&mut [0; 27], v4, NUMBERS), None);
        let mut short = [0; 28];
        Echo::write_request(&mut short, v4, NUMBERS).unwrap();
        short[3] = 24;
        assert_eq!(Echo::read(&short, &Header::parse(&short).unwrap()), None);
    }
}
