//! What the suite and the figures of the address manager need: kinds, networks, and a gateway that only listens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_api::config::Reach;
use ferro_api::crds;
use ferro_api::proto::gateway::{Acknowledged, Change, Tunnels};
use ferro_core::network::{Answer, Ipam, Naming, Offered, OwnNetworks, default_pools};
use ferro_fabric::ipam::client::{self, Identity};
use ferro_fabric::ipam::{GATEWAY, Handle, in_force};
use futures::stream;
use http::Uri;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::topology::Cluster;
use crate::wait::eventually;

/// Makes all kinds known to a cluster.
pub async fn define_kinds(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for definition in crds() {
        definitions
            .patch(&definition.name_any(), &PatchParams::apply("rig"), &Patch::Apply(&definition))
            .await?;
    }
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]).await?;
    Ok(())
}

/// The networks of a cluster.
pub fn own() -> Result<OwnNetworks> {
    Ok(OwnNetworks {
        pod: "10.0.0.0/16".parse()?,
        service: "10.96.0.0/16".parse()?,
        reserved: BTreeSet::new(),
        pools: default_pools(),
        reach: Reach::Default,
    })
}

/// The networks of a peer of that number.
pub fn offered(number: u8) -> Result<Offered> {
    let (pod, external) = (format!("10.{}.0.0/16", 100 + number), format!("10.{}.0.0/16", 150 + number));
    Ok(Offered { pod: pod.parse()?, external: Some(external.parse()?) })
}

/// The answer of a peer that keeps all names.
pub fn kept() -> Answer {
    Answer { pod: Naming::Kept, external: Some(Naming::Kept) }
}

/// Agrees with a peer on networks, as a network manager would.
pub async fn meet(ipam: &Handle, peer: &str, number: u8) -> Result<()> {
    ipam.acquire(peer, offered(number)?).await?;
    Ok(ipam.agree(peer, kept()).await?)
}

/// How a gateway acknowledges.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// At once.
    Promptly,
    /// This much later.
    After(Duration),
    /// Not at all.
    Never,
}

/// Addresses by cluster and endpoint, and since when they are in force.
type Rules = BTreeMap<(String, String), (String, Instant)>;

/// A gateway that only listens; it ends with this value.
#[derive(Debug)]
pub struct Listener {
    /// None before it heard of any.
    rules: Arc<Mutex<Option<Rules>>>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Follows the address manager, and comes again when it is cut off. It says that it has a tunnel to each peer, under
    /// the names that are known there.
    pub async fn start(
        admin: &Client,
        namespace: &str,
        origin: &Uri,
        manner: Manner,
        known: watch::Receiver<Arc<Ipam>>,
    ) -> Result<Self> {
        let rules = Arc::default();
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace);
        let task = {
            let (rules, origin) = (Arc::clone(&rules), origin.clone());
            tokio::spawn(async move {
                loop {
                    _ = follow(&secrets, origin.clone(), &rules, manner, known.clone()).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
        };
        let listener = Self { rules, task };
        eventually("the gateway follows", || async {
            ensure!(listener.rules().is_some(), "not yet");
            Ok(())
        })
        .await?;
        Ok(listener)
    }

    /// The address under which a cluster reaches an endpoint.
    pub fn rule(&self, cluster: &str, endpoint: &str) -> Option<String> {
        self.rules()
            .as_ref()?
            .get(&(cluster.to_owned(), endpoint.to_owned()))
            .map(|(address, _)| address.clone())
    }

    /// Since when a cluster reaches an endpoint.
    pub fn since(&self, cluster: &str, endpoint: &str) -> Option<Instant> {
        self.rules().as_ref()?.get(&(cluster.to_owned(), endpoint.to_owned())).map(|(_, since)| *since)
    }

    /// How many rules it has.
    pub fn count(&self) -> usize {
        self.rules().as_ref().map_or(0, BTreeMap::len)
    }

    fn rules(&self) -> MutexGuard<'_, Option<Rules>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    secrets: &Api<Secret>,
    origin: Uri,
    rules: &Mutex<Option<Rules>>,
    manner: Manner,
    mut known: watch::Receiver<Arc<Ipam>>,
) -> Result<()> {
    let identity = Identity::from_secret(&secrets.get(GATEWAY).await?)?;
    let mut client = client::gateway(&identity, origin)?;
    let (say, said) = mpsc::channel::<Acknowledged>(16);
    let said = stream::unfold(said, |mut said| async move { Some((said.recv().await?, said)) });
    let mut changes = client.follow(said).await?.into_inner();
    let mut acknowledged = Acknowledged::default();
    loop {
        tokio::select! {
            change = changes.message() => {
                let Some(change) = change? else { return Ok(()) };
                (acknowledged.epoch, acknowledged.revision) = (change.epoch.clone(), change.revision);
                if let Manner::After(pause) = manner {
                    tokio::time::sleep(pause).await;
                }
                take_in(&mut rules.lock().unwrap_or_else(PoisonError::into_inner), change);
            }
            agreed = known.changed() => agreed?,
        }
        acknowledged.tunnels = Some(tunnels(&known.borrow_and_update()));
        if !matches!(manner, Manner::Never) {
            say.send(acknowledged.clone()).await.context("nobody hears it")?;
        }
    }
}

/// A tunnel to each peer with whom all is agreed on.
fn tunnels(known: &Ipam) -> Tunnels {
    let agreed = known.peers().iter().filter(|(_, agreement)| agreement.ours.is_some());
    Tunnels { all: agreed.map(|(peer, agreement)| in_force(peer, agreement)).collect() }
}

fn take_in(rules: &mut Option<Rules>, change: Change) {
    if change.whole {
        *rules = None;
    }
    let rules = rules.get_or_insert_default();
    for entry in change.removed {
        rules.remove(&(entry.cluster_id, entry.endpoint));
    }
    let now = Instant::now();
    for entry in change.set {
        rules.insert((entry.cluster_id, entry.endpoint), (entry.address, now));
    }
}
