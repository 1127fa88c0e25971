//! How the clusters look: read once a second for the live view, into a plain value.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use ferro_api::names::labels::{REMOTE_ID, TYPE_VIRTUAL_NODE};
use ferro_api::net::{ConnectionStatus, TunnelEndpoint};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::topology::Cluster;
use tokio_util::task::AbortOnDropHandle;

use crate::clusters::{ALL, Clusters, HOME};
use crate::shop::NAMESPACE;
use crate::story::{News, Story};

const EVERY: Duration = Duration::from_secs(1);

/// All that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    pub clusters: Vec<ClusterSeen>,
    pub tunnels: Vec<TunnelSeen>,
    /// Instances of each part of the shop on each cluster.
    pub pods: BTreeMap<String, BTreeMap<String, Instances>>,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSeen {
    pub name: String,
    pub nodes: Vec<NodeSeen>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its name, or that of the cluster that it stands for.
    pub name: String,
    pub is_virtual: bool,
    pub is_ready: bool,
}

/// One tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelSeen {
    pub from: String,
    pub to: String,
    pub is_connected: bool,
    /// Mean round-trip time.
    pub microseconds: Option<u32>,
}

/// How many there are, and how many of them are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instances {
    pub ready: usize,
    pub all: usize,
}

/// Looks at the clusters and tells of it, until the handle is dropped.
pub fn begin(clusters: &Clusters, story: &Story) -> Result<AbortOnDropHandle<()>> {
    let clusters = ALL.map(|name| clusters.get(name).cloned()).into_iter().collect::<Result<Vec<_>>>()?;
    let story = story.clone();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut every = tokio::time::interval(EVERY);
        loop {
            every.tick().await;
            story.tell(News::Seen(look(&clusters).await));
        }
    })))
}

/// Looks at all clusters; what cannot be read now is left out.
async fn look(clusters: &[Cluster]) -> Scene {
    let mut scene = Scene::default();
    let mut known = BTreeMap::new();
    for cluster in clusters {
        let nodes = list::<Node>(Api::all(cluster.client.clone())).await;
        for node in &nodes {
            if let Some(id) = REMOTE_ID.of(&node.metadata) {
                known.insert(id.to_owned(), stands_for(node));
            }
        }
        let name = cluster.plan.name.clone();
        scene.clusters.push(ClusterSeen { name: name.clone(), nodes: nodes.iter().map(seen).collect() });
        let tunnels = list::<TunnelEndpoint>(Api::all(cluster.client.clone())).await;
        scene.tunnels.extend(tunnels.iter().filter_map(|tunnel| tunnel_seen(&name, &known, tunnel)));
        if name == HOME {
            scene.pods = by_cluster(&list::<Pod>(Api::namespaced(cluster.client.clone(), NAMESPACE)).await);
        }
    }
    scene
}

async fn list<K: Clone + std::fmt::Debug + serde::de::DeserializeOwned>(api: Api<K>) -> Vec<K> {
    api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
}

fn seen(node: &Node) -> NodeSeen {
    let is_virtual = TYPE_VIRTUAL_NODE.is_on(&node.metadata);
    let name = if is_virtual { stands_for(node) } else { node.name_any() };
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    NodeSeen { name, is_virtual, is_ready }
}

fn stands_for(node: &Node) -> String {
    cluster_of(&node.name_any()).to_owned()
}

/// The cluster that a node is on, or stands for: `rome-1`, `liqo-turin-HASH`.
fn cluster_of(node: &str) -> &str {
    let name = node.strip_prefix("liqo-").unwrap_or(node);
    name.rsplit_once('-').map_or(name, |(name, _)| name)
}

/// A tunnel, once for the two that it joins.
fn tunnel_seen(from: &str, known: &BTreeMap<String, String>, tunnel: &TunnelEndpoint) -> Option<TunnelSeen> {
    let to = known.get(&tunnel.spec.cluster_id)?;
    let place = |name: &str| ALL.iter().position(|one| *one == name);
    let connection = tunnel.status.as_ref()?.connection.as_ref()?;
    (place(from) < place(to)).then(|| TunnelSeen {
        from: from.to_owned(),
        to: to.clone(),
        is_connected: connection.status == Some(ConnectionStatus::Connected)
            && connection.silent != Some(true),
        microseconds: connection.probe.as_ref().and_then(|probe| probe.round_trip_microseconds),
    })
}

/// The pods of the shop, by part and by the cluster that they run on.
fn by_cluster(pods: &[Pod]) -> BTreeMap<String, BTreeMap<String, Instances>> {
    let mut parts: BTreeMap<String, BTreeMap<String, Instances>> = BTreeMap::new();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let (Some(part), Some(node)) = (pod.labels().get("part"), node) else { continue };
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let count = parts.entry(part.clone()).or_default().entry(cluster_of(node).to_owned()).or_default();
        count.all += 1;
        count.ready += usize::from(is_ready);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn pod(part: &str, node: &str, ready: &str) -> Pod {
        from_value(json!({
            "metadata": {"name": "p", "labels": {"part": part}}, "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn pods_are_counted_on_the_cluster_that_they_run_on() {
        let pods = [
            pod("front", "rome-1", "True"),
            pod("front", "liqo-turin-dbdb6870cb", "False"),
            pod("front", "liqo-turin-dbdb6870cb", "True"),
        ];
        let parts = by_cluster(&pods);
        assert_eq!(parts["front"]["rome"], Instances { ready: 1, all: 1 });
        assert_eq!(parts["front"]["turin"], Instances { ready: 1, all: 2 });
    }
}
