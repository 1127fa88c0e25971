//! Two clusters that reach each other only over wires that can be cut, and what must hold after whatever happened.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use anyhow::{Result, ensure};
use ferro_api::discovery::PeeringState::None as Unpeered;
use ferro_api::discovery::{PeeringState, ResourceRequest};
use ferro_api::sharing::ResourceOffer;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::ListParams;
use kube::{Api, Resource};
use rig::objects::{await_same, settled};
use rig::site::{Wired, clusters, ferro};
use rig::topology::{Cluster, Topology};
use rig::wait::{GENEROUSLY, block_on};
use rig::wire::Wire;
use tokio::sync::Mutex;

/// One pair for all tests, one test at a time. A test that fails takes the pair along, and the next makes another.
static PAIR: Mutex<Option<Pair>> = Mutex::const_new(None);
const GLANCE: std::time::Duration = std::time::Duration::from_millis(100);

/// A cluster with ferro, the wires to it, and what it had before it knew another one.
pub struct Side {
    wired: Wired,
    before: BTreeSet<String>,
}

impl Deref for Side {
    type Target = Wired;

    fn deref(&self) -> &Wired {
        &self.wired
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Wired {
        &mut self.wired
    }
}

/// Two of them, which know nothing of each other.
pub struct Pair {
    pub rome: Side,
    pub turin: Side,
    pub topology: Topology,
}

/// Runs a test on the pair; afterwards nothing may be left of it.
pub fn with_pair(test: impl AsyncFnOnce(&mut Pair) -> Result<()>) -> Result<()> {
    block_on(async {
        let mut shared = PAIR.lock().await;
        let mut pair = match shared.take() {
            Some(pair) => pair,
            None => Pair::start().await?,
        };
        test(&mut pair).await?;
        tokio::try_join!(pair.rome.is_as_before(), pair.turin.is_as_before())?;
        *shared = Some(pair);
        Ok(())
    })
}

impl Side {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let wired = Wired::start(cluster).await?;
        let before = settled(cluster).await?;
        Ok(Self { wired, before })
    }

    /// Waits until nothing is left of what came after the installation.
    pub async fn is_as_before(&self) -> Result<()> {
        await_same(&self.site.cluster, &self.before).await
    }

    /// How many requests, offers and nodes of peers there are.
    async fn counts(&self) -> Result<[usize; 3]> {
        let nodes: Api<Node> = Api::all(self.site.admin.clone());
        let nodes = nodes.list(&ListParams::default().labels("liqo.io/type=virtual-node")).await?;
        Ok([self.count::<ResourceRequest>().await?, self.count::<ResourceOffer>().await?, nodes.items.len()])
    }

    async fn count<K>(&self) -> Result<usize>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        Ok(Api::<K>::all(self.site.admin.clone()).list(&ListParams::default()).await?.items.len())
    }

    /// How many other clusters it knows, and how many namespaces it keeps for them.
    async fn acquaintances(&self) -> Result<[usize; 2]> {
        let peers = self.site.peers().list(&ListParams::default()).await?.items.len();
        let tenants: Api<Namespace> = Api::all(self.site.admin.clone());
        let tenants = tenants.list(&ListParams::default().labels("liqo.io/remoteID")).await?.items.len();
        Ok([peers, tenants])
    }
}

impl Pair {
    async fn start() -> Result<Self> {
        let topology = clusters("peering-faults", &["rome", "turin"]).await?;
        let (rome, turin) = (topology.cluster("rome")?, topology.cluster("turin")?);
        let (rome, turin) = tokio::try_join!(Side::start(rome), Side::start(turin))?;
        Ok(Self { rome, turin, topology })
    }

    /// What happens to all that either sends to the other.
    pub fn set(&self, wire: Wire) {
        self.rome.set(wire);
        self.turin.set(wire);
    }

    /// Waits for a state. Roles that failed are started again, as Kubernetes would.
    pub async fn until(&mut self, what: &str, reached: impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.rome.site.revive().await?;
            self.turin.site.revive().await?;
            match reached(self).await {
                Ok(()) => break,
                Err(error) if begin.elapsed() > GENEROUSLY => return Err(error.context(what.to_owned())),
                Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
        println!("{what}: {:.1} s", begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// The command that begins a peering in both directions.
    pub fn peer(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (rome, turin) = (self.rome.site.cluster.clone(), &self.turin.site.cluster);
        let remote = turin.kubeconfig.display().to_string();
        async move { ferro(&rome, &["peer", "--remote-kubeconfig", &remote, "--bidirectional"]).await.map(drop) }
    }

    /// Both sides see these states: what Rome uses of Turin, and what Turin uses of Rome.
    pub async fn are(&self, from_turin: PeeringState, from_rome: PeeringState) -> Result<()> {
        self.rome.site.is(&self.turin.site, from_turin, from_rome).await?;
        self.turin.site.is(&self.rome.site, from_rome, from_turin).await
    }

    /// Each sees these states of what it uses, and of what the other uses.
    pub async fn each_sees(&self, outgoing: PeeringState, incoming: PeeringState) -> Result<()> {
        self.rome.site.is(&self.turin.site, outgoing, incoming).await?;
        self.turin.site.is(&self.rome.site, outgoing, incoming).await
    }

    /// Both peerings stand, and there is one of everything.
    pub async fn are_peered(&self) -> Result<()> {
        self.are(PeeringState::Established, PeeringState::Established).await?;
        for side in [&self.rome, &self.turin] {
            let counts = side.counts().await?;
            ensure!(counts == [2, 2, 1], "{}: {counts:?} requests, offers, nodes", side.site.name);
            let known = side.acquaintances().await?;
            ensure!(known == [1, 1], "{}: {known:?} peers, namespaces", side.site.name);
        }
        Ok(())
    }

    /// No peering stands, and nothing is left of any, but the two know each other.
    pub async fn are_unpeered(&self) -> Result<()> {
        self.are(Unpeered, Unpeered).await?;
        for side in [&self.rome, &self.turin] {
            let counts = side.counts().await?;
            ensure!(counts == [0, 0, 0], "{}: {counts:?} requests, offers, nodes", side.site.name);
        }
        Ok(())
    }

    /// Each uses nothing of the other any more.
    pub async fn unpeer(&self) -> Result<()> {
        ferro(&self.rome.site.cluster, &["unpeer", "turin"]).await?;
        ferro(&self.turin.site.cluster, &["unpeer", "rome"]).await.map(drop)
    }

    /// Each forgets the other.
    pub async fn remove(&self) -> Result<()> {
        ferro(&self.rome.site.cluster, &["remove", "turin"]).await?;
        ferro(&self.turin.site.cluster, &["remove", "rome"]).await.map(drop)
    }

    /// So many nodes stand for the other in Rome, and in Turin.
    pub async fn have_nodes(&self, rome: usize, turin: usize) -> Result<()> {
        let nodes = [self.rome.counts().await?[2], self.turin.counts().await?[2]];
        ensure!(nodes == [rome, turin], "{nodes:?} nodes");
        Ok(())
    }

    pub async fn are_alone(&self) -> Result<()> {
        self.rome.site.is_alone().await?;
        self.turin.site.is_alone().await
    }
}
