//! Reach strict: who scans a peer finds what was published to it, and nobody else.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use ferro_api::net::IpamStorage;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use rig::pods::{Caller, Echo, Found, PORT};
use rig::tunnels::{external_view, seen};
use rig::wait::eventually;
use serde_json::json;

use crate::addresses::Addresses;
use crate::pair::{NODES, Pair, Side};
use crate::settings;

/// Of the servers, of DNS, of the address manager, of the roles' health, of kubelets, and of a shell.
const PORTS: [u16; 6] = [PORT, 53, 6000, 9440, 10250, 22];

/// The second of two closes itself up to what its address manager has published: processes of its nodes, and then a pod,
/// too, until it is taken back. Its pods still reach the first one. Then it opens again.
pub async fn hides_what_is_not_published(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let scanner = Caller::on(here.cluster, 1).await?;
    let echoes: BTreeSet<_> =
        there.echoes().await?.iter().map(|echo| here.name_of(echo.ip)).collect::<Result<_>>()?;
    let addresses = Addresses::of(there.cluster).await?;
    let processes = processes(here, there, &addresses).await?;
    let gateway = external_view(&here.tunnel)?.hosts().next().context("there is no external network")?;
    let scan = Scan { scanner, targets: targets(here, there, &processes).await?, gateway };
    let all: BTreeSet<_> = echoes.union(&processes).copied().collect();
    let name = &there.cluster.plan.name;
    eventually(&format!("{name} is open"), || scan.finds_at_least(&all)).await?;

    settings::set(there.cluster, json!({"reach": "strict"})).await?;
    eventually(&format!("{name} hides"), || scan.finds(&processes)).await?;
    let pod = Echo::on(there.cluster, 2).await?.ip;
    let published: BTreeSet<_> = processes.iter().copied().chain([here.name_of(pod)?]).collect();
    eventually(&format!("{name} publishes a pod"), || async {
        // Once the address manager knows of the other reach, too, the pod is noted.
        let told = addresses.map(&here.id, pod).await?;
        ensure!(told == here.name_of(pod)?, "{pod} is told as {told}");
        scan.finds(&published).await
    })
    .await?;
    for (caller, server) in there.callers().await?.iter().zip(here.echoes().await?) {
        caller.get(there.name_of(server.ip)?).await?;
    }
    addresses.unmap(&here.id, pod).await?;
    eventually(&format!("{name} takes a pod back"), || scan.finds(&processes)).await?;

    settings::set(there.cluster, json!({"reach": null})).await?;
    eventually(&format!("{name} is open again"), || scan.finds_at_least(&all)).await
}

/// Who looks, and where.
struct Scan<'a> {
    scanner: Caller<'a>,
    targets: BTreeSet<IpAddr>,
    /// The first external address: the gateway there has it for itself, and answers pings, and nothing else.
    gateway: IpAddr,
}

impl Scan<'_> {
    /// These are found at every port, and nobody else at any. Over UDP a port without a server may be passed over: a
    /// kernel refuses only so often in a second.
    async fn finds(&self, published: &BTreeSet<IpAddr>) -> Result<()> {
        let found = self.scanner.scan(&self.targets, &PORTS).await?;
        let is_known = |it: &&Found| published.contains(&it.ip()) || **it == Found::Icmp(self.gateway);
        let others: Vec<_> = found.iter().filter(|found| !is_known(found)).collect();
        ensure!(others.is_empty(), "published are {published:?}, found are {others:?}, too");
        let ports = |ip: &IpAddr| PORTS.map(|port| Found::Tcp(SocketAddr::new(*ip, port)));
        let missing: Vec<_> =
            published.iter().flat_map(ports).filter(|wanted| !found.contains(wanted)).collect();
        ensure!(missing.is_empty(), "published are {published:?}, not found are {missing:?}");
        has_servers(&found, published)
    }

    /// These are found where they serve.
    async fn finds_at_least(&self, servers: &BTreeSet<IpAddr>) -> Result<()> {
        has_servers(&self.scanner.scan(servers, &[PORT]).await?, servers)
    }
}

/// The servers answer in all ways.
fn has_servers(found: &BTreeSet<Found>, servers: &BTreeSet<IpAddr>) -> Result<()> {
    for ip in servers {
        let at = SocketAddr::new(*ip, PORT);
        for wanted in [Found::Tcp(at), Found::Udp(at), Found::Icmp(*ip)] {
            ensure!(found.contains(&wanted), "{wanted:?} is not in {found:?}");
        }
    }
    Ok(())
}

/// The addresses here of the processes on the nodes there.
async fn processes(here: &Side<'_>, there: &Side<'_>, addresses: &Addresses) -> Result<BTreeSet<IpAddr>> {
    let mut found = BTreeSet::new();
    for number in NODES {
        found.insert(addresses.map(&here.id, Echo::process_of(there.cluster, number).ip).await?);
    }
    Ok(found)
}

/// The names here of all pods there, of the addresses that nodes have among them, of the gateway, and of all that stand for
/// something else there, for whichever peer; and what lies beside all these.
async fn targets(
    here: &Side<'_>,
    there: &Side<'_>,
    processes: &BTreeSet<IpAddr>,
) -> Result<BTreeSet<IpAddr>> {
    let pods: Api<Pod> = Api::all(there.cluster.client.clone());
    let mut targets = processes.clone();
    targets.extend(external_view(&here.tunnel)?.hosts().next());
    targets.extend(mapped(here, there).await?);
    for pod in pods.list(&ListParams::default()).await? {
        let in_host_network = pod.spec.and_then(|spec| spec.host_network).unwrap_or_default();
        if let Some(ip) = pod.status.and_then(|status| status.pod_ip).filter(|_| !in_host_network) {
            targets.insert(here.name_of(ip.parse()?)?);
        }
    }
    let nodes: Api<Node> = Api::all(there.cluster.client.clone());
    for network in nodes.list(&ListParams::default()).await?.into_iter().filter_map(|it| it.spec?.pod_cidr) {
        // Network plugins give the first one to the node.
        let first = network.parse::<IpNet>()?.hosts().next().context("a node has no room for pods")?;
        targets.insert(here.name_of(first)?);
    }
    let beside: Vec<_> = targets.iter().flat_map(|ip| [-1, 1].map(|step| neighbour(*ip, step))).collect();
    targets.extend(beside);
    Ok(targets)
}

/// The names here of all addresses that stand for something there. The first of them is anywhere in the network.
async fn mapped(here: &Side<'_>, there: &Side<'_>) -> Result<BTreeSet<IpAddr>> {
    let storages: Api<IpamStorage> = Api::all(there.cluster.client.clone());
    let mut found = BTreeSet::new();
    for storage in storages.list(&ListParams::default()).await? {
        let mappings = storage.spec.endpoint_mappings;
        // Pods, which stand for themselves, are found otherwise.
        for (_, mapping) in mappings.into_iter().filter(|(endpoint, mapping)| *endpoint != mapping.ip) {
            found.insert(seen(mapping.ip.parse()?, external_view(&here.tunnel)?)?);
        }
    }
    Ok(found)
}

fn neighbour(ip: IpAddr, step: i32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().wrapping_add_signed(step)).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}
