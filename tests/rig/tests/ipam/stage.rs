//! An address manager against a real API server, asked over TLS, with a gateway that only listens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::crds;
use ferro_api::net::{IpamStorage, NatMapping};
use ferro_api::proto::gateway::{Acknowledged, Change};
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_core::network::{Answer, Naming, Offered, OwnNetworks, default_pools};
use ferro_fabric::ipam::client::{self, Channel, Identity};
use ferro_fabric::ipam::{GATEWAY, Handle, Metrics, start_counted};
use ferro_runtime::shutdown::Tasks;
use futures::stream;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use tokio::sync::{MutexGuard, OnceCell, mpsc};
use tower::BoxError;
use tower::filter::FilterLayer;

static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
/// There is one storage in a cluster, so tests take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub const NAMESPACE: &str = "default";

/// How many writes an address manager may still do; less than none means any number.
#[derive(Clone, Debug)]
pub struct Fuse {
    left: Arc<AtomicI64>,
    pub written: Arc<AtomicI64>,
}

impl Fuse {
    pub fn none() -> Self {
        Self::after(-1)
    }

    /// Breaks after so many writes.
    pub fn after(writes: i64) -> Self {
        Self { left: Arc::new(AtomicI64::new(writes)), written: Arc::default() }
    }

    /// Whether one more write may be done.
    fn allows(&self) -> bool {
        self.written.fetch_add(1, Ordering::SeqCst);
        let spend = |left: i64| match left {
            0 => None,
            1.. => Some(left - 1),
            _ => Some(left),
        };
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok()
    }
}

/// A cluster with an address manager.
pub struct Stage {
    pub cluster: Cluster,
    pub handle: Handle,
    pub metrics: Metrics,
    pub external_length: u8,
    tasks: Tasks,
    listen: SocketAddr,
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
        Ok(Self { cluster, handle, metrics, external_length, tasks, listen, _turn: turn })
    }

    /// Ends the address manager, at whatever point it is, and starts another.
    pub async fn restart(&mut self, fuse: Fuse) -> Result<()> {
        self.tasks.end().await;
        self.tasks = Tasks::default();
        self.metrics = Metrics::default();
        let length = self.external_length;
        self.handle = run(&self.cluster, &self.tasks, self.listen, length, &self.metrics, fuse).await?;
        Ok(())
    }

    pub async fn end(self) {
        self.tasks.end().await;
    }

    /// A client under this name.
    pub async fn client(&self, name: &str) -> Result<IpamClient<Channel>> {
        let identity = Identity::issue(&self.cluster.client, NAMESPACE, name).await?;
        client::ipam(&identity, self.origin()?)
    }

    pub fn origin(&self) -> Result<http::Uri> {
        Ok(format!("https://{}", self.listen).parse()?)
    }

    /// Agrees with a peer on networks, as a network manager would: the peer keeps all our names.
    pub async fn meet(&self, peer: &str, number: u8) -> Result<()> {
        self.handle.acquire(peer, offered(number)?).await?;
        Ok(self.handle.agree(peer, kept()).await?)
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
    pub async fn gateway(&self, manner: Manner) -> Result<Follower> {
        let follower = Follower { rules: Arc::default(), task: Arc::default() };
        let (admin, origin) = (self.cluster.client.clone(), self.origin()?);
        let rules = Arc::clone(&follower.rules);
        let task = tokio::spawn(async move {
            loop {
                // It comes again when it is cut off, or the address manager ends.
                _ = follow(&admin, origin.clone(), &rules, manner).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        *follower.task.lock().unwrap() = Some(task);
        eventually("the gateway follows", || async {
            ensure!(follower.rules.lock().unwrap().is_some(), "not yet");
            Ok(())
        })
        .await?;
        Ok(follower)
    }
}

async fn topology() -> Result<Topology> {
    let topology = Topology::up("ipam", vec![ClusterSpec { bare: true, ..ClusterSpec::named("a") }]).await?;
    let cluster = topology.cluster("a")?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for definition in crds() {
        definitions
            .patch(&definition.name_any(), &PatchParams::apply("test"), &Patch::Apply(&definition))
            .await?;
    }
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"]).await?;
    Ok(topology)
}

async fn wipe(client: &Client) -> Result<()> {
    let (now, all) = (DeleteParams::default(), ListParams::default());
    Api::<IpamStorage>::all(client.clone()).delete_collection(&now, &all).await?;
    Api::<NatMapping>::all(client.clone()).delete_collection(&now, &all).await?;
    Ok(())
}

pub fn own() -> Result<OwnNetworks> {
    Ok(OwnNetworks {
        pod: "10.0.0.0/16".parse()?,
        service: "10.96.0.0/16".parse()?,
        reserved: BTreeSet::new(),
        pools: default_pools(),
    })
}

pub fn offered(number: u8) -> Result<Offered> {
    let (pod, external) = (format!("10.{}.0.0/16", 100 + number), format!("10.{}.0.0/16", 150 + number));
    Ok(Offered { pod: pod.parse()?, external: Some(external.parse()?) })
}

pub fn kept() -> Answer {
    Answer { pod: Naming::Kept, external: Some(Naming::Kept) }
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
    let guard = move |request: Request<Body>| -> Result<Request<Body>, BoxError> {
        if request.method() != Method::GET && !fuse.allows() {
            return Err("the fuse is broken".into());
        }
        Ok(request)
    };
    Ok(ClientBuilder::try_from(config)?.with_layer(&FilterLayer::new(guard)).build())
}

/// How a gateway acknowledges.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    Promptly,
    After(Duration),
    Never,
}

/// The rules of a gateway, by cluster and endpoint; none before it heard of any.
type Rules = Arc<Mutex<Option<BTreeMap<(String, String), String>>>>;

/// A gateway that only listens.
pub struct Follower {
    rules: Rules,
    task: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>>,
}

impl Follower {
    /// The address under which a cluster reaches an endpoint.
    pub fn rule(&self, cluster: &str, endpoint: &str) -> Option<String> {
        let rules = self.rules.lock().unwrap();
        rules.as_ref()?.get(&(cluster.to_owned(), endpoint.to_owned())).cloned()
    }

    pub fn count(&self) -> usize {
        self.rules.lock().unwrap().as_ref().map_or(0, BTreeMap::len)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap().take() {
            task.abort();
        }
    }
}

async fn follow(admin: &Client, origin: http::Uri, rules: &Rules, manner: Manner) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let identity = Identity::from_secret(&secrets.get(GATEWAY).await?)?;
    let mut client = client::gateway(&identity, origin)?;
    let (say, said) = mpsc::channel::<Acknowledged>(16);
    let said = stream::unfold(said, |mut said| async move { Some((said.recv().await?, said)) });
    let mut changes = client.follow(said).await?.into_inner();
    while let Some(change) = changes.message().await? {
        let acknowledged = Acknowledged { epoch: change.epoch.clone(), revision: change.revision };
        match manner {
            Manner::Promptly | Manner::Never => {}
            Manner::After(pause) => tokio::time::sleep(pause).await,
        }
        take_in(rules, change);
        if !matches!(manner, Manner::Never) {
            say.send(acknowledged).await.context("nobody hears it")?;
        }
    }
    Ok(())
}

fn take_in(rules: &Rules, change: Change) {
    let mut rules = rules.lock().unwrap();
    if change.whole {
        *rules = Some(BTreeMap::new());
    }
    let rules = rules.get_or_insert_default();
    for entry in change.removed {
        rules.remove(&(entry.cluster_id, entry.endpoint));
    }
    for entry in change.set {
        rules.insert((entry.cluster_id, entry.endpoint), entry.address);
    }
}
