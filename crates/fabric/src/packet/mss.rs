//! The largest segment that TCP may send, lowered to what fits the tunnel.
//!
//! Both ends of a connection say it in their first packet. Where it is lowered there, no packet is ever too long for
//! the tunnel, and nobody has to learn that from ICMP errors, which are lost too often.

use super::checksum::Change;
use super::header::{Header, Upper};
use super::segment::put;
use super::translate::Checksum;

const SYN: u8 = 2;
const END: u8 = 0;
const NOTHING: u8 = 1;
const LARGEST_SEGMENT: u8 = 2;
/// The headers of TCP without options, and of IPv4 and IPv6.
const TCP_HEADER: usize = 20;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// Lowers the largest segment in the first packet of a connection to what fits this MTU. Other packets stay as they are.
pub fn clamp(packet: &mut [u8], header: &Header, mtu: usize, checksum: Checksum) {
    let _ = try_clamp(packet, header, mtu, checksum);
}

fn try_clamp(packet: &mut [u8], header: &Header, mtu: usize, checksum: Checksum) -> Option<()> {
    let at = header.upper_at.filter(|_| header.upper == Upper::Tcp)?;
    let upper = packet.get_mut(at..header.length)?;
    if upper.get(13)? & SYN == 0 {
        return None;
    }
    let ip = if header.addresses.source.is_ipv4() { V4_HEADER } else { V6_HEADER };
    let most = u16::try_from(mtu.checked_sub(ip + TCP_HEADER)?).unwrap_or(u16::MAX);
    let place = find(upper)?;
    let said = u16::from_be_bytes(*upper.get(place..)?.first_chunk()?);
    if said > most { lower(upper, place, most, checksum) } else { None }
}

/// Where the largest segment stands in a header of TCP.
fn find(upper: &[u8]) -> Option<usize> {
    let length = usize::from(upper.get(12)? >> 4) * 4;
    let options = upper.get(..length)?;
    let mut at = TCP_HEADER;
    loop {
        match *options.get(at)? {
            END => return None,
            NOTHING => at += 1,
            LARGEST_SEGMENT => return (*options.get(at..at + 4)?.get(1)? == 4).then_some(at + 2),
            _ => at += usize::from(*options.get(at + 1)?).max(2),
        }
    }
}

fn lower(upper: &mut [u8], place: usize, most: u16, checksum: Checksum) -> Option<()> {
    // The sum is over words: the ones around an odd place are taken together.
    let (start, end) = (place & !1, (place + 3) & !1);
    let before: [u8; 4] = aligned(upper, start, end)?;
    put(upper, place, most)?;
    let after = aligned(upper, start, end)?;
    if checksum == Checksum::Whole {
        let mut change = Change::default();
        change.replace(&before, &after);
        change.apply(upper.get_mut(16..)?.first_chunk_mut()?);
    }
    Some(())
}

/// The words there, and zeros.
fn aligned(upper: &[u8], start: usize, end: usize) -> Option<[u8; 4]> {
    let mut words = [0; 4];
    words.get_mut(..end - start)?.copy_from_slice(upper.get(start..end)?);
    Some(words)
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
    use proptest::prelude::*;

    use super::*;
    use crate::packet::sample::{addresses, built};

    fn syn(options: &[TcpOptionElement]) -> Vec<u8> {
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 7, 9).syn();
        built(builder.options(options).unwrap(), b"")
    }

    fn clamped(mut packet: Vec<u8>, mtu: usize) -> Vec<u8> {
        let header = Header::parse(&packet).unwrap();
        clamp(&mut packet, &header, mtu, Checksum::Whole);
        packet
    }

    fn said(packet: &[u8]) -> Option<u16> {
        addresses(packet);
        let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ip(packet).unwrap().transport else {
            panic!()
        };
        tcp.options_iterator().find_map(|option| match option {
            Ok(TcpOptionElement::MaximumSegmentSize(size)) => Some(size),
            _ => None,
        })
    }

    #[test]
    fn it_is_lowered_at_every_place_and_never_raised() {
        use TcpOptionElement::{MaximumSegmentSize, Noop, Timestamp, WindowScale};
        for options in [
            vec![MaximumSegmentSize(1460)],
            vec![Noop, MaximumSegmentSize(1460)],
            vec![WindowScale(7), MaximumSegmentSize(1460), Timestamp(1, 2)],
            vec![Timestamp(1, 2), Noop, Noop, MaximumSegmentSize(1460)],
        ] {
            assert_eq!(said(&clamped(syn(&options), 1420)), Some(1380), "{options:?}");
            assert_eq!(said(&clamped(syn(&options), 1500)), Some(1460), "{options:?}");
            assert_eq!(clamped(syn(&options), 1500), syn(&options));
        }
    }

    #[test]
    fn it_leaves_room_for_the_longer_header_of_the_other_family() {
        let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 7, 9).syn().ack(3);
        let packet = built(builder.options(&[TcpOptionElement::MaximumSegmentSize(1440)]).unwrap(), b"");
        assert_eq!(said(&clamped(packet, 1420)), Some(1360));
    }

    #[test]
    fn other_packets_stay_as_they_are() {
        let options = [TcpOptionElement::MaximumSegmentSize(1460)];
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 7, 9).ack(1);
        let established = built(builder.options(&options).unwrap(), b"data");
        let udp = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), &[2; 40]);
        for packet in [established, udp, syn(&[]), syn(&[TcpOptionElement::WindowScale(7)])] {
            assert_eq!(clamped(packet.clone(), 1420), packet);
        }
    }

    #[test]
    fn a_sum_that_somebody_else_completes_is_not_touched() {
        let mut packet = syn(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        let before = packet[36..38].to_vec();
        let header = Header::parse(&packet).unwrap();
        clamp(&mut packet, &header, 1420, Checksum::Partial);
        assert_eq!((&packet[36..38], &packet[42..44]), (&before[..], &1380_u16.to_be_bytes()[..]));
    }

    proptest! {
        #[test]
        fn any_options_are_read_without_harm(options in proptest::collection::vec(any::<u8>(), 0..40), offset: u8) {
            let mut packet = syn(&vec![TcpOptionElement::Timestamp(1, 2); 3]);
            let rest = packet.len() - 40;
            packet[32] = offset;
            packet[40..].copy_from_slice(&[&options[..], &[0; 40]].concat()[..rest]);
            let length = packet.len();
            prop_assert_eq!(clamped(packet, 1420).len(), length);
        }
    }
}
