//! Keeps the kernel of a node such that its pods reach those of peers, and are reached, and nothing else is.
//!
//! Flow: nodes, tunnels, the names of peers' networks and the configuration are watched; whatever changes, in them or in the
//! kernel, the kernel is made to have what
//! follows from them. Guarantees: nothing is written to a kernel that is as it should be; what others made is not
//! touched; what others take away comes back within a second. All stays in place while nobody keeps it, so that a
//! restart interrupts nothing, and goes when no peer has names any more, or with the installation.

mod complaint;
mod exemption;
mod farewell;
mod kernel;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfig, Reach};
use ferro_api::names::labels;
use ferro_api::net::{IpamStorage, TunnelEndpoint};
use ferro_core::network::layout;
use ferro_core::network::routes::{Change, Node, PREFIX, PROTOCOL, Peer, Plan, Refusal, named, peer};
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

pub use self::complaint::Metrics;
use self::complaint::complain;
pub use self::farewell::farewell;
pub use self::kernel::Kernel;
use crate::netlink::{Monitor, Ours};

/// How long changes gather before the next look: a node is looked at at most five times a second.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait after something went wrong.
const RETRY: Duration = Duration::from_secs(5);
/// How often to look even though nothing was heard.
const PERIOD: Duration = Duration::from_mins(3);

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The name of this node.
    pub node: String,
    /// All nodes that are real.
    pub nodes: Vec<Node>,
    /// All peers whose networks have names, those with a tunnel first.
    pub peers: Vec<Peer>,
    /// What peers reach.
    pub reach: Reach,
}

impl Facts {
    /// The address by which this node is known.
    fn own_address(&self) -> Option<IpAddr> {
        self.nodes.iter().find(|node| node.name == self.node)?.addresses.first().copied()
    }
}

/// Keeps the routes of this node, until the tasks end.
pub async fn run(
    tasks: Tasks,
    client: Client,
    node: String,
    metrics: Metrics,
    pending: Pending,
) -> Result<()> {
    let real = watcher::Config::default().labels(&format!(
        "{}!={}",
        labels::TYPE_VIRTUAL_NODE.key(),
        labels::TYPE_VIRTUAL_NODE.value()
    ));
    let all = watcher::Config::default;
    // The first object has what was agreed with peers; the others have single addresses only.
    let first = all().fields(&format!("metadata.name={}", layout::name(0)));
    let sources = Sources {
        node: node.clone(),
        nodes: Watched::start(&tasks, "nodes", Api::all(client.clone()), real),
        tunnels: Watched::start(&tasks, "tunnels", Api::all(client.clone()), all()),
        names: Watched::start(&tasks, "names", Api::all(client.clone()), first),
        config: Watched::start(&tasks, "configuration", Api::all(client.clone()), all()),
    };
    sources.ready().await?;
    let (tell, facts) = watch::channel(sources.gather());
    let (complaints, heard) = watch::channel(BTreeSet::new());
    tokio::try_join!(
        complain(client, sources.nodes.clone(), node, metrics, heard),
        sources.tell(tell),
        keep(facts, Some(pending), &complaints),
    )
    .map(drop)
}

/// Where the facts come from.
struct Sources {
    node: String,
    nodes: Watched<KubernetesNode>,
    tunnels: Watched<TunnelEndpoint>,
    names: Watched<IpamStorage>,
    config: Watched<ClusterConfig>,
}

impl Sources {
    async fn ready(&self) -> Result<()> {
        tokio::try_join!(self.nodes.ready(), self.tunnels.ready(), self.names.ready(), self.config.ready())?;
        Ok(())
    }

    /// Tells what is known whenever it changes.
    async fn tell(mut self, tell: watch::Sender<Facts>) -> Result<()> {
        loop {
            let now = self.gather();
            tell.send_if_modified(|facts| {
                let is_new = *facts != now;
                *facts = now;
                is_new
            });
            tokio::select! {
                changed = self.nodes.changed() => changed?,
                changed = self.tunnels.changed() => changed?,
                changed = self.names.changed() => changed?,
                changed = self.config.changed() => changed?,
            }
        }
    }

    fn gather(&self) -> Facts {
        let mut nodes: Vec<Node> = self.nodes.all().iter().map(|node| known(node)).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut tunnels = self.tunnels.all();
        tunnels.sort_by_key(|tunnel| (tunnel.namespace(), tunnel.name_any()));
        let storages = self.names.all();
        let named = storages.iter().flat_map(|storage| named(&storage.spec));
        let peers = tunnels.iter().filter_map(readable).chain(named).collect();
        let reach = self.config.all().first().map(|config| config.spec.liqonet().reach());
        Facts { node: self.node.clone(), nodes, peers, reach: reach.unwrap_or_default() }
    }
}

fn readable(tunnel: &Arc<TunnelEndpoint>) -> Option<Peer> {
    peer(tunnel).unwrap_or_else(|error| {
        let (namespace, name) = (tunnel.namespace().unwrap_or_default(), tunnel.name_any());
        warn!(namespace, name, %error, "no routes for this TunnelEndpoint");
        None
    })
}

/// What a Node object says.
fn known(node: &KubernetesNode) -> Node {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    let one = spec.and_then(|spec| spec.pod_cidr.clone()).filter(|_| several.is_empty());
    Node {
        name: node.name_any(),
        addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        pods: several.into_iter().chain(one).filter_map(|text| text.parse().ok()).collect(),
    }
}

/// Makes the kernel follow the facts, in the network namespace of the calling thread, for ever. What is not as it should
/// be is told, in words.
pub async fn keep(
    mut facts: watch::Receiver<Facts>,
    mut pending: Option<Pending>,
    complaints: &watch::Sender<BTreeSet<String>>,
) -> Result<()> {
    let mut kernel = Kernel::open()?;
    let ours = Ours { prefix: PREFIX, protocol: PROTOCOL, table: exemption::NAME };
    let mut monitor = Monitor::open(ours).context("cannot listen for changes in the kernel")?;
    let mut told = Told::default();
    loop {
        let now = facts.borrow_and_update().clone();
        let result = kernel.follow(&now);
        let links = kernel.watched_links(&now);
        let wait = if told.tell(&result) {
            drop(pending.take());
            PERIOD
        } else {
            RETRY
        };
        complaints.send_if_modified(|before| {
            let now = told.complaints();
            let is_new = *before != now;
            *before = now;
            is_new
        });
        monitor.watch_links(links.unwrap_or_default());
        tokio::select! {
            changed = facts.changed() => changed.context("nobody tells about nodes and tunnels any more")?,
            changed = monitor.changed() => changed.context("cannot hear of changes in the kernel")?,
            () = sleep(wait) => {}
        }
        sleep(PAUSE).await;
    }
}

/// What was said already: nothing is said twice in a row.
#[derive(Default)]
struct Told {
    error: String,
    refused: BTreeSet<Refusal>,
}

impl Told {
    /// What does not work now, in words.
    fn complaints(&self) -> BTreeSet<String> {
        let refused =
            self.refused.iter().map(|refusal| format!("a network of a peer is not reached: {refusal}"));
        let failed =
            (!self.error.is_empty()).then(|| format!("routes do not follow the tunnels: {}", self.error));
        refused.chain(failed).collect()
    }

    /// Tells how it went, and whether it went well.
    fn tell(&mut self, result: &Result<(Plan, Vec<Change>)>) -> bool {
        match result {
            Ok((plan, changes)) => {
                if !changes.is_empty() {
                    info!(
                        changes = changes.len(),
                        routes = plan.wanted.routes.len(),
                        "routes follow the tunnels"
                    );
                }
                for refusal in plan.refused.difference(&self.refused) {
                    warn!(reason = %refusal, "a network of a peer is not reached from this node");
                }
                *self = Self { error: String::new(), refused: plan.refused.clone() };
                true
            }
            Err(error) => {
                let error = format!("{error:#}");
                if error != self.error {
                    warn!(error, "routes do not follow the tunnels");
                    self.error = error;
                }
                false
            }
        }
    }
}
