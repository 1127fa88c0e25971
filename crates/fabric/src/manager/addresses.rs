//! The address manager as the network manager needs it, and the networks of this cluster with which it is started.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::LiqonetConfig;
use ferro_api::net::IpamStorage;
use ferro_core::network::{Agreement, Answer, Ipam, Offered, OwnNetworks, own_networks, stray};
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ListParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Resource as _};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::ipam::{self, Handle};

/// What could not be started is tried again after this long.
const RETRY: Duration = Duration::from_secs(5);
/// The object from which the stored network of pods is read.
const STORAGE: &str = "ipam";

/// The address manager. What returns is stored.
pub trait Addresses: Send + Sync + Sized + 'static {
    /// Starts it; it ends with the tasks.
    fn start(
        tasks: &Tasks,
        home: &Home,
        own: OwnNetworks,
        external_length: u8,
    ) -> impl Future<Output = Result<Self>> + Send;
    /// Finds names for a peer's networks.
    fn acquire(&self, peer: &str, offered: Offered) -> impl Future<Output = Result<()>> + Send;
    /// Notes how a peer names ours.
    fn agree(&self, peer: &str, answer: Answer) -> impl Future<Output = Result<()>> + Send;
    /// Forgets a peer.
    fn release(&self, peer: &str) -> impl Future<Output = Result<()>> + Send;
    /// The state as it is stored.
    fn watch(&self) -> watch::Receiver<Arc<Ipam>>;
}

impl Addresses for Handle {
    async fn start(tasks: &Tasks, home: &Home, own: OwnNetworks, external_length: u8) -> Result<Self> {
        ipam::start(tasks, home.client.clone(), own, external_length).await
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
}

/// The address manager, with its port open to gateways and whoever reflects services.
pub struct Served(Handle);

impl Addresses for Served {
    async fn start(tasks: &Tasks, home: &Home, own: OwnNetworks, external_length: u8) -> Result<Self> {
        let handle = <Handle as Addresses>::start(tasks, home, own, external_length).await?;
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, ipam::PORT));
        let (client, namespace) = (home.client.clone(), home.namespace.clone());
        tasks.spawn("ipam service", ipam::serve(client, namespace, listen, handle.clone()));
        Ok(Self(handle))
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
}

/// Keeps the address manager running with the networks of this cluster.
pub(super) struct Keeper<A> {
    tasks: Tasks,
    home: Home,
    recorder: Recorder,
    running: Option<Running<A>>,
    trouble: Option<String>,
}

struct Running<A> {
    handle: A,
    tasks: Tasks,
    settings: Settings,
    state: watch::Receiver<Arc<Ipam>>,
    /// What is agreed on, as it was looked at last.
    seen: BTreeMap<String, Agreement>,
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
    pub(super) fn new(tasks: Tasks, home: Home) -> Self {
        let reporter = Reporter { controller: "ferro-network".into(), instance: None };
        let recorder = Recorder::new(home.client.clone(), reporter);
        Self { tasks, home, recorder, running: None, trouble: None }
    }

    /// Starts the address manager, or starts it anew for other settings; says when to try again.
    pub(super) async fn keep(&mut self) -> Result<Option<Duration>> {
        let settings = Settings::of(self.home.settings().liqonet());
        if let Some(running) = &self.running {
            anyhow::ensure!(!running.tasks.have_ended(), "the address manager has ended");
            if running.settings == settings {
                return Ok(None);
            }
            info!("the settings of the network have changed, and the address manager is started anew");
            running.tasks.end().await;
            self.running = None;
        }
        match self.start(settings).await {
            Ok(running) => {
                self.running = Some(running);
                self.note(None).await;
                Ok(None)
            }
            Err(error) => {
                self.note(Some(format!("{error:#}"))).await;
                Ok(Some(RETRY))
            }
        }
    }

    async fn start(&self, settings: Settings) -> Result<Running<A>> {
        let own = self.own_networks(&settings.0).await?;
        info!(pods = %own.pod, services = %own.service, reserved = own.reserved.len(), "the networks of this cluster");
        self.look_for_strays(&own).await;
        let tasks = self.tasks.child();
        match A::start(&tasks, &self.home, own, settings.0.external_cidr_mask_length()).await {
            Ok(handle) => {
                let state = handle.watch();
                Ok(Running { handle, tasks, settings, state, seen: BTreeMap::new() })
            }
            Err(error) => {
                tasks.end().await;
                Err(error)
            }
        }
    }

    async fn own_networks(&self, config: &LiqonetConfig) -> Result<OwnNetworks> {
        let client = &self.home.client;
        let storages: Api<IpamStorage> = Api::all(client.clone());
        let stored = storages.get_opt(STORAGE).await.context("cannot read the IpamStorage")?;
        let stored: Option<IpNet> = stored.and_then(|stored| stored.spec.pod_cidr?.parse().ok());
        let services: Api<ServiceCIDR> = Api::all(client.clone());
        let services = match services.list(&ListParams::default()).await {
            Ok(services) => services.items,
            // Clusters before 1.33 do not have the kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error).context("cannot read the networks of services"),
        };
        let nodes = self.home.nodes.all();
        Ok(own_networks(config, nodes.iter().map(AsRef::as_ref), &services, stored)?)
    }

    /// Pods that peers cannot reach are worth a word.
    async fn look_for_strays(&self, own: &OwnNetworks) {
        let nodes = self.home.nodes.all();
        let Some((node, network)) = stray(nodes.iter().map(AsRef::as_ref), &own.pod) else { return };
        let text = format!(
            "the pods of the node {node} have addresses of {network}, outside of {}, and peers cannot reach \
             them; set liqonetConfig.podCIDR to a network around all nodes and delete the IpamStorage {STORAGE}",
            own.pod
        );
        self.tell("NodeOutside", text).await;
    }

    /// What keeps the address manager from running is said once.
    async fn note(&mut self, trouble: Option<String>) {
        if self.trouble != trouble {
            if let Some(text) = &trouble {
                self.tell("NetworkUnknown", text.clone()).await;
            }
            self.trouble = trouble;
        }
    }

    async fn tell(&self, reason: &str, text: String) {
        warn!("{text}");
        let Some(config) = self.home.config.all().into_iter().next() else { return };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.into(),
            note: Some(text),
            action: "Reconcile".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &config.object_ref(&())).await {
            warn!(%error, "an Event could not be written");
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
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
