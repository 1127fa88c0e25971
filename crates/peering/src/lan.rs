//! This cluster on the LAN of a node, by multicast DNS: announcing it, and hearing others.
//!
//! Every node announces the same cluster under an instance name of its own, so that the cluster is found as long as
//! one of them is there. What is announced follows the identity, the auth service and the configuration. What is
//! heard is noted down for the controller.

mod ear;
mod multicast;
pub(crate) mod notes;
mod voice;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfig, DiscoveryConfig};
use ferro_core::auth::{Host, HttpsUrl};
use ferro_core::discovery::Announcement;
use ferro_core::identity::ClusterId;
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use self::ear::Ear;
use self::multicast::Multicast;
use self::notes::Notes;
use self::voice::{Voice, Words};
use crate::identity::NAME;
use crate::reach::{AUTH_SERVICE, node_port};

/// How often the size of what multicast remembers is looked at, and what is overdue is done.
const TICK: Duration = Duration::from_secs(1);

/// Announces the cluster from this node, and listens for others, until the tasks end.
pub async fn run(
    tasks: Tasks,
    client: Client,
    namespace: String,
    node: String,
    pending: Pending,
) -> Result<()> {
    let sources = Sources::start(&tasks, &client, &namespace);
    let address = node_address(&client, &node).await?;
    sources.ready().await?;
    drop(pending);
    let notes = Notes::new(client, &namespace, &node);
    let (heard, to_note) = watch::channel(notes.read().await);
    let attend = Attendant::new(address, node, heard)?.attend(sources);
    tokio::try_join!(attend, notes.keep(to_note)).map(drop)
}

/// What decides about what to say, and whom to listen for.
struct Sources {
    identity: Watched<ConfigMap>,
    service: Watched<Service>,
    config: Watched<ClusterConfig>,
}

impl Sources {
    fn start(tasks: &Tasks, client: &Client, namespace: &str) -> Self {
        let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let maps = Api::namespaced(client.clone(), namespace);
        let services = Api::namespaced(client.clone(), namespace);
        let configs = Api::all(client.clone());
        Self {
            identity: Watched::start(tasks, "identity", maps, named(NAME)),
            service: Watched::start(tasks, "auth service", services, named(AUTH_SERVICE)),
            config: Watched::start(tasks, "configuration", configs, watcher::Config::default()),
        }
    }

    async fn ready(&self) -> Result<()> {
        tokio::try_join!(self.identity.ready(), self.service.ready(), self.config.ready()).map(drop)
    }

    async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            changed = self.identity.changed() => changed,
            changed = self.service.changed() => changed,
            changed = self.config.changed() => changed,
        }
    }

    fn settings(&self) -> DiscoveryConfig {
        self.config.all().first().map(|config| config.spec.discovery()).unwrap_or_default()
    }

    fn own(&self) -> Option<ClusterId> {
        self.identity.all().first()?.data.as_ref()?.get("clusterID")?.parse().ok()
    }

    /// What this cluster has to announce, at this node.
    fn announcement(&self, address: IpAddr) -> Option<Announcement> {
        let configured = self.config.all().first().and_then(|config| config.spec.auth().url);
        let url = configured.or_else(|| {
            let port = self.service.all().first().and_then(|service| node_port(service))?;
            Some(HttpsUrl::new(Host::Ip(address), port).to_string())
        })?;
        announcement(self.identity.all().first()?, &url)
    }
}

/// What a cluster with this public identity announces, if its auth service is at this URL.
pub fn announcement(map: &ConfigMap, url: &str) -> Option<Announcement> {
    let data = map.data.as_ref()?;
    Some(Announcement {
        id: data.get("clusterID")?.parse().ok()?,
        name: data.get("clusterName")?.parse().ok()?,
        auth_url: url.parse().ok()?,
        pin: data.get("pin")?.parse().ok()?,
    })
}

/// The one that speaks and listens.
struct Attendant {
    address: IpAddr,
    node: String,
    multicast: Multicast,
    voice: Voice,
    ear: Ear,
}

impl Attendant {
    fn new(address: IpAddr, node: String, heard: watch::Sender<notes::Heard>) -> Result<Self> {
        let multicast = Multicast::open(address)?;
        Ok(Self { address, node, multicast, voice: Voice::default(), ear: Ear::new(heard) })
    }

    async fn attend(mut self, mut sources: Sources) -> Result<()> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.follow(&sources);
        loop {
            tokio::select! {
                changed = sources.changed() => {
                    changed?;
                    self.follow(&sources);
                }
                event = self.ear.next() => self.ear.take_in(event, sources.own().as_ref(), Timestamp::now()),
                _ = ticks.tick() => self.look_after().await?,
            }
        }
    }

    /// Says and listens for what the sources say now.
    fn follow(&mut self, sources: &Sources) {
        let settings = sources.settings();
        let kind = format!("{}.{}", settings.service(), settings.domain());
        if !Multicast::knows(&kind) {
            let domain = settings.domain();
            warn!(domain, "multicast knows only the domain local.; correct discoveryConfig.domain");
            self.voice.say(&self.multicast, None);
            return self.ear.listen(&self.multicast, None, settings.ttl());
        }
        let words = sources.announcement(self.address).filter(|_| settings.announce()).map(|announcement| {
            let instance = announcement.instance_on(&self.node);
            Words { announcement, kind: kind.clone(), instance, address: self.address }
        });
        self.voice.say(&self.multicast, words);
        self.ear.listen(&self.multicast, settings.search().then_some(kind), settings.ttl());
    }

    /// Begins anew, without a word to others, when multicast remembers too much; otherwise does what is overdue.
    async fn look_after(&mut self) -> Result<()> {
        if self.ear.is_cut_off() || self.multicast.is_flooded().await {
            warn!("multicast DNS on the LAN is flooded; listening anew");
            let flooded = std::mem::replace(&mut self.multicast, Multicast::open(self.address)?);
            flooded.leave_silently();
            self.voice.repeat(&self.multicast);
            self.ear.begin_anew(&self.multicast);
        }
        self.ear.look_after(&self.multicast, Timestamp::now());
        Ok(())
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.voice.say(&self.multicast, None);
        self.multicast.close();
    }
}

/// The address by which this node is known to the others of its cluster, and so to its LAN.
async fn node_address(client: &Client, name: &str) -> Result<IpAddr> {
    let node = Api::<Node>::all(client.clone())
        .get(name)
        .await
        .with_context(|| format!("cannot read the Node {name}"))?;
    let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP");
    internal
        .and_then(|internal| internal.address.parse().ok())
        .with_context(|| format!("the Node {name} has no InternalIP"))
}
