//! The network namespace of the gateway: the device of the tunnels at one end, a link to its node at the other.
//!
//! It lives as long as the process. The kernel takes all of it away with the last that holds it, so that nothing has to
//! be healed after a kill; only a link that is still on its way out may be found at the start.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context, Result};
use ferro_core::network::gateway::{TUNNEL_INTERFACE, VETH_INTERFACE};
use ferro_core::network::routes::{GATEWAY, GATEWAY_END, HOST_END, MAIN, overlay_mtu};
use ipnet::{IpNet, Ipv4Net};
use tracing::warn;

use crate::dataplane::{MTU, Tun};
use crate::netlink::{Address, Netlink, Route, RouteKind, Rule, is_gone, namespace};

/// How long the network of the link between gateway and node is.
const LINK_LENGTH: u8 = 30;
/// What comes from the node goes into the tunnels, whatever it is for: the rules say what is for nobody.
const INTO_TUNNELS: u32 = 100;
/// What is set by hand, in the words of the kernel.
const STATIC: u8 = 4;
/// What WireGuard puts around a packet over IPv6, which is the larger one.
const OVERHEAD: u32 = 80;
/// No link of this kind takes longer packets.
const LONGEST: u32 = 65_535;

/// The namespace.
pub(super) struct House {
    /// Holding it keeps the namespace.
    _namespace: OwnedFd,
    /// Where the device of the tunnels is in there.
    pub(super) tunnel: u32,
    /// Where the end of the link is in there.
    pub(super) inner: u32,
}

impl House {
    /// Makes the namespace, with all that is in it. Packets on the link may be as large as the node's own.
    pub(super) fn build(tunnel_mtu: u16, link_mtu: u32) -> Result<(Self, Tun)> {
        let space = namespace::create()
            .context("cannot make a network namespace; the gateway needs to be privileged")?;
        join(&space, link_mtu).context("cannot join the gateway to its node")?;
        let settled = namespace::inside(space.as_fd(), || furnish(tunnel_mtu, link_mtu));
        let (tun, tunnel, inner) =
            settled.context("cannot set up the network of the gateway; does the node have /dev/net/tun?")?;
        Ok((Self { _namespace: space, tunnel, inner }, tun))
    }
}

/// The largest packet that tunnels let through, and the link to the node whose interface has this address.
pub(super) fn mtus(of: IpAddr, configured: Option<u16>) -> Result<(u16, u32)> {
    let mut netlink = Netlink::open().context("cannot talk to the kernel about links")?;
    let addresses = netlink.addresses().context("cannot list the addresses of the node")?;
    let holder = addresses.iter().find(|address| address.net.addr() == of);
    let holder = holder.with_context(|| format!("no interface of this node has the address {of}"))?;
    let links = netlink.links().context("cannot list the interfaces of the node")?;
    let link = links.iter().find(|link| link.index == holder.link).context("an interface has gone")?;
    let tunnel = fitting(configured, &of, link.mtu);
    if let Some(configured) = configured.filter(|configured| *configured > tunnel) {
        warn!(configured, tunnel, "the configured MTU is more than reaches pods on other nodes");
    }
    Ok((tunnel, link.mtu.min(LONGEST)))
}

/// What is configured, or else what fits on the interface; but no more than gets to the other nodes.
fn fitting(configured: Option<u16>, of: &IpAddr, link: u32) -> u16 {
    let wanted = configured.map_or_else(|| link.saturating_sub(OVERHEAD), u32::from);
    let most = u16::try_from(overlay_mtu(of, link).unwrap_or(link)).unwrap_or(u16::MAX).min(*MTU.end());
    u16::try_from(wanted).unwrap_or(u16::MAX).min(most)
}

/// A pair of links: one end on the node, the other in the namespace.
fn join(space: &OwnedFd, mtu: u32) -> io::Result<()> {
    let mut node = Netlink::open()?;
    // That of a gateway that was killed may still be there, and may go by itself just now.
    if let Some(former) = node.link(GATEWAY)? {
        node.delete_link(former.index).or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })?;
    }
    node.create_veth(GATEWAY, VETH_INTERFACE, Some(space.as_fd()))?;
    let outer = found(&mut node, GATEWAY)?;
    node.set_mtu(outer, mtu)?;
    node.add_address(Address { link: outer, net: on_link(HOST_END.0) })?;
    node.set_up(outer)
}

/// In the namespace: the device, addresses, and routes from each end to the other.
fn furnish(tunnel_mtu: u16, link_mtu: u32) -> io::Result<(Tun, u32, u32)> {
    let tun = Tun::open(TUNNEL_INTERFACE)?;
    let mut here = Netlink::open()?;
    let (tunnel, inner) = (found(&mut here, TUNNEL_INTERFACE)?, found(&mut here, VETH_INTERFACE)?);
    here.add_address(Address { link: inner, net: on_link(GATEWAY_END.0) })?;
    here.set_mtu(inner, link_mtu)?;
    here.set_mtu(tunnel, tunnel_mtu.into())?;
    for link in [inner, tunnel] {
        here.make_router(link)?;
        here.set_up(link)?;
    }
    let to_node = RouteKind::By { link: inner, via: Some(HOST_END.0.into()) };
    here.add_route(&default_route(MAIN, to_node))?;
    here.add_route(&default_route(INTO_TUNNELS, RouteKind::By { link: tunnel, via: None }))?;
    here.add_rule(&Rule {
        is_v6: false,
        priority: INTO_TUNNELS,
        input: Some(VETH_INTERFACE.into()),
        table: INTO_TUNNELS,
        protocol: STATIC,
    })?;
    Ok((tun, tunnel, inner))
}

fn found(netlink: &mut Netlink, name: &str) -> io::Result<u32> {
    let missing = || io::Error::other(format!("there is no interface {name}"));
    netlink.link(name)?.map(|link| link.index).ok_or_else(missing)
}

fn on_link(ip: Ipv4Addr) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(ip, LINK_LENGTH))
}

fn default_route(table: u32, kind: RouteKind) -> Route {
    let everywhere = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
    Route { table, to: everywhere, metric: 0, protocol: STATIC, kind, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_lets_through_what_reaches_all_nodes() {
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(fitting(None, &v4, 1500), 1420);
        assert_eq!(fitting(None, &v6, 1500), 1420);
        assert_eq!(fitting(Some(1300), &v4, 1500), 1300);
        assert_eq!(fitting(Some(9000), &v4, 1500), 1450);
        assert_eq!(fitting(Some(9000), &v6, 1500), 1430);
        assert_eq!(fitting(None, &v4, 9000), 8920);
        assert_eq!(fitting(None, &v4, 65_536), *MTU.end());
        assert_eq!(fitting(Some(65_535), &v4, 65_536), *MTU.end());
    }
}
