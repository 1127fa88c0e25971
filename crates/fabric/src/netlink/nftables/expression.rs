//! What rules are made of: something of the packet, what it is compared with, and what becomes of the packet.

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
const COMPARE_FROM: u16 = 1;
const COMPARE_HOW: u16 = 2;
const COMPARE_WITH: u16 = 3;
const FIB_TO: u16 = 1;
const FIB_RESULT: u16 = 2;
const FIB_FLAGS: u16 = 3;
const META_TO: u16 = 1;
const META_KEY: u16 = 2;
const CONNECTION_TO: u16 = 1;
const CONNECTION_KEY: u16 = 2;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
const IMMEDIATE_TO: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const NAT_TYPE: u16 = 1;
const NAT_FAMILY: u16 = 2;
const NAT_FROM: u16 = 3;
const NAT_PORT_FROM: u16 = 5;

/// The header of the network layer.
const NETWORK_HEADER: u32 = 1;
/// The header above it.
const TRANSPORT_HEADER: u32 = 2;
/// The one register that is used.
const REGISTER: u32 = 1;
/// The register that says what becomes of the packet.
const VERDICT_REGISTER: u32 = 0;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// Those that are in a set, or those that are not.
const INVERTED: u32 = 1;
const EQUAL: u32 = 0;
const UNEQUAL: u32 = 1;
/// A route is asked what sort of address the receiver has.
const FIB_TYPE: u32 = 3;
const FIB_RECEIVER: u32 = 2;
/// The name of the link that a packet came by.
const META_INPUT: u32 = 6;
/// The number of the protocol above IP.
const META_PROTOCOL: u32 = 16;
/// Which way a packet of a connection goes.
const CONNECTION_DIRECTION: u32 = 1;
/// Where a datagram has the port that it is for, and how long that is.
const PORT: (u32, u32) = (2, 2);
/// Translation of the sender.
const SNAT: u32 = 0;

/// A part of a rule. Each goes on with what the one before has left, or ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Takes the sender.
    Source,
    /// Takes the receiver.
    Destination,
    /// Takes the port that a datagram is for.
    DestinationPort,
    /// Takes the number of the protocol above IP, one byte.
    Protocol,
    /// Takes the name of the link that the packet came by.
    Input,
    /// Takes which way the packet goes in its connection, one byte: 0 as the first packet, 1 against it. A packet of no
    /// connection goes on no further.
    Direction,
    /// Takes what the receiver is to this host: the type of a route to it, as four bytes in the host's order.
    ReceiverType,
    /// Goes on only if what was taken is in this set.
    IsIn(String),
    /// Goes on only if it is not.
    IsNotIn(String),
    /// Goes on only if what was taken begins with this.
    Is(Vec<u8>),
    /// Goes on only if it does not.
    IsNot(Vec<u8>),
    /// Counts the packet.
    Count,
    /// Lets the packet through this chain.
    Accept,
    /// Ends the packet.
    Drop,
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
        Expression::Source => ("payload", address(version, offsets(version).0)),
        Expression::Destination => ("payload", address(version, offsets(version).1)),
        Expression::DestinationPort => ("payload", payload(TRANSPORT_HEADER, PORT.0, PORT.1)),
        Expression::Protocol => ("meta", data.number(META_TO, REGISTER).number(META_KEY, META_PROTOCOL)),
        Expression::Input => ("meta", data.number(META_TO, REGISTER).number(META_KEY, META_INPUT)),
        Expression::Direction => {
            ("ct", data.number(CONNECTION_TO, REGISTER).number(CONNECTION_KEY, CONNECTION_DIRECTION))
        }
        Expression::ReceiverType => {
            let data = data.number(FIB_TO, REGISTER).number(FIB_RESULT, FIB_TYPE);
            ("fib", data.number(FIB_FLAGS, FIB_RECEIVER))
        }
        Expression::IsIn(set) => ("lookup", lookup(set)),
        Expression::IsNotIn(set) => ("lookup", lookup(set).number(LOOKUP_FLAGS, INVERTED)),
        Expression::Is(value) => ("cmp", comparison(EQUAL, value)),
        Expression::IsNot(value) => ("cmp", comparison(UNEQUAL, value)),
        Expression::Count => {
            let nothing = 0_u64.to_be_bytes();
            ("counter", data.bytes(COUNTER_BYTES, &nothing).bytes(COUNTER_PACKETS, &nothing))
        }
        Expression::Accept => ("immediate", verdict(ACCEPT)),
        Expression::Drop => ("immediate", verdict(DROP)),
        Expression::Snat => {
            let data = data.number(NAT_TYPE, SNAT).number(NAT_FAMILY, version.number().into());
            ("nat", data.number(NAT_FROM, REGISTER))
        }
        Expression::Masquerade => ("masq", data),
        Expression::Other => return None,
    })
}

fn payload(header: u32, offset: u32, length: u32) -> Attributes {
    let data = Attributes::default().number(PAYLOAD_TO, REGISTER).number(PAYLOAD_BASE, header);
    data.number(PAYLOAD_OFFSET, offset).number(PAYLOAD_LENGTH, length)
}

fn address(version: Version, offset: u32) -> Attributes {
    payload(NETWORK_HEADER, offset, version.address().1)
}

fn lookup(set: &str) -> Attributes {
    Attributes::default().text(LOOKUP_SET, set).number(LOOKUP_FROM, REGISTER)
}

fn comparison(how: u32, value: &[u8]) -> Attributes {
    let data = Attributes::default().number(COMPARE_FROM, REGISTER).number(COMPARE_HOW, how);
    data.nest(COMPARE_WITH, &Attributes::default().bytes(DATA_VALUE, value))
}

fn verdict(code: u32) -> Attributes {
    let code = Attributes::default().number(VERDICT_CODE, code);
    let data = Attributes::default().number(IMMEDIATE_TO, VERDICT_REGISTER);
    data.nest(IMMEDIATE_DATA, &Attributes::default().nest(DATA_VERDICT, &code))
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
        "payload" => taken(version, data),
        "lookup" => {
            let set = attribute(data, LOOKUP_SET).and_then(text)?.to_owned();
            match (value(LOOKUP_FROM)?, value(LOOKUP_FLAGS).unwrap_or_default()) {
                (REGISTER, 0) => Some(Expression::IsIn(set)),
                (REGISTER, INVERTED) => Some(Expression::IsNotIn(set)),
                _ => None,
            }
        }
        "cmp" => {
            let with = attribute(attribute(data, COMPARE_WITH)?, DATA_VALUE)?.to_vec();
            match (value(COMPARE_FROM)?, value(COMPARE_HOW)?) {
                (REGISTER, EQUAL) => Some(Expression::Is(with)),
                (REGISTER, UNEQUAL) => Some(Expression::IsNot(with)),
                _ => None,
            }
        }
        "meta" => match (value(META_TO)?, value(META_KEY)?) {
            (REGISTER, META_PROTOCOL) => Some(Expression::Protocol),
            (REGISTER, META_INPUT) => Some(Expression::Input),
            _ => None,
        },
        "ct" => {
            let is_direction =
                (value(CONNECTION_TO)?, value(CONNECTION_KEY)?) == (REGISTER, CONNECTION_DIRECTION);
            is_direction.then_some(Expression::Direction)
        }
        "fib" => {
            let asked = (value(FIB_TO)?, value(FIB_RESULT)?, value(FIB_FLAGS)?);
            (asked == (REGISTER, FIB_TYPE, FIB_RECEIVER)).then_some(Expression::ReceiverType)
        }
        // How many there were is no part of what was written.
        "counter" => Some(Expression::Count),
        "immediate" => {
            let code = attribute(attribute(data, IMMEDIATE_DATA)?, DATA_VERDICT)?;
            match (value(IMMEDIATE_TO)?, attribute(code, VERDICT_CODE).and_then(number)?) {
                (VERDICT_REGISTER, ACCEPT) => Some(Expression::Accept),
                (VERDICT_REGISTER, DROP) => Some(Expression::Drop),
                _ => None,
            }
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

/// What is taken of the headers of a packet.
fn taken(version: Version, data: &[u8]) -> Option<Expression> {
    let value = |kind| attribute(data, kind).and_then(number);
    let (source, destination) = offsets(version);
    let (_, length) = version.address();
    if value(PAYLOAD_TO)? != REGISTER {
        return None;
    }
    match (value(PAYLOAD_BASE)?, value(PAYLOAD_OFFSET)?, value(PAYLOAD_LENGTH)?) {
        place if place == (NETWORK_HEADER, source, length) => Some(Expression::Source),
        place if place == (NETWORK_HEADER, destination, length) => Some(Expression::Destination),
        place if place == (TRANSPORT_HEADER, PORT.0, PORT.1) => Some(Expression::DestinationPort),
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
    fn filters_are_read_as_they_are_written() {
        let rules = [
            vec![Expression::Source, Expression::IsIn("views".into()), Expression::Direction],
            vec![Expression::Is(vec![1]), Expression::Accept],
            vec![Expression::Input, Expression::Is(b"ferro.".to_vec())],
            vec![Expression::ReceiverType, Expression::IsNot(vec![1, 0, 0, 0]), Expression::Count],
            vec![Expression::Protocol, Expression::Is(vec![17]), Expression::DestinationPort],
            vec![Expression::Source, Expression::IsNotIn("nodes".into()), Expression::Drop],
        ];
        for (version, rule) in rules.iter().flat_map(|rule| [(Version::V4, rule), (Version::V6, rule)]) {
            assert_eq!(read(version, Some(&write(version, rule).into_bytes())), *rule);
        }
    }

    #[test]
    fn an_address_of_the_other_version_is_something_else() {
        let bytes = write(Version::V6, &[Expression::Source]).into_bytes();
        assert_eq!(read(Version::V4, Some(&bytes)), [Expression::Other]);
    }
}
