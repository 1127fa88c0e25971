//! This cluster as its controllers see it: one client, one watch per kind that several of them read, and who it is.

use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::config::{ClusterConfig, ClusterConfigSpec};
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::identity::Own;
use crate::networks::Networks;

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
    /// What there is of the networks to peers.
    pub networks: Networks,
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
        let networks = Networks::start(tasks, &client);
        Self { client, namespace, config, peers, secrets, nodes, networks, own }
    }

    /// Waits until all of it is known, but for nodes and networks: who reads those waits for them.
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
