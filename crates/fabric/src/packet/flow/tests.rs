use etherparse::{Icmpv4Type, PacketBuilder, PacketBuilderStep, TcpHeader};

use super::super::sample::built;
use super::*;

const POD: [u8; 4] = [10, 244, 0, 7];
const PEER: [u8; 4] = [10, 0, 0, 5];

fn begun(packet: &[u8]) -> Option<(Flow, Stage)> {
    Flow::begun(packet, &Header::parse(packet).unwrap())
}

fn answered(packet: &[u8]) -> Option<Flow> {
    Flow::answered(packet, &Header::parse(packet).unwrap())
}

fn tcp(
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    flags: impl Fn(PacketBuilderStep<TcpHeader>) -> PacketBuilderStep<TcpHeader>,
) -> Vec<u8> {
    built(flags(PacketBuilder::ipv4(from.0, to.0, 64).tcp(from.1, to.1, 7, 1000)), b"hello")
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), length: usize) -> Vec<u8> {
    built(PacketBuilder::ipv4(from.0, to.0, 64).udp(from.1, to.1), &vec![7; length])
}

fn echo(from: [u8; 4], to: [u8; 4], kind: u8, identifier: u16) -> Vec<u8> {
    let header = etherparse::IcmpEchoHeader { id: identifier, seq: 1 };
    let kind = if kind == ECHO.0 { Icmpv4Type::EchoRequest(header) } else { Icmpv4Type::EchoReply(header) };
    built(PacketBuilder::ipv4(from, to, 64).icmpv4(kind), b"hello")
}

/// From somebody on the way, about this packet.
fn error(to: [u8; 4], about: &[u8]) -> Vec<u8> {
    let kind = Icmpv4Type::TimeExceeded(etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit);
    built(PacketBuilder::ipv4([10, 0, 0, 1], to, 64).icmpv4(kind), about.get(..28).unwrap())
}

#[test]
fn an_answer_is_known_by_the_ports_of_both() {
    let (flow, stage) = begun(&udp((POD, 4000), (PEER, 53), 1)).unwrap();
    assert_eq!(stage, Stage::Begins);
    assert_eq!(answered(&udp((PEER, 53), (POD, 4000), 9)), Some(flow));
    for other in [
        udp((PEER, 54), (POD, 4000), 9),
        udp((PEER, 53), (POD, 4001), 9),
        udp(([10, 0, 0, 6], 53), (POD, 4000), 9),
        udp((PEER, 53), ([10, 244, 0, 8], 4000), 9),
        udp((POD, 4000), (PEER, 53), 9),
        tcp((PEER, 53), (POD, 4000), |tcp| tcp.ack(1)),
    ] {
        assert_ne!(answered(&other), Some(flow));
    }
}

#[test]
fn connections_begin_go_on_and_end_and_only_one_side_begins() {
    let (pod, peer) = ((POD, 4000), (PEER, 80));
    let stage = |packet: Vec<u8>| begun(&packet).map(|(_, stage)| stage);
    assert_eq!(stage(tcp(pod, peer, PacketBuilderStep::syn)), Some(Stage::Begins));
    assert_eq!(stage(tcp(pod, peer, |tcp| tcp.ack(1))), Some(Stage::GoesOn));
    assert_eq!(stage(tcp(pod, peer, |tcp| tcp.ack(1).fin())), Some(Stage::Ends));
    assert_eq!(stage(tcp(pod, peer, PacketBuilderStep::rst)), Some(Stage::Ends));
    assert_eq!(stage(tcp(pod, peer, |tcp| tcp.syn().ack(1))), None, "it is an answer");
    let (flow, _) = begun(&tcp(pod, peer, PacketBuilderStep::syn)).unwrap();
    assert_eq!(answered(&tcp(peer, pod, |tcp| tcp.syn().ack(1))), Some(flow));
    assert_eq!(answered(&tcp(peer, pod, PacketBuilderStep::rst)), Some(flow));
    assert_eq!(answered(&tcp(peer, pod, PacketBuilderStep::syn)), None, "it begins something");
}

#[test]
fn a_ping_is_answered_and_not_begun_by_the_reply() {
    let (flow, _) = begun(&echo(POD, PEER, ECHO.0, 5)).unwrap();
    assert_eq!(answered(&echo(PEER, POD, ECHO.1, 5)), Some(flow));
    assert_ne!(answered(&echo(PEER, POD, ECHO.1, 6)), Some(flow));
    assert_eq!(answered(&echo(PEER, POD, ECHO.0, 5)), None);
    assert_eq!(begun(&echo(POD, PEER, ECHO.1, 5)), None);
}

#[test]
fn an_error_is_an_answer_for_who_sent_what_it_is_about() {
    let sent = udp((POD, 4000), (PEER, 53), 9);
    let (flow, _) = begun(&sent).unwrap();
    assert_eq!(answered(&error(POD, &sent)), Some(flow));
    assert_eq!(answered(&error([10, 244, 0, 8], &sent)), None);
    assert_eq!(begun(&error(PEER, &sent)), None);
    let ping = echo(POD, PEER, ECHO.0, 5);
    assert_eq!(answered(&error(POD, &ping)), Some(begun(&ping).unwrap().0));
}

#[test]
fn later_fragments_belong_to_all_that_the_two_say() {
    let (flow, _) = begun(&udp((POD, 4000), (PEER, 53), 1)).unwrap();
    let mut late = udp((PEER, 53), (POD, 4000), 64);
    late[7] = 4;
    assert_eq!(answered(&late), Some(flow.of_both()));
    assert_ne!(answered(&late), Some(flow));
    let mut leaving = udp((POD, 4000), (PEER, 53), 64);
    leaving[7] = 4;
    assert_eq!(begun(&leaving), None);
}

#[test]
fn protocols_without_ports_are_told_apart_by_their_number() {
    let with = |from: [u8; 4], to: [u8; 4], number: u8| {
        let mut packet = udp((from, 1), (to, 2), 1);
        packet[9] = number;
        packet
    };
    let (flow, _) = begun(&with(POD, PEER, 132)).unwrap();
    assert_eq!(answered(&with(PEER, POD, 132)), Some(flow));
    assert_ne!(answered(&with(PEER, POD, 47)), Some(flow));
}

#[test]
fn what_is_cut_off_is_neither() {
    for whole in [tcp((POD, 1), (PEER, 2), |tcp| tcp.ack(1)), udp((POD, 1), (PEER, 2), 0)] {
        let header = Header::parse(&whole).unwrap();
        for length in 0..24 {
            assert_eq!(Flow::begun(&whole[..length.min(whole.len())], &header), None);
            assert_eq!(Flow::answered(&whole[..length.min(whole.len())], &header), None);
        }
    }
}
