//! An address manager against a real API server, asked over TLS, with a gateway that only listens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Result, ensure};
use ferro_api::net::{IpamStorage, NatMapping};
use ferro_api::proto::ipam::MapRequest;
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_core::network::{Asker, Ipam};
use ferro_fabric::ipam::client::{self, Channel};
use ferro_fabric::ipam::{Handle, Metrics, start_counted};
use ferro_runtime::shutdown::Tasks;
use http::Method;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rig::addresses::{Listener, Manner, define_kinds, meet, own};
use rig::fuse::Fuse;
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use tokio::sync::{MutexGuard, OnceCell, watch};

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
/// There is one storage in a cluster, so tests take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub const NAMESPACE: &str = "default";

/// A cluster with an address manager.
pub struct Stage {
    pub cluster: Cluster,
    pub handle: Handle,
    pub metrics: Metrics,
    pub external_length: u8,
    tasks: Tasks,
    listen: SocketAddr,
    /// What the address manager of the moment knows, for gateways that outlive it.
    known: watch::Sender<Arc<Ipam>>,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// An empty one.
    pub async fn new(external_length: u8) -> Result<Self> {
        if let Ok(directives) = std::env::var("FERRO_LOG") {
            ferro_runtime::logs::start(&directives);
        }
        let turn = TURN.lock().await;
        let cluster = TOPOLOGY.get_or_try_init(topology).await?.cluster("a")?.clone();
        wipe(&cluster.client).await?;
        // Free for the moment, and nobody else asks for it.
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let (tasks, metrics) = (Tasks::default(), Metrics::default());
        let handle = run(&cluster, &tasks, listen, external_length, &metrics, Fuse::none()).await?;
        let known = watch::Sender::new(handle.watch().borrow().clone());
        tokio::spawn(pass_on(handle.watch(), known.clone()));
        Ok(Self { cluster, handle, metrics, external_length, tasks, listen, known, _turn: turn })
    }

    /// Ends the address manager, at whatever point it is, and starts another.
    pub async fn restart(&mut self, fuse: Fuse) -> Result<()> {
        self.tasks.end().await;
        self.tasks = Tasks::default();
        self.metrics = Metrics::default();
        let length = self.external_length;
        self.handle = run(&self.cluster, &self.tasks, self.listen, length, &self.metrics, fuse).await?;
        tokio::spawn(pass_on(self.handle.watch(), self.known.clone()));
        Ok(())
    }

    /// The same, and nothing is stored before.
    pub async fn begin_anew(&mut self, fuse: Fuse) -> Result<()> {
        self.tasks.end().await;
        wipe(&self.cluster.client).await?;
        self.restart(fuse).await
    }

    pub async fn end(self) {
        self.tasks.end().await;
    }

    /// A client under this name.
    pub async fn client(&self, name: &str) -> Result<IpamClient<Channel>> {
        let identity = client::issue(&self.cluster.client, NAMESPACE, name).await?;
        client::ipam(&identity, self.origin()?)
    }

    /// Asks for an address without a client, as often as it takes.
    pub async fn map(&self, peer: &str, endpoint: IpAddr) -> Result<IpAddr> {
        eventually("an address is told", || async {
            Ok(self.handle.map(Asker::Caller, peer, endpoint).await?)
        })
        .await
    }

    /// The address that a client is told. On a busy machine a gateway may be late, and whoever asked is to ask again.
    pub async fn told(client: &IpamClient<Channel>, request: MapRequest) -> Result<String> {
        eventually("an address is told", || async {
            Ok(client.clone().map_endpoint_ip(request.clone()).await?.into_inner().ip)
        })
        .await
    }

    pub fn origin(&self) -> Result<http::Uri> {
        Ok(format!("https://{}", self.listen).parse()?)
    }

    /// Agrees with a peer on networks.
    pub async fn meet(&self, peer: &str, number: u8) -> Result<()> {
        meet(&self.handle, peer, number).await
    }

    pub async fn storage(&self) -> Result<Vec<IpamStorage>> {
        let all: Api<IpamStorage> = Api::all(self.cluster.client.clone());
        Ok(all.list(&ListParams::default()).await?.items)
    }

    pub fn mappings(&self) -> Api<NatMapping> {
        Api::all(self.cluster.client.clone())
    }

    /// Every endpoint that is stored, with its address and its peers; each address once.
    pub async fn stored(&self) -> Result<BTreeMap<String, (String, BTreeSet<String>)>> {
        let (mut found, mut addresses) = (BTreeMap::new(), BTreeSet::new());
        for object in self.storage().await? {
            for (endpoint, mapping) in object.spec.endpoint_mappings {
                ensure!(addresses.insert(mapping.ip.clone()), "{} stands for two endpoints", mapping.ip);
                let twice = found.insert(endpoint.clone(), (mapping.ip, mapping.cluster_mappings));
                ensure!(twice.is_none(), "{endpoint} is stored twice");
            }
        }
        Ok(found)
    }

    /// Starts a gateway.
    pub async fn gateway(&self, manner: Manner) -> Result<Listener> {
        let known = self.known.subscribe();
        Listener::start(&self.cluster.client, NAMESPACE, &self.origin()?, manner, known).await
    }
}

/// Passes on what an address manager knows, until it ends.
async fn pass_on(mut state: watch::Receiver<Arc<Ipam>>, known: watch::Sender<Arc<Ipam>>) {
    loop {
        known.send_replace(state.borrow_and_update().clone());
        if state.changed().await.is_err() {
            return;
        }
    }
}

async fn topology() -> Result<Topology> {
    let topology = Topology::up("ipam", vec![ClusterSpec { bare: true, ..ClusterSpec::named("a") }]).await?;
    define_kinds(topology.cluster("a")?).await?;
    Ok(topology)
}

async fn wipe(client: &Client) -> Result<()> {
    let (now, all) = (DeleteParams::default(), ListParams::default());
    Api::<IpamStorage>::all(client.clone()).delete_collection(&now, &all).await?;
    Api::<NatMapping>::all(client.clone()).delete_collection(&now, &all).await?;
    Ok(())
}

async fn run(
    cluster: &Cluster,
    tasks: &Tasks,
    listen: SocketAddr,
    external_length: u8,
    metrics: &Metrics,
    fuse: Fuse,
) -> Result<Handle> {
    let client = counted(cluster, fuse).await?;
    let handle = start_counted(tasks, client.clone(), own()?, external_length, metrics.clone()).await?;
    // The certificates are not what is tried here: the fuse does not know of them.
    let admin = cluster.client.clone();
    let served = ferro_fabric::ipam::serve(admin, NAMESPACE.into(), listen, handle.clone());
    tasks.spawn("ipam server", served);
    Ok(handle)
}

/// A client of the writes of which the fuse knows.
async fn counted(cluster: &Cluster, fuse: Fuse) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    fuse.client(config, |request| request.method() != Method::GET)
}
