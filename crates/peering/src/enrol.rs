//! The requester's side of authentication: this cluster meets its peers and gets certificates from them.
//!
//! - Flow: one task for each `ForeignCluster` with an address; it is given a new view of its peer whenever something
//!   about it changes, lets `ferro_core::auth::enrolment` decide, and does one step after the other.
//! - Guarantees: a slow, dead or hostile peer delays only itself, and a panic over one does not stop the others. What
//!   a request needs to be repeated is stored before it is sent, and what was granted is stored in one write.
//! - Assumptions: nobody else writes the parts of the `ForeignCluster` that [`report`] writes.

mod exchange;
mod held;
mod peer;
mod problem;
mod report;
mod search;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::finalizers;
use ferro_core::auth::enrolment::Claim;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tracing::error;

use crate::home::Home;
use crate::keepsake;
use peer::Peer;
use search::Callers;

/// Pause after a panic.
const RECOVERY: Duration = Duration::from_secs(5);

/// Gets and renews certificates from all peers, until the tasks end. `rejected` names the `ForeignClusters` whose API
/// servers turned this cluster's credentials away.
pub async fn run(tasks: Tasks, home: Home, mut rejected: watch::Receiver<BTreeSet<String>>) -> Result<()> {
    home.ready().await?;
    let mut watched = home.clone();
    let mut all = All {
        callers: Arc::new(Callers::new(home.client.clone())),
        home,
        running: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        let turned_away = rejected.borrow_and_update().clone();
        all.follow(&turned_away);
        tokio::select! {
            changed = watched.peers.changed() => changed?,
            changed = watched.secrets.changed() => changed?,
            changed = watched.config.changed() => changed?,
            () = changed(&mut rejected) => {}
            Some(Err(ended)) = all.tasks.join_next_with_id() => all.restart(ended.id(), ended.is_panic()),
            () = tasks.ended() => return Ok(()),
        }
    }
}

/// Waits for a change; for ever when nobody is left to make one.
async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What a peer's task looks at.
#[derive(Clone)]
struct View {
    peer: Arc<ForeignCluster>,
    /// What is kept for it.
    secret: Option<Arc<Secret>>,
    rejected: bool,
    /// Which `ForeignCluster` stands for which cluster.
    claims: Arc<[Claim]>,
    /// The version of the configuration.
    configuration: i64,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let version = |secret: &Option<Arc<Secret>>| secret.as_ref().map(|secret| secret.resource_version());
        self.peer.resource_version() == other.peer.resource_version()
            && version(&self.secret) == version(&other.secret)
            && (self.rejected, self.configuration) == (other.rejected, other.configuration)
            && self.claims == other.claims
    }
}

/// All peers that are being cared for.
struct All {
    home: Home,
    callers: Arc<Callers>,
    running: BTreeMap<String, Running>,
    tasks: JoinSet<()>,
}

struct Running {
    uid: Option<String>,
    view: watch::Sender<View>,
    task: AbortHandle,
}

impl All {
    /// Starts, informs and ends the tasks of peers, as these come, change and go.
    fn follow(&mut self, rejected: &BTreeSet<String>) {
        let peers = self.home.peers.all();
        let claims = claims(&peers);
        let configs = self.home.config.all();
        let configuration = configs.first().and_then(|config| config.metadata.generation).unwrap_or_default();
        let mut present = BTreeSet::new();
        for peer in peers.into_iter().filter(|peer| is_ours(peer)) {
            let name = peer.name_any();
            let secret = self.home.secrets.get(Some(&self.home.namespace), &keepsake::name(&name));
            let rejected = rejected.contains(&name);
            self.show(&name, View { peer, secret, rejected, claims: Arc::clone(&claims), configuration });
            present.insert(name);
        }
        self.running.retain(|name, running| {
            let stays = present.contains(name);
            if !stays {
                running.task.abort();
            }
            stays
        });
    }

    fn show(&mut self, name: &str, view: View) {
        match self.running.get(name) {
            Some(running) if running.uid == view.peer.uid() => {
                running.view.send_if_modified(|shown| {
                    let changed = *shown != view;
                    if changed {
                        *shown = view;
                    }
                    changed
                });
            }
            another => {
                if let Some(running) = another {
                    running.task.abort();
                }
                self.start(name.to_owned(), view, Duration::ZERO);
            }
        }
    }

    fn start(&mut self, name: String, view: View, pause: Duration) {
        let uid = view.peer.uid();
        let (view, looks) = watch::channel(view);
        let peer = Peer::new(self.home.clone(), name.clone(), Arc::clone(&self.callers), looks);
        let task = self.tasks.spawn(async move {
            tokio::time::sleep(pause).await;
            peer.run().await;
        });
        self.running.insert(name, Running { uid, view, task });
    }

    /// A task that was not told to end is begun anew: what it needs is stored.
    fn restart(&mut self, id: Id, panicked: bool) {
        let ended = self.running.iter().find(|(_, running)| running.task.id() == id);
        let Some((name, running)) = ended.filter(|_| panicked) else { return };
        error!(peer = name, "the task of a peer failed and is begun anew");
        let (name, view) = (name.clone(), running.view.borrow().clone());
        self.start(name, view, RECOVERY);
    }
}

/// Whether the peer is to be turned to: it is held for us, stays, and has an address.
fn is_ours(peer: &ForeignCluster) -> bool {
    let meta = &peer.metadata;
    let held = meta.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::PEERING);
    held && meta.deletion_timestamp.is_none() && peer.spec.auth_url.is_some()
}

pub(crate) fn claims(peers: &[Arc<ForeignCluster>]) -> Arc<[Claim]> {
    let claim = |peer: &Arc<ForeignCluster>| {
        Some(Claim {
            since: peer.metadata.creation_timestamp.as_ref().map(|time| time.0),
            name: peer.name_any(),
            cluster: peer.spec.cluster_identity.as_ref()?.cluster_id.clone(),
        })
    };
    let mut claims: Vec<Claim> = peers.iter().filter_map(claim).collect();
    claims.sort();
    claims.into()
}
