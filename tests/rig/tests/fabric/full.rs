//! Reach full: a peer reaches the nodes, too, by names that they have without anybody asking for them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ferro_api::net::NatMapping;
use kube::Api;
use kube::api::ListParams;
use rig::pods::{Caller, Echo, PORT};
use rig::tunnels::external_view;
use rig::wait::eventually;
use serde_json::json;

use crate::addresses::Addresses;
use crate::pair::{NODES, Pair, Side};
use crate::settings;

/// The second of two opens its nodes to the first, and closes them again.
pub async fn opens_the_nodes(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let nodes = NODES.map(|number| Echo::process_of(there.cluster, number));
    let addresses = Addresses::of(there.cluster).await?;
    for node in &nodes {
        // Somebody has asked for it, so that it would stay.
        addresses.unmap(&here.id, node.ip).await?;
    }
    settings::set(there.cluster, json!({"reach": "full"})).await?;
    let names = names(here, there, &nodes).await?;
    for caller in here.callers().await? {
        let known_as = there.name_of(caller.ip)?;
        for (name, node) in &names {
            caller.get(name).await?;
            let mut answers = caller.ask(name, 2).await?;
            answers.push(caller.ask_by_datagram(name).await?);
            let is_right = answers.iter().all(|answer| answer.is_of(node) && answer.is_to(known_as));
            ensure!(is_right, "{caller} asked {node:?} at {name}: {answers:?}");
        }
    }

    settings::set(there.cluster, json!({"reach": null})).await?;
    let scanner = Caller::on(here.cluster, 1).await?;
    eventually(&format!("{} closes its nodes", there.cluster.plan.name), || async {
        let found = scanner.scan(&names.keys().copied().collect(), &[PORT]).await?;
        ensure!(found.is_empty(), "found are {found:?}");
        Ok(())
    })
    .await
}

/// The nodes, by the names under which they are published to the first.
async fn names(here: &Side<'_>, there: &Side<'_>, nodes: &[Echo]) -> Result<BTreeMap<IpAddr, Echo>> {
    let mappings: Api<NatMapping> = Api::all(there.cluster.client.clone());
    let external = external_view(&here.tunnel)?;
    eventually(&format!("{} has names for its nodes", there.cluster.plan.name), || async {
        let all = mappings.list(&ListParams::default()).await?;
        let to_us = all.into_iter().filter(|mapping| mapping.spec.cluster_id == here.id);
        let published: BTreeMap<_, _> = to_us.flat_map(|mapping| mapping.spec.cluster_mappings).collect();
        let mut names = BTreeMap::new();
        for node in nodes {
            let name = published.get(&node.ip.to_string()).with_context(|| format!("not for {}", node.ip))?;
            let name: IpAddr = name.parse()?;
            ensure!(external.contains(&name), "{name} is not in {external}");
            names.insert(name, node.clone());
        }
        Ok(names)
    })
    .await
}
