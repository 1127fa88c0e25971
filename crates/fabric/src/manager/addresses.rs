//! The address manager as the network manager needs it, and the networks of this cluster with which it is started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{LiqonetConfig, NetworkMode, Reach};
use ferro_api::names::labels;
use ferro_api::net::IpamStorage;
use ferro_core::network::{
    Agreement, Answer, Ipam, Offered, OwnNetworks, hidden, layout, node_addresses, own_networks, stray,
};
use ferro_peering::home::Home;
use ferro_runtime::events::Teller;
use ferro_runtime::shutdown::Tasks;
use ipnet::IpNet;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Resource as _};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::pause;
use crate::ipam::{self, Handle, Metrics};

/// What could not be started is tried again after this long, and then after longer.
const RETRY: Duration = Duration::from_secs(5);
/// What is not watched is read again after this long.
const REFRESH: Duration = Duration::from_mins(10);
/// Selects where the API server is.
const API_SERVER: &str = "kubernetes.io/service-name=kubernetes";

/// The address manager. What returns is stored.
pub trait Addresses: Send + Sync + Sized + 'static {
    /// Starts it; it ends with the tasks.
    fn start(
        tasks: &Tasks,
        home: &Home,
        own: OwnNetworks,
        external_length: u8,
        metrics: Metrics,
    ) -> impl Future<Output = Result<Self>> + Send;
    /// Keeps these free from now on.
    fn reserve(&self, reserved: BTreeSet<IpNet>) -> impl Future<Output = Result<()>> + Send;
    /// Lets peers reach this from now on, by full reach these nodes as well.
    fn reach(&self, reach: Reach, nodes: BTreeSet<IpAddr>) -> impl Future<Output = Result<()>> + Send;
    /// Publishes these pods to whom they belong from now on.
    fn host(&self, guests: BTreeMap<IpAddr, String>) -> impl Future<Output = Result<()>> + Send;
    /// Finds names for a peer's networks.
    fn acquire(&self, peer: &str, offered: Offered) -> impl Future<Output = Result<()>> + Send;
    /// Notes how a peer names ours.
    fn agree(&self, peer: &str, answer: Answer) -> impl Future<Output = Result<()>> + Send;
    /// Forgets a peer.
    fn release(&self, peer: &str) -> impl Future<Output = Result<()>> + Send;
    /// The state as it is stored.
    fn watch(&self) -> watch::Receiver<Arc<Ipam>>;
    /// To ask it with, for others in this process.
    fn handle(&self) -> Handle;
}

impl Addresses for Handle {
    async fn start(
        tasks: &Tasks,
        home: &Home,
        own: OwnNetworks,
        external_length: u8,
        metrics: Metrics,
    ) -> Result<Self> {
        ipam::start_counted(tasks, home.client.clone(), own, external_length, metrics).await
    }

    async fn reserve(&self, reserved: BTreeSet<IpNet>) -> Result<()> {
        Ok(self.reserve(reserved).await?)
    }

    async fn reach(&self, reach: Reach, nodes: BTreeSet<IpAddr>) -> Result<()> {
        Ok(self.reach(reach, nodes).await?)
    }

    async fn host(&self, guests: BTreeMap<IpAddr, String>) -> Result<()> {
        Ok(self.host(guests).await?)
    }

    async fn acquire(&self, peer: &str, offered: Offered) -> Result<()> {
        self.acquire(peer, offered).await?;
        Ok(())
    }

    async fn agree(&self, peer: &str, answer: Answer) -> Result<()> {
        Ok(self.agree(peer, answer).await?)
    }

    async fn release(&self, peer: &str) -> Result<()> {
        Ok(self.release(peer).await?)
    }

    fn watch(&self) -> watch::Receiver<Arc<Ipam>> {
        self.watch()
    }

    fn handle(&self) -> Handle {
        self.clone()
    }
}

/// The address manager, with its port open to gateways and whoever reflects services.
pub struct Served(Handle);

impl Addresses for Served {
    async fn start(
        tasks: &Tasks,
        home: &Home,
        own: OwnNetworks,
        external_length: u8,
        metrics: Metrics,
    ) -> Result<Self> {
        let handle = <Handle as Addresses>::start(tasks, home, own, external_length, metrics).await?;
        let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, ipam::PORT));
        let (client, namespace) = (home.client.clone(), home.namespace.clone());
        tasks.spawn("ipam service", ipam::serve(client, namespace, listen, handle.clone()));
        Ok(Self(handle))
    }

    async fn reserve(&self, reserved: BTreeSet<IpNet>) -> Result<()> {
        Addresses::reserve(&self.0, reserved).await
    }

    async fn reach(&self, reach: Reach, nodes: BTreeSet<IpAddr>) -> Result<()> {
        Addresses::reach(&self.0, reach, nodes).await
    }

    async fn host(&self, guests: BTreeMap<IpAddr, String>) -> Result<()> {
        Addresses::host(&self.0, guests).await
    }

    async fn acquire(&self, peer: &str, offered: Offered) -> Result<()> {
        Addresses::acquire(&self.0, peer, offered).await
    }

    async fn agree(&self, peer: &str, answer: Answer) -> Result<()> {
        Addresses::agree(&self.0, peer, answer).await
    }

    async fn release(&self, peer: &str) -> Result<()> {
        Addresses::release(&self.0, peer).await
    }

    fn watch(&self) -> watch::Receiver<Arc<Ipam>> {
        self.0.watch()
    }

    fn handle(&self) -> Handle {
        self.0.clone()
    }
}

/// Keeps the address manager running with the networks of this cluster.
pub(super) struct Keeper<A> {
    tasks: Tasks,
    home: Home,
    teller: Teller,
    metrics: Metrics,
    /// Whoever else in this process asks for addresses learns here whom to ask.
    asked: watch::Sender<Option<Handle>>,
    running: Option<Running<A>>,
    failed: Option<Failed>,
    trouble: Option<String>,
    /// What was said last, by the reason.
    told: BTreeMap<&'static str, String>,
}

/// How often it could not be started in a row with these settings, and until when nothing is tried.
struct Failed {
    settings: Settings,
    count: u32,
    until: Instant,
}

struct Running<A> {
    handle: A,
    tasks: Tasks,
    settings: Settings,
    around: Surroundings,
    state: watch::Receiver<Arc<Ipam>>,
    /// What is agreed on, as it was looked at last.
    seen: BTreeMap<String, Agreement>,
    /// What peers reach, and the nodes if it is these as well, as it was told last.
    reach: Option<(Reach, BTreeSet<IpAddr>)>,
    /// Which pods run here for which peers, as it was told last.
    guests: Option<BTreeMap<IpAddr, String>>,
}

/// What this cluster has beside nodes, as it was read last.
struct Surroundings {
    services: Vec<ServiceCIDR>,
    /// Where the API server is: nodes and pods would be lost without it.
    api_server: BTreeSet<IpAddr>,
    read: Instant,
}

/// The settings for which the address manager is started anew when they change.
#[derive(Clone, Debug, PartialEq)]
struct Settings(LiqonetConfig);

impl Settings {
    fn of(config: LiqonetConfig) -> Self {
        Self(LiqonetConfig { mode: None, reach: None, mtu: None, ..config })
    }
}

impl<A: Addresses> Keeper<A> {
    pub(super) fn new(
        tasks: Tasks,
        home: Home,
        metrics: Metrics,
        asked: watch::Sender<Option<Handle>>,
    ) -> Self {
        let teller = Teller::new(home.client.clone(), "ferro-network", "Reconcile");
        let told = BTreeMap::new();
        Self { tasks, home, teller, metrics, asked, running: None, failed: None, trouble: None, told }
    }

    /// Starts the address manager, or starts it anew for other settings; says when to try again.
    pub(super) async fn keep(&mut self) -> Result<Option<Duration>> {
        let (settings, is_needed) = (Settings::of(self.home.settings().liqonet()), self.is_needed());
        if let Some(running) = &self.running {
            anyhow::ensure!(!running.tasks.have_ended(), "the address manager has ended");
            if is_needed && running.settings == settings {
                self.look_around().await;
                return Ok(None);
            }
            info!("the settings of the network have changed, and the address manager ends");
            self.asked.send_replace(None);
            running.tasks.end().await;
            self.running = None;
        }
        if !is_needed {
            self.failed = None;
            self.note(None).await;
            return Ok(None);
        }
        self.failed = self.failed.take().filter(|failed| failed.settings == settings);
        let (count, until) = self.failed.as_ref().map_or((0, Instant::now()), |it| (it.count, it.until));
        let wait = until.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        match self.start(settings.clone()).await {
            Ok(running) => {
                self.asked.send_replace(Some(running.handle.handle()));
                (self.running, self.failed) = (Some(running), None);
                self.note(None).await;
                Ok(None)
            }
            Err(error) => {
                let count = count.saturating_add(1);
                let wait = pause(RETRY, count);
                self.failed = Some(Failed { settings, count, until: Instant::now() + wait });
                self.note(Some(format!("{error:#}"))).await;
                Ok(Some(wait))
            }
        }
    }

    /// Whether addresses are to be managed. Where somebody else joins the networks they are not, once nothing of ours
    /// is left.
    fn is_needed(&self) -> bool {
        let networks = &self.home.networks;
        let is_ours = |meta: &ObjectMeta| labels::PART_OF.is_on(meta) && !labels::REPLICATED.is_on(meta);
        let has_names = |running: &Running<A>| !running.state.borrow().peers().is_empty();
        matches!(self.home.settings().liqonet().mode(), NetworkMode::Internal)
            || networks.tunnels.all().iter().any(|tunnel| is_ours(&tunnel.metadata))
            || networks.configs.all().iter().any(|config| is_ours(&config.metadata))
            || self.running.as_ref().is_some_and(has_names)
    }

    async fn start(&mut self, settings: Settings) -> Result<Running<A>> {
        let around = self.surroundings().await?;
        let own = self.own_networks(&settings.0, &around).await?;
        let own = OwnNetworks { reach: self.home.settings().liqonet().reach(), ..own };
        info!(pods = %own.pod, services = %own.service, reserved = own.reserved.len(), "the networks of this cluster");
        self.look_for_strays(&own).await;
        let tasks = self.tasks.child();
        let (length, metrics) = (settings.0.external_cidr_mask_length(), self.metrics.clone());
        match A::start(&tasks, &self.home, own, length, metrics).await {
            Ok(handle) => {
                let state = handle.watch();
                let seen = BTreeMap::new();
                Ok(Running { handle, tasks, settings, around, state, seen, reach: None, guests: None })
            }
            Err(error) => {
                tasks.end().await;
                Err(error)
            }
        }
    }

    async fn own_networks(&self, config: &LiqonetConfig, around: &Surroundings) -> Result<OwnNetworks> {
        let storages: Api<IpamStorage> = Api::all(self.home.client.clone());
        let stored = storages.get_opt(&layout::name(0)).await.context("cannot read the IpamStorage")?;
        let stored: Option<IpNet> = stored.and_then(|stored| stored.spec.pod_cidr?.parse().ok());
        let nodes = self.home.nodes.all();
        let mut own = own_networks(config, nodes.iter().map(AsRef::as_ref), &around.services, stored)?;
        own.reserve(around.api_server.iter().copied());
        Ok(own)
    }

    async fn surroundings(&self) -> Result<Surroundings> {
        let client = &self.home.client;
        let services: Api<ServiceCIDR> = Api::all(client.clone());
        let services = match services.list(&ListParams::default()).await {
            Ok(services) => services.items,
            // Clusters before 1.33 do not have the kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error).context("cannot read the networks of services"),
        };
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
        let slices = slices.list(&ListParams::default().labels(API_SERVER)).await;
        let slices = slices.context("cannot find out where the API server is")?;
        let endpoints = slices.items.iter().flat_map(|slice| &slice.endpoints);
        let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
        let api_server = addresses.filter_map(|address| address.parse().ok()).collect();
        Ok(Surroundings { services, api_server, read: Instant::now() })
    }

    /// Looks at what is not watched, from time to time.
    async fn look_around(&mut self) {
        if self.running.as_ref().is_none_or(|running| running.around.read.elapsed() < REFRESH) {
            return;
        }
        let around = self.surroundings().await;
        let Some(running) = &mut self.running else { return };
        match around {
            Ok(around) => running.around = around,
            Err(error) => {
                warn!(error = format!("{error:#}"), "the surroundings of this cluster are not known anew");
                running.around.read = Instant::now();
            }
        }
    }

    /// Keeps free what must be, as it is now: nodes, services, the API server, and where tunnels end.
    pub(super) async fn reserve(&mut self, ends: &BTreeSet<IpAddr>) -> Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        let before = running.state.borrow().own().clone();
        let (config, services) = (&running.settings.0, &running.around.services);
        let nodes = self.home.nodes.all();
        let mut own = own_networks(config, nodes.iter().map(AsRef::as_ref), services, Some(before.pod))?;
        own.reserve(running.around.api_server.union(ends).copied());
        if own.reserved == before.reserved {
            return Ok(());
        }
        running.handle.reserve(own.reserved.clone()).await?;
        let state = Arc::clone(&running.state.borrow());
        self.look_for_strays(&own).await;
        let hides = hidden(&state).map(|(peer, network, other)| {
            format!(
                "{network} stands for a network of the cluster {peer} here, and hides {other}; end the peering \
                 and begin it anew"
            )
        });
        self.tell_once("NetworkHidden", hides).await;
        Ok(())
    }

    /// Lets peers reach what the configuration says now, and by full reach the nodes that there are now.
    pub(super) async fn reach(&mut self) -> Result<()> {
        let (reach, nodes) = (self.home.settings().liqonet().reach(), self.home.nodes.all());
        let Some(running) = &mut self.running else { return Ok(()) };
        let is_full = reach == Reach::Full;
        let nodes = node_addresses(nodes.iter().map(AsRef::as_ref).filter(|_| is_full));
        // To be told once after each start: the process before may have ended in the middle.
        if running.reach.as_ref() != Some(&(reach, nodes.clone())) {
            running.handle.reach(reach, nodes.clone()).await?;
            running.reach = Some((reach, nodes));
        }
        Ok(())
    }

    /// Publishes these pods to whom they belong.
    pub(super) async fn host(&mut self, guests: BTreeMap<IpAddr, String>) -> Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        if running.guests.as_ref() != Some(&guests) {
            running.handle.host(guests.clone()).await?;
            running.guests = Some(guests);
        }
        Ok(())
    }

    /// Pods that peers cannot reach are worth a word.
    async fn look_for_strays(&mut self, own: &OwnNetworks) {
        let nodes = self.home.nodes.all();
        let stray = stray(nodes.iter().map(AsRef::as_ref), &own.pod).map(|(node, network)| {
            format!(
                "the pods of the node {node} have addresses of {network}, outside of {}, and peers cannot reach \
                 them; set liqonetConfig.podCIDR to a network around all nodes and delete the IpamStorage {}",
                own.pod,
                layout::name(0)
            )
        });
        self.tell_once("NodeOutside", stray).await;
    }

    /// What keeps the address manager from running.
    async fn note(&mut self, trouble: Option<String>) {
        self.trouble.clone_from(&trouble);
        self.tell_once("NetworkUnknown", trouble).await;
    }

    /// Says what is wrong, if anything is: the same once, however often it is looked at.
    async fn tell_once(&mut self, reason: &'static str, text: Option<String>) {
        let Some(text) = text else {
            self.told.remove(reason);
            return;
        };
        if self.told.insert(reason, text.clone()).as_ref() != Some(&text) {
            self.tell(reason, text).await;
        }
    }

    async fn tell(&self, reason: &str, text: String) {
        warn!("{text}");
        let Some(config) = self.home.config.all().into_iter().next() else { return };
        self.teller.tell(&config.object_ref(&()), true, reason, &text).await;
    }

    pub(super) fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    /// The address manager and its state.
    pub(super) fn state(&self) -> Option<(&A, Arc<Ipam>)> {
        let running = self.running.as_ref()?;
        let state = Arc::clone(&running.state.borrow());
        Some((&running.handle, state))
    }

    /// Waits until something else is agreed on with a peer; single addresses do not matter here.
    pub(super) async fn changed(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        loop {
            let peers = running.state.borrow_and_update().peers().clone();
            if peers != running.seen {
                running.seen = peers;
                return Ok(());
            }
            running.state.changed().await.context("the address manager has ended")?;
        }
    }
}
