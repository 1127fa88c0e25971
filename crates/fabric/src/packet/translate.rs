//! Other addresses in a packet, with every checksum right: of IP, of what is above it, and inside of ICMP errors.
//!
//! An ICMP error carries the beginning of the packet that caused it, which went the other way: it is translated as
//! such, or else whoever sent that packet would not know it again.

use std::net::IpAddr;

use ferro_core::network::{Drop, Packet};

use super::checksum::Change;
use super::header::{Header, Malformed, Upper};

/// Why a packet was not translated. It is then as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It is no packet, or not a whole one.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The rules say so.
    #[error("{0:?}")]
    Rule(Drop),
}

impl From<Drop> for Dropped {
    fn from(rule: Drop) -> Self {
        Self::Rule(rule)
    }
}

/// What stands in the checksum of TCP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum.
    Whole,
    /// The sum over the addresses alone: the device completes it for each segment.
    Partial,
}

/// Gives a packet the addresses that the rules say.
pub fn translate(
    bytes: &mut [u8],
    checksum: Checksum,
    rules: impl Fn(Packet) -> Result<Packet, Drop>,
) -> Result<(), Dropped> {
    translate_with_router(bytes, checksum, rules, None)
}

/// The same, but an ICMP error of somebody without a name is as if it came from this router. Whatever stands on the way
/// may send one, a firewall or a node; who does not get it waits for ever, or sends packets that are too long. What it is
/// about still has to be translated by the rules.
pub fn translate_with_router(
    bytes: &mut [u8],
    checksum: Checksum,
    rules: impl Fn(Packet) -> Result<Packet, Drop>,
    router: Option<IpAddr>,
) -> Result<(), Dropped> {
    let header = Header::parse(bytes)?;
    let bytes = bytes.get_mut(..header.length).ok_or(Malformed)?;
    let quoted = quoted_at(bytes, &header);
    let wanted = match (rules(header.addresses), router) {
        (Err(Drop::NamelessSource), Some(source))
            if quoted.is_some() && source.is_ipv4() == header.addresses.source.is_ipv4() =>
        {
            Packet { source, ..header.addresses }
        }
        (wanted, _) => wanted?,
    };
    // All is checked before anything is changed.
    let quoted = quoted.map(|at| quote(bytes, at, &rules).map(|(from, to)| (at, from, to))).transpose()?;
    let check = checksum_at(bytes, &header)?;
    if let Some((at, inner, to)) = quoted {
        let change = rewrite_quote(bytes, at, &inner, to)?;
        if let Some(field) = field(bytes, check) {
            change.apply(field);
        }
    }
    let change = put_addresses(bytes, &header, wanted)?;
    update_upper(bytes, &header, check, checksum, change);
    Ok(())
}

/// Where the checksum of what is above IP is; none where there is none, or nothing in it depends on addresses and no
/// quote changes it.
fn checksum_at(bytes: &[u8], header: &Header) -> Result<Option<usize>, Malformed> {
    let Some(start) = header.upper_at else { return Ok(None) };
    let at = match header.upper {
        Upper::Tcp => start + 16,
        Upper::Udp => start + 6,
        Upper::Icmp | Upper::IcmpV6 => start + 2,
        Upper::Other(_) => return Ok(None),
    };
    // A first fragment that is too short to have it is nobody's work.
    if bytes.len() < at + 2 { Err(Malformed) } else { Ok(Some(at)) }
}

fn field(bytes: &mut [u8], at: Option<usize>) -> Option<&mut [u8; 2]> {
    bytes.get_mut(at?..)?.first_chunk_mut()
}

/// Where the packet begins that an ICMP error is about.
pub(super) fn quoted_at(bytes: &[u8], header: &Header) -> Option<usize> {
    let start = header.upper_at?;
    let kind = *bytes.get(start)?;
    let is_error = match header.upper {
        Upper::Icmp => matches!(kind, 3 | 4 | 5 | 11 | 12),
        Upper::IcmpV6 => (1..=4).contains(&kind),
        Upper::Tcp | Upper::Udp | Upper::Other(_) => false,
    };
    is_error.then_some(start + 8)
}

/// The packet that an error is about, and the addresses that it gets: it went the other way.
fn quote(
    bytes: &[u8],
    at: usize,
    rules: &impl Fn(Packet) -> Result<Packet, Drop>,
) -> Result<(Header, Packet), Dropped> {
    let inner = Header::parse_start(bytes.get(at..).ok_or(Malformed)?)?;
    Ok((inner, turned(rules(turned(inner.addresses))?)))
}

fn turned(packet: Packet) -> Packet {
    Packet { source: packet.destination, destination: packet.source }
}

/// Translates the packet that an error is about, and says how the sum over it changes.
fn rewrite_quote(bytes: &mut [u8], at: usize, inner: &Header, to: Packet) -> Result<Change, Malformed> {
    let quoted = bytes.get_mut(at..).ok_or(Malformed)?;
    let checks = [ip_checksum_at(inner), checksum_at(quoted, inner).unwrap_or_default()];
    let before = checks.map(|check| field(quoted, check).copied());
    let mut change = put_addresses(quoted, inner, to)?;
    update_upper(quoted, inner, checks[1], Checksum::Whole, change);
    for (check, before) in checks.into_iter().zip(before) {
        if let (Some(before), Some(after)) = (before, field(quoted, check)) {
            change.replace(&before, after);
        }
    }
    Ok(change)
}

fn ip_checksum_at(header: &Header) -> Option<usize> {
    header.addresses.source.is_ipv4().then_some(10)
}

/// Writes the addresses and the checksum of IP, and says how the sum over the addresses changes.
fn put_addresses(bytes: &mut [u8], header: &Header, to: Packet) -> Result<Change, Malformed> {
    let mut change = Change::default();
    match (header.addresses.source, to.source, to.destination) {
        (IpAddr::V4(_), IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fixed: &mut [u8; 20] = bytes.first_chunk_mut().ok_or(Malformed)?;
            let (head, addresses) = fixed.split_at_mut(12);
            let mut wanted = [0; 8];
            wanted[..4].copy_from_slice(&source.octets());
            wanted[4..].copy_from_slice(&destination.octets());
            change.replace(addresses, &wanted);
            addresses.copy_from_slice(&wanted);
            change.apply(head.last_chunk_mut().ok_or(Malformed)?);
        }
        (IpAddr::V6(_), IpAddr::V6(source), IpAddr::V6(destination)) => {
            let fixed: &mut [u8; 40] = bytes.first_chunk_mut().ok_or(Malformed)?;
            let (_, addresses) = fixed.split_at_mut(8);
            let mut wanted = [0; 32];
            wanted[..16].copy_from_slice(&source.octets());
            wanted[16..].copy_from_slice(&destination.octets());
            change.replace(addresses, &wanted);
            addresses.copy_from_slice(&wanted);
        }
        _ => return Err(Malformed),
    }
    Ok(change)
}

fn update_upper(bytes: &mut [u8], header: &Header, at: Option<usize>, checksum: Checksum, change: Change) {
    let Some(field) = field(bytes, at) else { return };
    match (header.upper, checksum) {
        (Upper::Tcp | Upper::Udp, Checksum::Partial) => change.apply_to_sum(field),
        // No checksum at all; IPv6 knows no such thing, and there it stays wrong.
        (Upper::Udp, Checksum::Whole) if *field == [0, 0] => {}
        (Upper::Udp, Checksum::Whole) => {
            change.apply(field);
            if *field == [0, 0] {
                *field = [0xff, 0xff];
            }
        }
        (Upper::Tcp | Upper::IcmpV6, _) => change.apply(field),
        (Upper::Icmp | Upper::Other(_), _) => {}
    }
}

#[cfg(test)]
mod tests;
