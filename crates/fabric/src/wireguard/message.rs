//! The four kinds of datagrams, byte for byte: read in place, and only as they must be.
//!
//! Each kind is a structure that lies over the bytes, so that nothing is copied and no length is computed. What has
//! another length, an unknown kind, or reserved bytes that are not zero, is no message.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bytes before the payload of a data message.
pub const HEADER: usize = size_of::<DataHeader>();
/// The bytes after it, by which the receiver knows that it is genuine.
pub const TAG: usize = 16;

/// What the Noise protocol puts into an initiation: an ephemeral key, the static key, a timestamp.
pub type InitiationNoise = [u8; 32 + (32 + TAG) + (12 + TAG)];
/// What the Noise protocol puts into a response: an ephemeral key, and nothing, sealed.
pub type ResponseNoise = [u8; 32 + TAG];

/// The first four bytes: the kind, and three that are reserved.
type Kind = [u8; 4];

const INITIATION: Kind = [1, 0, 0, 0];
const RESPONSE: Kind = [2, 0, 0, 0];
const COOKIE_REPLY: Kind = [3, 0, 0, 0];
const DATA: Kind = [4, 0, 0, 0];

/// The end of both handshake messages: a proof that the sender knows whom it talks to, and one that it receives
/// what is sent to its address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Macs {
    /// Over all before it.
    pub mac1: [u8; 16],
    /// Over all before it, with a cookie as key; zero without one.
    pub mac2: [u8; 16],
}

/// Begins a handshake.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Initiation {
    kind: Kind,
    sender: U32,
    /// For the Noise protocol.
    pub noise: InitiationNoise,
    /// Proofs.
    pub macs: Macs,
}

impl Initiation {
    /// An initiation of this sender, without proofs yet.
    pub fn new(sender: u32, noise: InitiationNoise) -> Self {
        Self { kind: INITIATION, sender: sender.into(), noise, macs: Macs::default() }
    }

    /// The index by which the sender wants to be addressed.
    pub fn sender(&self) -> u32 {
        self.sender.get()
    }
}

/// Answers an initiation.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Response {
    kind: Kind,
    sender: U32,
    receiver: U32,
    /// For the Noise protocol.
    pub noise: ResponseNoise,
    /// Proofs.
    pub macs: Macs,
}

impl Response {
    /// A response of this sender to that receiver, without proofs yet.
    pub fn new(sender: u32, receiver: u32, noise: ResponseNoise) -> Self {
        let (sender, receiver) = (sender.into(), receiver.into());
        Self { kind: RESPONSE, sender, receiver, noise, macs: Macs::default() }
    }

    /// The index by which the sender wants to be addressed.
    pub fn sender(&self) -> u32 {
        self.sender.get()
    }

    /// The index of the initiation.
    pub fn receiver(&self) -> u32 {
        self.receiver.get()
    }
}

/// Answers a handshake message that will be handled when it comes again with this cookie.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CookieReply {
    kind: Kind,
    receiver: U32,
    /// For the seal of the cookie.
    pub nonce: [u8; 24],
    /// The cookie, sealed.
    pub cookie: [u8; 16],
    /// The tag of the seal.
    pub tag: [u8; TAG],
}

impl CookieReply {
    /// A reply to the sender of a handshake message.
    pub fn new(receiver: u32, nonce: [u8; 24], cookie: [u8; 16], tag: [u8; TAG]) -> Self {
        Self { kind: COOKIE_REPLY, receiver: receiver.into(), nonce, cookie, tag }
    }

    /// The index of the handshake message.
    pub fn receiver(&self) -> u32 {
        self.receiver.get()
    }
}

/// The beginning of a data message. The payload and its tag follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataHeader {
    kind: Kind,
    receiver: U32,
    counter: U64,
}

impl DataHeader {
    /// The header of a message with this number.
    pub fn new(receiver: u32, counter: u64) -> Self {
        Self { kind: DATA, receiver: receiver.into(), counter: counter.into() }
    }

    /// The index of the session.
    pub fn receiver(&self) -> u32 {
        self.receiver.get()
    }

    /// The number of the message in its session.
    pub fn counter(&self) -> u64 {
        self.counter.get()
    }
}

/// A datagram that has the form of a message. Nothing in it is authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Begins a handshake.
    Initiation(&'a Initiation),
    /// Answers it.
    Response(&'a Response),
    /// Asks for it again, with a cookie.
    CookieReply(&'a CookieReply),
    /// Carries a packet, or nothing to keep the session alive.
    Data(DataHeader),
}

/// The datagram is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of WireGuard")]
pub struct Malformed;

/// Reads a datagram.
pub fn parse(datagram: &[u8]) -> Result<Message<'_>, Malformed> {
    let kind: &Kind = datagram.first_chunk().ok_or(Malformed)?;
    match *kind {
        INITIATION => Initiation::ref_from_bytes(datagram).map(Message::Initiation).map_err(|_| Malformed),
        RESPONSE => Response::ref_from_bytes(datagram).map(Message::Response).map_err(|_| Malformed),
        COOKIE_REPLY => {
            CookieReply::ref_from_bytes(datagram).map(Message::CookieReply).map_err(|_| Malformed)
        }
        DATA if datagram.len() >= HEADER + TAG => {
            let (header, _) = DataHeader::read_from_prefix(datagram).map_err(|_| Malformed)?;
            Ok(Message::Data(header))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::{CookieReply, DataHeader, Initiation, Macs, Malformed, Message, Response, parse};

    fn one_of_each() -> [Vec<u8>; 4] {
        [
            Initiation::new(7, [1; 108]).as_bytes().to_vec(),
            Response::new(7, 8, [2; 48]).as_bytes().to_vec(),
            CookieReply::new(8, [3; 24], [4; 16], [5; 16]).as_bytes().to_vec(),
            [DataHeader::new(8, 9).as_bytes(), &[0; 16]].concat(),
        ]
    }

    #[test]
    fn messages_have_the_lengths_of_the_protocol() {
        assert_eq!(one_of_each().map(|message| message.len()), [148, 92, 64, 32]);
    }

    #[test]
    fn numbers_are_little_endian_at_their_places() {
        let initiation = Initiation::new(0x0403_0201, [0; 108]);
        assert_eq!(initiation.as_bytes()[..8], [1, 0, 0, 0, 1, 2, 3, 4]);
        let response = Response::new(0x0403_0201, 0x0807_0605, [0; 48]);
        assert_eq!(response.as_bytes()[..12], [2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let reply = CookieReply::new(0x0403_0201, [0; 24], [0; 16], [0; 16]);
        assert_eq!(reply.as_bytes()[..8], [3, 0, 0, 0, 1, 2, 3, 4]);
        let data = DataHeader::new(0x0403_0201, 0x0c0b_0a09_0807_0605);
        assert_eq!(data.as_bytes(), [4, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut initiation = Initiation::new(7, [1; 108]);
        initiation.macs = Macs { mac1: [5; 16], mac2: [6; 16] };
        assert_eq!(parse(initiation.as_bytes()), Ok(Message::Initiation(&initiation)));
        assert_eq!(initiation.as_bytes()[116..132], [5; 16]);
        assert_eq!(initiation.as_bytes()[132..], [6; 16]);
        let [_, response, reply, data] = one_of_each();
        assert_eq!(parse(&response), Ok(Message::Response(&Response::new(7, 8, [2; 48]))));
        assert_eq!(parse(&reply), Ok(Message::CookieReply(&CookieReply::new(8, [3; 24], [4; 16], [5; 16]))));
        assert_eq!(parse(&data), Ok(Message::Data(DataHeader::new(8, 9))));
    }

    #[test]
    fn another_length_is_no_message() {
        for message in one_of_each() {
            for length in 0..message.len() {
                assert_eq!(parse(&message[..length]), Err(Malformed));
            }
        }
        for message in &one_of_each()[..3] {
            assert_eq!(parse(&[message, &[0_u8][..]].concat()), Err(Malformed));
        }
    }

    #[test]
    fn reserved_bytes_are_zero() {
        for message in one_of_each() {
            for reserved in 1..4 {
                let mut message = message.clone();
                message[reserved] = 1;
                assert_eq!(parse(&message), Err(Malformed));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            kind in 0_u8..6,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            reserved: bool,
        ) {
            if !reserved && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            }
            if let Ok(Message::Data(header)) = parse(&bytes) {
                prop_assert_eq!(header.as_bytes(), &bytes[..16]);
            }
        }
    }
}
