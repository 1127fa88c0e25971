//! Links: what there is, VXLAN and veth, and what can be set about them.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecUnspec, InetDevConf, InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};

use super::socket::flags;
use super::{Netlink, is_gone};

/// The filter on senders that lets a packet in if there is any way back to where it comes from.
const LOOSE: i32 = 2;

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// By which other things refer to it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The largest packet.
    pub mtu: u32,
    /// Its own address.
    pub mac: Option<[u8; 6]>,
    /// Whether it is up.
    pub is_up: bool,
    /// What it is, as far as it matters here.
    pub kind: LinkKind,
    /// Whether it forwards IPv4, and lets packets in whose way back is another one.
    pub is_router: bool,
}

/// What a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// One that nothing more is to be known about.
    #[default]
    Other,
    /// A VXLAN.
    Vxlan(Vxlan),
}

/// The settings of a VXLAN that does not learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Its number.
    pub vni: u32,
    /// Its UDP port.
    pub port: u16,
    /// The address that its packets come from.
    pub local: IpAddr,
}

impl Netlink {
    /// All links.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let answers = self.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(answers.iter().filter_map(Link::of_message).collect())
    }

    /// The link of that name.
    pub fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        match self.say(&RouteNetlinkMessage::GetLink(message), flags::ACK) {
            Err(error) if is_gone(&error) => Ok(None),
            answers => Ok(answers?.iter().find_map(Link::of_message)),
        }
    }

    /// Makes a VXLAN that knows only what it is told.
    pub fn create_vxlan(&mut self, name: &str, mac: [u8; 6], mtu: u32, vxlan: &Vxlan) -> io::Result<()> {
        let local = match vxlan.local {
            IpAddr::V4(ip) => InfoVxlan::Local(ip),
            IpAddr::V6(ip) => InfoVxlan::Local6(ip),
        };
        let data =
            vec![InfoVxlan::Id(vxlan.vni), local, InfoVxlan::Port(vxlan.port), InfoVxlan::Learning(false)];
        let mut message = named(name, InfoKind::Vxlan, InfoData::Vxlan(data));
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.create(message)
    }

    /// Makes a pair of links, of which the second may be in another namespace from the beginning.
    pub fn create_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_namespace: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut other = LinkMessage::default();
        other.attributes.push(LinkAttribute::IfName(peer.into()));
        if let Some(namespace) = peer_namespace {
            other.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        }
        self.create(named(name, InfoKind::Veth, InfoData::Veth(InfoVeth::Peer(other))))
    }

    fn create(&mut self, message: LinkMessage) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::NewLink(message), flags::CREATE | flags::EXCLUSIVE)
    }

    /// Removes a link.
    pub fn delete_link(&mut self, index: u32) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::DelLink(indexed(index)), 0)
    }

    /// Takes a link into use.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = indexed(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(&RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Sets the largest packet of a link.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(&RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Makes a link forward IPv4, and let packets in whose way back is another one. The same could be written into
    /// `/proc/sys`, which a container cannot.
    pub fn make_router(&mut self, index: u32) -> io::Result<()> {
        let mut settings = InetDevConf::default();
        settings.forwarding = 1;
        settings.rp_filter = LOOSE;
        let mut message = indexed(index);
        let of_inet = AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(settings)]);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![of_inet]));
        self.change(&RouteNetlinkMessage::NewLink(message), 0)
    }
}

fn indexed(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn named(name: &str, kind: InfoKind, data: InfoData) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.into()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]));
    message
}

impl Link {
    pub(super) fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let (RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message)) = message else {
            return None;
        };
        let is_up = message.header.flags.contains(LinkFlags::Up);
        let mut link = Self { index: message.header.index, is_up, ..Self::default() };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(mac) => link.mac = mac.as_slice().try_into().ok(),
                LinkAttribute::LinkInfo(infos) => link.kind = kind(infos),
                LinkAttribute::AfSpecUnspec(families) => link.is_router = is_router(families),
                _ => {}
            }
        }
        Some(link)
    }
}

fn kind(infos: &[LinkInfo]) -> LinkKind {
    let vxlan = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vxlan(settings)) => vxlan(settings),
        _ => None,
    });
    vxlan.map_or(LinkKind::Other, LinkKind::Vxlan)
}

/// The settings, if it is a VXLAN as we make them.
fn vxlan(settings: &[InfoVxlan]) -> Option<Vxlan> {
    let (mut vni, mut port, mut local, mut learns) = (None, None, None, true);
    for setting in settings {
        match setting {
            InfoVxlan::Id(id) => vni = Some(*id),
            InfoVxlan::Port(number) => port = Some(*number),
            InfoVxlan::Local(ip) => local = Some(IpAddr::V4(*ip)),
            InfoVxlan::Local6(ip) => local = Some(IpAddr::V6(*ip)),
            InfoVxlan::Learning(does) => learns = *does,
            _ => {}
        }
    }
    Some(Vxlan { vni: vni?, port: port?, local: local? }).filter(|_| !learns)
}

fn is_router(families: &[AfSpecUnspec]) -> bool {
    families.iter().any(|family| {
        let AfSpecUnspec::Inet(settings) = family else { return false };
        let fits = |conf: &InetDevConf| conf.forwarding == 1 && conf.rp_filter == LOOSE;
        settings.iter().any(|setting| matches!(setting, AfSpecInet::DevConf(conf) if fits(conf)))
    })
}
