//! Packets made by somebody else's library, translated, and checked by it again.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{Icmpv4Type, Icmpv6Type, IpNumber, Ipv4Header, PacketBuilder};
use ferro_core::network::Translation;
use proptest::prelude::*;

use super::*;
use crate::packet::sample::{addresses, built};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 7);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const HERE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 7);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 5);

/// Our pods have another name in the tunnel.
fn outbound(packet: Packet) -> Result<Packet, Drop> {
    let names = [("10.244.0.0/24", "10.0.40.0/24"), ("fd00:1::/64", "fd00:2::/64")];
    let mut names = names
        .map(|(here, there)| Translation::new(here.parse().unwrap(), there.parse().unwrap()).unwrap())
        .into_iter();
    let source = names.find_map(|name| name.outward(packet.source)).ok_or(Drop::NamelessSource)?;
    Ok(Packet { source, ..packet })
}

fn udp(payload: &[u8]) -> Vec<u8> {
    built(PacketBuilder::ipv4(HERE.octets(), PEER.octets(), 64).udp(1234, 53), payload)
}

fn sent(mut bytes: Vec<u8>) -> Vec<u8> {
    translate(&mut bytes, Checksum::Whole, outbound).unwrap();
    bytes
}

#[test]
fn each_protocol_is_right_afterwards() {
    let (v4, v6) = (
        || PacketBuilder::ipv4(HERE.octets(), PEER.octets(), 64),
        || PacketBuilder::ipv6(HERE6.octets(), PEER6.octets(), 64),
    );
    for packet in [
        built(v4().udp(1234, 53), b"hello"),
        built(v4().tcp(1234, 80, 7, 1024), b"hello, world"),
        built(v4().icmpv4_echo_request(7, 1), b"ping"),
    ] {
        assert_eq!(addresses(&sent(packet)), ("10.0.40.7".into(), PEER.to_string()));
    }
    for packet in [
        built(v6().udp(1234, 53), b"hello"),
        built(v6().tcp(1234, 80, 7, 1024), b"hello, world"),
        built(v6().icmpv6_echo_request(7, 1), b"ping"),
    ] {
        assert_eq!(addresses(&sent(packet)), ("fd00:2::7".into(), PEER6.to_string()));
    }
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let mut packet = udp(b"hello");
    packet[26..28].fill(0);
    assert_eq!(sent(packet)[26..28], [0, 0]);
}

#[test]
fn a_sum_that_the_device_completes_is_kept_as_such() {
    let mut packet = udp(b"hello");
    let pseudo = |source: Ipv4Addr| {
        let mut sum = Change::default();
        sum.replace(&[0; 12], &[&source.octets()[..], &PEER.octets(), &[0, 17, 0, 13]].concat());
        let mut field = [0, 0];
        sum.apply_to_sum(&mut field);
        field
    };
    packet[26..28].copy_from_slice(&pseudo(HERE));
    translate(&mut packet, Checksum::Partial, outbound).unwrap();
    assert_eq!(packet[26..28], pseudo(Ipv4Addr::new(10, 0, 40, 7)));
}

#[test]
fn later_fragments_get_addresses_and_nothing_else() {
    let mut header = Ipv4Header::new(16, 64, IpNumber::UDP, HERE.octets(), PEER.octets()).unwrap();
    header.fragment_offset = 8.try_into().unwrap();
    header.header_checksum = header.calc_header_checksum();
    let mut packet = header.to_bytes().to_vec();
    packet.extend([7; 16]);
    let after = sent(packet);
    assert_eq!(after[20..], [7; 16]);
    assert!(Header::parse(&after).unwrap().is_fragment());
}

/// An error from the peer about a packet of ours, as it comes out of the tunnel.
fn inbound(packet: Packet) -> Result<Packet, Drop> {
    let turned = |packet: Packet| Packet { source: packet.destination, destination: packet.source };
    let name = Translation::new("10.0.40.0/24".parse().unwrap(), "10.244.0.0/24".parse().unwrap()).unwrap();
    let source = name.outward(turned(packet).source).ok_or(Drop::ForeignDestination)?;
    Ok(turned(Packet { source, ..turned(packet) }))
}

#[test]
fn the_packet_in_an_error_is_the_one_that_was_sent() {
    let original = udp(b"hello");
    let quoted = sent(original.clone());
    let unreachable = Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Port);
    let there = Ipv4Addr::new(10, 0, 40, 7);
    let builder = || PacketBuilder::ipv4(PEER.octets(), there.octets(), 64).icmpv4(unreachable.clone());
    for length in [28, quoted.len()] {
        let mut error = built(builder(), &quoted[..length]);
        translate(&mut error, Checksum::Whole, inbound).unwrap();
        assert_eq!(addresses(&error), (PEER.to_string(), HERE.to_string()));
        assert_eq!(error[28..], original[..length], "byte by byte");
    }
    let mut error = built(builder(), &quoted[..16]);
    let before = error.clone();
    let dropped = translate(&mut error, Checksum::Whole, inbound);
    assert_eq!((dropped, error), (Err(Malformed.into()), before), "half a header");
}

#[test]
fn an_error_of_a_router_comes_from_our_gateway_if_it_is_about_a_packet_of_the_peer() {
    let router = Ipv4Addr::new(172, 18, 0, 1);
    let gateway = Ipv4Addr::new(192, 168, 8, 1);
    let unreachable = Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Port);
    let about = |to: Ipv4Addr| built(PacketBuilder::ipv4(PEER.octets(), to.octets(), 64).udp(53, 9), b"hi");
    let builder = || PacketBuilder::ipv4(router.octets(), PEER.octets(), 64).icmpv4(unreachable.clone());
    let error = built(builder(), &about(HERE));
    let mut named = error.clone();
    translate_with_router(&mut named, Checksum::Whole, outbound, Some(gateway.into())).unwrap();
    assert_eq!(addresses(&named), (gateway.to_string(), PEER.to_string()));
    assert_eq!(addresses(&named[28..]), (PEER.to_string(), "10.0.40.7".into()));
    let nameless = Err(Dropped::Rule(Drop::NamelessSource));
    assert_eq!(translate(&mut error.clone(), Checksum::Whole, outbound), nameless);
    let as_gateway = Some(gateway.into());
    let with_router =
        |mut packet: Vec<u8>| translate_with_router(&mut packet, Checksum::Whole, outbound, as_gateway);
    assert_eq!(with_router(built(builder(), &about(router))), nameless, "about something else");
    let plain = PacketBuilder::ipv4(router.octets(), PEER.octets(), 64).udp(1, 2);
    assert_eq!(with_router(built(plain, b"x")), nameless, "no error");
}

#[test]
fn an_error_of_ipv6_is_translated_as_well() {
    let too_big = Icmpv6Type::PacketTooBig { mtu: 1280 };
    let quoted =
        sent(built(PacketBuilder::ipv6(HERE6.octets(), PEER6.octets(), 64).tcp(1, 2, 3, 4), b"hello"));
    let there: Ipv6Addr = "fd00:2::7".parse().unwrap();
    let mut error = built(PacketBuilder::ipv6(PEER6.octets(), there.octets(), 64).icmpv6(too_big), &quoted);
    let rules = |packet: Packet| {
        let name = Translation::new("fd00:1::/64".parse().unwrap(), "fd00:2::/64".parse().unwrap()).unwrap();
        let destination = name.inward(packet.destination).ok_or(Drop::ForeignDestination)?;
        Ok(Packet { destination, ..packet })
    };
    translate(&mut error, Checksum::Whole, rules).unwrap();
    assert_eq!(addresses(&error), (PEER6.to_string(), HERE6.to_string()));
    assert_eq!(addresses(&error[48..]), (HERE6.to_string(), PEER6.to_string()));
}

#[test]
fn what_is_not_a_whole_packet_is_dropped_as_it_is() {
    let whole = udp(b"hello");
    for length in 0..whole.len() {
        let mut part = whole[..length].to_vec();
        assert_eq!(translate(&mut part, Checksum::Whole, outbound), Err(Malformed.into()));
        assert_eq!(part, whole[..length]);
    }
    let mut foreign = built(PacketBuilder::ipv4([192, 0, 2, 1], PEER.octets(), 64).udp(1, 2), b"x");
    let before = foreign.clone();
    let dropped = translate(&mut foreign, Checksum::Whole, outbound);
    assert_eq!((dropped, foreign), (Err(Dropped::Rule(Drop::NamelessSource)), before));
}

proptest! {
    #[test]
    fn any_packet_is_right_afterwards(host: u8, peer: u32, ports: (u16, u16), payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let builder = PacketBuilder::ipv4([10, 244, 0, host], peer.to_be_bytes(), 64).udp(ports.0, ports.1);
        let after = sent(built(builder, &payload));
        prop_assert_eq!(addresses(&after).0, format!("10.0.40.{host}"));
        prop_assert_eq!(&after[28..], &payload[..]);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), first in prop_oneof![Just(0x45), Just(0x60), any::<u8>()]) {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let any = |packet: Packet| Ok(Packet { source: packet.destination, destination: packet.source });
        _ = translate(&mut bytes, Checksum::Whole, any);
        _ = translate(&mut bytes, Checksum::Partial, any);
    }
}
