//! The pods that run here for peers, watched as long as peers reach only what is published to them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use ferro_api::config::Reach;
use ferro_api::names::labels;
use ferro_core::network::{guests, keep_of_guest};
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Limit, Watched};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;

/// The pods that run here for peers.
pub(super) struct Guests {
    tasks: Tasks,
    home: Home,
    /// Only where it matters: most clusters let peers reach all pods.
    watched: Option<(Tasks, Watched<Pod>)>,
}

impl Guests {
    pub(super) fn new(tasks: Tasks, home: Home) -> Self {
        Self { tasks, home, watched: None }
    }

    /// The addresses that are to be published, each with the peer that it is published to; nothing before all are known.
    pub(super) async fn present(&mut self) -> Option<BTreeMap<IpAddr, String>> {
        let is_strict = self.home.settings().liqonet().reach() == Reach::Strict;
        if self.watched.is_some() != is_strict {
            self.watch(is_strict).await;
        }
        let Some((_, pods)) = &self.watched else { return Some(BTreeMap::new()) };
        let owner = |namespace: &str| {
            let namespace = self.home.namespaces.get(None, namespace)?;
            let is_ours = labels::PART_OF.is_on(&namespace.metadata);
            labels::TENANT.of(&namespace.metadata).filter(|_| is_ours).map(str::to_owned)
        };
        pods.is_ready().then(|| guests(pods.all().iter().map(AsRef::as_ref), owner))
    }

    async fn watch(&mut self, is_strict: bool) {
        if let Some((tasks, _)) = self.watched.take() {
            tasks.end().await;
        }
        if is_strict {
            let (tasks, api) = (self.tasks.child(), Api::all(self.home.client.clone()));
            let ours = watcher::Config::default().labels(&labels::SHADOWED.selector());
            let limit = Limit { trim: keep_of_guest, ..Limit::NONE };
            let pods = Watched::start_limited(&tasks, "pods of peers", api, ours, (), limit);
            self.watched = Some((tasks, pods));
        }
    }

    /// Waits until there are others.
    pub(super) async fn changed(&mut self) -> Result<()> {
        match &mut self.watched {
            Some((_, pods)) => pods.changed().await,
            None => std::future::pending().await,
        }
    }
}
