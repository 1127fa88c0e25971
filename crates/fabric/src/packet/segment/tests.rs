//! Super-packets cut, checked by somebody else's library, and put together again.

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::packet::sample::{addresses, built};

fn cut(packet: &[u8], size: u16) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(packet, size).unwrap();
    let mut buffer = vec![0; segments.longest()];
    let mut all = Vec::new();
    while let Some(length) = segments.write_next(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

fn payload(packet: &[u8]) -> Vec<u8> {
    match SlicedPacket::from_ip(packet).unwrap().transport.unwrap() {
        TransportSlice::Tcp(tcp) => tcp.payload().to_vec(),
        TransportSlice::Udp(udp) => udp.payload().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tcp_is_cut_with_flags_where_they_belong() {
    let data: Vec<u8> = (0..5000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut packet = built(
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, u32::MAX - 1000, 9).psh().fin(),
        &data,
    );
    packet[20 + 13] |= CONGESTION_REDUCED;
    let all = cut(&packet, 1400);
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1440, 1440, 1440, 840]);
    let mut sequence = u32::MAX - 1000;
    for (number, segment) in all.iter().enumerate() {
        addresses(segment);
        let sliced = SlicedPacket::from_ip(segment).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!() };
        assert_eq!(tcp.sequence_number(), sequence);
        assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr()), (number == 3, number == 3, number == 0));
        sequence = sequence.wrapping_add(u32::try_from(tcp.payload().len()).unwrap());
    }
    assert_eq!(all.concat().len(), 4 * 40 + data.len());
}

#[test]
fn numbers_of_packets_go_on() {
    let packet = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), &[7; 3000]);
    let numbers: Vec<_> = cut(&packet, 1000).iter().map(|segment| segment[5]).collect();
    assert_eq!(numbers, [packet[5], packet[5] + 1, packet[5] + 2]);
}

#[test]
fn what_the_kernel_says_is_read() {
    let bytes = |flags, kind, size: u16, start: u16, offset: u16| {
        let rest = [0, size, start, offset].map(u16::to_ne_bytes).concat();
        [&[flags, kind][..], &rest].concat().try_into().unwrap()
    };
    let plain = Offload::parse(&bytes(0, 0, 0, 0, 0));
    assert_eq!(plain, Ok(Offload::default()));
    let tcp = Offload { size: Some(1400), checksum: Some((20, 16)) };
    assert_eq!(Offload::parse(&bytes(1, 1, 1400, 20, 16)), Ok(tcp));
    assert_eq!(Offload::parse(&bytes(1, 0x81, 1400, 20, 16)), Ok(tcp));
    assert_eq!(Offload::parse(&bytes(1, 3, 1400, 20, 16)), Err(Malformed), "not asked for");
    assert_eq!(Offload::parse(&bytes(1, 1, 0, 20, 16)), Err(Malformed));
}

#[test]
fn a_sum_is_completed() {
    let whole = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), b"hello");
    let mut packet = whole.clone();
    let addresses = Header::parse(&packet).unwrap().addresses;
    let sum = !Sum::of_addresses(&addresses).with_length(13, 17).checksum();
    put(&mut packet, 26, sum).unwrap();
    complete(&mut packet, (20, 6)).unwrap();
    assert_eq!(packet, whole);
    assert_eq!(complete(&mut packet, (40, 6)), Err(Malformed));
    assert_eq!(complete(&mut packet, (32, 6)), Err(Malformed));
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let ping =
        built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).icmpv4_echo_request(1, 2), b"hello");
    assert!(Segments::new(&ping, 100).is_err());
    let udp = built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), b"hello");
    assert!(Segments::new(&udp, 0).is_err());
    assert!(Segments::new(&udp[..25], 100).is_err());
    let mut segments = Segments::new(&udp, 100).unwrap();
    assert_eq!(segments.write_next(&mut [0; 20]), None, "no room");
}

proptest! {
    #[test]
    fn what_is_cut_is_whole_again(data in proptest::collection::vec(any::<u8>(), 0..4000), size in 1_u16..1500, is_v6: bool, is_tcp: bool) {
        let packet = match (is_v6, is_tcp) {
            (false, true) => built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4), &data),
            (false, false) => built(PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2), &data),
            (true, true) => built(PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4), &data),
            (true, false) => built(PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(1, 2), &data),
        };
        let all = cut(&packet, size);
        for segment in &all {
            addresses(segment);
        }
        prop_assert_eq!(all.len(), data.len().div_ceil(size.into()).max(1));
        prop_assert_eq!(all.iter().flat_map(|segment| payload(segment)).collect::<Vec<_>>(), data);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), size: u16, at: (u16, u16)) {
        if let Ok(mut segments) = Segments::new(&bytes, size) {
            let mut buffer = [0; 2000];
            while segments.write_next(&mut buffer).is_some() {}
        }
        _ = complete(&mut bytes.clone(), at);
    }
}
