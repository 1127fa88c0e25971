//! Claims of our storage classes: each gets its volume where its pod runs.
//!
//! - Flow: changes of claims, volumes and stand-ins here, and of claims over there, put the claim into the queue of its
//!   [`Branch`]: one for each peer, and one for claims that have nothing to do with any. Whoever takes it out gathers what
//!   is known, `ferro_core::claims` decides, and [`hand`] writes.
//! - Guarantees: only claims that changed are looked at, from watches that have seen what was written for them before; a
//!   peer that is slow, dead or hostile delays claims of its own branch only.
//! - Assumptions: this process leads.

mod branch;
mod hand;
mod room;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::names::{annotations, labels};
use ferro_core::claims::{Handle, Place, is_of_ours, peer_of, selected_node, volume_name};
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;

use crate::pods::Stations;
use branch::Branch;

/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);

/// A claim: what was once one of that UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    name: String,
    uid: String,
}

impl Key {
    fn of_claim(claim: &PersistentVolumeClaim) -> Option<Self> {
        Some(Self { namespace: claim.namespace()?, name: claim.name_any(), uid: claim.uid()? })
    }

    fn of_volume(volume: &PersistentVolume) -> Option<Self> {
        let claim = volume.spec.as_ref()?.claim_ref.as_ref().filter(|_| Handle::of(volume).is_some())?;
        Some(Self { namespace: claim.namespace.clone()?, name: claim.name.clone()?, uid: claim.uid.clone()? })
    }

    fn of_stand_in(claim: &PersistentVolumeClaim) -> Option<Self> {
        let meta = &claim.metadata;
        Some(Self {
            namespace: annotations::ORIGIN_NAMESPACE.of(meta)?.to_owned(),
            name: annotations::STANDS_FOR.of(meta)?.to_owned(),
            uid: annotations::ORIGIN_UID.of(meta)?.to_owned(),
        })
    }
}

/// All claims of this cluster, and those of its volumes that stand for claims on peers. Clones are the same.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) claims: Watched<PersistentVolumeClaim>,
    pub(crate) volumes: Watched<PersistentVolume>,
}

impl Ledger {
    /// Begins to watch.
    pub fn start(tasks: &Tasks, client: &Client) -> Self {
        let claims = Api::all(client.clone());
        let claims = Watched::start(tasks, "claims", claims, watcher::Config::default());
        let ours = watcher::Config::default().labels(labels::REMOTE_ID.key());
        let volumes = Watched::start(tasks, "volumes", Api::all(client.clone()), ours);
        Self { claims, volumes }
    }

    /// Waits until all is known.
    pub(crate) async fn ready(&self) -> Result<()> {
        self.claims.ready().await?;
        self.volumes.ready().await
    }
}

/// What all branches read.
struct Shop {
    home: Home,
    own: String,
    ledger: Ledger,
    classes: Watched<StorageClass>,
    stand_ins: Watched<PersistentVolumeClaim>,
    stations: Stations,
    /// Claims that turn out to be another branch's.
    strays: mpsc::UnboundedSender<Key>,
}

/// Keeps claims of our classes as they should be, for ever.
pub async fn run(tasks: Tasks, home: Home, ledger: Ledger, stations: Stations) -> Result<()> {
    let classes = Api::all(home.client.clone());
    let classes = Watched::start(&tasks, "storage classes", classes, watcher::Config::default());
    let ours = watcher::Config::default().labels(&labels::STAND_IN.selector());
    let stand_ins = Api::namespaced(home.client.clone(), &home.namespace);
    let stand_ins = Watched::start(&tasks, "stand-ins", stand_ins, ours);
    home.ready().await?;
    home.nodes.ready().await?;
    home.maps.ready().await?;
    ledger.ready().await?;
    classes.ready().await?;
    stand_ins.ready().await?;
    let own = home.own()?.signer.identity().id().to_string();
    let (strays, found) = mpsc::unbounded_channel();
    let shop = Arc::new(Shop { home, own, ledger, classes, stand_ins, stations, strays });
    Router { tasks, shop, found, branches: HashMap::new() }.run().await
}

/// Brings each claim to its branch.
struct Router {
    tasks: Tasks,
    shop: Arc<Shop>,
    found: mpsc::UnboundedReceiver<Key>,
    /// By the identifier of the peer.
    branches: HashMap<Option<String>, Arc<Branch>>,
}

impl Router {
    async fn run(mut self) -> Result<()> {
        let shop = Arc::clone(&self.shop);
        let mut claims = shop.ledger.claims.follow();
        let mut volumes = shop.ledger.volumes.follow();
        let mut stand_ins = shop.stand_ins.follow();
        let (mut maps, mut peers) = (shop.home.maps.clone(), shop.stations.bell());
        let mut classes = shop.classes.clone();
        let mut rest = tokio::time::interval(AT_REST);
        rest.reset();
        loop {
            let mut keys = Vec::new();
            for (reference, claim) in claims.take() {
                match claim {
                    Some(claim) if is_of_ours(&claim) => keys.extend(Key::of_claim(&claim)),
                    Some(_) => {}
                    None => keys.extend(self.known(reference.namespace.unwrap_or_default(), reference.name)),
                }
            }
            keys.extend(volumes.take().into_iter().filter_map(|(_, volume)| Key::of_volume(&*volume?)));
            keys.extend(stand_ins.take().into_iter().filter_map(|(_, claim)| Key::of_stand_in(&*claim?)));
            for key in keys {
                self.ring(key);
            }
            tokio::select! {
                changed = claims.changed() => changed?,
                changed = volumes.changed() => changed?,
                changed = stand_ins.changed() => changed?,
                Some(key) = self.found.recv() => self.ring(key),
                changed = maps.changed() => {
                    changed?;
                    self.look_again();
                }
                changed = peers.changed() => {
                    changed?;
                    self.look_again();
                }
                changed = classes.changed() => {
                    changed?;
                    self.look_again();
                }
                _ = rest.tick() => {
                    (claims, volumes) = (shop.ledger.claims.follow(), shop.ledger.volumes.follow());
                    stand_ins = shop.stand_ins.follow();
                }
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Something about this claim has changed.
    fn ring(&mut self, key: Key) {
        let peer = self.shop.peer_of(&key);
        let (tasks, shop) = (&self.tasks, &self.shop);
        let branch = self.branches.entry(peer.clone()).or_insert_with(|| Branch::open(tasks, shop, peer));
        branch.ring(key);
    }

    /// Those that have, or had, this name.
    fn known(&self, namespace: String, name: String) -> Vec<Key> {
        let name = (namespace, name);
        self.branches.values().flat_map(|branch| branch.known(&name)).collect()
    }

    /// The way to a peer, its namespaces or a class have changed.
    fn look_again(&self) {
        self.branches.values().for_each(|branch| branch.look_again());
    }
}

impl Shop {
    /// The claim of that UID, as it is now.
    fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        let claim = self.ledger.claims.get(Some(&key.namespace), &key.name)?;
        (claim.uid().as_ref() == Some(&key.uid) && is_of_ours(&claim)).then_some(claim)
    }

    fn volume(&self, key: &Key) -> Option<Arc<PersistentVolume>> {
        let volume = self.ledger.volumes.get(None, &volume_name(&key.uid))?;
        (Key::of_volume(&volume).as_ref() == Some(key)).then_some(volume)
    }

    /// The peer that a claim has to do with.
    fn peer_of(&self, key: &Key) -> Option<String> {
        let (claim, volume) = (self.claim(key), self.volume(key));
        let chosen = claim.as_deref().and_then(|claim| self.peer_behind(selected_node(claim)?));
        peer_of(claim.as_deref(), volume.as_deref(), chosen.as_deref().map(Place::There))
    }

    /// The peer that a node stands for.
    fn peer_behind(&self, node: &str) -> Option<String> {
        let node = self.home.nodes.get(None, node)?;
        let is_virtual = labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata);
        labels::REMOTE_ID.of(&node.metadata).filter(|_| is_virtual).map(str::to_owned)
    }
}
