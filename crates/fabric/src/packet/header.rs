//! Where things are in an IP packet; every offset is checked before it is believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferro_core::network::Packet;

/// IPv6 allows any number of extension headers; nobody sends more.
const MOST_EXTENSIONS: usize = 8;
/// Where a fragment belongs, in units of 8 bytes, and whether more of them follow; both in one field of IPv4.
const OFFSET: u16 = 0x1fff;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Something that is not a packet, or not a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a whole packet")]
pub struct Malformed;

/// What is above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Upper {
    Tcp,
    Udp,
    Icmp,
    IcmpV6,
    /// By its number.
    Other(u8),
}

/// Where things are in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its addresses.
    pub addresses: Packet,
    /// As long as its header says.
    pub length: usize,
    pub(super) upper: Upper,
    /// Where that begins; none in a fragment other than the first.
    pub(super) upper_at: Option<usize>,
    is_fragment: bool,
}

impl Header {
    /// Reads the header of a whole packet, which may be followed by other bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let header = Self::parse_start(bytes)?;
        if header.length > bytes.len() { Err(Malformed) } else { Ok(header) }
    }

    /// Whether it is of a connection.
    pub fn is_tcp(&self) -> bool {
        self.upper == Upper::Tcp
    }

    /// Reads the header of a packet of which only the first bytes may be there.
    pub(super) fn parse_start(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::v4(bytes),
            Some(6) => Self::v6(bytes),
            _ => Err(Malformed),
        }
    }

    fn v4(bytes: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; 20] = bytes.first_chunk().ok_or(Malformed)?;
        let header_length = usize::from(fixed[0] & 0xf) * 4;
        let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_length < 20 || header_length > bytes.len() || length < header_length {
            return Err(Malformed);
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let upper = match fixed[9] {
            6 => Upper::Tcp,
            17 => Upper::Udp,
            1 => Upper::Icmp,
            other => Upper::Other(other),
        };
        Ok(Self {
            addresses: Packet {
                source: v4_address(fixed, 12).ok_or(Malformed)?,
                destination: v4_address(fixed, 16).ok_or(Malformed)?,
            },
            length,
            upper,
            upper_at: (fragment & OFFSET == 0).then_some(header_length),
            is_fragment: fragment & (OFFSET | MORE_FRAGMENTS) != 0,
        })
    }

    fn v6(bytes: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; 40] = bytes.first_chunk().ok_or(Malformed)?;
        let length = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        // What lies behind it is no part of it.
        let bytes = bytes.get(..length).unwrap_or(bytes);
        let mut header = Self {
            addresses: Packet {
                source: v6_address(fixed, 8).ok_or(Malformed)?,
                destination: v6_address(fixed, 24).ok_or(Malformed)?,
            },
            length,
            upper: Upper::Other(fixed[6]),
            upper_at: None,
            is_fragment: false,
        };
        header.follow_extensions(bytes, fixed[6])?;
        Ok(header)
    }

    /// Goes through the extension headers to what is above IP.
    fn follow_extensions(&mut self, bytes: &[u8], first: u8) -> Result<(), Malformed> {
        let (mut next, mut at) = (first, 40);
        for _ in 0..MOST_EXTENSIONS {
            match next {
                // Hop by hop, routing, destination: a length in units of 8 bytes, without the first.
                0 | 43 | 60 => {
                    let start: &[u8; 2] = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Malformed)?;
                    next = start[0];
                    at += (usize::from(start[1]) + 1) * 8;
                }
                44 => {
                    let start: &[u8; 4] = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Malformed)?;
                    self.is_fragment = true;
                    if u16::from_be_bytes([start[2], start[3]]) & 0xfff8 != 0 {
                        return Ok(());
                    }
                    next = start[0];
                    at += 8;
                }
                _ => {
                    self.upper = match next {
                        6 => Upper::Tcp,
                        17 => Upper::Udp,
                        58 => Upper::IcmpV6,
                        other => Upper::Other(other),
                    };
                    self.upper_at = Some(at);
                    return Ok(());
                }
            }
        }
        Err(Malformed)
    }

    /// Whether it is a part of a packet.
    pub fn is_fragment(&self) -> bool {
        self.is_fragment
    }
}

fn v4_address(fixed: &[u8; 20], at: usize) -> Option<IpAddr> {
    let bytes: &[u8; 4] = fixed.get(at..)?.first_chunk()?;
    Some(IpAddr::V4(Ipv4Addr::from(*bytes)))
}

fn v6_address(fixed: &[u8; 40], at: usize) -> Option<IpAddr> {
    let bytes: &[u8; 16] = fixed.get(at..)?.first_chunk()?;
    Some(IpAddr::V6(Ipv6Addr::from(*bytes)))
}
