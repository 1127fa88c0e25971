//! The network namespace of the gateway: the device of the tunnels at one end, a link to its node at the other.
//!
//! It lives as long as the process. The kernel takes all of it away with the last that holds it, so that nothing has to
//! be healed after a kill; only a link that is still on its way out may be found at the start.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::thread;

use anyhow::{Context, Result, anyhow};
use ferro_core::network::gateway::{TUNNEL_INTERFACE, VETH_INTERFACE};
use futures::{StreamExt as _, TryStreamExt as _};
use nix::sched::{CloneFlags, unshare};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute};
use rtnetlink::packet_route::rule::RuleAction;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime;
use tokio::sync::oneshot;

use crate::dataplane::Tun;

/// The end of the link on the node.
pub const OUTER: &str = "ferro.host";
/// The address of the node on the link.
pub const OUTER_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 1);
/// The address of the gateway on the link.
pub const INNER_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 2);
const LINK_LENGTH: u8 = 30;
/// What comes from the node goes into the tunnels, whatever it is for: the rules say what is for nobody.
const INTO_TUNNEL_INTERFACES: u8 = 100;
/// What WireGuard puts around a packet over IPv6, which is the larger one.
const OVERHEAD: u32 = 80;

/// The namespace.
pub(super) struct House {
    /// Holding it keeps the namespace.
    _namespace: fs::File,
    /// Where the device of the tunnels is in there.
    pub(super) tunnel: u32,
    /// Where the end of the link is in there.
    pub(super) inner: u32,
}

/// What a thread brings back from a namespace that it has made.
struct Found {
    namespace: fs::File,
    tun: Tun,
    inside: Handle,
}

impl House {
    /// Makes the namespace, with all that is in it. Packets on the link may be as large as the node's own.
    pub(super) async fn build(tunnel_mtu: u16, link_mtu: u32) -> Result<(Self, Tun)> {
        let Found { namespace, tun, inside } = found().await?;
        let outside = connect().context("cannot talk to the kernel about links")?;
        clear(&outside).await?;
        join(&outside, &namespace, link_mtu).await.context("cannot join the gateway to its node")?;
        let tunnel = index(&inside, TUNNEL_INTERFACE).await?;
        let inner = index(&inside, VETH_INTERFACE).await?;
        furnish(&inside, tunnel, inner, tunnel_mtu)
            .await
            .context("cannot set up the network of the gateway")?;
        Ok((Self { _namespace: namespace, tunnel, inner }, tun))
    }
}

/// The largest packet that fits through a tunnel, and through the interface with this address.
pub(super) async fn mtus(of: IpAddr) -> Result<(u16, u32)> {
    let handle = connect().context("cannot talk to the kernel about links")?;
    let addresses: Vec<_> = handle.address().get().execute().try_collect().await?;
    let has_it = |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Address(ip) | AddressAttribute::Local(ip) if *ip == of);
    let holder = addresses.iter().find(|message| message.attributes.iter().any(has_it));
    let holder = holder.with_context(|| format!("no interface of this node has the address {of}"))?;
    let mut links = handle.link().get().match_index(holder.header.index).execute();
    let link = links.try_next().await?.context("an interface has gone")?;
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let mtu = mtu.context("an interface has no MTU")?;
    let tunnel = u16::try_from(mtu.saturating_sub(OVERHEAD)).unwrap_or(u16::MAX);
    Ok((tunnel, mtu))
}

/// A thread of its own enters a new namespace: a thread that other work comes back to must not.
async fn found() -> Result<Found> {
    let runtime = runtime::Handle::current();
    let (tell, told) = oneshot::channel();
    thread::Builder::new()
        .name("namespace".into())
        .spawn(move || drop(tell.send(settle(&runtime))))
        .context("cannot start a thread")?;
    told.await.map_err(|_| anyhow!("the thread that makes the namespace died"))?
}

fn settle(runtime: &runtime::Handle) -> Result<Found> {
    unshare(CloneFlags::CLONE_NEWNET)
        .context("cannot make a network namespace; the gateway needs to be privileged")?;
    let namespace = fs::File::open("/proc/thread-self/ns/net").context("cannot hold the namespace")?;
    let tun = Tun::open(TUNNEL_INTERFACE)
        .context("cannot make a device for tunnels; does the node have /dev/net/tun?")?;
    for (setting, value) in
        [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")]
    {
        let path = format!("/proc/sys/net/ipv4/{setting}");
        fs::write(&path, value).with_context(|| format!("cannot set {path}"))?;
    }
    let _entered = runtime.enter();
    Ok(Found { namespace, tun, inside: connect().context("cannot talk to the kernel about links")? })
}

/// To the kernel, about the namespace of the calling thread.
fn connect() -> Result<Handle> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::spawn(connection);
    Ok(handle)
}

async fn index(handle: &Handle, name: &str) -> Result<u32> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await.with_context(|| format!("cannot find the interface {name}"))?;
    Ok(link.with_context(|| format!("there is no interface {name}"))?.header.index)
}

/// A link of a gateway that was killed may still be there.
async fn clear(outside: &Handle) -> Result<()> {
    let mut links = outside.link().get().execute();
    while let Some(link) = links.next().await {
        let link = link.context("cannot list the interfaces of the node")?;
        let is_ours = |attribute: &LinkAttribute| *attribute == LinkAttribute::IfName(OUTER.to_owned());
        if link.attributes.iter().any(is_ours) {
            // It may go by itself just now.
            _ = outside.link().del(link.header.index).execute().await;
        }
    }
    Ok(())
}

async fn join(outside: &Handle, namespace: &fs::File, mtu: u32) -> Result<()> {
    let inner = LinkMessageBuilder::<LinkUnspec>::new()
        .name(VETH_INTERFACE)
        .mtu(mtu)
        .setns_by_fd(namespace.as_raw_fd())
        .build();
    let pair =
        LinkVeth::new(OUTER, VETH_INTERFACE).mtu(mtu).set_info_data(InfoData::Veth(InfoVeth::Peer(inner)));
    outside.link().add(pair.build()).execute().await?;
    let outer = index(outside, OUTER).await?;
    outside.address().add(outer, OUTER_IP.into(), LINK_LENGTH).execute().await?;
    outside.link().set(LinkUnspec::new_with_index(outer).up().build()).execute().await?;
    Ok(())
}

async fn furnish(inside: &Handle, tunnel: u32, inner: u32, mtu: u16) -> Result<()> {
    inside.address().add(inner, INNER_IP.into(), LINK_LENGTH).execute().await?;
    inside.link().set(LinkUnspec::new_with_index(inner).up().build()).execute().await?;
    let device = LinkUnspec::new_with_index(tunnel).mtu(mtu.into()).up();
    inside.link().set(device.build()).execute().await?;
    let to_node = RouteMessageBuilder::<Ipv4Addr>::new().gateway(OUTER_IP).output_interface(inner);
    inside.route().add(to_node.build()).execute().await?;
    let to_tunnels = RouteMessageBuilder::<Ipv4Addr>::new()
        .output_interface(tunnel)
        .table_id(INTO_TUNNEL_INTERFACES.into());
    inside.route().add(to_tunnels.build()).execute().await?;
    let mut from_node = inside
        .rule()
        .add()
        .v4()
        .input_interface(VETH_INTERFACE)
        .table_id(INTO_TUNNEL_INTERFACES.into())
        .priority(INTO_TUNNEL_INTERFACES.into())
        .action(RuleAction::ToTable);
    from_node.message_mut().header.family = AddressFamily::Inet;
    from_node.execute().await?;
    Ok(())
}
