//! What there is of the networks to peers: each object has one name that it can have, so that it need not be searched.

use std::sync::Arc;

use anyhow::Result;
use ferro_api::names::labels;
use ferro_api::net::{NetworkConfig, TunnelEndpoint};
use ferro_core::network::exchange::Objects;
use ferro_core::replication::inbound;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

/// What there is of the networks to all peers, and what the network manager says.
#[derive(Clone)]
pub struct Networks {
    /// What clusters tell each other of their networks.
    pub configs: Watched<NetworkConfig>,
    /// The tunnels.
    pub tunnels: Watched<TunnelEndpoint>,
    /// What keeps this cluster from joining networks at all; the network manager says so.
    pub hindrance: Arc<watch::Sender<Option<String>>>,
}

/// What there is of the network to one peer.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Our `NetworkConfig` for it.
    pub ours: Option<Arc<NetworkConfig>>,
    /// The copy of the peer's.
    pub theirs: Option<Arc<NetworkConfig>>,
    /// The tunnel to it.
    pub tunnel: Option<Arc<TunnelEndpoint>>,
}

impl Networks {
    /// Starts the watches.
    pub fn start(tasks: &Tasks, client: &Client) -> Self {
        let all = watcher::Config::default();
        Self {
            configs: Watched::start(tasks, "network configs", Api::all(client.clone()), all.clone()),
            tunnels: Watched::start(tasks, "tunnels", Api::all(client.clone()), all),
            hindrance: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Waits until all of it is known.
    pub async fn ready(&self) -> Result<()> {
        self.configs.ready().await?;
        self.tunnels.ready().await
    }

    /// What there is of the network to a peer, in the namespace that this cluster keeps for it. What is not ours counts
    /// as not there.
    pub fn of(&self, namespace: &str, us: &str, peer: &str) -> Parts {
        let ours = self.configs.get(Some(namespace), us).filter(|config| {
            let meta = &config.metadata;
            labels::REPLICATION.is_on(meta)
                && !labels::REPLICATED.is_on(meta)
                && labels::PART_OF.is_on(meta)
                && labels::REMOTE_ID.of(meta) == Some(peer)
        });
        let theirs = self.configs.get(Some(namespace), peer);
        let is_from_peer =
            |config: &Arc<NetworkConfig>| !inbound(us, peer, 1, [config.as_ref()]).taken.is_empty();
        let tunnel = self.tunnels.get(Some(namespace), peer);
        Parts {
            ours,
            theirs: theirs.filter(is_from_peer),
            tunnel: tunnel.filter(|tunnel| labels::PART_OF.is_on(&tunnel.metadata)),
        }
    }
}

impl Parts {
    /// For a decision.
    pub fn objects(&self) -> Objects<'_> {
        Objects { ours: self.ours.as_deref(), theirs: self.theirs.as_deref(), tunnel: self.tunnel.as_deref() }
    }

    /// What has to be gone before the rights of the two clusters end, in words.
    pub fn remaining(&self) -> Vec<String> {
        let ours = self.ours.as_ref().map(|config| ("NetworkConfig", &config.metadata));
        let tunnel = self.tunnel.as_ref().map(|tunnel| ("TunnelEndpoint", &tunnel.metadata));
        let named = |(kind, meta): (&str, &ObjectMeta)| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{kind} {}/{}", part(&meta.namespace), part(&meta.name))
        };
        [ours, tunnel].into_iter().flatten().map(named).collect()
    }
}
