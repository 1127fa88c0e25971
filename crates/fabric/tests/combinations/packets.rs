//! Packets that nobody should have to expect, made by somebody else's library and then spoilt.

use std::net::IpAddr;

use etherparse::{IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, PacketBuilder, TcpOptionElement};
use ferro_fabric::packet::Header;

/// Everybody listens there.
pub const PORT: u16 = 7000;
const ICMP: u8 = 1;

/// A header of IP between these, for a packet that may be cut.
fn ip(source: IpAddr, destination: IpAddr, above: IpNumber) -> IpHeaders {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("{source} and {destination} are not of IPv4");
    };
    let header = Ipv4Header::new(0, 64, above, source.octets(), destination.octets()).unwrap();
    IpHeaders::Ipv4(Ipv4Header { dont_fragment: false, ..header }, Ipv4Extensions::default())
}

/// A datagram between these.
pub fn udp(source: IpAddr, destination: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ip(ip(source, destination, IpNumber::UDP)).udp(PORT, port);
    builder.write(&mut packet, payload).unwrap();
    packet
}

pub fn evil(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    udp(source, destination, PORT, b"evil")
}

/// An error about a packet between these.
pub fn error_about(source: IpAddr, destination: IpAddr, about: &[u8]) -> Vec<u8> {
    let mut packet = udp(source, destination, PORT, &about[..28]);
    // That its checksum is wrong is for the receiver to find out.
    packet[9] = ICMP;
    packet[20..24].copy_from_slice(&[3, 3, 0, 0]);
    packet
}

/// What is less than it says, or says what cannot be.
pub fn broken(whole: &[u8]) -> Vec<Vec<u8>> {
    let mut broken: Vec<Vec<u8>> = (1..whole.len()).map(|length| whole[..length].to_vec()).collect();
    let mut changed = |place: usize, value: u8| {
        let mut packet = whole.to_vec();
        packet[place] = value;
        broken.push(packet);
    };
    // Versions that nobody knows, headers that are shorter than any or longer than this packet.
    for first in [0x05, 0x15, 0x55, 0x75, 0xf5, 0x40, 0x44, 0x4f, 0x60] {
        changed(0, first);
    }
    // Shorter than the header.
    changed(3, 19);
    // TCP, UDP and ICMP without their checksums.
    for (protocol, length) in [(6, 30), (17, 27), (1, 23)] {
        let mut packet = whole[..length].to_vec();
        (packet[3], packet[9]) = (u8::try_from(length).unwrap(), protocol);
        broken.push(packet);
    }
    // IPv6 with no end of headers.
    let mut endless = vec![0; 40 + 9 * 8];
    (endless[0], endless[5]) = (0x60, 9 * 8);
    broken.push(endless);
    broken
}

/// What a router says is the longest packet, if this is such an error to the peer.
pub fn told_length(packet: &[u8], to: IpAddr) -> Option<u16> {
    let addressed = Header::parse(packet).ok()?.addresses.destination == to;
    let is_told = packet[9] == ICMP && packet[20..22] == [3, 4];
    (addressed && is_told).then(|| u16::from_be_bytes([packet[26], packet[27]]))
}

/// Says of a packet that it must not be cut.
pub fn forbid_pieces(packet: &mut [u8]) {
    let checksum = !u16::from_be_bytes([packet[10], packet[11]]);
    let (sum, carry) = checksum.overflowing_add(0x4000);
    packet[6] |= 0x40;
    packet[10..12].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
}

/// Numbers that look random, and are always the same.
pub struct Noise(pub u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.to_le_bytes()[3]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }
}

/// Packets of which each has one byte that is not as it should be.
pub fn mutants(packet: &[u8], noise: &mut Noise) -> Vec<Vec<u8>> {
    let mutant = |place: usize| {
        let mut mutant = packet.to_vec();
        mutant[place] ^= noise.byte() | 1;
        mutant
    };
    (0..packet.len()).map(mutant).collect()
}

/// The beginning of a connection, with options.
pub fn syn(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ip(ip(source, destination, IpNumber::TCP)).tcp(PORT, PORT, 1, 1000);
    let options = [TcpOptionElement::MaximumSegmentSize(9000), TcpOptionElement::WindowScale(7)];
    builder.syn().options(&options).unwrap().write(&mut packet, &[]).unwrap();
    packet
}
