//! The agent of all virtual nodes: pods that are bound to them run on their clusters.
//!
//! - Flow: each virtual node has a [`Station`], with one watch of the pods that are bound to it here, and for each of its
//!   namespaces over there watches of ShadowPods, pods and Events. A change puts the name of its pod into a queue;
//!   whoever takes it out gathers what is known, `ferro_core::pods::home` decides, and `hand` writes.
//! - Guarantees: only pods that changed are looked at; a pod is looked at by one at a time, from watches that have seen
//!   what was written for it before; a peer that is slow, dead or hostile delays its own station only.
//! - Assumptions: this process leads.

mod events;
mod hand;
mod outlook;
mod room;
mod setbacks;
mod station;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::offloading::NamespaceOffloading;
use ferro_peering::home::Home;
use ferro_peering::keepsake::{self, Keepsake};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use tracing::{info, warn};

use crate::kubelet::{Directory, Target};
use station::{MadeOf, Station};

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// When nothing happens, all is looked at again; a station that failed is then begun anew, too.
const AT_REST: Duration = Duration::from_mins(10);
/// A station that ended by itself is begun anew after so long.
const RETRY: Duration = Duration::from_secs(5);

/// All stations, by the names of their nodes. Clones are the same.
#[derive(Clone, Default)]
pub struct Stations(Arc<RwLock<HashMap<String, Arc<Station>>>>);

impl Directory for Stations {
    fn find(&self, namespace: &str, pod: &str) -> Option<Target> {
        self.all().into_iter().find_map(|station| station.target(namespace, pod))
    }
}

impl Stations {
    fn all(&self) -> Vec<Arc<Station>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn put(&self, node: &str, station: Option<Arc<Station>>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match station {
            Some(station) => _ = all.insert(node.to_owned(), station),
            None => _ = all.remove(node),
        }
    }
}

/// Keeps the pods on virtual nodes as they should be, for ever.
pub async fn run(
    tasks: Tasks,
    home: Home,
    offloadings: Watched<NamespaceOffloading>,
    stations: Stations,
) -> Result<()> {
    home.ready().await?;
    home.nodes.ready().await?;
    home.maps.ready().await?;
    home.networks.ready().await?;
    offloadings.ready().await?;
    let own = home.own()?.signer.identity().id().to_string();
    Agent { tasks, home, offloadings, own, stations, manned: HashMap::new() }.run().await
}

struct Agent {
    tasks: Tasks,
    home: Home,
    offloadings: Watched<NamespaceOffloading>,
    own: String,
    stations: Stations,
    manned: HashMap<String, (MadeOf, Tasks)>,
}

impl Agent {
    async fn run(mut self) -> Result<()> {
        let mut home = self.home.clone();
        loop {
            let has_failed = self.survey();
            let wake = if has_failed { RETRY } else { AT_REST };
            tokio::select! {
                changed = home.nodes.changed() => changed?,
                changed = home.peers.changed() => changed?,
                changed = home.secrets.changed() => changed?,
                () = tokio::time::sleep(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Mans a station for each virtual node, and gives up those of nodes that are gone. Whether one could not be manned.
    fn survey(&mut self) -> bool {
        let wanted = self.wanted();
        let gone: Vec<String> =
            self.manned.keys().filter(|node| !wanted.contains_key(*node)).cloned().collect();
        for node in &gone {
            self.give_up(node);
        }
        let mut has_failed = false;
        for (node, made_of) in wanted {
            let stays = self
                .manned
                .get(&node)
                .is_some_and(|(present, tasks)| *present == made_of && !tasks.have_ended());
            if stays {
                continue;
            }
            self.give_up(&node);
            if let Err(error) = self.man(&node, made_of) {
                warn!(node, error = format!("{error:#}"), "no pod can run there; will be tried again");
                has_failed = true;
            }
        }
        has_failed
    }

    /// What the station of each virtual node is made of.
    fn wanted(&self) -> HashMap<String, MadeOf> {
        let peers = self.home.peers.all();
        let nodes = self.home.nodes.all();
        nodes.iter().filter_map(|node| Some((node.name_any(), self.made_of(node, &peers)?))).collect()
    }

    fn made_of(&self, node: &Node, peers: &[Arc<ForeignCluster>]) -> Option<MadeOf> {
        let peer_id = labels::REMOTE_ID.of(&node.metadata)?;
        if !labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata) {
            return None;
        }
        let is_it = |peer: &&Arc<ForeignCluster>| {
            peer.spec.cluster_identity.as_ref().is_some_and(|identity| identity.cluster_id == peer_id)
        };
        let granted = |peer: &Arc<ForeignCluster>| {
            let secret =
                self.home.secrets.get(Some(&self.home.namespace), &keepsake::name(&peer.name_any()))?;
            Some(Keepsake::of(&secret)).filter(|keepsake| keepsake.grant.is_some())
        };
        // Of several that claim to be one cluster at most one was let in.
        let keepsake = peers.iter().filter(is_it).find_map(granted).unwrap_or_default();
        Some(MadeOf { node: node.name_any(), peer_id: peer_id.to_owned(), keepsake: Arc::new(keepsake) })
    }

    fn man(&mut self, node: &str, made_of: MadeOf) -> Result<()> {
        let tasks = self.tasks.child();
        let station =
            Station::start(&tasks, &self.home, self.offloadings.clone(), &self.own, made_of.clone())?;
        info!(node, peer = made_of.peer_id, "pods of this node are looked after");
        self.stations.put(node, Some(station));
        self.manned.insert(node.to_owned(), (made_of, tasks));
        Ok(())
    }

    fn give_up(&mut self, node: &str) {
        self.stations.put(node, None);
        if let Some((_, tasks)) = self.manned.remove(node) {
            tokio::spawn(async move { tasks.end().await });
        }
    }
}
