//! Announcing this cluster on the LAN of a node, by multicast DNS.
//!
//! Every node announces the same cluster under an instance name of its own, so that the cluster is found as long as
//! one of them is there. What is announced follows the identity, the auth service and the configuration.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfig, DiscoveryConfig};
use ferro_core::auth::{Host, HttpsUrl};
use ferro_core::discovery::Announcement;
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::runtime::watcher;
use kube::{Api, Client};
use mdns_sd::{ServiceDaemon, ServiceInfo};
use tracing::{info, warn};

use crate::identity::NAME;
use crate::reach::{AUTH_SERVICE, node_port};

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What one node says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words {
    announcement: Announcement,
    /// Service type and domain, such as `_liqo_api._tcp.local.`.
    kind: String,
    instance: String,
    address: IpAddr,
}

/// Announces the cluster from this node until the tasks end.
pub async fn announce(
    tasks: Tasks,
    client: Client,
    namespace: String,
    node: String,
    pending: Pending,
) -> Result<()> {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let services = Api::<Service>::namespaced(client.clone(), &namespace);
    let mut identity = Watched::start(&tasks, "identity", maps, named(NAME));
    let mut service = Watched::start(&tasks, "auth service", services, named(AUTH_SERVICE));
    let mut config = Watched::start(
        &tasks,
        "configuration",
        Api::<ClusterConfig>::all(client.clone()),
        watcher::Config::default(),
    );
    let address = node_address(&client, &node).await?;
    tokio::try_join!(identity.ready(), service.ready(), config.ready())?;
    drop(pending);
    let mut voice = Voice::new()?;
    loop {
        let settings = config.all().first().map(|config| config.spec.clone()).unwrap_or_default();
        let port = service.all().first().and_then(|service| node_port(service));
        let url = settings
            .auth()
            .url
            .clone()
            .or_else(|| port.map(|port| HttpsUrl::new(Host::Ip(address), port).to_string()));
        let announcement = identity.all().first().zip(url).and_then(|(map, url)| announcement(map, &url));
        voice.say(
            announcement.and_then(|announcement| words(announcement, &settings.discovery(), &node, address)),
        )?;
        tokio::select! {
            changed = identity.changed() => changed?,
            changed = service.changed() => changed?,
            changed = config.changed() => changed?,
        }
    }
}

/// What this node should say, if it should say anything.
fn words(
    announcement: Announcement,
    settings: &DiscoveryConfig,
    node: &str,
    address: IpAddr,
) -> Option<Words> {
    let kind = format!("{}.{}", settings.service(), settings.domain());
    let instance = announcement.instance_on(node);
    settings.announce().then_some(Words { announcement, kind, instance, address })
}

fn announcement(map: &ConfigMap, url: &str) -> Option<Announcement> {
    let data = map.data.as_ref()?;
    Some(Announcement {
        id: data.get("clusterID")?.parse().ok()?,
        name: data.get("clusterName")?.parse().ok()?,
        auth_url: url.parse().ok()?,
        pin: data.get("pin")?.parse().ok()?,
    })
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

/// What was said last; it is taken back before something else is said, and at the end.
struct Voice {
    daemon: ServiceDaemon,
    said: Option<Words>,
}

impl Voice {
    fn new() -> Result<Self> {
        Ok(Self { daemon: ServiceDaemon::new().context("cannot use multicast on this node")?, said: None })
    }

    fn say(&mut self, words: Option<Words>) -> Result<()> {
        if words == self.said {
            return Ok(());
        }
        self.take_back();
        if let Some(words) = &words {
            self.daemon.register(record(words)?).context("cannot announce this cluster")?;
            info!(instance = words.instance, url = %words.announcement.auth_url, "announced on the LAN");
        }
        self.said = words;
        Ok(())
    }

    /// Says goodbye, so that others need not wait for the record to expire.
    fn take_back(&mut self) {
        let Some(words) = self.said.take() else { return };
        let name = format!("{}.{}", words.instance, words.kind);
        let gone = self.daemon.unregister(&name).map(|done| done.recv_timeout(GOODBYE));
        if !matches!(gone, Ok(Ok(_))) {
            warn!(instance = words.instance, "could not say goodbye; others forget it when it expires");
        }
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.take_back();
        let _ = self.daemon.shutdown();
    }
}

fn record(words: &Words) -> Result<ServiceInfo> {
    let host = format!("{}.local.", words.instance);
    let properties = words.announcement.properties();
    let properties: Vec<(&str, &str)> =
        properties.iter().map(|(key, value)| (*key, value.as_str())).collect();
    ServiceInfo::new(
        &words.kind,
        &words.instance,
        &host,
        words.address,
        words.announcement.auth_url.port(),
        properties.as_slice(),
    )
    .context("the announcement is not a DNS-SD record")
}
