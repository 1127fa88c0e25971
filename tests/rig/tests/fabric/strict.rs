//! Reach strict: who scans the ports of a peer finds what was published to it, and nobody else.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};
use ferro_api::net::{NatMapping, NatMappingSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use rig::pods::{Caller, Echo, PORT};
use rig::topology::Cluster;
use rig::wait::eventually;
use serde_json::json;

use crate::addresses::Addresses;
use crate::pair::{NODES, Pair, Side};
use crate::settings;

/// Of the servers, of DNS, of the address manager, of the roles' health, of kubelets, and of a shell.
const PORTS: [u16; 6] = [PORT, 53, 6000, 9440, 10250, 22];
/// The redirections that are written by hand.
const BY_HAND: &str = "rig-strict";

/// The second of two closes itself up to what it has published: a pod by hand, and processes of its nodes by its address
/// manager. Its pods still reach the first one. Then it opens again.
pub async fn hides_what_is_not_published(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let scanner = Caller::on(here.cluster, 1).await?;
    let echoes: BTreeSet<_> =
        there.echoes().await?.iter().map(|echo| here.name_of(echo.ip)).collect::<Result<_>>()?;
    let processes = processes(here, there).await?;
    let targets = targets(here, there, &processes).await?;
    let all: BTreeSet<_> = echoes.union(&processes).copied().collect();
    let found = scanner.scan(&targets, &PORTS).await?;
    ensure!(found.is_superset(&all), "an open cluster is not found: {found:?} of {all:?}");

    let pod = Echo::on(there.cluster, 2).await?.ip;
    publish(there.cluster, here, pod).await?;
    settings::set(there.cluster, json!({"reach": "strict"})).await?;
    let published: BTreeSet<_> = processes.iter().copied().chain([here.name_of(pod)?]).collect();
    eventually(&format!("{} hides", there.cluster.plan.name), || async {
        let found = scanner.scan(&targets, &PORTS).await?;
        ensure!(found == published, "published are {published:?}, found are {found:?}");
        Ok(())
    })
    .await?;
    for (caller, server) in there.callers().await?.iter().zip(here.echoes().await?) {
        caller.get(there.name_of(server.ip)?).await?;
    }

    settings::set(there.cluster, json!({"reach": null})).await?;
    let by_hand: Api<NatMapping> = Api::all(there.cluster.client.clone());
    by_hand.delete(BY_HAND, &DeleteParams::default()).await?;
    eventually(&format!("{} is open again", there.cluster.plan.name), || async {
        let found = scanner.scan(&all, &[PORT]).await?;
        ensure!(found == all, "only {found:?} of {all:?} are found");
        Ok(())
    })
    .await
}

/// The addresses here of the processes on the nodes there.
async fn processes(here: &Side<'_>, there: &Side<'_>) -> Result<BTreeSet<IpAddr>> {
    let addresses = Addresses::of(there.cluster).await?;
    let mut found = BTreeSet::new();
    for number in NODES {
        found.insert(addresses.map(&here.id, Echo::process_of(there.cluster, number).ip).await?);
    }
    Ok(found)
}

/// Writes down by hand that a pod may be reached from here.
async fn publish(cluster: &Cluster, here: &Side<'_>, pod: IpAddr) -> Result<()> {
    let cluster_mappings = [(pod.to_string(), here.name_of(pod)?.to_string())].into();
    let spec = NatMappingSpec { cluster_id: here.id.clone(), cluster_mappings };
    let mappings: Api<NatMapping> = Api::all(cluster.client.clone());
    mappings.create(&PostParams::default(), &NatMapping::new(BY_HAND, spec)).await?;
    Ok(())
}

/// The names here of all pods there, and what lies beside them and beside those processes.
async fn targets(
    here: &Side<'_>,
    there: &Side<'_>,
    processes: &BTreeSet<IpAddr>,
) -> Result<BTreeSet<IpAddr>> {
    let pods: Api<Pod> = Api::all(there.cluster.client.clone());
    let mut targets = processes.clone();
    for pod in pods.list(&ListParams::default()).await? {
        let in_host_network = pod.spec.and_then(|spec| spec.host_network).unwrap_or_default();
        if let Some(ip) = pod.status.and_then(|status| status.pod_ip).filter(|_| !in_host_network) {
            targets.insert(here.name_of(ip.parse()?)?);
        }
    }
    let beside: Vec<_> = targets.iter().flat_map(|ip| [-1, 1].map(|step| neighbour(*ip, step))).collect();
    targets.extend(beside);
    Ok(targets)
}

fn neighbour(ip: IpAddr, step: i32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().wrapping_add_signed(step)).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}
