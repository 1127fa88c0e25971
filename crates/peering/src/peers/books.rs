//! The ledger of this cluster, fed by its nodes and pods; of a pod only what it takes is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use ferro_api::names::{labels, taints};
use ferro_core::offer::Ledger;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tracing::warn;

type Key = (String, String);

/// The books, as they are now.
#[derive(Clone)]
pub(super) struct Books {
    open: Arc<Mutex<Open>>,
    bell: watch::Receiver<u64>,
}

#[derive(Default)]
struct Open {
    ledger: Ledger,
    /// Pods that a drain moves away, by node.
    movable: BTreeMap<String, BTreeSet<Key>>,
    nodes: BTreeSet<String>,
    pods: BTreeMap<Key, Option<String>>,
    /// The pods of a list that is being read, while it is not complete.
    listed: Option<BTreeSet<Key>>,
    complete: bool,
}

impl Books {
    /// Begins to keep the books.
    pub(super) fn start(tasks: &Tasks, client: Client, mut nodes: Watched<Node>) -> Self {
        let open = Arc::new(Mutex::new(Open::default()));
        let (ring, bell) = watch::channel(0);
        let books = Self { open, bell };
        let (for_nodes, for_pods, ring_too) = (books.clone(), books.clone(), ring.clone());
        tasks.spawn("books of nodes", async move {
            nodes.ready().await?;
            loop {
                if for_nodes.lock().take_in_nodes(&nodes.all()) {
                    ring.send_modify(|count| *count += 1);
                }
                nodes.changed().await?;
            }
        });
        tasks.spawn("books of pods", async move {
            let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if for_pods.lock().take_in(event) {
                            ring_too.send_modify(|count| *count += 1);
                        }
                    }
                    Err(error) => warn!(watch = "pods", %error, "the watch broke and is taken up again"),
                }
            }
            Ok(())
        });
        books
    }

    /// What the books say, once they are complete.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Option<T> {
        let open = self.lock();
        open.complete.then(|| read(&open.ledger))
    }

    /// How many pods a drain of this node would move.
    pub(super) fn movable(&self, node: &str) -> usize {
        self.lock().movable.get(node).map_or(0, BTreeSet::len)
    }

    /// Waits until something is different.
    pub(super) async fn changed(&mut self) -> Result<()> {
        self.bell.changed().await.context("the books are no longer kept")
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// True when what is free may have changed.
    fn take_in_nodes(&mut self, nodes: &[Arc<Node>]) -> bool {
        let names: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        let gone: Vec<String> = self.nodes.difference(&names).cloned().collect();
        let mut changed = false;
        for name in gone {
            changed |= self.ledger.remove_node(&name);
        }
        for node in nodes {
            changed |= self.ledger.set_node(node);
        }
        self.nodes = names;
        changed
    }

    fn take_in(&mut self, event: Event<Pod>) -> bool {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                false
            }
            Event::InitApply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key(&pod));
                }
                self.book(&pod)
            }
            Event::InitDone => self.end_list(),
            Event::Apply(pod) => self.book(&pod),
            Event::Delete(pod) => self.strike(&key(&pod)),
        }
    }

    /// What a new list lacks has gone while nobody watched.
    fn end_list(&mut self) -> bool {
        let listed = self.listed.take().unwrap_or_default();
        let gone: Vec<Key> = self.pods.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in &gone {
            self.strike(key);
        }
        self.complete = true;
        true
    }

    fn book(&mut self, pod: &Pod) -> bool {
        let key = key(pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.unmark(&key);
        if let Some(node) = node.as_ref().filter(|_| is_movable(pod)) {
            self.movable.entry(node.clone()).or_default().insert(key.clone());
        }
        self.pods.insert(key, node);
        self.ledger.set_pod(pod, labels::ORIGIN_ID.of(&pod.metadata))
    }

    fn strike(&mut self, key: &Key) -> bool {
        self.unmark(key);
        self.pods.remove(key);
        self.ledger.remove_pod(&key.0, &key.1)
    }

    fn unmark(&mut self, key: &Key) {
        let Some(Some(node)) = self.pods.get(key) else { return };
        if let Some(pods) = self.movable.get_mut(node) {
            pods.remove(key);
            if pods.is_empty() {
                self.movable.remove(node);
            }
        }
    }
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Whether a drain moves the pod: it runs, or will, and does not put up with the taint.
pub(super) fn is_movable(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    !matches!(phase, Some("Succeeded" | "Failed")) && !tolerations.iter().any(tolerates_draining)
}

fn tolerates_draining(toleration: &Toleration) -> bool {
    let taint = taints::draining();
    toleration.key.as_ref().is_none_or(|key| key.is_empty() || *key == taint.key)
        && toleration.effect.as_ref().is_none_or(|effect| effect.is_empty() || *effect == taint.effect)
        && (toleration.operator.as_deref() == Some("Exists") || toleration.value == taint.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, node: &str, tolerations: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"nodeName": node, "containers": [], "tolerations": tolerations},
        }))
        .unwrap()
    }

    #[test]
    fn what_a_new_list_lacks_is_struck() {
        let mut books = Open::default();
        for name in ["a", "b"] {
            books.take_in(Event::Apply(pod(name, "n", &json!([]))));
        }
        assert_eq!(books.movable["n"].len(), 2);
        books.take_in(Event::Init);
        books.take_in(Event::InitApply(pod("b", "n", &json!([]))));
        assert!(books.take_in(Event::InitDone) && books.complete);
        assert_eq!(books.movable["n"].len(), 1);
        books.take_in(Event::Delete(pod("b", "n", &json!([]))));
        assert!(books.movable.is_empty() && books.pods.is_empty());
    }

    #[test]
    fn pods_that_tolerate_everything_are_not_moved() {
        let everything = json!([{"operator": "Exists"}]);
        let virtual_node = json!([taints::tolerates_not_allowed()]);
        assert!(!is_movable(&pod("daemon", "n", &everything)));
        assert!(is_movable(&pod("web", "n", &virtual_node)));
    }
}
