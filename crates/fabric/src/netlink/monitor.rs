//! Tells when somebody changes what is ours: links, next hops, routes, rules and the table of nftables.

use std::collections::BTreeSet;
use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{AsyncSocket as _, SocketAddr, TokioSocket};
use rustix::io::Errno;

use super::nftables;
use super::socket::{Message, hear};
use super::{Link, Route, Rule, read};

/// The groups of messages about links, next hops, and routes and rules of both families.
const ROUTE_GROUPS: [u32; 6] = [1, 3, 7, 8, 11, 19];
/// The group of messages about nftables.
const NFTABLES_GROUP: u32 = 7;

/// By what one's own is known.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// How the names of links begin.
    pub prefix: &'static str,
    /// The protocol of routes and rules.
    pub protocol: u8,
    /// The table of nftables.
    pub table: &'static str,
}

/// Listens for changes.
pub struct Monitor {
    routes: TokioSocket,
    nftables: TokioSocket,
    ours: Ours,
    /// Further links that matter.
    links: BTreeSet<u32>,
}

impl Monitor {
    /// Listens, in the network namespace of the calling thread.
    pub fn open(ours: Ours) -> io::Result<Self> {
        let routes = listen(NETLINK_ROUTE, &ROUTE_GROUPS)?;
        let nftables = listen(NETLINK_NETFILTER, &[NFTABLES_GROUP])?;
        Ok(Self { routes, nftables, ours, links: BTreeSet::new() })
    }

    /// Watches these links as well.
    pub fn watch_links(&mut self, links: BTreeSet<u32>) {
        self.links = links;
    }

    /// Waits until something of ours may have changed.
    pub async fn changed(&self) -> io::Result<()> {
        tokio::select! {
            changed = heard(&self.routes, |message| self.is_about_ours(message)) => changed,
            changed = heard(&self.nftables, |message| nftables::is_about(&message.body, self.ours.table)) => changed,
        }
    }

    fn is_about_ours(&self, message: &Message) -> bool {
        let Some(message) = read(message.kind, &message.body) else { return false };
        if let Some(link) = Link::of_message(&message) {
            return link.name.starts_with(self.ours.prefix) || self.links.contains(&link.index);
        }
        if let Some(route) = Route::of_message(&message) {
            return route.protocol == self.ours.protocol;
        }
        if let Some(rule) = Rule::of_message(&message) {
            return rule.protocol == self.ours.protocol;
        }
        neighbour(&message).is_some_and(|neighbour| self.links.contains(&neighbour.header.ifindex))
    }
}

fn neighbour(message: &RouteNetlinkMessage) -> Option<&NeighbourMessage> {
    match message {
        RouteNetlinkMessage::NewNeighbour(message) | RouteNetlinkMessage::DelNeighbour(message) => {
            Some(message)
        }
        _ => None,
    }
}

fn listen(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.socket_ref().add_membership(*group)?;
    }
    Ok(socket)
}

/// Waits for a message that matters. Where some were lost, they might have.
async fn heard(socket: &TokioSocket, matters: impl Fn(&Message) -> bool) -> io::Result<()> {
    loop {
        match hear(socket).await {
            Ok(messages) if messages.iter().any(&matters) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
