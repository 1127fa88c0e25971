//! What the controller watches, and what of it has changed.

use anyhow::{Context, Result};
use ferro_api::discovery::ForeignCluster;
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::offloading::Index;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Changes, Watched};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch;

use crate::occupancy::Book;

/// Who has pods where.
type Told = watch::Receiver<Book>;

/// What is watched.
pub(super) struct Watches {
    namespaces: Watched<Namespace>,
    offloadings: Watched<NamespaceOffloading>,
    nodes: Watched<Node>,
    peers: Watched<ForeignCluster>,
    maps: Watched<NamespaceMap>,
    occupants: Told,
}

impl Watches {
    pub(super) fn start(tasks: &Tasks, home: &Home, occupants: Told) -> Self {
        let (all, client) = (watcher::Config::default(), &home.client);
        Self {
            namespaces: home.namespaces.clone(),
            offloadings: Watched::start(tasks, "offloadings", Api::all(client.clone()), all),
            nodes: home.nodes.clone(),
            peers: home.peers.clone(),
            maps: home.maps.clone(),
            occupants,
        }
    }

    pub(super) async fn ready(&self) -> Result<()> {
        self.namespaces.ready().await?;
        self.offloadings.ready().await?;
        self.nodes.ready().await?;
        self.peers.ready().await?;
        self.maps.ready().await
    }

    /// Everything there is, and what changes from now on.
    pub(super) fn follow(&self) -> News {
        News {
            namespaces: self.namespaces.follow(),
            offloadings: self.offloadings.follow(),
            nodes: self.nodes.follow(),
            peers: self.peers.follow(),
            maps: self.maps.follow(),
            occupants: self.occupants.clone(),
        }
    }
}

/// What has changed.
pub(super) struct News {
    namespaces: Changes<Namespace>,
    offloadings: Changes<NamespaceOffloading>,
    nodes: Changes<Node>,
    peers: Changes<ForeignCluster>,
    maps: Changes<NamespaceMap>,
    occupants: Told,
}

impl News {
    /// Waits until there is some.
    pub(super) async fn come(&mut self) -> Result<()> {
        tokio::select! {
            changed = self.namespaces.changed() => changed,
            changed = self.offloadings.changed() => changed,
            changed = self.nodes.changed() => changed,
            changed = self.peers.changed() => changed,
            changed = self.maps.changed() => changed,
            changed = self.occupants.changed() => changed.context("nobody tells which namespaces have pods"),
        }
    }

    /// Tells all of it to the index.
    pub(super) fn tell(&mut self, index: &mut Index) {
        for (reference, namespace) in self.namespaces.take() {
            index.set_namespace(&reference.name, namespace.as_deref());
        }
        for (reference, offloading) in self.offloadings.take() {
            index.set_offloading(&reference.namespace.unwrap_or_default(), offloading);
        }
        for (reference, node) in self.nodes.take() {
            index.set_node(&reference.name, node.as_deref());
        }
        for (reference, peer) in self.peers.take() {
            index.set_peer(&reference.name, peer.as_deref());
        }
        for (reference, map) in self.maps.take() {
            index.set_map(&reference.namespace.unwrap_or_default(), &reference.name, map);
        }
        self.occupants.borrow_and_update().tell(index);
    }
}
