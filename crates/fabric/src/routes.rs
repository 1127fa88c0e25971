//! Keeps the kernel of a node such that its pods reach those of peers, and are reached.
//!
//! Flow: nodes and tunnels are watched; whatever changes, in them or in the kernel, the kernel is made to have what
//! follows from them. Guarantees: nothing is written to a kernel that is as it should be; what others made is not
//! touched; what others take away comes back within a second. All stays in place while nobody keeps it, so that a
//! restart interrupts nothing, and goes when the last tunnel does, or with the installation.

mod exemption;
mod farewell;
mod kernel;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_api::net::TunnelEndpoint;
use ferro_core::network::routes::{Change, Node, PREFIX, PROTOCOL, Peer, Plan, Refusal, peer};
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

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
    /// All peers to which there is a tunnel.
    pub peers: Vec<Peer>,
}

impl Facts {
    /// The address by which this node is known.
    fn own_address(&self) -> Option<IpAddr> {
        self.nodes.iter().find(|node| node.name == self.node)?.addresses.first().copied()
    }
}

/// Keeps the routes of this node, until the tasks end.
pub async fn run(tasks: Tasks, client: Client, node: String, pending: Pending) -> Result<()> {
    let real = watcher::Config::default().labels(&format!(
        "{}!={}",
        labels::TYPE_VIRTUAL_NODE.key(),
        labels::TYPE_VIRTUAL_NODE.value()
    ));
    let nodes = Watched::start(&tasks, "nodes", Api::all(client.clone()), real);
    let tunnels = Watched::start(&tasks, "tunnels", Api::all(client), watcher::Config::default());
    tokio::try_join!(nodes.ready(), tunnels.ready())?;
    let (tell, facts) = watch::channel(gather(&node, &nodes, &tunnels));
    tokio::try_join!(tell_facts(node, nodes, tunnels, tell), keep(facts, Some(pending))).map(drop)
}

/// Tells what is known whenever it changes.
async fn tell_facts(
    node: String,
    mut nodes: Watched<KubernetesNode>,
    mut tunnels: Watched<TunnelEndpoint>,
    tell: watch::Sender<Facts>,
) -> Result<()> {
    loop {
        let now = gather(&node, &nodes, &tunnels);
        tell.send_if_modified(|facts| {
            let is_new = *facts != now;
            *facts = now;
            is_new
        });
        tokio::select! {
            changed = nodes.changed() => changed?,
            changed = tunnels.changed() => changed?,
        }
    }
}

fn gather(node: &str, nodes: &Watched<KubernetesNode>, tunnels: &Watched<TunnelEndpoint>) -> Facts {
    let mut nodes: Vec<Node> = nodes.all().iter().map(|node| known(node)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut tunnels = tunnels.all();
    tunnels.sort_by_key(|tunnel| (tunnel.namespace(), tunnel.name_any()));
    let peers = tunnels.iter().filter_map(readable).collect();
    Facts { node: node.to_owned(), nodes, peers }
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

/// Makes the kernel follow the facts, in the network namespace of the calling thread, for ever.
pub async fn keep(mut facts: watch::Receiver<Facts>, mut pending: Option<Pending>) -> Result<()> {
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
