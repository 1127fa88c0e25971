//! Where pods on one peer reach the API server of home: its endpoints, as the address manager names them for that peer.
//!
//! Guarantees: an address is told only once it works, and one that was told is kept while the way is broken for a time:
//! the name of an endpoint stays as long as the networks are agreed on. Between two looks for the way others have their
//! turn, whatever was found.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ferro_core::network::{Agreement, Asker, MapError};
use ferro_core::pods::outward::access::{Access, ApiServer};
use ferro_fabric::ipam::{Handle, Trouble};
use ferro_peering::home::Home;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::Issuer;
use crate::pods::is_external;

/// How long an answer of the address manager is waited for.
const ANSWER: Duration = Duration::from_secs(3);
/// When to ask again for what does not work yet.
const RETRY: Duration = Duration::from_secs(2);
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// So many API servers are told to pods.
const MOST: usize = 5;

type Key = (String, String);

/// The way from one peer to our API server.
pub(super) struct Ways {
    access: watch::Sender<Access>,
    /// Pods that want it, and do not know it yet.
    waiting: Mutex<HashSet<Key>>,
    is_wanted: watch::Sender<bool>,
}

impl Ways {
    pub(super) fn start(
        tasks: &Tasks,
        home: &Home,
        issuer: &Issuer,
        peer: &str,
        queue: &Queue<Key>,
    ) -> Arc<Self> {
        let ways = Arc::new(Self {
            access: watch::Sender::default(),
            waiting: Mutex::default(),
            is_wanted: watch::Sender::default(),
        });
        let keeper = Keeper {
            home: home.clone(),
            issuer: issuer.clone(),
            peer: peer.to_owned(),
            ways: Arc::clone(&ways),
            queue: queue.clone(),
            mapped: BTreeSet::new(),
        };
        tasks.spawn("way to our API server", keeper.run());
        ways
    }

    /// A pod wants to reach our API server: whether it does.
    pub(super) fn want(&self, pod: &Pod) -> Access {
        self.is_wanted.send_if_modified(|is_wanted| !std::mem::replace(is_wanted, true));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let access = self.access.borrow().clone();
        if access == Access::Unknown {
            waiting.insert((pod.namespace().unwrap_or_default(), pod.name_any()));
        }
        access
    }

    fn tell(&self, access: Access, queue: &Queue<Key>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.access.send_replace(access);
        waiting.drain().for_each(|pod| queue.push(pod));
    }
}

/// Keeps the way known.
struct Keeper {
    home: Home,
    issuer: Issuer,
    peer: String,
    ways: Arc<Ways>,
    queue: Queue<Key>,
    /// The endpoints that the address manager was asked for.
    mapped: BTreeSet<IpAddr>,
}

/// What an answer rests on: with it, all names change.
#[derive(PartialEq, Eq)]
struct Basis {
    /// What is agreed on with the peer.
    agreement: Option<Agreement>,
    /// Whether somebody else joins the networks.
    is_external: bool,
}

/// What is found out about the way.
enum Found {
    Access(Access),
    /// It may be had later.
    Later,
}

impl Keeper {
    async fn run(mut self) -> Result<()> {
        let mut is_wanted = self.ways.is_wanted.subscribe();
        is_wanted.wait_for(|is_wanted| *is_wanted).await?;
        let (mut servers, mut peers, mut asked) =
            (self.issuer.servers.clone(), self.home.peers.clone(), self.issuer.asked.clone());
        loop {
            let basis = self.basis();
            let pause = match self.find().await {
                Found::Access(access) => {
                    debug!(peer = self.peer, ?access, "the way to our API server");
                    self.ways.tell(access, &self.queue);
                    None
                }
                Found::Later => Some(RETRY),
            };
            let (mut is_due, mut retry) = (false, std::pin::pin!(after(pause)));
            while !is_due {
                // Watched first and read afterwards, so that no change is missed in between.
                let state = asked.borrow_and_update().as_ref().map(Handle::watch);
                if self.basis() != basis || pause.is_none() && !self.is_published() {
                    break;
                }
                tokio::select! {
                    changed = servers.changed() => { changed?; is_due = true; }
                    changed = peers.changed() => changed?,
                    changed = asked.changed() => { changed?; is_due = true; }
                    () = changed(state) => {}
                    () = &mut retry => is_due = true,
                }
            }
            // Nothing above has to wait for anything: what is never as it should be leaves others their turn, too.
            tokio::time::sleep(GATHER).await;
        }
    }

    fn basis(&self) -> Basis {
        Basis { agreement: self.agreement(), is_external: is_external(&self.home, &self.peer) }
    }

    fn agreement(&self) -> Option<Agreement> {
        let handle = self.issuer.asked.borrow().clone()?;
        handle.watch().borrow().peers().get(&self.peer).copied()
    }

    /// Whether nobody has given back what this asked for.
    fn is_published(&self) -> bool {
        let handle = self.issuer.asked.borrow().clone();
        let is_asked_for =
            |handle: &Handle, endpoint: &IpAddr| handle.watch().borrow().is_asked_for(&self.peer, *endpoint);
        handle.is_none_or(|handle| self.mapped.iter().all(|endpoint| is_asked_for(&handle, endpoint)))
    }

    async fn find(&mut self) -> Found {
        let Some((endpoints, port)) = endpoints(&self.issuer.servers.all()) else { return Found::Later };
        if is_external(&self.home, &self.peer) {
            // What was asked for goes with what was agreed on.
            self.mapped.clear();
            return Found::Access(Access::Open(ApiServer { addresses: endpoints, port }));
        }
        let Some(handle) = self.issuer.asked.borrow().clone() else { return Found::Later };
        let (mut addresses, mut mapped) = (Vec::new(), BTreeSet::new());
        for endpoint in &endpoints {
            match tokio::time::timeout(ANSWER, handle.map(Asker::Caller, &self.peer, *endpoint)).await {
                Ok(Ok(address)) => {
                    addresses.push(address);
                    // Nothing is kept for a pod where all pods are reached.
                    if handle.watch().borrow().is_asked_for(&self.peer, *endpoint) {
                        mapped.insert(*endpoint);
                    }
                }
                Ok(Err(Trouble::Unmappable(error))) if !passes(&error) => {
                    warn!(peer = self.peer, %endpoint, %error, "pods there do not reach our API server");
                }
                Ok(Err(trouble)) => {
                    debug!(peer = self.peer, %endpoint, %trouble, "no way to our API server yet");
                    return Found::Later;
                }
                Err(_) => return Found::Later,
            }
        }
        for former in self.mapped.difference(&mapped) {
            if let Err(error) = handle.unmap(Asker::Caller, &self.peer, *former).await {
                warn!(peer = self.peer, %former, %error, "an address stays in use until the peering ends");
            }
        }
        self.mapped = mapped;
        let is_reached = !addresses.is_empty();
        let open = is_reached.then_some(Access::Open(ApiServer { addresses, port }));
        Found::Access(open.unwrap_or(Access::Closed))
    }
}

/// Whether a reason passes by itself.
fn passes(error: &MapError) -> bool {
    matches!(error, MapError::UnknownPeer(_) | MapError::NotReady(_) | MapError::Exhausted(_))
}

/// The addresses of our API server that have one port in common.
fn endpoints(slices: &[Arc<EndpointSlice>]) -> Option<(Vec<IpAddr>, u16)> {
    let of = |slice: &Arc<EndpointSlice>| {
        let port = slice.ports.iter().flatten().find_map(|port| port.port)?;
        let addresses = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
        let addresses: Vec<IpAddr> =
            addresses.filter_map(|address| address.parse().ok()).take(MOST).collect();
        Some((addresses, u16::try_from(port).ok()?)).filter(|(addresses, _)| !addresses.is_empty())
    };
    slices.iter().find_map(of)
}

/// One that has ended is followed by another, of which there is word elsewhere.
async fn changed<T>(state: Option<watch::Receiver<T>>) {
    let Some(mut state) = state else { return std::future::pending().await };
    if state.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
