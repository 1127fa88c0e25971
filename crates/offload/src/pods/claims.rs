//! The claims of pods on a virtual node: whether they lie on its cluster, and who waits until they do.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferro_core::claims::{bound_to, claims_of, travels};
use ferro_core::pods::Refusal;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use super::station::Key;
use crate::claims::Ledger;

/// The scheduler binds a pod when its claims are bound. A watch that has not seen these yet is waited for.
const BEHIND: Duration = Duration::from_secs(1);

/// Pods that wait, by the claims that they wait for.
type Waiting = HashMap<Key, HashSet<Key>>;

/// The claims of pods on a virtual node.
pub(super) struct Claims {
    ledger: Ledger,
    waiting: Arc<Mutex<Waiting>>,
}

impl Claims {
    /// Puts pods into the queue when a claim changes that they wait for.
    pub(super) fn follow(tasks: &Tasks, ledger: Ledger, queue: &Queue<Key>) -> Self {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (mut changes, queue, waiters) = (ledger.claims.follow(), queue.clone(), Arc::clone(&waiting));
        tasks.spawn("changes of claims", async move {
            loop {
                for (claim, _) in changes.take() {
                    let claim = (claim.namespace.unwrap_or_default(), claim.name);
                    lock(&waiters).get(&claim).into_iter().flatten().cloned().for_each(|pod| queue.push(pod));
                }
                changes.changed().await?;
            }
        });
        Self { ledger, waiting }
    }

    /// For how long to wait for the watch of claims, the first time that one of a pod is not seen to be bound.
    pub(super) fn delay(&self, pod: &Pod) -> Option<Duration> {
        let namespace = pod.namespace().unwrap_or_default();
        let is_open =
            |name: &String| self.claim(&namespace, name).is_none_or(|claim| bound_to(&claim).is_none());
        let open: Vec<String> = claims_of(pod).filter(is_open).collect();
        let mut waiting = lock(&self.waiting);
        let key = (namespace.clone(), pod.name_any());
        let mut is_new = false;
        for name in open {
            is_new |= waiting.entry((namespace.clone(), name)).or_default().insert(key.clone());
        }
        is_new.then_some(BEHIND)
    }

    /// Whether all claims of a pod lie on this peer.
    pub(super) fn admit(&self, pod: &Pod, peer: &str) -> Result<(), Refusal> {
        let namespace = pod.namespace().unwrap_or_default();
        let key = (namespace.clone(), pod.name_any());
        for name in claims_of(pod) {
            let of_claim = (namespace.clone(), name);
            // Noted before it is looked at, so that no change goes unheard.
            lock(&self.waiting).entry(of_claim.clone()).or_default().insert(key.clone());
            let claim = self.claim(&namespace, &of_claim.1);
            let volume = claim.as_deref().and_then(bound_to);
            let volume = volume.and_then(|volume| self.ledger.volumes.get(None, volume));
            travels(&of_claim.1, claim.as_deref(), volume.as_deref(), peer)?;
            self.forget(&of_claim, &key);
        }
        Ok(())
    }

    /// A pod that is gone waits for nothing.
    pub(super) fn forget_pod(&self, pod: &Key) {
        lock(&self.waiting).retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.ledger.claims.get(Some(namespace), name)
    }

    fn forget(&self, claim: &Key, pod: &Key) {
        let mut waiting = lock(&self.waiting);
        if let Some(pods) = waiting.get_mut(claim) {
            pods.remove(pod);
            if pods.is_empty() {
                waiting.remove(claim);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
