//! The kernel of this node: what it has of ours, and the one place that changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ferro_core::network::routes::{
    Change, Exemption, Family, GATEWAY, Hop, Mac, OVERLAY, Overlay, PORT, PREFIX, PROTOCOL, Plan, Present,
    PresentOverlay, Route, Rule, Snapshot, VNI, Wanted, changes, plan,
};
use ipnet::IpNet;

use super::Facts;
use super::exemption::{self, NAME};
use crate::netlink::nftables::{Found, Nftables};
use crate::netlink::{self, Address, Link, LinkKind, Neighbour, Netlink, RouteKind, Vxlan, is_gone};

/// The kernel, in the network namespace that it was opened in.
#[derive(Debug)]
pub struct Kernel {
    netlink: Netlink,
    nftables: Nftables,
}

/// What is known of a kernel's links, by which the rest is read.
struct Links(Vec<Link>);

impl Links {
    fn named(&self, name: &str) -> Option<&Link> {
        self.0.iter().find(|link| link.name == name)
    }

    fn at(&self, index: u32) -> Option<&Link> {
        self.0.iter().find(|link| link.index == index)
    }
}

impl Kernel {
    /// Connects, in the network namespace of the calling thread.
    pub fn open() -> Result<Self> {
        let netlink = Netlink::open().context("cannot talk to the kernel about routes")?;
        let nftables = Nftables::open().context("cannot talk to the kernel about nftables")?;
        Ok(Self { netlink, nftables })
    }

    /// Makes the kernel have what follows from the facts; gives back the plan, and what was done.
    pub fn follow(&mut self, facts: &Facts) -> Result<(Plan, Vec<Change>)> {
        let plan = self.plan(facts)?;
        let changes = self.become_like(&plan.wanted)?;
        Ok((plan, changes))
    }

    fn plan(&mut self, facts: &Facts) -> Result<Plan> {
        let (mut local, mut mtu) = (Vec::new(), 0);
        if !facts.peers.is_empty() {
            ensure!(
                forwards()?,
                "this node does not forward packets, so that its pods reach nobody; set net.ipv4.ip_forward=1"
            );
            (local, mtu) = self.surroundings(facts.own_address())?;
        }
        let Facts { node, nodes, peers, reach } = facts;
        Ok(plan(&Snapshot { node, nodes, peers, mtu, local: &local, reach: *reach })?)
    }

    /// The networks that this node is in, and the largest packet of the interface with its own address.
    fn surroundings(&mut self, own: Option<IpAddr>) -> Result<(Vec<IpNet>, u32)> {
        let links = self.links()?;
        let addresses = self.addresses()?;
        let is_ours = |index: u32| links.at(index).is_some_and(|link| link.name.starts_with(PREFIX));
        let local = addresses.iter().filter(|address| !is_ours(address.link));
        let local = local.map(|address| address.net.trunc()).collect();
        let mtu = match own {
            Some(own) => links.at(underlay(&addresses, own)?).map_or(0, |link| link.mtu),
            None => 0,
        };
        Ok((local, mtu))
    }

    /// The links on which a change matters to us.
    pub(super) fn watched_links(&mut self, facts: &Facts) -> Result<BTreeSet<u32>> {
        let links = self.links()?;
        let ours = links.0.iter().filter(|link| link.name.starts_with(PREFIX)).map(|link| link.index);
        let addresses = self.addresses()?;
        let below = facts.own_address().and_then(|own| underlay(&addresses, own).ok());
        Ok(ours.chain(below).collect())
    }

    /// Makes the kernel have what is wanted, and nothing else of ours.
    pub fn become_like(&mut self, wanted: &Wanted) -> Result<Vec<Change>> {
        let present = self.present()?;
        let all = changes(&present, wanted);
        // What fails keeps nothing else from being done, but for what would do harm without it. The first to fail is
        // mostly the cause of others.
        let mut first = Ok(());
        let mut bare = BTreeSet::new();
        for change in &all {
            if leads(change).is_some_and(|family| bare.contains(&family)) {
                continue;
            }
            let done = self.perform(change);
            if let (Err(_), Change::WriteExemption(family, _)) = (&done, change) {
                bare.insert(*family);
            }
            let done = done.with_context(|| format!("cannot do this in the kernel: {change:?}"));
            first = first.and(done);
        }
        first.map(|()| all)
    }

    fn links(&mut self) -> Result<Links> {
        self.netlink.links().map(Links).context("cannot list links")
    }

    fn addresses(&mut self) -> Result<Vec<Address>> {
        self.netlink.addresses().context("cannot list addresses")
    }

    fn index(&mut self, name: &str) -> Result<u32> {
        let link = self.netlink.link(name)?.with_context(|| format!("there is no link {name}"))?;
        Ok(link.index)
    }

    /// What is there of ours.
    pub fn present(&mut self) -> Result<Present> {
        let links = self.links()?;
        let overlay = links.named(OVERLAY);
        let is_on_overlay = |entry: &Neighbour| overlay.is_some_and(|link| link.index == entry.link);
        let neighbours = self.netlink.neighbours().context("cannot list neighbours")?;
        let neighbours =
            neighbours.into_iter().filter(is_on_overlay).filter(|entry| !entry.ip.is_multicast());
        let forwarding = self.netlink.forwarding().context("cannot list what a VXLAN forwards")?;
        let forwarding = forwarding.into_iter().filter(is_on_overlay);
        Ok(Present {
            overlay: overlay.map(present_overlay),
            has_gateway: links.named(GATEWAY).is_some_and(|link| link.is_up),
            neighbours: neighbours.map(|entry| (entry.ip, Mac(entry.mac))).collect(),
            forwarding: forwarding.map(|entry| (Mac(entry.mac), entry.ip)).collect(),
            routes: self.routes(&links)?,
            rules: self.rules()?,
            exemptions: self.exemptions()?,
        })
    }

    fn routes(&mut self, links: &Links) -> Result<BTreeSet<Route>> {
        let all = self.netlink.routes().context("cannot list routes")?;
        let ours = all.into_iter().filter(|route| route.protocol == PROTOCOL);
        Ok(ours
            .map(|route| Route {
                table: route.table,
                to: route.to,
                metric: route.metric,
                hop: hop(&route, links),
                source: route.source,
            })
            .collect())
    }

    fn rules(&mut self) -> Result<BTreeSet<Rule>> {
        let all = self.netlink.rules().context("cannot list rules")?;
        let ours = all.into_iter().filter(|rule| rule.protocol == PROTOCOL);
        let family = |is_v6: bool| if is_v6 { Family::V6 } else { Family::V4 };
        Ok(ours
            .map(|rule| Rule {
                family: family(rule.is_v6),
                priority: rule.priority,
                input: rule.input.unwrap_or_default(),
                table: rule.table,
            })
            .collect())
    }

    fn exemptions(&mut self) -> Result<BTreeMap<Family, Option<Exemption>>> {
        let mut all = BTreeMap::new();
        for family in Family::ALL {
            let found = self.nftables.read(exemption::version(family), NAME);
            let found = found
                .context("cannot read nftables; does the kernel have it, and may we (CAP_NET_ADMIN)?")?;
            match found {
                Found::Nothing => {}
                Found::Other => _ = all.insert(family, None),
                Found::Table(table) => _ = all.insert(family, exemption::written_for(&table)),
            }
        }
        Ok(all)
    }

    fn perform(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::WriteExemption(family, exemption) => {
                self.nftables.write(exemption::version(*family), NAME, &exemption::table(exemption))?;
            }
            Change::RemoveExemption(family) => self.nftables.remove(exemption::version(*family), NAME)?,
            Change::CreateOverlay(overlay) => self.create(overlay)?,
            Change::TuneOverlay(overlay) => self.tune(overlay)?,
            Change::RemoveOverlay => {
                let index = self.index(OVERLAY)?;
                self.netlink.delete_link(index)?;
            }
            Change::PutNeighbour(ip, mac) => {
                let neighbour = self.neighbour(*ip, *mac)?;
                self.netlink.put_neighbour(neighbour)?;
            }
            Change::RemoveNeighbour(ip) => {
                let neighbour = self.neighbour(*ip, Mac([0; 6]))?;
                gone(self.netlink.delete_neighbour(neighbour))?;
            }
            Change::PutForwarding(mac, ip) => {
                let neighbour = self.neighbour(*ip, *mac)?;
                self.netlink.put_forwarding(neighbour)?;
            }
            Change::RemoveForwarding(mac, ip) => {
                let neighbour = self.neighbour(*ip, *mac)?;
                gone(self.netlink.delete_forwarding(neighbour))?;
            }
            Change::AddRoute(route) => {
                let route = self.route(route)?;
                self.netlink.add_route(&route)?;
            }
            Change::ReplaceRoute(route) => {
                let route = self.route(route)?;
                self.netlink.replace_route(&route)?;
            }
            Change::RemoveRoute(route) => gone(self.netlink.delete_route(&like(route, RouteKind::Other)))?,
            Change::AddRule(rule) => self.netlink.add_rule(&of_kernel(rule))?,
            Change::RemoveRule(rule) => gone(self.netlink.delete_rule(&of_kernel(rule)))?,
        }
        Ok(())
    }

    fn create(&mut self, overlay: &Overlay) -> io::Result<()> {
        let vxlan = Vxlan { vni: VNI, port: PORT, local: overlay.local };
        self.netlink.create_vxlan(OVERLAY, overlay.mac.0, overlay.mtu, &vxlan)
    }

    fn tune(&mut self, overlay: &Overlay) -> Result<()> {
        let index = self.index(OVERLAY)?;
        self.netlink.set_mtu(index, overlay.mtu)?;
        self.netlink.make_router(index)?;
        self.netlink.set_up(index)?;
        Ok(())
    }

    fn neighbour(&mut self, ip: IpAddr, mac: Mac) -> Result<Neighbour> {
        Ok(Neighbour { link: self.index(OVERLAY)?, ip, mac: mac.0 })
    }

    fn route(&mut self, route: &Route) -> Result<netlink::Route> {
        let kind = match route.hop {
            Hop::Overlay(via) => RouteKind::By { link: self.index(OVERLAY)?, via: Some(via) },
            Hop::Gateway(via) => RouteKind::By { link: self.index(GATEWAY)?, via: Some(via) },
            Hop::Nowhere => RouteKind::Blackhole,
        };
        Ok(like(route, kind))
    }
}

fn like(route: &Route, kind: RouteKind) -> netlink::Route {
    let Route { table, to, metric, source, .. } = *route;
    netlink::Route { table, to, metric, protocol: PROTOCOL, kind, source }
}

/// The family of packets that a change gives a way to. Without our table they would get another sender on it, or come
/// from anybody.
fn leads(change: &Change) -> Option<Family> {
    match change {
        Change::CreateOverlay(overlay) => Some(Family::of_ip(&overlay.local)),
        Change::AddRoute(route) | Change::ReplaceRoute(route) if route.hop != Hop::Nowhere => {
            Some(Family::of(&route.to))
        }
        _ => None,
    }
}

/// The link that has the address of this node.
fn underlay(addresses: &[Address], own: IpAddr) -> Result<u32> {
    let address = addresses.iter().find(|address| address.net.addr() == own);
    Ok(address.with_context(|| format!("no interface of this node has its address {own}"))?.link)
}

/// What is no longer there need not be removed.
fn gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
}

fn present_overlay(link: &Link) -> PresentOverlay {
    let is_in_use = link.is_up && link.is_router;
    let (LinkKind::Vxlan(vxlan), Some(mac)) = (&link.kind, link.mac) else {
        return PresentOverlay { overlay: None, is_in_use };
    };
    let overlay = Overlay { local: vxlan.local, mac: Mac(mac), mtu: link.mtu };
    let is_ours = (vxlan.vni, vxlan.port) == (VNI, PORT);
    PresentOverlay { overlay: is_ours.then_some(overlay), is_in_use }
}

/// Where one of our routes leads. What leads elsewhere is none that is wanted: as if it led nowhere, it is replaced.
fn hop(route: &netlink::Route, links: &Links) -> Hop {
    let RouteKind::By { link, via: Some(via) } = route.kind else { return Hop::Nowhere };
    let is = |name: &str| links.named(name).is_some_and(|known| known.index == link);
    if is(OVERLAY) {
        Hop::Overlay(via)
    } else if is(GATEWAY) {
        Hop::Gateway(via)
    } else {
        Hop::Nowhere
    }
}

fn of_kernel(rule: &Rule) -> netlink::Rule {
    netlink::Rule {
        is_v6: rule.family == Family::V6,
        priority: rule.priority,
        input: Some(rule.input.clone()).filter(|input| !input.is_empty()),
        table: rule.table,
        protocol: PROTOCOL,
    }
}

/// Whether this host forwards IPv4 at all; without that neither do its links.
fn forwards() -> Result<bool> {
    let setting =
        fs::read_to_string("/proc/sys/net/ipv4/ip_forward").context("cannot read net.ipv4.ip_forward")?;
    Ok(setting.trim() != "0")
}

#[cfg(test)]
mod tests {
    use ferro_core::network::routes::{MAIN, METRIC};

    use super::*;

    #[test]
    fn only_ways_wait_for_our_table() {
        let route = Route {
            table: MAIN,
            to: "10.0.0.0/16".parse().unwrap(),
            metric: METRIC,
            hop: Hop::Gateway("169.254.77.2".parse().unwrap()),
            source: None,
        };
        assert_eq!(leads(&Change::AddRoute(route)), Some(Family::V4));
        let v6 = Route { to: "fd00::/16".parse().unwrap(), ..route };
        assert_eq!(leads(&Change::ReplaceRoute(v6)), Some(Family::V6));
        assert_eq!(leads(&Change::AddRoute(Route { hop: Hop::Nowhere, ..route })), None);
        assert_eq!(leads(&Change::RemoveRoute(route)), None);
        let local = "192.0.2.1".parse().unwrap();
        let overlay = Overlay { local, mac: Mac([2; 6]), mtu: 1450 };
        assert_eq!(leads(&Change::CreateOverlay(overlay)), Some(Family::V4));
    }
}
