//! Which addresses packets have on their way: beside those who talk, and inside of the tunnel.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::num::NonZeroU32;

use ferro_fabric::packet::Header;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

use crate::world::Host;

/// All that goes over the interfaces of a host, in both directions.
const ANY_PROTOCOL: u16 = 3;

/// Sees what goes by at a host.
pub struct Capture(UdpSocket);

impl Capture {
    pub fn at(host: &Host) -> Self {
        let protocol = NonZeroU32::new(ANY_PROTOCOL.to_be().into()).map(Protocol::from_raw);
        let open = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            Ok(socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol)?)
        };
        // The standard library reads it like any socket that keeps messages apart.
        Self(UdpSocket::from(host.inside(open).unwrap()))
    }

    /// The addresses of all that went by.
    pub fn hops(self) -> BTreeSet<String> {
        let (mut buffer, mut packets) = (vec![0; 1 << 16], Vec::new());
        while let Ok(length) = self.0.recv(&mut buffer) {
            packets.push(buffer[..length].to_vec());
        }
        hops(&packets)
    }
}

/// The addresses of these packets, of which some may be of other protocols.
pub fn hops(packets: &[Vec<u8>]) -> BTreeSet<String> {
    let addresses = packets.iter().filter_map(|packet| Some(Header::parse(packet).ok()?.addresses));
    let v4 = addresses.filter(|addresses| addresses.source.is_ipv4());
    v4.map(|addresses| format!("{} to {}", addresses.source, addresses.destination)).collect()
}
