//! Packets made by somebody else's library, and checked by it.

use std::net::IpAddr;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// A packet with this payload.
pub(super) fn built(builder: etherparse::PacketBuilderStep<impl Writes>, payload: &[u8]) -> Vec<u8> {
    Writes::write(builder, payload)
}

/// The builders of the library have no trait in common.
pub(super) trait Writes: Sized {
    fn write(builder: etherparse::PacketBuilderStep<Self>, payload: &[u8]) -> Vec<u8>;
}

macro_rules! writes {
    ($($header:ty),*) => {$(
        impl Writes for $header {
            fn write(builder: etherparse::PacketBuilderStep<Self>, payload: &[u8]) -> Vec<u8> {
                let mut bytes = Vec::new();
                builder.write(&mut bytes, payload).unwrap();
                bytes
            }
        }
    )*};
}

writes!(etherparse::UdpHeader, etherparse::TcpHeader, etherparse::Icmpv4Header, etherparse::Icmpv6Header);

/// The addresses, provided that every checksum is right.
pub(super) fn addresses(bytes: &[u8]) -> (String, String) {
    let sliced = SlicedPacket::from_ip(bytes).unwrap();
    let (source, destination) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum, "of IP");
            (IpAddr::from(header.source), IpAddr::from(header.destination))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        NetSlice::Arp(_) => unreachable!(),
    };
    check_transport(&sliced, source, destination);
    (source.to_string(), destination.to_string())
}

fn check_transport(sliced: &SlicedPacket<'_>, source: IpAddr, destination: IpAddr) {
    let (found, right) = match (sliced.transport.as_ref(), source, destination) {
        (Some(TransportSlice::Udp(udp)), IpAddr::V4(from), IpAddr::V4(to)) => {
            let right = udp.to_header().calc_checksum_ipv4_raw(from.octets(), to.octets(), udp.payload());
            (udp.checksum(), right.unwrap())
        }
        (Some(TransportSlice::Udp(udp)), IpAddr::V6(from), IpAddr::V6(to)) => {
            let right = udp.to_header().calc_checksum_ipv6_raw(from.octets(), to.octets(), udp.payload());
            (udp.checksum(), right.unwrap())
        }
        (Some(TransportSlice::Tcp(tcp)), IpAddr::V4(from), IpAddr::V4(to)) => {
            (tcp.checksum(), tcp.calc_checksum_ipv4(from.octets(), to.octets()).unwrap())
        }
        (Some(TransportSlice::Tcp(tcp)), IpAddr::V6(from), IpAddr::V6(to)) => {
            (tcp.checksum(), tcp.calc_checksum_ipv6(from.octets(), to.octets()).unwrap())
        }
        (Some(TransportSlice::Icmpv4(icmp)), ..) => {
            let header = icmp.header();
            (header.checksum, header.icmp_type.calc_checksum(icmp.payload()))
        }
        (Some(TransportSlice::Icmpv6(icmp)), IpAddr::V6(from), IpAddr::V6(to)) => {
            let right = icmp.icmp_type().calc_checksum(from.octets(), to.octets(), icmp.payload());
            (icmp.checksum(), right.unwrap())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(found, right, "of {:?}", sliced.transport);
}
