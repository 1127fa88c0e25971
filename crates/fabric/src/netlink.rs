//! The network of a kernel, through netlink: links, addresses, neighbours, routes, rules, and nftables.
//!
//! Sockets are plain blocking ones, since a kernel answers at once: a socket belongs to the network namespace of the
//! thread that opened it, whoever uses it later, and no task has to run beside it. What a kernel tells that cannot be
//! read is passed over: it is of others, and may be newer than we are.

mod address;
mod link;
mod monitor;
pub mod namespace;
mod neighbour;
pub mod nftables;
mod route;
mod rule;
mod socket;

use std::io;

use netlink_packet_core::{Emitable as _, ParseableParametrized as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

pub use self::address::Address;
pub use self::link::{Link, LinkKind, Vxlan};
pub use self::monitor::{Monitor, Ours};
pub use self::neighbour::Neighbour;
pub use self::route::{Route, RouteKind};
pub use self::rule::Rule;
use self::socket::{Conversation, flags};

/// A connection to the part of the kernel that has links and routes.
#[derive(Debug)]
pub struct Netlink(Conversation);

impl Netlink {
    /// Connects, in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Conversation::open(NETLINK_ROUTE).map(Self)
    }

    /// Has something changed.
    fn change(&mut self, message: &RouteNetlinkMessage, with: u16) -> io::Result<()> {
        self.say(message, flags::ACK | with).map(drop)
    }

    /// Has everything of a sort listed.
    fn dump(&mut self, message: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        match self.say(message, flags::DUMP) {
            // A kernel without IPv6 has nothing of it.
            Err(error) if is_unknown_family(&error) => Ok(Vec::new()),
            answers => answers,
        }
    }

    fn say(&mut self, message: &RouteNetlinkMessage, with: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        let answers = self.0.ask(message.message_type(), with, &body)?;
        Ok(answers.iter().filter_map(|answer| read(answer.kind, &answer.body)).collect())
    }
}

/// What a message says, if it can be read.
fn read(kind: u16, body: &[u8]) -> Option<RouteNetlinkMessage> {
    match RouteNetlinkMessage::parse_with_param(body, kind) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::trace!(kind, %error, "a message of the kernel is passed over");
            None
        }
    }
}

fn is_unknown_family(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::OPNOTSUPP];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// Whether the kernel says that there is no such thing.
pub fn is_gone(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH, rustix::io::Errno::NODEV];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}
