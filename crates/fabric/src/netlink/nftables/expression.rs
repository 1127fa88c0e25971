//! What rules are made of: an address of the packet, whether it is in a set, and what becomes of the sender.

use super::Version;
use super::attributes::{Attributes, attribute, attributes, number, text};

const LIST_ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;

const PAYLOAD_TO: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const LOOKUP_SET: u16 = 1;
const LOOKUP_FROM: u16 = 2;
const LOOKUP_FLAGS: u16 = 5;
const NAT_TYPE: u16 = 1;
const NAT_FAMILY: u16 = 2;
const NAT_FROM: u16 = 3;
const NAT_PORT_FROM: u16 = 5;

/// The header of the network layer.
const NETWORK_HEADER: u32 = 1;
/// The one register that is used.
const REGISTER: u32 = 1;
/// Translation of the sender.
const SNAT: u32 = 0;

/// A part of a rule. Each goes on with what the one before has left, or ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Takes the sender.
    Source,
    /// Takes the receiver.
    Destination,
    /// Goes on only if what was taken is in this set.
    IsIn(String),
    /// Makes what was taken the sender, for all packets of the connection. If it is the sender already, nobody after
    /// this changes it.
    Snat,
    /// Makes this host the sender.
    Masquerade,
    /// Something that is not written here.
    Other,
}

/// The expressions of a rule.
pub(super) fn write(version: Version, rule: &[Expression]) -> Attributes {
    let mut list = Attributes::default();
    for (name, data) in rule.iter().filter_map(|expression| parts(version, expression)) {
        list = list.nest(LIST_ELEMENT, &Attributes::default().text(NAME, name).nest(DATA, &data));
    }
    list
}

fn parts(version: Version, expression: &Expression) -> Option<(&'static str, Attributes)> {
    let data = Attributes::default();
    Some(match expression {
        Expression::Source => ("payload", payload(version, offsets(version).0)),
        Expression::Destination => ("payload", payload(version, offsets(version).1)),
        Expression::IsIn(set) => ("lookup", data.text(LOOKUP_SET, set).number(LOOKUP_FROM, REGISTER)),
        Expression::Snat => {
            let data = data.number(NAT_TYPE, SNAT).number(NAT_FAMILY, version.number().into());
            ("nat", data.number(NAT_FROM, REGISTER))
        }
        Expression::Masquerade => ("masq", data),
        Expression::Other => return None,
    })
}

fn payload(version: Version, offset: u32) -> Attributes {
    let (_, length) = version.address();
    let data = Attributes::default().number(PAYLOAD_TO, REGISTER).number(PAYLOAD_BASE, NETWORK_HEADER);
    data.number(PAYLOAD_OFFSET, offset).number(PAYLOAD_LENGTH, length)
}

/// Where sender and receiver are in a header.
fn offsets(version: Version) -> (u32, u32) {
    match version {
        Version::V4 => (12, 16),
        Version::V6 => (8, 24),
    }
}

/// The expressions of a rule of the kernel.
pub(super) fn read(version: Version, list: Option<&[u8]>) -> Vec<Expression> {
    attributes(list.unwrap_or_default())
        .map(|(_, one)| one_of(version, one).unwrap_or(Expression::Other))
        .collect()
}

fn one_of(version: Version, bytes: &[u8]) -> Option<Expression> {
    let data = attribute(bytes, DATA).unwrap_or_default();
    let value = |kind| attribute(data, kind).and_then(number);
    match attribute(bytes, NAME).and_then(text)? {
        "payload" => {
            let is_address = value(PAYLOAD_TO)? == REGISTER
                && value(PAYLOAD_BASE)? == NETWORK_HEADER
                && value(PAYLOAD_LENGTH)? == version.address().1;
            let (source, destination) = offsets(version);
            match value(PAYLOAD_OFFSET)? {
                offset if is_address && offset == source => Some(Expression::Source),
                offset if is_address && offset == destination => Some(Expression::Destination),
                _ => None,
            }
        }
        "lookup" => {
            let is_plain = value(LOOKUP_FROM)? == REGISTER && value(LOOKUP_FLAGS).unwrap_or_default() == 0;
            let set = attribute(data, LOOKUP_SET).and_then(text)?;
            is_plain.then(|| Expression::IsIn(set.to_owned()))
        }
        "nat" => {
            let is_plain =
                value(NAT_TYPE)? == SNAT && value(NAT_FROM)? == REGISTER && value(NAT_PORT_FROM).is_none();
            is_plain.then_some(Expression::Snat)
        }
        "masq" => Some(Expression::Masquerade),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let rule = [
            Expression::Destination,
            Expression::IsIn("views".into()),
            Expression::Source,
            Expression::IsIn("own".into()),
            Expression::Snat,
        ];
        for version in [Version::V4, Version::V6] {
            let bytes = write(version, &rule).into_bytes();
            assert_eq!(read(version, Some(&bytes)), rule);
            assert_eq!(
                read(version, Some(&write(version, &[Expression::Masquerade]).into_bytes())),
                [Expression::Masquerade]
            );
        }
        assert_eq!(read(Version::V4, None), []);
    }

    #[test]
    fn an_address_of_the_other_version_is_something_else() {
        let bytes = write(Version::V6, &[Expression::Source]).into_bytes();
        assert_eq!(read(Version::V4, Some(&bytes)), [Expression::Other]);
    }
}
