//! Packets put together for the kernel, and cut again as a kernel would: they are the same as before.

use std::ops::Range;

use ferro_fabric::packet::{Coalesce, Header, Offload, Segments, Train, complete};

use super::plain;
use crate::{Read, choice};

/// More packets than one call to the kernel brings.
const MOST: usize = 64;
const DONT_FRAGMENT: u8 = 0x40;

/// Packets one after the other, each with two bytes in front of it: the first bit says whether its checksums are made
/// right, the others how long it is. The first byte of all says whether datagrams are put together, too.
pub fn coalesce(data: &[u8]) -> Read {
    let (how, data) = choice(data)?;
    let (mut bytes, ranges) = lay_out(data);
    let before: Vec<Vec<u8>> = ranges.iter().map(|range| bytes[range.clone()].to_vec()).collect();
    let mut coalesce = Coalesce::new(how & 1 != 0);
    for range in &ranges {
        let header = Header::parse(&bytes[range.clone()]).ok()?;
        coalesce.add(&bytes, range.clone(), &header);
    }
    let trains = coalesce.finish(&mut bytes);
    let mut order = Vec::new();
    for train in trains {
        let places = places(train, &ranges);
        let after = cut(train, &bytes)?;
        assert_eq!(after.len(), places.len());
        for (place, after) in places.iter().zip(&after) {
            assert_same(&before[*place], after);
        }
        order.extend(places);
    }
    check_order(&order, &before);
    trains.iter().any(|train| train.parts().len() > 1).then_some(())
}

/// The packets in a buffer, as they lie there when they were opened: a header and a tag are between them.
fn lay_out(mut data: &[u8]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    while let Some((head, rest)) = data.split_first_chunk()
        && ranges.len() < MOST
    {
        let head = u16::from_be_bytes(*head);
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(head & 0x7fff)));
        data = rest;
        let Ok(header) = Header::parse(packet) else { continue };
        bytes.extend([0xaa; 16]);
        let start = bytes.len();
        bytes.extend_from_slice(&packet[..header.length]);
        if head >> 15 != 0 {
            _ = plain::put_right(&mut bytes[start..]);
        }
        ranges.push(start..bytes.len());
    }
    (bytes, ranges)
}

/// Which packets a train has been made of.
fn places(train: &Train, ranges: &[Range<usize>]) -> Vec<usize> {
    let of = |part: &Range<usize>| {
        ranges.iter().position(|range| range.start <= part.start && part.end == range.end)
    };
    let places: Vec<usize> = train.parts().iter().filter_map(of).collect();
    assert_eq!(places.len(), train.parts().len(), "each part is the end of a packet");
    places
}

/// What a kernel would make of a train.
fn cut(train: &Train, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut whole: Vec<u8> = train.parts().iter().flat_map(|part| bytes[part.clone()].to_vec()).collect();
    assert!(whole.len() <= 65_535);
    let offload = Offload::parse(train.offload()).ok()?;
    let Some(size) = offload.size else {
        assert_eq!(offload.checksum, None);
        return Some(vec![whole]);
    };
    let mut segments = Segments::new(&whole, size).ok()?;
    let (mut buffer, mut all) = (vec![0; segments.longest()], Vec::new());
    while let Some(length) = segments.write_next(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    complete(&mut whole, offload.checksum?).ok()?;
    assert!(plain::is_right(&whole));
    Some(all)
}

/// But for the number of a packet that is never cut, which means nothing, and for the two zeros of checksums.
fn assert_same(before: &[u8], after: &[u8]) {
    assert_eq!(comparable(before), comparable(after));
}

fn comparable(packet: &[u8]) -> Vec<u8> {
    if !plain::is_right(packet) || plain::is_unsummed(packet) {
        return packet.to_vec();
    }
    let mut packet = plain::without_checksums(packet);
    if packet[0] >> 4 == 4 && packet[6] & DONT_FRAGMENT != 0 {
        packet[4..6].fill(0);
    }
    packet
}

/// Each packet is there once, and those of one connection in the order in which they came.
fn check_order(order: &[usize], packets: &[Vec<u8>]) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..packets.len()).collect::<Vec<_>>());
    for (n, earlier) in order.iter().enumerate() {
        for later in &order[n + 1..] {
            let connection = |place: usize| connection(&packets[place]);
            assert!(
                earlier < later
                    || connection(*earlier).is_none()
                    || connection(*earlier) != connection(*later)
            );
        }
    }
}

/// The addresses and ports of TCP and UDP.
fn connection(packet: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let upper = plain::upper(packet).filter(|upper| matches!(upper.protocol, plain::TCP | plain::UDP))?;
    let addresses = if packet.first()? >> 4 == 4 { 12..20 } else { 8..40 };
    Some((upper.protocol, packet.get(addresses)?, packet.get(upper.at..upper.at + 4)?))
}
