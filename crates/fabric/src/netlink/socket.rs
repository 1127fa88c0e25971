//! One netlink socket: a request, and all that the kernel says to it.

use std::io;

use netlink_sys::{AsyncSocketExt as _, Socket, SocketAddr, TokioSocket};

/// The flags of messages.
pub(super) mod flags {
    pub(crate) const REQUEST: u16 = 0x001;
    pub(crate) const ACK: u16 = 0x004;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const REPLACE: u16 = 0x100;
    pub(crate) const EXCLUSIVE: u16 = 0x200;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
    /// Something changed while the kernel was listing.
    pub(super) const INTERRUPTED: u16 = 0x010;
}

const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// More than a kernel puts into one datagram.
const LARGEST: usize = 1 << 16;
/// How often something is listed anew because it changed meanwhile.
const ATTEMPTS: u32 = 5;

/// A message, without its header.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u16,
    flags: u16,
    pub(super) sequence: u32,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// What the kernel thinks of the message with the same number: nothing if this is no answer of that sort.
    pub(super) fn verdict(&self) -> Option<io::Result<()>> {
        if self.kind != ERROR {
            return None;
        }
        let code = self.body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.wrapping_neg())) })
    }
}

/// A socket with its numbers.
#[derive(Debug)]
pub(super) struct Conversation {
    socket: Socket,
    sequence: u32,
}

impl Conversation {
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks, and gives back all that is said.
    pub(super) fn ask(&mut self, kind: u16, with: u16, body: &[u8]) -> io::Result<Vec<Message>> {
        let mut answers = Vec::new();
        for _ in 0..ATTEMPTS {
            let sequence = self.next();
            self.send(&message(kind, with, sequence, body))?;
            answers = self.answers(sequence)?;
            if answers.iter().all(|answer| answer.flags & flags::INTERRUPTED == 0) {
                break;
            }
        }
        Ok(answers)
    }

    /// The number of the next message.
    pub(super) fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(bytes, 0)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn answers(&self, sequence: u32) -> io::Result<Vec<Message>> {
        let mut answers = Vec::new();
        loop {
            for message in receive(&self.socket)? {
                if message.sequence != sequence {
                    continue;
                }
                if let Some(verdict) = message.verdict() {
                    return verdict.map(|()| answers);
                }
                if message.kind == DONE {
                    return Ok(answers);
                }
                answers.push(message);
            }
        }
    }

    /// All that is there now, without waiting: a kernel has answered a change before the sender goes on.
    pub(super) fn drain(&self) -> io::Result<Vec<Message>> {
        self.socket.set_non_blocking(true)?;
        let mut all = Vec::new();
        let ended = loop {
            match receive(&self.socket) {
                Ok(messages) => all.extend(messages),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.socket.set_non_blocking(false)?;
        ended.map(|()| all)
    }
}

/// A message with its header, as a kernel reads it.
pub(super) fn message(kind: u16, with: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags::REQUEST | with).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The messages of one datagram.
fn receive(socket: &Socket) -> io::Result<Vec<Message>> {
    let mut bytes = Vec::with_capacity(LARGEST);
    socket.recv(&mut bytes, 0)?;
    Ok(messages(&bytes))
}

/// The messages of one datagram, once there is one.
pub(super) async fn hear(socket: &TokioSocket) -> io::Result<Vec<Message>> {
    let mut bytes = Vec::with_capacity(LARGEST);
    socket.recv(&mut bytes).await?;
    Ok(messages(&bytes))
}

fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some((message, rest)) = split(bytes) {
        messages.push(message);
        bytes = rest;
    }
    messages
}

/// The first message, and what comes after it; none if the rest is none.
fn split(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let number = |at: usize| bytes.get(at..at + 4)?.first_chunk().map(|four| u32::from_ne_bytes(*four));
    let half = |at: usize| bytes.get(at..at + 2)?.first_chunk().map(|two| u16::from_ne_bytes(*two));
    let length = usize::try_from(number(0)?).ok()?;
    let body = bytes.get(HEADER..length)?.to_vec();
    let message = Message { kind: half(4)?, flags: half(6)?, sequence: number(8)?, body };
    Some((message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let mut bytes = message(20, flags::DUMP, 7, &[1, 2, 3, 4, 5]);
        bytes.extend(message(ERROR, 0, 8, &(-2_i32).to_ne_bytes()));
        let (first, rest) = split(&bytes).unwrap();
        assert_eq!((first.kind, first.sequence, first.body.as_slice()), (20, 7, &[1, 2, 3, 4, 5][..]));
        let (second, rest) = split(rest).unwrap();
        let error = second.verdict().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(rest.is_empty() && split(rest).is_none());
    }

    #[test]
    fn what_is_cut_off_is_no_message() {
        let bytes = message(20, 0, 7, &[1, 2, 3, 4]);
        for length in 0..bytes.len() {
            assert!(split(&bytes[..length]).is_none());
        }
        assert!(split(&[0; 16]).is_none(), "shorter than its own header");
    }
}
