//! The claims that have to do with one peer, or with none: what waits to be looked at, and what is known over there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use ferro_core::claims::{Write, plan, refused};
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::jiff::Timestamp;
use tracing::{debug, warn};

use super::hand::{Answer, Desk, Hand};
use super::room::{Ring, Room, Rooms};
use super::view::View;
use super::{Key, Shop};
use crate::pods;

/// So many claims of one branch are worked on at once.
const AT_ONCE: usize = 8;
/// A claim is settled in fewer rounds than this; one that is not shall not keep API servers busy.
const MOST_ROUNDS: usize = 8;
/// Pause after something that failed: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The UIDs of claims, by the name that they have.
type Known = HashMap<(String, String), HashSet<String>>;

/// The claims of one peer, or of none.
pub(super) struct Branch {
    pub(super) shop: Arc<Shop>,
    peer: Option<String>,
    rooms: Rooms,
    queue: Queue<Key>,
    known: Arc<Mutex<Known>>,
    failures: Mutex<HashMap<Key, u32>>,
    hand: Hand,
}

impl Branch {
    pub(super) fn open(tasks: &Tasks, shop: &Arc<Shop>, peer: Option<String>) -> Arc<Self> {
        let (queue, known) = (Queue::default(), Arc::<Mutex<Known>>::default());
        let branch = Arc::new(Self {
            shop: Arc::clone(shop),
            peer,
            rooms: Rooms::new(tasks, ringing(&queue, &known)),
            queue,
            known,
            failures: Mutex::default(),
            hand: Hand::new(&shop.home),
        });
        let working = Arc::clone(&branch);
        tasks.spawn("claims of a branch", async move {
            working.queue.work(AT_ONCE, |key| working.look(key)).await;
            Ok(())
        });
        branch
    }

    /// Something about this claim has changed.
    pub(super) fn ring(&self, key: Key) {
        let name = (key.namespace.clone(), key.name.clone());
        lock(&self.known).entry(name).or_default().insert(key.uid.clone());
        self.queue.push(key);
    }

    /// Those that have, or had, this name.
    pub(super) fn known(&self, name: &(String, String)) -> Vec<Key> {
        let known = lock(&self.known);
        known.get(name).into_iter().flatten().map(|uid| key(&name.0, &name.1, uid)).collect()
    }

    /// Something about the peer has changed.
    pub(super) fn look_again(&self) {
        if let Some(peer) = &self.peer {
            let Shop { home, own, stations, .. } = &*self.shop;
            self.rooms.retain(stations.way(peer).as_ref(), |here| pods::counterpart(home, own, peer, here));
        }
        for ((namespace, name), uids) in &*lock(&self.known) {
            for uid in uids {
                self.queue.push(key(namespace, name, uid));
            }
        }
    }

    /// The namespace over there that stands for this one, if its cluster lets us in and is the one of this branch.
    pub(super) fn room(&self, peer: &str, namespace: &str, there: &str) -> Option<Arc<Room>> {
        let way = self.shop.stations.way(peer).filter(|_| self.peer.as_deref() == Some(peer))?;
        Some(self.rooms.get(&way, namespace, there))
    }

    /// Brings one claim nearer to how it should be, until nothing is left to be done now.
    async fn look(&self, key: Key) -> Option<Duration> {
        match self.settle(&key).await {
            Ok(again) => {
                lock(&self.failures).remove(&key);
                again
            }
            Err(error) => {
                let (namespace, claim) = (&key.namespace, &key.name);
                warn!(namespace, claim, error = format!("{error:#}"), "will be tried again");
                Some(self.setback(&key))
            }
        }
    }

    fn setback(&self, key: &Key) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key.clone()).or_insert(0);
        let (first, most) = RETRY;
        let pause = first.saturating_mul(2_u32.saturating_pow(*count)).min(most);
        *count = count.saturating_add(1);
        pause
    }

    async fn settle(&self, key: &Key) -> Result<Option<Duration>> {
        for _ in 0..MOST_ROUNDS {
            let view = View::of(self, key).await?;
            if view.peer() != self.peer.as_deref() {
                self.forget(key);
                // Without a router nobody is left to do anything.
                _ = self.shop.strays.send(key.clone());
                return Ok(None);
            }
            let writes = plan(&view.snapshot(self));
            if writes.is_empty() {
                if view.is_over() {
                    self.forget(key);
                }
                return Ok(view.again());
            }
            let desk = Desk { key, shop: &self.shop, view: &view };
            for write in &writes {
                debug!(namespace = key.namespace, claim = key.name, ?write, "writes");
                if let Answer::Refused(status) = self.hand.perform(&desk, write).await? {
                    self.refused(&desk, write, status.code, &status.message).await?;
                    break;
                }
            }
        }
        bail!("this is never settled")
    }

    /// An API server has not taken it: the claim says so.
    async fn refused(&self, desk: &Desk<'_>, write: &Write, code: u16, message: &str) -> Result<()> {
        let now = Timestamp::now();
        let follows = desk.view.claim.as_deref();
        let follows = follows.and_then(|claim| refused(claim, write, code, message, now));
        let Some(follows) = follows else { bail!("an API server does not take it: {message}") };
        for write in &follows {
            if let Answer::Refused(status) = self.hand.perform(desk, write).await? {
                bail!("it cannot be said that a claim was refused: {}", status.message);
            }
        }
        Ok(())
    }

    fn forget(&self, key: &Key) {
        let mut known = lock(&self.known);
        let name = (key.namespace.clone(), key.name.clone());
        if let Some(uids) = known.get_mut(&name) {
            uids.remove(&key.uid);
            if uids.is_empty() {
                known.remove(&name);
            }
        }
    }
}

/// What happens to claims over there concerns those here of the same name, as far as they are known.
fn ringing(queue: &Queue<Key>, known: &Arc<Mutex<Known>>) -> Ring {
    let (queue, known) = (queue.clone(), Arc::clone(known));
    Arc::new(move |namespace, name| {
        let known = lock(&known);
        let meant: Vec<_> = match name {
            Some(name) => known.get_key_value(&(namespace.to_owned(), name.to_owned())).into_iter().collect(),
            None => known.iter().filter(|((within, _), _)| within == namespace).collect(),
        };
        for ((namespace, name), uids) in meant {
            for uid in uids {
                queue.push(key(namespace, name, uid));
            }
        }
    })
}

fn key(namespace: &str, name: &str, uid: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
