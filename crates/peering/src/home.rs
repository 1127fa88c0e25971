//! This cluster as its controllers see it: one client, one watch per kind that several of them read, and who it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfig, ClusterConfigSpec};
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::tenancy::Tenant;
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::identity::Own;
use crate::networks::Networks;
use crate::remote::Between;
use crate::tenant;

/// Where the agent of the nodes that stand for peers answers: each node has a port of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its address.
    pub address: IpAddr,
    /// By the names of the nodes.
    pub ports: BTreeMap<String, u16>,
}

impl Agent {
    /// Where it answers for a node, if it does.
    pub fn of(&self, node: &str) -> Option<SocketAddr> {
        self.ports.get(node).map(|port| SocketAddr::from((self.address, *port)))
    }
}

/// This cluster.
#[derive(Clone)]
pub struct Home {
    /// To its API server.
    pub client: Client,
    /// The namespace of the installation.
    pub namespace: String,
    /// Its configuration.
    pub config: Watched<ClusterConfig>,
    /// The other clusters that it knows.
    pub peers: Watched<ForeignCluster>,
    /// The Secrets of the installation: its own, and those with what it shows to peers.
    pub secrets: Watched<Secret>,
    /// Its nodes, and those that stand for peers.
    pub nodes: Watched<Node>,
    /// All its namespaces: any may be offloaded, and the name of any may be asked for by a peer. One is little more than its
    /// labels.
    pub namespaces: Watched<Namespace>,
    /// The rights of peers in the namespaces that it keeps for them.
    pub bindings: Watched<RoleBinding>,
    /// What peers may use of it.
    pub tenants: Watched<Tenant>,
    /// What there is of the networks to peers.
    pub networks: Networks,
    /// The namespaces that clusters ask each other for.
    pub maps: Watched<NamespaceMap>,
    /// What stands between it and its peers: nothing, except in tests.
    pub between: Option<Between>,
    /// Where API servers find the agent of the nodes that stand for peers; the agent says so.
    pub agent: Arc<watch::Sender<Option<Agent>>>,
    own: watch::Receiver<Option<Arc<Own>>>,
}

impl Home {
    /// Starts the watches; `own` is told by [`crate::identity::keep`].
    pub fn start(
        tasks: &Tasks,
        client: Client,
        namespace: String,
        config: Watched<ClusterConfig>,
        own: watch::Receiver<Option<Arc<Own>>>,
    ) -> Self {
        let peers = Watched::start(tasks, "peers", Api::all(client.clone()), watcher::Config::default());
        let of_ours = watcher::Config::default().labels(&labels::PART_OF.selector());
        let secrets = Watched::start(tasks, "secrets", Api::namespaced(client.clone(), &namespace), of_ours);
        let nodes = Watched::start(tasks, "nodes", Api::all(client.clone()), watcher::Config::default());
        let all = watcher::Config::default();
        let namespaces = Watched::start(tasks, "all namespaces", Api::all(client.clone()), all);
        // By the name, so that one is known whatever somebody did to its labels.
        let of_peers = watcher::Config::default().fields(&format!("metadata.name={}", tenant::BINDING));
        let bindings = Watched::start(tasks, "bindings", Api::all(client.clone()), of_peers);
        let tenants = Watched::start(tasks, "tenants", Api::all(client.clone()), watcher::Config::default());
        let networks = Networks::start(tasks, &client);
        let maps = Watched::start(tasks, "maps", Api::all(client.clone()), watcher::Config::default());
        Self {
            client,
            namespace,
            config,
            peers,
            secrets,
            nodes,
            namespaces,
            bindings,
            tenants,
            networks,
            maps,
            between: None,
            agent: Arc::default(),
            own,
        }
    }

    /// Waits until what all of them read is known: who reads any of the rest waits for that.
    pub async fn ready(&self) -> Result<()> {
        self.config.ready().await?;
        self.peers.ready().await?;
        self.secrets.ready().await?;
        self.own.clone().wait_for(Option::is_some).await.context("the identity is no longer kept")?;
        Ok(())
    }

    /// Who this cluster is, once [`Home::ready`] has returned.
    pub fn own(&self) -> Result<Arc<Own>> {
        self.own.borrow().clone().context("this cluster has no identity yet")
    }

    /// How this cluster is configured now.
    pub fn settings(&self) -> ClusterConfigSpec {
        self.config.all().first().map(|config| config.spec.clone()).unwrap_or_default()
    }
}
