//! Packets put together, and cut again by `segment`: they are the same as before.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::packet::sample::{addresses, built};
use crate::packet::{Segments, complete};

/// The packets one after the other, as they lie in a buffer, put together and cut again; and how many trains it were.
fn there_and_back(packets: &[Vec<u8>], with_datagrams: bool) -> (usize, Vec<Vec<u8>>) {
    let (mut bytes, mut coalesce) = (Vec::new(), Coalesce::new(with_datagrams));
    let ranges: Vec<Range<usize>> = packets
        .iter()
        .map(|packet| {
            // They are not close together: a header and a tag are between them.
            bytes.extend([0xaa; 16]);
            bytes.extend(packet);
            bytes.len() - packet.len()..bytes.len()
        })
        .collect();
    for range in ranges {
        let header = Header::parse(&bytes[range.clone()]).unwrap();
        coalesce.add(&bytes, range, &header);
    }
    let trains = coalesce.finish(&mut bytes);
    (trains.len(), trains.iter().flat_map(|train| cut(train, &bytes)).collect())
}

/// What a kernel would make of it.
fn cut(train: &Train, bytes: &[u8]) -> Vec<Vec<u8>> {
    let whole = train.parts().iter().map(|part| &bytes[part.clone()]).collect::<Vec<_>>().concat();
    let offload = Offload::parse(train.offload()).unwrap();
    let Some(size) = offload.size else { return vec![whole] };
    let mut completed = whole.clone();
    complete(&mut completed, offload.checksum.unwrap()).unwrap();
    addresses(&completed);
    let mut segments = Segments::new(&whole, size).unwrap();
    let (mut buffer, mut all) = (vec![0; segments.longest()], Vec::new());
    while let Some(length) = segments.write_next(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

/// A packet of a connection, with this number; the number of the IP packet goes with it.
fn tcp(port: u16, number: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    tcp_with(port, number, sequence, payload, |_| ())
}

fn tcp_with(port: u16, number: u16, sequence: u32, payload: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(port, 80, sequence, 9).ack(5);
    let mut packet = built(builder, payload);
    packet[4..6].copy_from_slice(&number.to_be_bytes());
    change(&mut packet);
    right(&mut packet);
    packet
}

/// Makes the checksums right again.
fn right(packet: &mut [u8]) {
    let header = Header::parse(packet).unwrap();
    put(packet, 10, 0).unwrap();
    let checksum = Sum::default().with(&packet[..20]).checksum();
    put(packet, 10, checksum).unwrap();
    put(packet, 36, 0).unwrap();
    let sum = Sum::of_addresses(&header.addresses).with_length(packet.len() - 20, TCP).with(&packet[20..]);
    put(packet, 36, sum.checksum()).unwrap();
}

fn udp(number: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(53, 1234), payload);
    packet[4..6].copy_from_slice(&number.to_be_bytes());
    put(&mut packet, 10, 0).unwrap();
    let checksum = Sum::default().with(&packet[..20]).checksum();
    put(&mut packet, 10, checksum).unwrap();
    packet
}

fn assert_same(packets: &[Vec<u8>], trains: usize) {
    let (count, back) = there_and_back(packets, true);
    assert_eq!((count, back.len()), (trains, packets.len()));
    for (number, (before, after)) in packets.iter().zip(&back).enumerate() {
        assert_eq!(before, after, "packet {number}");
    }
}

#[test]
fn a_stream_becomes_one_and_the_last_may_be_shorter() {
    let packets: Vec<_> = (0..10_u16)
        .map(|n| {
            tcp(
                1,
                n,
                (u32::MAX - 3000).wrapping_add(1000 * u32::from(n)),
                &vec![7; if n == 9 { 10 } else { 1000 }],
            )
        })
        .collect();
    assert_same(&packets, 1);
}

#[test]
fn streams_that_are_mixed_stay_apart_and_in_order() {
    let packets = [
        tcp(1, 0, 0, &[1; 100]),
        tcp(2, 0, 0, &[2; 100]),
        tcp(1, 1, 100, &[3; 100]),
        tcp(2, 1, 100, &[4; 100]),
    ];
    let (trains, back) = there_and_back(&packets, true);
    assert_eq!(trains, 2);
    assert_eq!(back, [0, 2, 1, 3].map(|place: usize| packets[place].clone()));
}

#[test]
fn a_push_ends_a_train_and_is_kept() {
    let push = |packet: &mut Vec<u8>| packet[33] |= PUSH;
    let packets = [
        tcp(1, 0, 0, &[1; 100]),
        tcp_with(1, 1, 100, &[1; 100], push),
        tcp(1, 2, 200, &[1; 100]),
        tcp_with(1, 3, 300, &[1; 100], push),
    ];
    assert_same(&packets, 2);
    assert_same(&[tcp_with(1, 0, 0, &[1; 100], push), tcp(1, 1, 100, &[1; 100])], 2);
}

#[test]
fn what_differs_in_anything_stays_alone() {
    let first = || tcp(1, 0, 0, &[1; 100]);
    for (what, second) in [
        ("a gap", tcp(1, 1, 101, &[1; 100])),
        ("longer", tcp(1, 1, 100, &[1; 101])),
        ("no payload", tcp(1, 1, 100, &[])),
        ("another acknowledgement", tcp_with(1, 1, 100, &[1; 100], |packet| packet[31] = 6)),
        ("another window", tcp_with(1, 1, 100, &[1; 100], |packet| packet[35] = 6)),
        ("FIN", tcp_with(1, 1, 100, &[1; 100], |packet| packet[33] |= 1)),
        ("CWR", tcp_with(1, 1, 100, &[1; 100], |packet| packet[33] |= 0x80)),
        ("another TTL", tcp_with(1, 1, 100, &[1; 100], |packet| packet[8] = 9)),
        ("another TOS", tcp_with(1, 1, 100, &[1; 100], |packet| packet[1] = 3)),
        ("another fragment flag", tcp_with(1, 1, 100, &[1; 100], |packet| packet[6] ^= 0x40)),
    ] {
        let (trains, back) = there_and_back(&[first(), second.clone()], true);
        assert_eq!((trains, back), (2, vec![first(), second]), "{what}");
    }
}

#[test]
fn the_number_of_a_packet_counts_only_where_it_means_something() {
    let may_be_cut = |packet: &mut Vec<u8>| packet[6] = 0;
    let pair =
        |number| [0_u16, 1].map(|n| tcp_with(1, n * number, 100 * u32::from(n), &[1; 100], may_be_cut));
    assert_same(&pair(1), 1);
    assert_same(&pair(2), 2);
    let is_never_cut = |packet: &mut Vec<u8>| packet[6] = DONT_FRAGMENT;
    let pair = [0, 1].map(|n| tcp_with(1, 0, 100 * n, &[1; 100], is_never_cut));
    assert_eq!(there_and_back(&pair, true).0, 1);
}

#[test]
fn what_comes_after_one_that_does_not_fit_stays_behind_it() {
    let packets = [tcp(1, 0, 0, &[1; 100]), tcp(1, 1, 100, &[]), tcp(1, 2, 100, &[1; 100])];
    assert_same(&packets, 3);
}

#[test]
fn a_wrong_checksum_is_not_made_right() {
    let mut wrong = tcp(1, 1, 100, &[1; 100]);
    wrong[60] ^= 1;
    assert_same(&[tcp(1, 0, 0, &[1; 100]), wrong.clone(), tcp(1, 2, 200, &[1; 100])], 3);
    assert_same(&[wrong, tcp(1, 2, 200, &[1; 100])], 2);
}

#[test]
fn datagrams_are_put_together_only_if_the_kernel_knows_them() {
    let packets: Vec<_> = (0..3).map(|number| udp(number, &[7; 100])).collect();
    assert_same(&packets, 1);
    let (trains, back) = there_and_back(&packets, false);
    assert_eq!((trains, back), (3, packets));
    let many: Vec<_> = (0..100).map(|number| udp(number, &[7; 100])).collect();
    assert_same(&many, 2);
    let mut without = udp(1, &[7; 100]);
    without[26..28].fill(0);
    assert_same(&[udp(0, &[7; 100]), without.clone(), udp(2, &[7; 100])], 3);
}

#[test]
fn no_train_is_longer_than_a_packet_can_be() {
    let size = 1400_u32;
    let packets: Vec<_> =
        (0..60_u16).map(|n| tcp(1, n, size * u32::from(n), &vec![7; size as usize])).collect();
    assert_same(&packets, 2);
}

#[test]
fn ipv6_goes_the_same_way() {
    let packets: Vec<_> = (0..4_u32)
        .map(|n| {
            let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 100 * n, 9).ack(5);
            built(builder, &[7; 100])
        })
        .collect();
    assert_same(&packets, 1);
    let datagrams: Vec<_> =
        (0..4).map(|_| built(PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(1, 2), &[7; 100])).collect();
    assert_same(&datagrams, 1);
}

proptest! {
    #[test]
    fn whatever_comes_each_flow_is_the_same_afterwards(
        packets in proptest::collection::vec((1_u16..4, 0_u32..3, 0_usize..3, any::<bool>()), 0..60),
    ) {
        let mut next = [0_u32; 4];
        let mut made = Vec::new();
        for (port, gap, length, push) in packets {
            let sequence = &mut next[usize::from(port)];
            *sequence += gap / 2;
            let payload = vec![7; length * 50];
            made.push(tcp_with(port, 0, *sequence, &payload, |packet| {
                packet[6] = DONT_FRAGMENT;
                packet[33] |= if push { PUSH } else { 0 };
            }));
            *sequence += u32::try_from(payload.len()).unwrap();
        }
        let (_, mut back) = there_and_back(&made, true);
        for packet in &mut back {
            packet[4..6].fill(0);
            right(packet);
        }
        let of = |all: &[Vec<u8>], port: u8| all.iter().filter(|p| p[21] == port).cloned().collect::<Vec<_>>();
        for port in 1..4 {
            prop_assert_eq!(of(&made, port), of(&back, port));
        }
    }
}
