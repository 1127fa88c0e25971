//! What API servers ask of the kubelet of a virtual node: logs, commands, ports; and metrics-server, what pods use.
//!
//! - Flow: the process that leads has a port for each virtual node, by which it knows whose usage is asked for; all else is
//!   about a pod, and any port answers it. A request is asked again at the API server of the cluster where the pod runs,
//!   with what that cluster granted to this one; logs are passed through, and connections that are upgraded are made
//!   into one.
//! - Guarantees: callers are known by the authorities of this cluster or by a token, and have the right on the node of
//!   the pod, or are refused. Nothing is kept: whoever leads next answers at once.
//! - The ports can be reached by everybody in the cluster: who is not known has limited time and few places.

mod cache;
mod callers;
mod door;
mod question;
mod refusal;
mod serving;
mod splice;
#[cfg(test)]
mod tests;
mod upgrade;
mod usage;
mod visit;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::usage::Lodger;
use ferro_core::virtual_node::ports;
use ferro_peering::home::Agent;
use ferro_peering::keepsake::Keepsake;
use ferro_runtime::places::Places;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::tls;
use ferro_runtime::watch::Watched;
use hyper::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use self::callers::Callers;
use self::question::Question;
use self::usage::Counter;
use self::visit::{Desk, attend};

/// The port of the first virtual node; the others have the following ones.
pub const PORT: u16 = 10250;

/// Connections of whom nothing is known yet, and those from one address: all may come from one API server.
const STRANGERS: usize = 256;
const STRANGERS_EACH: usize = 128;

/// Knows where pods run.
pub trait Directory: Send + Sync + 'static {
    /// The pod of a virtual node that has this name here.
    fn find(&self, namespace: &str, pod: &str) -> Option<Target>;

    /// A virtual node, if somebody looks after it.
    fn site(&self, node: &str) -> Option<Site>;

    /// Whether all pods of a virtual node are known.
    fn has_listed(&self, node: &str) -> bool;
}

/// The pods of a virtual node, and whom to ask about them.
pub struct Site {
    /// To the API server of its cluster, as long as that lets us in.
    pub client: Option<Client>,
    /// Its pods that run.
    pub lodgers: Vec<Lodger>,
}

/// A pod, and where it runs.
#[derive(Clone)]
pub struct Target {
    /// The virtual node that it is bound to.
    pub node: String,
    /// The identifier that it has here.
    pub uid: String,
    /// What the cluster granted where it runs.
    pub keepsake: Arc<Keepsake>,
    /// Its namespace over there, as long as there is one.
    pub namespace: Option<String>,
    /// Its name over there.
    pub pod: String,
    /// The pod as it is shown here.
    pub here: Arc<Pod>,
}

/// What the API server of a peer is asked, as path and query, when a kubelet is asked this about a pod that has that name
/// over there. Nothing, where the request is refused or is not about a pod. By this `tests/fuzz` reaches what reads
/// requests.
pub fn asked_there(method: &str, path_and_query: &str, namespace: &str, pod: &str) -> Option<String> {
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    match Question::parse(&method, path, query).ok()? {
        Question::Pod(ask) => Some(ask.at_peer(namespace, pod)),
        Question::Health | Question::Usage(_) => None,
    }
}

/// Serves until the tasks end, at this address of the process, and tells where for each of the nodes. Call it only while this
/// process leads.
pub async fn serve(
    tasks: Tasks,
    client: Client,
    address: IpAddr,
    directory: Arc<dyn Directory>,
    nodes: Watched<Node>,
    tell: Arc<watch::Sender<Option<Agent>>>,
) -> Result<()> {
    let maps = Api::namespaced(client.clone(), door::NAMESPACE);
    let authorities = Watched::start(&tasks, "authorities of clients", maps, door::authorities());
    let (certificate, certificates) = watch::channel(None);
    let (open, acceptor) = watch::channel(None);
    let desk = Arc::new(Desk::new(directory, Callers::new(client.clone())));
    tokio::select! {
        result = serving::keep(client, address, certificate) => result,
        result = door::follow(certificates, authorities, open) => result,
        result = keep_ports(nodes, acceptor, desk, address, tell) => result,
    }
}

/// Keeps a port open for each virtual node. No node is told before connections can be taken.
async fn keep_ports(
    mut nodes: Watched<Node>,
    mut acceptor: watch::Receiver<Option<TlsAcceptor>>,
    desk: Arc<Desk>,
    address: IpAddr,
    tell: Arc<watch::Sender<Option<Agent>>>,
) -> Result<()> {
    acceptor.wait_for(Option::is_some).await.context("there is no door")?;
    nodes.ready().await?;
    let places = Arc::new(Places::new(STRANGERS, STRANGERS_EACH));
    let mut present = BTreeMap::new();
    let mut doors: HashMap<String, JoinSet<Result<()>>> = HashMap::new();
    loop {
        let wanted = ports::assign(&present, &virtual_nodes(&nodes), PORT);
        for gone in present.keys().filter(|node| !wanted.contains_key(*node)) {
            if let Some(mut door) = doors.remove(gone) {
                // The port is free when this returns.
                door.shutdown().await;
            }
        }
        for (node, port) in wanted.iter().filter(|(node, _)| !present.contains_key(*node)) {
            let listener = tls::listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port))).await?;
            let counter = Arc::new(Counter::new(node));
            let accept = accept(listener, acceptor.clone(), Arc::clone(&desk), counter, Arc::clone(&places));
            doors.entry(node.clone()).or_default().spawn(accept);
        }
        if present != wanted {
            tell.send_replace(Some(Agent { address, ports: wanted.clone() }));
            present = wanted;
        }
        nodes.changed().await?;
    }
}

fn virtual_nodes(nodes: &Watched<Node>) -> BTreeSet<String> {
    let all = nodes.all();
    all.iter()
        .filter(|node| labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata))
        .map(|node| node.name_any())
        .collect()
}

/// Takes connections; each has a task, and no task is left when this ends.
async fn accept(
    listener: TcpListener,
    acceptor: watch::Receiver<Option<TlsAcceptor>>,
    desk: Arc<Desk>,
    counter: Arc<Counter>,
    places: Arc<Places<IpAddr>>,
) -> Result<()> {
    let mut visits = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = visits.join_next() => {
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(error = format!("{error:#}"), "a visit failed"),
                    Err(error) => error!(%error, "a visit did not end as it should"),
                }
                continue;
            }
        };
        match accepted {
            Ok((stream, caller)) => {
                let acceptor = acceptor.borrow().clone();
                // Who has its share is sent away, so that it does not keep others waiting.
                if let (Some(acceptor), Some(place)) = (acceptor, places.take(caller.ip())) {
                    visits.spawn(attend(Arc::clone(&desk), Arc::clone(&counter), acceptor, stream, place));
                }
            }
            Err(error) => {
                // Too many open files, as a rule: others must end first.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
