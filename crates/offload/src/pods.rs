//! The agent of all virtual nodes: pods that are bound to them run on their clusters.
//!
//! - Flow: each virtual node has a [`Station`], with one watch of the pods that are bound to it here, and for each of its
//!   namespaces over there watches of ShadowPods, pods and Events. A change puts the name of its pod into a queue;
//!   whoever takes it out gathers what is known, `ferro_core::pods::home` decides, and `hand` writes.
//! - Guarantees: only pods that changed are looked at; a pod is looked at by one at a time, from watches that have seen
//!   what was written for it before; a peer that is slow, dead or hostile delays its own station only.
//! - Assumptions: this process leads.

mod claims;
mod events;
pub(crate) mod hand;
mod lodgers;
pub(crate) mod outlook;
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
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::claims::Ledger;
use crate::kubelet::{Directory, Site, Target};
use crate::occupancy::Occupancy;
use crate::reflection::Reflection;
use crate::tokens::Issuer;
use lodgers::Lodgers;
pub(crate) use outlook::{counterpart, is_external};
use station::{MadeOf, Station};

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// When nothing happens, all is looked at again; a station that failed is then begun anew, too.
const AT_REST: Duration = Duration::from_mins(10);
/// A station that ended by itself is begun anew after so long.
const RETRY: Duration = Duration::from_secs(5);

/// All stations, by the names of their nodes. Clones are the same.
#[derive(Clone, Default)]
pub struct Stations(Arc<Manned>);

#[derive(Default)]
struct Manned {
    all: RwLock<HashMap<String, Arc<Station>>>,
    bell: watch::Sender<u64>,
}

/// The way to the API server of a peer, by the client of its station.
#[derive(Clone)]
pub(crate) struct Way(Arc<Station>, Client);

impl Way {
    /// To its API server.
    pub(crate) fn client(&self) -> Client {
        self.1.clone()
    }

    /// Whether it is the same client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Directory for Stations {
    fn find(&self, namespace: &str, pod: &str) -> Option<Target> {
        self.all().into_iter().find_map(|station| station.target(namespace, pod))
    }

    fn site(&self, node: &str) -> Option<Site> {
        let station = self.0.all.read().unwrap_or_else(PoisonError::into_inner).get(node).cloned()?;
        Some(station.site())
    }

    fn has_listed(&self, node: &str) -> bool {
        let all = self.0.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(node).is_some_and(|station| station.has_listed())
    }
}

impl Stations {
    fn all(&self) -> Vec<Arc<Station>> {
        self.0.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The way to a peer, as long as it has a node and lets us in.
    pub(crate) fn way(&self, peer: &str) -> Option<Way> {
        let station = self.all().into_iter().find(|station| station.peer() == peer)?;
        let client = station.remote()?.clone();
        Some(Way(station, client))
    }

    /// Rings whenever there is another way to some peer.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.0.bell.subscribe()
    }

    fn put(&self, node: &str, station: Option<Arc<Station>>) {
        let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
        match station {
            Some(station) => _ = all.insert(node.to_owned(), station),
            None => _ = all.remove(node),
        }
        drop(all);
        self.0.bell.send_modify(|count| *count += 1);
    }
}

/// What the pods of all virtual nodes have to do with, beside what all controllers read. Clones are the same.
#[derive(Clone)]
pub struct Around {
    /// Which namespaces use which clusters.
    pub offloadings: Watched<NamespaceOffloading>,
    /// Which of these have pods on which clusters.
    pub occupancy: Occupancy,
    /// What goes along with them.
    pub reflection: Reflection,
    /// Where claims have their volumes.
    pub ledger: Ledger,
    /// Who gives them tokens.
    pub issuer: Issuer,
}

/// Keeps the pods on virtual nodes as they should be, for ever.
pub async fn run(tasks: Tasks, home: Home, around: Around, stations: Stations) -> Result<()> {
    home.ready().await?;
    home.nodes.ready().await?;
    home.maps.ready().await?;
    home.networks.ready().await?;
    around.offloadings.ready().await?;
    around.ledger.ready().await?;
    around.issuer.ready().await?;
    let own = home.own()?.signer.identity().id().to_string();
    Agent { tasks, home, around, own, stations, manned: HashMap::new() }.run().await
}

struct Agent {
    tasks: Tasks,
    home: Home,
    around: Around,
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
            let mut ended: FuturesUnordered<_> =
                self.manned.values().map(|(_, tasks)| tasks.ended()).collect();
            tokio::select! {
                changed = home.nodes.changed() => changed?,
                changed = home.peers.changed() => changed?,
                changed = home.secrets.changed() => changed?,
                Some(()) = ended.next() => tokio::time::sleep(RETRY).await,
                () = tokio::time::sleep(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Mans a station for each virtual node, and gives up those of nodes that are gone. Whether one could not be manned.
    fn survey(&mut self) -> bool {
        let wanted = self.wanted();
        let nodes = wanted.iter().map(|(node, made_of)| (node.as_str(), made_of.peer_id.as_str()));
        self.around.occupancy.survey(nodes);
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
        let occupancy = self.around.occupancy.clone();
        let turn = occupancy.begin(node, &made_of.peer_id);
        let lodgers = Lodgers::new(occupancy, turn);
        let station = Station::start(&tasks, &self.home, &self.around, &self.own, made_of.clone(), lodgers)?;
        info!(node, peer = made_of.peer_id, "pods of this node are looked after");
        self.stations.put(node, Some(station));
        self.manned.insert(node.to_owned(), (made_of, tasks));
        Ok(())
    }

    fn give_up(&mut self, node: &str) {
        self.stations.put(node, None);
        if let Some((made_of, tasks)) = self.manned.remove(node) {
            // What it has still to say does not count.
            _ = self.around.occupancy.begin(node, &made_of.peer_id);
            tasks.dismiss();
        }
    }
}
