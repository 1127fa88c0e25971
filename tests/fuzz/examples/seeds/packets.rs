//! Samples of packets, made by somebody else's library, and of what is done with them.

use anyhow::Result;
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, PacketBuilderStep, TcpOptionElement};
use ferro_fabric::wireguard::message::{CookieReply, DataHeader, Initiation, Response};
use zerocopy::IntoBytes as _;

use crate::Seed;

const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const A6: [u8; 16] = [1; 16];
const B6: [u8; 16] = [2; 16];
/// Makes the checksums of a packet right, in front of its length.
const RIGHT: u16 = 0x8000;
/// Says of a packet that it arrives, and instead of one that time passes.
const ARRIVES: u16 = 0x4000;
const PASSES: u16 = 0x8000;

/// The builders of the library have no trait in common.
macro_rules! built {
    ($builder:expr, $payload:expr) => {{
        let mut bytes = Vec::new();
        $builder.write(&mut bytes, $payload)?;
        bytes
    }};
}

fn v4() -> PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ipv4(A4, B4, 64)
}

fn v6() -> PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ipv6(A6, B6, 64)
}

pub fn seeds() -> Result<Vec<Seed>> {
    Ok([plain()?, cut()?, together()?, conversations()?, wireguard()].concat())
}

fn plain() -> Result<Vec<Seed>> {
    let (udp4, tcp6) = (built!(v4().udp(1234, 53), b"hello"), built!(v6().tcp(1, 2, 3, 4), b"hello"));
    let about = built!(PacketBuilder::ipv4(B4, A4, 64).udp(53, 1234), b"hi");
    let unreachable = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Port);
    let error4 = built!(v4().icmpv4(unreachable), &about);
    let about = built!(PacketBuilder::ipv6(B6, A6, 64).tcp(1, 2, 3, 4), b"hi");
    let error6 = built!(v6().icmpv6(Icmpv6Type::PacketTooBig { mtu: 1280 }), &about);
    let (ping4, ping6) =
        (built!(v4().icmpv4_echo_request(7, 1), b"ping"), built!(v6().icmpv6_echo_request(7, 1), b"ping"));
    let mut fragment = udp4.clone();
    fragment[6..8].copy_from_slice(&[0x20, 1]);
    let options = [TcpOptionElement::MaximumSegmentSize(1460), TcpOptionElement::WindowScale(7)];
    let syn = built!(v4().tcp(1, 2, 3, 4).syn().options(&options)?, &[]);
    let odd = [TcpOptionElement::Noop, TcpOptionElement::MaximumSegmentSize(8960)];
    let odd = built!(v6().tcp(1, 2, 3, 4).syn().options(&odd)?, &[]);
    // With a header for each hop, as long as it can be told in one unit.
    let mut extended = tcp6.clone();
    extended[6] = 0;
    extended.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    extended[5] += 8;
    let with = |how: u8, packet: &[u8]| [&[how], packet].concat();
    let at_mtu = |packet: &[u8]| [&1420_u16.to_be_bytes(), packet].concat();
    Ok(vec![
        ("packet_header", "udp4", udp4.clone()),
        ("packet_header", "tcp6", tcp6.clone()),
        ("packet_header", "fragment", fragment.clone()),
        ("packet_header", "extended", extended.clone()),
        ("translate", "udp4", with(0, &udp4)),
        ("translate", "tcp6", with(1, &tcp6)),
        ("translate", "in-part", with(2, &udp4)),
        ("translate", "extended", with(1, &extended)),
        ("translate", "error4", with(0, &error4)),
        ("translate", "error6", with(0, &error6)),
        ("translate", "router", with(5, &error4)),
        ("translate", "fragment", with(1, &fragment)),
        ("mss", "syn4", at_mtu(&syn)),
        ("mss", "odd6", at_mtu(&odd)),
        ("echo", "v4", ping4),
        ("echo", "v6", ping6),
    ])
}

/// With what the kernel says in front of a packet: flags, kind, length of headers, size, start, offset.
fn offloaded(kind: u8, size: u16, start: u16, offset: u16, packet: &[u8]) -> Vec<u8> {
    let fields = [start + 20, size, start, offset].map(u16::to_ne_bytes).concat();
    [&[1, kind][..], &fields, packet].concat()
}

fn cut() -> Result<Vec<Seed>> {
    let payload: Vec<u8> = (0..200).collect();
    let tcp4 = built!(v4().tcp(1, 2, u32::MAX - 50, 4).psh().fin().ack(5), &payload);
    let (tcp6, udp6) = (built!(v6().tcp(1, 2, 3, 4).ack(5), &payload), built!(v6().udp(1, 2), &payload));
    let longest = built!(v4().tcp(1, 2, 3, 4).ack(5), &letters(65_000));
    Ok(vec![
        ("segment", "longest", offloaded(1, 1400, 20, 16, &longest)),
        ("segment", "tcp4", offloaded(1, 64, 20, 16, &tcp4)),
        ("segment", "tcp6", offloaded(0x84, 100, 40, 16, &tcp6)),
        ("segment", "udp6", offloaded(5, 70, 40, 6, &udp6)),
        ("segment", "sum-only", offloaded(0, 0, 40, 6, &udp6)),
    ])
}

/// A long payload; of letters, since tests print what they try.
fn letters(length: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(length).collect()
}

/// Packets one after the other, with their lengths.
fn together() -> Result<Vec<Seed>> {
    let behind = |packets: &[Vec<u8>]| {
        let mut all = vec![1];
        for packet in packets {
            all.extend((RIGHT | u16::try_from(packet.len()).unwrap_or_default()).to_be_bytes());
            all.extend(packet);
        }
        all
    };
    let (mut stream, mut datagrams, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..3_u32 {
        let mut tcp = built!(v4().tcp(1, 2, 40 * n, 4).ack(5), &[7; 40]);
        tcp[5] = u8::try_from(n)?;
        stream.push(tcp.clone());
        datagrams.push(built!(v6().udp(1, 2), &[7; 30]));
        mixed.extend([
            tcp,
            built!(v4().udp(1, 2), &[7; 30]),
            built!(v4().tcp(9, 2, 20 * n, 4).ack(5), &[7; 20]),
        ]);
    }
    let mut full = Vec::new();
    for n in 0..46_u32 {
        let mut tcp = built!(v4().tcp(1, 2, 1400 * n, 4).ack(5), &letters(1400));
        tcp[5] = u8::try_from(n)?;
        full.push(tcp);
    }
    Ok(vec![
        ("coalesce", "full", behind(&full)),
        ("coalesce", "stream", behind(&stream)),
        ("coalesce", "datagrams", behind(&datagrams)),
        ("coalesce", "mixed", behind(&mixed)),
    ])
}

/// Packets that leave and that arrive, with their lengths, and time that passes between them.
fn conversations() -> Result<Vec<Seed>> {
    let with = |flag: u16, packet: &[u8]| -> Result<Vec<u8>> {
        Ok([&(flag | u16::try_from(packet.len())?).to_be_bytes(), packet].concat())
    };
    let leaves = |packet: Vec<u8>| with(0, &packet);
    let arrives = |packet: Vec<u8>| with(ARRIVES, &packet);
    let passes = |ticks: u16| (PASSES | ticks).to_be_bytes().to_vec();
    let back = || PacketBuilder::ipv4(B4, A4, 64);
    let back6 = || PacketBuilder::ipv6(B6, A6, 64);
    let tcp =
        |from: PacketBuilderStep<etherparse::IpHeaders>, ports: (u16, u16)| from.tcp(ports.0, ports.1, 3, 4);
    let connection = [
        leaves(built!(tcp(v4(), (1, 2)).syn(), &[]))?,
        arrives(built!(tcp(back(), (2, 1)).syn().ack(4), &[]))?,
        leaves(built!(tcp(v4(), (1, 2)).ack(4), b"hello"))?,
        passes(16_000),
        arrives(built!(tcp(back(), (2, 1)).ack(8), b"hello"))?,
        leaves(built!(tcp(v4(), (1, 2)).fin().ack(8), &[]))?,
        leaves(built!(tcp(v4(), (1, 2)).ack(9), &[]))?,
        arrives(built!(tcp(back(), (2, 1)).fin().ack(9), &[]))?,
        passes(50),
        arrives(built!(tcp(back(), (2, 1)).rst(), &[]))?,
        leaves(built!(tcp(v4(), (1, 2)).ack(9), &[]))?,
        arrives(built!(tcp(back(), (2, 1)).syn(), &[]))?,
    ];
    let asked = built!(v4().udp(1234, 53), b"hello");
    let expired = Icmpv4Type::TimeExceeded(etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit);
    let mut late = built!(back().udp(53, 1234), &[7; 64]);
    late[7] = 4;
    let datagrams = [
        leaves(asked.clone())?,
        arrives(built!(back().udp(53, 1234), b"hi"))?,
        arrives(built!(back().udp(54, 1234), b"hi"))?,
        arrives(built!(PacketBuilder::ipv4([10, 0, 0, 9], A4, 64).icmpv4(expired), &asked))?,
        arrives(late)?,
        passes(46),
        arrives(built!(back().udp(53, 1234), b"hi"))?,
    ];
    let pings = [
        leaves(built!(v6().icmpv6_echo_request(7, 1), b"ping"))?,
        arrives(built!(back6().icmpv6_echo_reply(7, 1), b"ping"))?,
        arrives(built!(back6().icmpv6_echo_request(7, 1), b"ping"))?,
        leaves(built!(v4().icmpv4_echo_request(7, 1), b"ping"))?,
        arrives(built!(back().icmpv4_echo_reply(8, 1), b"ping"))?,
    ];
    Ok(vec![
        ("flows", "connection", connection.concat()),
        ("flows", "datagrams", datagrams.concat()),
        ("flows", "pings", pings.concat()),
    ])
}

/// Messages, and scripts of what happens between two gateways.
fn wireguard() -> Vec<Seed> {
    let initiation = Initiation::new(7, [1; 108]);
    let response = Response::new(7, 8, [2; 48]);
    let cookie = CookieReply::new(8, [3; 24], [4; 16], [5; 16]);
    let data = [DataHeader::new(8, 9).as_bytes(), &[0; 16]].concat();
    // To want a session, then all that follows from it; forged and under load in between.
    let shaken = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 2, 0]].concat();
    let disturbed = [
        [0, 0, 0],
        [4, 0, 9],
        [7, 1, 0],
        [7, 0, 1],
        [7, 0, 2],
        [5, 1, 0],
        [1, 0, 0],
        [1, 1, 0],
        [6, 6, 0],
        [5, 0, 0],
        [1, 2, 0],
        [1, 3, 0],
        [1, 4, 0],
    ]
    .concat();
    // To seal and to receive, again, changed, shortened, and after some time.
    let packets = [
        [0, 0, 20],
        [0, 1, 0],
        [2, 3, 0],
        [2, 4, 0],
        [2, 3, 0],
        [4, 3, 40],
        [5, 3, 31],
        [6, 99, 0],
        [0, 0, 9],
        [2, 5, 0],
        [7, 1, 0],
    ]
    .concat();
    let content = [9; 40].repeat(2);
    let padded = |script: &[u8]| [script, &content[..]].concat();
    vec![
        ("wireguard_message", "initiation", initiation.as_bytes().to_vec()),
        ("wireguard_message", "response", response.as_bytes().to_vec()),
        ("wireguard_message", "cookie", cookie.as_bytes().to_vec()),
        ("wireguard_message", "data", data),
        ("wireguard_handshake", "shaken", shaken),
        ("wireguard_handshake", "disturbed", padded(&disturbed)),
        ("wireguard_session", "packets", padded(&packets)),
    ]
}
