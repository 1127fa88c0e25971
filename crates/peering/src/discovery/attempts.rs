//! Trying whether clusters are where they are announced: beside the loop, several at once, and each for a while only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ferro_api::discovery::DiscoveryType;
use ferro_core::discovery::{Address, Change};
use ferro_core::identity::ClusterId;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tracing::{debug, warn};

use crate::contact::{Caller, Met};

/// So many clusters that are known already are tried at once.
const KNOWN: usize = 4;
/// So many strangers of the local network, and so many of elsewhere.
const STRANGERS: usize = 12;
/// How long all addresses of one cluster may take together. Those that are left are tried the next time, first.
const LIMIT: Duration = Duration::from_secs(15);
/// How long a write may take to show in the watch.
const SETTLE: Duration = Duration::from_secs(5);

/// Where a cluster was looked for.
pub(super) struct Outcome {
    pub(super) cluster: ClusterId,
    /// Where it did not prove to be.
    pub(super) failed: Vec<Address>,
    /// Where it did.
    pub(super) proved: Option<(Address, Met)>,
}

/// The attempts that are under way.
#[derive(Default)]
pub(super) struct Attempts {
    running: JoinSet<Outcome>,
    busy: BTreeMap<ClusterId, Busy>,
}

/// A cluster that is left alone for now.
struct Busy {
    state: State,
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    TryingKnown,
    TryingStranger { is_on_lan: bool },
    Settling,
}

impl Attempts {
    /// Begins to try the addresses of a change; false when it has to wait.
    pub(super) fn start(&mut self, caller: &Caller, change: Change) -> bool {
        let now = Instant::now();
        self.busy.retain(|_, busy| busy.until > now);
        let (state, most, cluster, addresses) = match change {
            Change::Create { cluster_id, addresses, discovery_type, .. } => {
                let is_on_lan = discovery_type == DiscoveryType::Lan;
                (State::TryingStranger { is_on_lan }, STRANGERS, cluster_id, addresses)
            }
            Change::Update { cluster_id, addresses, .. } => {
                (State::TryingKnown, KNOWN, cluster_id, addresses)
            }
            Change::Remove { .. } => return true,
        };
        if let Some(busy) = self.busy.get(&cluster) {
            // The end of an attempt wakes the loop.
            return busy.state != State::Settling;
        }
        if self.busy.values().filter(|busy| busy.state == state).count() >= most {
            return true;
        }
        self.busy.insert(cluster, Busy { state, until: now + LIMIT + SETTLE });
        self.running.spawn(attempt(caller.clone(), cluster, addresses));
        true
    }

    /// The next attempt that ends.
    pub(super) async fn next(&mut self) -> Outcome {
        loop {
            match self.running.join_next().await {
                Some(Ok(outcome)) => {
                    self.busy.remove(&outcome.cluster);
                    return outcome;
                }
                // It counts as busy until its time is over.
                Some(Err(error)) => warn!(%error, "an attempt to reach a cluster ended badly"),
                None => std::future::pending().await,
            }
        }
    }

    /// Leaves a cluster alone until what was written about it can be seen.
    pub(super) fn settle(&mut self, cluster: ClusterId) {
        self.busy.insert(cluster, Busy { state: State::Settling, until: Instant::now() + SETTLE });
    }
}

/// Whether the change is about this cluster at this address.
pub(super) fn is_of(change: &Change, cluster: &ClusterId, address: &Address) -> bool {
    match change {
        Change::Create { cluster_id, addresses, .. } | Change::Update { cluster_id, addresses, .. } => {
            cluster_id == cluster && addresses.contains(address)
        }
        Change::Remove { .. } => false,
    }
}

/// Tries one address after the other.
async fn attempt(caller: Caller, cluster: ClusterId, addresses: Vec<Address>) -> Outcome {
    let deadline = tokio::time::Instant::now() + LIMIT;
    let mut failed = Vec::new();
    for address in addresses {
        let meeting = caller.meet(&address.auth_url, address.pin.as_ref(), Some(&cluster));
        match timeout_at(deadline, meeting).await {
            Ok(Ok(met)) => return Outcome { cluster, failed, proved: Some((address, met)) },
            Ok(Err(problem)) => {
                debug!(%cluster, url = %address.auth_url, %problem, "a cluster is not where it is announced");
                failed.push(address);
            }
            Err(_) => {
                failed.push(address);
                break;
            }
        }
    }
    Outcome { cluster, failed, proved: None }
}
