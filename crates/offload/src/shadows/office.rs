//! The pods of one Tenant: what waits to be looked at, and what they are charged.

mod turn;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ferro_api::names::labels;
use ferro_core::auth::{Meter, Pace};
use ferro_core::pods::Refusal;
use ferro_core::pods::provider::{self, Quota};
use ferro_core::resources::ResourceMap;
use ferro_runtime::queue::Queue;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tracing::{error, warn};

use super::hand::Hand;
use super::recent::Recent;
use super::{Key, Shop};

/// So many names of one Tenant are worked on at once: a few whose work is slow leave places for the others.
const AT_ONCE: usize = 16;
/// Pause after something that failed; longer and longer, as long as it fails.
const RETRY: Duration = Duration::from_millis(250);
const MOST_DOUBLINGS: u32 = 8;
/// How often a Tenant's rejections are worth an Event. The status says the same.
const EVENTS: Pace = Pace { burst: 20, every: Duration::from_secs(5) };

/// The pods of one Tenant.
pub(super) struct Office {
    pub(super) shop: Arc<Shop>,
    pub(super) tenant: String,
    pub(super) recent: Recent,
    hand: Hand,
    queue: Queue<Key>,
    quota: Mutex<Quota>,
    /// What waits until pods may be made for the Tenant.
    waiting: Mutex<HashSet<Key>>,
    failures: Mutex<HashMap<Key, u32>>,
    events: Mutex<Meter>,
}

impl Office {
    /// An office whose account is charged with all pods that there are. Its limits are read when one more is charged.
    pub(super) fn open(shop: Arc<Shop>, tenant: &str) -> Self {
        let mut pods = shop.pods.all();
        pods.retain(|pod| labels::ORIGIN_ID.of(&pod.metadata) == Some(tenant));
        let quota = Quota::open(ResourceMap::default(), pods.iter().map(AsRef::as_ref));
        Self {
            tenant: tenant.to_owned(),
            recent: Recent::default(),
            hand: Hand::new(&shop.home.client),
            queue: Queue::default(),
            quota: Mutex::new(quota),
            waiting: Mutex::default(),
            failures: Mutex::default(),
            events: Mutex::default(),
            shop,
        }
    }

    /// Works for ever.
    pub(super) async fn run(self: Arc<Self>) -> Result<()> {
        let office = &self;
        self.queue.work(AT_ONCE, |key| async move { office.serve(&key).await }).await;
        Ok(())
    }

    /// Something about this name has changed.
    pub(super) fn ring(&self, key: Key) {
        self.queue.push(key);
    }

    /// The Tenant has changed.
    pub(super) fn renew(&self) {
        if self.usable().is_none() {
            return;
        }
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for key in waiting {
            self.queue.push(key);
        }
    }

    /// A namespace is gone with all in it.
    pub(super) fn forget_namespace(&self, namespace: &str) {
        lock(&self.quota).release_namespace(namespace);
        lock(&self.waiting).retain(|(place, _)| place != namespace);
    }

    /// Whether nothing is to be done now.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// One turn for one name; says after how long to look again. A fault in one is none of another.
    async fn serve(&self, key: &Key) -> Option<Duration> {
        // It is never closed.
        let _turn = self.shop.turns.acquire().await.ok()?;
        let failed = match AssertUnwindSafe(self.turn(key)).catch_unwind().await {
            Ok(Ok(next)) => {
                lock(&self.failures).remove(key);
                return next;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => {
                error!(tenant = self.tenant, pod = ?key, "a fault in the controller; will be tried again");
                "a fault".to_owned()
            }
        };
        let pause = self.pause(key);
        warn!(tenant = self.tenant, pod = ?key, error = failed, ?pause, "will be tried again");
        Some(pause)
    }

    /// How long to wait before something that failed is tried again.
    fn pause(&self, key: &Key) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        RETRY * 2_u32.pow((*count - 1).min(MOST_DOUBLINGS))
    }

    /// Charges what a pod takes, by the limits as they are now.
    fn charge(&self, key: &Key, pod: &Pod) -> Result<(), Refusal> {
        let limits = self.usable().and_then(|tenant| provider::limits(&tenant));
        let mut quota = lock(&self.quota);
        if let Some(limits) = limits {
            quota.set_limits(limits);
        }
        quota.admit(&key.0, &key.1, pod)
    }

    /// Whether a rejection is worth an Event now.
    fn may_tell(&self) -> bool {
        let (mut events, now) = (lock(&self.events), Timestamp::now());
        let may = events.wait(&EVENTS, now).is_zero();
        if may {
            events.count(&EVENTS, now);
        }
        may
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
