//! Who is where on a link: next hops and their link addresses, and where a VXLAN has those.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Netlink;
use super::address::family;
use super::socket::flags;

/// A permanent entry: of an address on a link, or of a link address behind a VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The index of the link.
    pub link: u32,
    /// The address of the next hop; of a VXLAN's entry, that of the other end.
    pub ip: IpAddr,
    /// Its link address.
    pub mac: [u8; 6],
}

impl Netlink {
    /// The permanent link addresses of next hops.
    pub fn neighbours(&mut self) -> io::Result<Vec<Neighbour>> {
        let mut all = self.entries(AddressFamily::Inet)?;
        all.extend(self.entries(AddressFamily::Inet6)?);
        Ok(all)
    }

    /// Where VXLANs have which link address.
    pub fn forwarding(&mut self) -> io::Result<Vec<Neighbour>> {
        self.entries(AddressFamily::Bridge)
    }

    fn entries(&mut self, family: AddressFamily) -> io::Result<Vec<Neighbour>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        let answers = self.dump(&RouteNetlinkMessage::GetNeighbour(message))?;
        Ok(answers.iter().filter_map(Neighbour::of_message).collect())
    }

    /// Says which link address a next hop has.
    pub fn put_neighbour(&mut self, neighbour: Neighbour) -> io::Result<()> {
        let message = neighbour.message(family(neighbour.ip));
        self.change(&RouteNetlinkMessage::NewNeighbour(message), flags::CREATE | flags::REPLACE)
    }

    /// Forgets it.
    pub fn delete_neighbour(&mut self, neighbour: Neighbour) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::DelNeighbour(neighbour.message(family(neighbour.ip))), 0)
    }

    /// Says where a VXLAN has a link address.
    pub fn put_forwarding(&mut self, neighbour: Neighbour) -> io::Result<()> {
        let message = neighbour.message(AddressFamily::Bridge);
        self.change(&RouteNetlinkMessage::NewNeighbour(message), flags::CREATE | flags::REPLACE)
    }

    /// Forgets it.
    pub fn delete_forwarding(&mut self, neighbour: Neighbour) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::DelNeighbour(neighbour.message(AddressFamily::Bridge)), 0)
    }
}

impl Neighbour {
    fn message(&self, family: AddressFamily) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        message.header.ifindex = self.link;
        message.header.state = NeighbourState::Permanent;
        if family == AddressFamily::Bridge {
            message.header.flags = NeighbourFlags::Own;
        }
        message.attributes.push(NeighbourAttribute::Destination(self.ip.into()));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(self.mac.to_vec()));
        message
    }

    pub(super) fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
        if message.header.state != NeighbourState::Permanent {
            return None;
        }
        let (mut ip, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(address) => ip = address_of(address),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
                _ => {}
            }
        }
        Some(Self { link: message.header.ifindex, ip: ip?, mac: mac? })
    }
}

/// Behind a VXLAN the family is that of a bridge, and the address tells its own by its length.
fn address_of(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(ip) => Some((*ip).into()),
        NeighbourAddress::Inet6(ip) => Some((*ip).into()),
        NeighbourAddress::Other(bytes) => {
            let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(bytes.as_slice()).ok()?));
            let v6 = || Some(IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?));
            v4().or_else(v6)
        }
        _ => None,
    }
}
