//! Networks in sets: a kernel keeps where each begins and where it is over.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Bound;

use ipnet::IpNet;

use super::Version;
use super::attributes::{Attributes, attribute, attributes, number};

const ELEMENTS: u16 = 3;
const SET_ID: u16 = 4;
const ELEMENT: u16 = 1;
const KEY: u16 = 1;
const FLAGS: u16 = 3;
const VALUE: u16 = 1;
const INTERVAL_END: u32 = 1;

/// A begin or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element {
    bits: u128,
    is_end: bool,
}

/// The message that puts networks into a set.
pub(super) fn write(named: Attributes, id: u32, networks: &[&IpNet]) -> Attributes {
    let mut list = Attributes::default();
    for network in networks {
        list = list.nest(ELEMENT, &one(&octets(network.network()), false));
        // What goes on to the last address has no end.
        if let Some(end) = behind(network) {
            list = list.nest(ELEMENT, &one(&octets(end), true));
        }
    }
    named.nest(ELEMENTS, &list).number(SET_ID, id)
}

fn one(key: &[u8], is_end: bool) -> Attributes {
    let element = Attributes::default().nest(KEY, &Attributes::default().bytes(VALUE, key));
    if is_end { element.number(FLAGS, INTERVAL_END) } else { element }
}

/// The first address behind a network.
fn behind(network: &IpNet) -> Option<IpAddr> {
    match network.broadcast() {
        IpAddr::V4(last) => Some(IpAddr::V4(last.to_bits().checked_add(1)?.into())),
        IpAddr::V6(last) => Some(IpAddr::V6(last.to_bits().checked_add(1)?.into())),
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The elements in a message of the kernel.
pub(super) fn elements(message: &[u8]) -> Vec<Element> {
    let list = attribute(message, ELEMENTS).unwrap_or_default();
    attributes(list).filter_map(|(_, element)| read(element)).collect()
}

fn read(element: &[u8]) -> Option<Element> {
    let key = attribute(attribute(element, KEY)?, VALUE)?;
    let bits = key.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    let flags = attribute(element, FLAGS).and_then(number).unwrap_or_default();
    Some(Element { bits, is_end: flags & INTERVAL_END != 0 })
}

/// The networks that these elements are; none if they are others than networks.
pub(super) fn networks(version: Version, elements: &[Element]) -> Option<BTreeSet<IpNet>> {
    let ends: BTreeSet<u128> =
        elements.iter().filter(|element| element.is_end).map(|element| element.bits).collect();
    let begins = elements.iter().filter(|element| !element.is_end);
    let end_of = |begin| ends.range((Bound::Excluded(begin), Bound::Unbounded)).next().copied();
    begins.map(|begin| network(version, begin.bits, end_of(begin.bits))).collect()
}

fn network(version: Version, begin: u128, end: Option<u128>) -> Option<IpNet> {
    let (width, last) = match version {
        Version::V4 => (32, u128::from(u32::MAX)),
        Version::V6 => (128, u128::MAX),
    };
    let ip = match version {
        Version::V4 => IpAddr::V4(u32::try_from(begin).ok()?.into()),
        Version::V6 => IpAddr::V6(begin.into()),
    };
    // Without an end it goes on to the last address.
    let covered = end.map_or(last, |end| end - 1) - begin;
    let free = covered.count_ones();
    let network = IpNet::new(ip, u8::try_from(width - free).ok()?).ok()?;
    let is_whole = covered.trailing_ones() == free && network == network.trunc();
    is_whole.then_some(network)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn back(version: Version, networks_there: &[IpNet]) -> Option<BTreeSet<IpNet>> {
        let all: Vec<_> = networks_there.iter().collect();
        let bytes = write(Attributes::default(), 1, &all).into_bytes();
        networks(version, &elements(&bytes))
    }

    #[test]
    fn networks_are_read_as_they_are_written() {
        let sets: [(Version, &[&str]); 5] = [
            (Version::V4, &["10.0.0.0/24", "10.0.1.0/24", "10.0.2.7/32", "192.168.0.0/16"]),
            (Version::V4, &["0.0.0.0/1", "255.255.255.0/24"]),
            (Version::V4, &["0.0.0.0/0"]),
            (Version::V6, &["fd00::/8", "2001:db8::1/128"]),
            (Version::V6, &["::/0"]),
        ];
        for (version, texts) in sets {
            let set: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(back(version, &set), Some(set.into_iter().collect()));
        }
    }

    #[test]
    fn what_is_no_network_is_not_taken_for_one() {
        let element = |bits, is_end| Element { bits, is_end };
        let odd = [element(0x0a00_0000, false), element(0x0a00_0003, true)];
        assert_eq!(networks(Version::V4, &odd), None);
        let askew = [element(0x0a00_0001, false), element(0x0a00_0003, true)];
        assert_eq!(networks(Version::V4, &askew), None);
    }

    proptest! {
        #[test]
        fn any_networks_that_are_apart_come_back(nets in proptest::collection::vec((any::<u32>(), 1_u8..=32), 1..50)) {
            let nets: Vec<IpNet> =
                nets.into_iter().map(|(bits, length)| IpNet::new(IpAddr::V4(bits.into()), length).unwrap()).collect();
            let nets = IpNet::aggregate(&nets);
            prop_assert_eq!(back(Version::V4, &nets), Some(nets.into_iter().collect()));
        }
    }
}
