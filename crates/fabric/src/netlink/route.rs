//! Routes of every table.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Netlink;
use super::address::family;
use super::socket::flags;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The table that it is in; 254 is the main one.
    pub table: u32,
    /// To where; the default route is to all.
    pub to: IpNet,
    /// Of several, the one with the least is used.
    pub metric: u32,
    /// By whom it was made.
    pub protocol: u8,
    /// What becomes of a packet.
    pub kind: RouteKind,
    /// The address that this host uses as sender.
    pub source: Option<IpAddr>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// It leaves by a link, to a next hop that need not be in a network of the link, or to whom it is for.
    By {
        /// The index of the link.
        link: u32,
        /// The next hop.
        via: Option<IpAddr>,
    },
    /// It is dropped.
    Blackhole,
    /// Something else.
    Other,
}

impl Netlink {
    /// All routes of all tables.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answers = self.dump(&RouteNetlinkMessage::GetRoute(message))?;
            all.extend(answers.iter().filter_map(Route::of_message));
        }
        Ok(all)
    }

    /// Makes a route where none has the same target, table and metric.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::NewRoute(route.message()), flags::CREATE | flags::EXCLUSIVE)
    }

    /// Makes a route in place of the one with the same target, table and metric, whosoever that is.
    pub fn replace_route(&mut self, route: &Route) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::NewRoute(route.message()), flags::CREATE | flags::REPLACE)
    }

    /// Removes the route with the same target, table, metric and protocol, wherever it leads.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        let mut message = route.message_to();
        message.header.scope = RouteScope::NoWhere;
        self.change(&RouteNetlinkMessage::DelRoute(message), 0)
    }
}

impl Route {
    /// A message about the route to the same target.
    fn message_to(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.to.addr());
        message.header.destination_prefix_length = self.to.prefix_len();
        message.header.protocol = self.protocol.into();
        // Tables of higher numbers are told by the attribute.
        message.header.table = u8::try_from(self.table).unwrap_or_default();
        message.attributes.push(RouteAttribute::Table(self.table));
        message.attributes.push(RouteAttribute::Destination(self.to.network().into()));
        message.attributes.push(RouteAttribute::Priority(self.metric));
        message
    }

    fn message(&self) -> RouteMessage {
        let mut message = self.message_to();
        let (header, attributes) = (&mut message.header, &mut message.attributes);
        header.scope = RouteScope::Universe;
        attributes.extend(self.source.map(|source| RouteAttribute::PrefSource(source.into())));
        match self.kind {
            RouteKind::By { link, via } => {
                header.kind = RouteType::Unicast;
                attributes.push(RouteAttribute::Oif(link));
                if let Some(via) = via {
                    header.flags = RouteFlags::Onlink;
                    attributes.push(RouteAttribute::Gateway(via.into()));
                } else {
                    header.scope = RouteScope::Link;
                }
            }
            RouteKind::Blackhole | RouteKind::Other => header.kind = RouteType::BlackHole,
        }
        message
    }

    /// Reads a route; one by several links is none of ours and counts as something else.
    pub(super) fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let (RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message)) = message
        else {
            return None;
        };
        let header = &message.header;
        let unspecified: IpAddr = match header.address_family {
            AddressFamily::Inet => [0; 4].into(),
            AddressFamily::Inet6 => [0; 16].into(),
            _ => return None,
        };
        let (mut to, mut table, mut metric) = (unspecified, u32::from(header.table), 0);
        let (mut link, mut via, mut source) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => to = ip(address)?,
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(number) => metric = *number,
                RouteAttribute::Oif(index) => link = Some(*index),
                RouteAttribute::Gateway(address) => via = ip(address),
                RouteAttribute::PrefSource(address) => source = ip(address),
                _ => {}
            }
        }
        let kind = match (header.kind, link) {
            (RouteType::Unicast, Some(link)) => RouteKind::By { link, via },
            (RouteType::BlackHole, _) => RouteKind::Blackhole,
            _ => RouteKind::Other,
        };
        let to = IpNet::new(to, header.destination_prefix_length).ok()?;
        let protocol = number(header.protocol);
        Some(Self { table, to, metric, protocol, kind, source })
    }
}

fn number(protocol: RouteProtocol) -> u8 {
    protocol.into()
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
