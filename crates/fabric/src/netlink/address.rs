//! Addresses of links.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Netlink;
use super::socket::flags;

/// An address of a link, with the network that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The index of the link.
    pub link: u32,
    /// The address, and how much of it is the network's.
    pub net: IpNet,
}

impl Netlink {
    /// All addresses.
    pub fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let answers = self.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(answers.iter().filter_map(Address::of_message).collect())
    }

    /// Gives an address to a link. It may have it already.
    pub fn add_address(&mut self, address: Address) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.net.addr());
        message.header.prefix_len = address.net.prefix_len();
        message.header.index = address.link;
        message.attributes.push(AddressAttribute::Local(address.net.addr()));
        message.attributes.push(AddressAttribute::Address(address.net.addr()));
        self.change(&RouteNetlinkMessage::NewAddress(message), flags::CREATE | flags::REPLACE)
    }
}

impl Address {
    fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewAddress(message) = message else { return None };
        let mut found = None;
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => found = Some(*ip),
                // On a link with another end this one is of the other end; its own is the one before.
                AddressAttribute::Address(ip) => found = found.or(Some(*ip)),
                _ => {}
            }
        }
        let net = IpNet::new(found?, message.header.prefix_len).ok()?;
        Some(Self { link: message.header.index, net })
    }
}

pub(super) fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
