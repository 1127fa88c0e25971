//! What the thesis on tenancy does where this project does something else, for figures beside ours.
//!
//! As its text has it, and at its best: one GET tells whether a namespace exists, all namespaces of a map have one write
//! of its status, and what a watch knows is not asked for again. A worker takes one namespace at a time, since several
//! maps in the hands of several workers would change nothing where there is one map.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::names::labels::TYPE_VIRTUAL_NODE;
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase, NamespaceMap, NamespaceMapStatus};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

/// Makes the namespaces that the maps in one namespace ask for: whenever one is added to a map, all of the map are
/// checked before.
pub async fn namespace_maps(tasks: Tasks, client: Client, namespace: String, workers: usize) -> Result<()> {
    let mut maps = watch_maps(&tasks, &client, &namespace).await?;
    let mut seen = BTreeMap::new();
    loop {
        for map in maps.all() {
            let desired = Some(&map.spec.desired_mapping);
            if seen.get(&map.name_any()) != desired {
                enforce(&client, &map, workers).await?;
                seen.insert(map.name_any(), map.spec.desired_mapping.clone());
            }
        }
        maps.changed().await?;
    }
}

async fn enforce(client: &Client, map: &NamespaceMap, workers: usize) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let checks = stream::iter(map.spec.desired_mapping.clone()).map(|(local, remote)| {
        let namespaces = namespaces.clone();
        async move {
            if namespaces.get_opt(&remote).await?.is_none() {
                let wanted = serde_json::from_value(json!({"metadata": {"name": &remote}}))?;
                namespaces.create(&PostParams::default(), &wanted).await?;
            }
            let phase = MappingPhase::Accepted;
            anyhow::Ok((local, CurrentMapping { phase, remote_namespace: Some(remote), message: None }))
        }
    });
    let current_mapping = checks.buffer_unordered(workers).try_collect().await?;
    let status = NamespaceMapStatus { current_mapping, ..NamespaceMapStatus::default() };
    let maps: Api<NamespaceMap> = Api::namespaced(client.clone(), &map.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": status}));
    maps.patch_status(&map.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Asks the maps of all virtual nodes for a namespace, one after the other, once it is to be offloaded. The maps lie in
/// one namespace, and have the names of the nodes.
pub async fn namespace_offloadings(tasks: Tasks, client: Client, namespace: String) -> Result<()> {
    let virtual_nodes = watcher::Config::default().labels(&TYPE_VIRTUAL_NODE.selector());
    let mut nodes = Watched::<Node>::start(&tasks, "nodes", Api::all(client.clone()), virtual_nodes);
    let mut maps = watch_maps(&tasks, &client, &namespace).await?;
    let all = watcher::Config::default();
    let mut offloadings =
        Watched::<NamespaceOffloading>::start(&tasks, "offloadings", Api::all(client.clone()), all);
    nodes.ready().await?;
    loop {
        for offloading in offloadings.all() {
            let offloaded = offloading.namespace().context("it lies in no namespace")?;
            fill(&maps, &Api::namespaced(client.clone(), &namespace), &nodes.all(), &offloaded).await?;
        }
        // A node or a map may be seen after the offloading that is for it.
        tokio::select! {
            changed = offloadings.changed() => changed?,
            changed = nodes.changed() => changed?,
            changed = maps.changed() => changed?,
        }
    }
}

async fn fill(
    maps: &Watched<NamespaceMap>,
    api: &Api<NamespaceMap>,
    nodes: &[Arc<Node>],
    offloaded: &str,
) -> Result<()> {
    for node in nodes {
        let name = node.name_any();
        let Some(map) = maps.get(api.namespace(), &name) else { continue };
        if !map.spec.desired_mapping.contains_key(offloaded) {
            let patch = Patch::Merge(json!({"spec": {"desiredMapping": {offloaded: offloaded}}}));
            api.patch(&name, &PatchParams::default(), &patch).await?;
        }
    }
    Ok(())
}

async fn watch_maps(tasks: &Tasks, client: &Client, namespace: &str) -> Result<Watched<NamespaceMap>> {
    let api = Api::namespaced(client.clone(), namespace);
    let maps = Watched::start(tasks, "maps", api, watcher::Config::default());
    maps.ready().await?;
    Ok(maps)
}
