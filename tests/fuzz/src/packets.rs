//! Packets, out of a tunnel and into one: read, translated, cut, put together, clamped, answered and known again.

mod flows;
mod plain;
mod trains;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferro_core::network::{Drop, Packet};
use ferro_fabric::packet::{
    Checksum, Echo, Header, Offload, Segments, clamp, complete, translate as put_addresses,
    translate_with_router,
};

use crate::{Read, choice};
use plain::{Upper, is_right};

pub use flows::flows;
pub use trains::coalesce;

/// The header of a packet.
pub fn packet_header(data: &[u8]) -> Read {
    let header = Header::parse(data).ok()?;
    assert!((20..=data.len()).contains(&header.length));
    assert_eq!(header.addresses.source.is_ipv4(), header.addresses.destination.is_ipv4());
    assert_eq!(Header::parse(&data[..header.length]), Ok(header), "what lies behind it does not matter");
    Some(())
}

/// The name of an address in the tunnel: the other half of all addresses. Those that have a name have the first bit
/// that is given.
fn renamed(ip: IpAddr, first_bit: bool) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => (ip.to_bits() >> 31 == u32::from(first_bit))
            .then(|| Ipv4Addr::from_bits(ip.to_bits() ^ 1 << 31).into()),
        IpAddr::V6(ip) => (ip.to_bits() >> 127 == u128::from(first_bit))
            .then(|| Ipv6Addr::from_bits(ip.to_bits() ^ 1 << 127).into()),
    }
}

fn with_source(packet: Packet, first_bit: bool) -> Result<Packet, Drop> {
    let source = renamed(packet.source, first_bit).ok_or(Drop::NamelessSource)?;
    Ok(Packet { source, ..packet })
}

/// A packet that gets another source. The first byte says how.
pub fn translate(data: &[u8]) -> Read {
    let (how, packet) = choice(data)?;
    let mut packet = packet.to_vec();
    if how & 1 != 0 {
        _ = plain::put_right(&mut packet);
    }
    if how & 2 != 0 {
        return translate_in_part(packet);
    }
    let before = packet.clone();
    let router = (how & 4 != 0).then_some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let out = |packet| with_source(packet, false);
    if translate_with_router(&mut packet, Checksum::Whole, out, router).is_err() {
        assert_eq!(packet, before, "it is then as it was");
        return None;
    }
    let length = Header::parse(&packet).ok()?.length;
    assert!(!is_right(&before[..length]) || is_right(&packet[..length]), "checksums are kept right");
    if router.is_none() {
        put_addresses(&mut packet, Checksum::Whole, |packet| with_source(packet, true)).ok()?;
        assert_eq!(plain::without_checksums(&packet), plain::without_checksums(&before), "and back");
    }
    Some(())
}

/// One whose checksum the device completes.
fn translate_in_part(mut packet: Vec<u8>) -> Read {
    packet.truncate(Header::parse(&packet).ok()?.length);
    let upper = plain::upper(&packet).filter(|upper| matches!(upper.protocol, plain::TCP | plain::UDP))?;
    let field = upper.checksum_at()?;
    let partial = plain::pseudo(&packet, upper)?;
    plain::put(&mut packet, field, partial)?;
    put_addresses(&mut packet, Checksum::Partial, |packet| with_source(packet, false)).ok()?;
    complete(&mut packet, places(upper)?).ok()?;
    let mut right = packet.clone();
    plain::put_right(&mut right)?;
    assert_eq!(packet[field..field + 2], right[field..field + 2]);
    Some(())
}

/// From where on the device sums, and where behind that the sum goes.
fn places(upper: Upper) -> Option<(u16, u16)> {
    Some((u16::try_from(upper.at).ok()?, u16::try_from(upper.checksum_at()? - upper.at).ok()?))
}

/// A super-packet with what the kernel says in front of it.
pub fn segment(data: &[u8]) -> Read {
    let (offload, packet) = data.split_first_chunk::<{ Offload::LENGTH }>()?;
    let offload = Offload::parse(offload).ok()?;
    match (offload.size, offload.checksum) {
        (Some(size), _) => cut(packet, size),
        (None, Some(places)) => completed(packet, places),
        (None, None) => None,
    }
}

fn cut(packet: &[u8], size: u16) -> Read {
    let mut segments = Segments::new(packet, size).ok()?;
    let packet = &packet[..Header::parse(packet).ok()?.length];
    let (mut buffer, mut payload, mut count) = (vec![0; segments.longest()], Vec::new(), 0);
    while let Some(length) = segments.write_next(&mut buffer) {
        let segment = &buffer[..length];
        assert!(is_right(segment), "{segment:?}");
        assert_eq!(Header::parse(segment).map(|header| header.length), Ok(length));
        payload.extend_from_slice(&segment[head_of(segment)?..]);
        count += 1;
    }
    assert_eq!(payload, packet[head_of(packet)?..], "nothing is lost, and all is in order");
    assert_eq!(count, payload.len().div_ceil(usize::from(size)).max(1));
    Some(())
}

/// How long the headers of a packet of TCP or UDP are together.
fn head_of(packet: &[u8]) -> Option<usize> {
    let upper = plain::upper(packet)?;
    let length =
        if upper.protocol == plain::UDP { 8 } else { usize::from(packet.get(upper.at + 12)? >> 4) * 4 };
    Some(upper.at + length)
}

fn completed(packet: &[u8], places: (u16, u16)) -> Read {
    let (mut packet, before) = (packet.to_vec(), packet);
    complete(&mut packet, places).ok()?;
    let field = usize::from(places.0) + usize::from(places.1);
    assert_eq!(packet[..field], before[..field]);
    assert_eq!(packet[field + 2..], before[field + 2..]);
    Some(())
}

/// The first packet of a connection, for an MTU that stands in front of it.
pub fn mss(data: &[u8]) -> Read {
    let (mtu, packet) = data.split_first_chunk()?;
    let mtu = usize::from(u16::from_be_bytes(*mtu));
    let header = Header::parse(packet).ok()?;
    let mut clamped = packet[..header.length].to_vec();
    let before = clamped.clone();
    clamp(&mut clamped, &header, mtu, Checksum::Whole);
    assert!(!is_right(&before) || is_right(&clamped), "checksums are kept right");
    let mut again = clamped.clone();
    clamp(&mut again, &header, mtu, Checksum::Whole);
    assert_eq!(again, clamped);
    let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != clamped[*at]).collect();
    let (first, last) = (*changed.first()?, *changed.last()?);
    let upper = plain::upper(&before).filter(|upper| upper.protocol == plain::TCP)?;
    assert!(changed.len() <= 4 && upper.at + 16 <= first && last < head_of(&before)?, "{changed:?}");
    Some(())
}

/// An echo request, and its answer.
pub fn echo(data: &[u8]) -> Read {
    let header = Header::parse(data).ok()?;
    let mut packet = data[..header.length].to_vec();
    let Echo::Request(numbers) = Echo::read(&packet, &header)? else { return Some(()) };
    Echo::answer(&mut packet, &header)?;
    assert!(is_right(&packet), "{packet:?}");
    let Packet { source, destination } = header.addresses;
    let answer = Header::parse(&packet).ok()?;
    assert_eq!((answer.length, answer.addresses.source), (header.length, destination));
    assert_eq!(answer.addresses.destination, source);
    assert_eq!(Echo::read(&packet, &answer), Some(Echo::Reply(numbers)));
    let mut request = [0; Echo::LONGEST_REQUEST];
    let length = Echo::write_request(&mut request, header.addresses, numbers)?;
    let request = &request[..length];
    assert!(is_right(request));
    let header = Header::parse(request).ok()?;
    assert_eq!(Echo::read(request, &header), Some(Echo::Request(numbers)));
    Some(())
}
