//! Who began to talk to whom: by it an answer is told from what somebody begins.
//!
//! Packets are looked at as they are inside this cluster, after and before their addresses are translated.

use std::net::IpAddr;

use super::header::{Header, Upper};
use super::translate::quoted_at;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Where the flags of TCP are.
const FLAGS_AT: usize = 13;
/// Echo request and reply, of IPv4 and of IPv6.
const ECHO: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);

/// One conversation, from the side of who began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    from: IpAddr,
    to: IpAddr,
    /// What is above IP, with the numbers by which its conversations are told apart; none for all between the two.
    upper: Option<(Upper, u16, u16)>,
}

/// How far a conversation is, by one packet of who began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It may be the first one, and the last.
    Begins,
    /// It is one of a connection.
    GoesOn,
    /// It ends a connection.
    Ends,
}

impl Flow {
    /// The one that a packet which leaves belongs to; none if it can only be an answer.
    pub fn begun(packet: &[u8], header: &Header) -> Option<(Self, Stage)> {
        let stage = match header.upper {
            // Of a fragment other than the first nothing is known, and the first one went ahead.
            _ if header.upper_at.is_none() => return None,
            Upper::Tcp => match flags(packet, header)? {
                flags if flags & (FIN | RST) != 0 => Stage::Ends,
                flags if flags & (SYN | ACK) == SYN | ACK => return None,
                flags if flags & SYN != 0 => Stage::Begins,
                _ => Stage::GoesOn,
            },
            Upper::Icmp if kind(packet, header)? != ECHO.0 => return None,
            Upper::IcmpV6 if kind(packet, header)? != ECHO_V6.0 => return None,
            Upper::Icmp | Upper::IcmpV6 | Upper::Udp | Upper::Other(_) => Stage::Begins,
        };
        Some((Self::of(packet, header)?, stage))
    }

    /// The one that a packet which arrives is an answer to, if there is such a one; none if it begins something.
    pub fn answered(packet: &[u8], header: &Header) -> Option<Self> {
        if let Some(at) = quoted_at(packet, header) {
            // An error is an answer to what it quotes, for who sent that.
            let quoted = packet.get(at..)?;
            let inner = Header::parse_start(quoted).ok()?;
            let is_his = inner.addresses.source == header.addresses.destination;
            return if is_his { Self::of(quoted, &inner) } else { None };
        }
        match header.upper {
            _ if header.upper_at.is_none() => return Some(Self::between(header).turned()),
            Upper::Tcp if flags(packet, header)? & (SYN | ACK) == SYN => return None,
            Upper::Icmp if kind(packet, header)? != ECHO.1 => return None,
            Upper::IcmpV6 if kind(packet, header)? != ECHO_V6.1 => return None,
            _ => {}
        }
        Self::of(packet, header).map(Self::turned)
    }

    /// All that the same two say to each other. Fragments other than the first do not tell what they belong to.
    #[must_use]
    pub fn of_both(self) -> Self {
        Self { upper: None, ..self }
    }

    fn between(header: &Header) -> Self {
        Self { from: header.addresses.source, to: header.addresses.destination, upper: None }
    }

    /// With the numbers as the sender of this packet has them.
    fn of(packet: &[u8], header: &Header) -> Option<Self> {
        let at = header.upper_at?;
        let number = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let (ours, theirs) = match header.upper {
            Upper::Tcp | Upper::Udp => (number(at)?, number(at + 2)?),
            // Both sides use the number of who asks.
            Upper::Icmp | Upper::IcmpV6 => (number(at + 4)?, number(at + 4)?),
            Upper::Other(_) => (0, 0),
        };
        Some(Self { upper: Some((header.upper, ours, theirs)), ..Self::between(header) })
    }

    fn turned(self) -> Self {
        let upper = self.upper.map(|(upper, ours, theirs)| (upper, theirs, ours));
        Self { from: self.to, to: self.from, upper }
    }
}

fn flags(packet: &[u8], header: &Header) -> Option<u8> {
    packet.get(header.upper_at? + FLAGS_AT).copied()
}

fn kind(packet: &[u8], header: &Header) -> Option<u8> {
    packet.get(header.upper_at?).copied()
}

#[cfg(test)]
mod tests;
