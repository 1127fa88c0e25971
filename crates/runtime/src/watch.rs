//! One watch per kind, shared by all who read it: a store that is always complete, and a bell that rings on change.
//!
//! Flow: `Watched::start` lists and watches; readers take snapshots from the store and wait for the bell. Guarantees:
//! after `ready` the store holds everything; every change rings the bell after the store has it; a watch that breaks
//! is taken up again with back-off and rings for all that it missed. Assumptions: readers are level-triggered, so a
//! bell that rings once for many changes loses nothing.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use tokio::sync::watch;
use tracing::warn;

use crate::shutdown::Tasks;

/// A kind, as it is now.
#[derive(Clone)]
pub struct Watched<K: 'static + Lookup>
where
    K::DynamicType: Eq + Hash + Clone,
{
    store: Store<K>,
    /// How often something changed, which is never before the store is complete.
    bell: watch::Receiver<u64>,
    kind: K::DynamicType,
}

impl<K> Watched<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    /// Watches what the API and the configuration select, without the bulk that nobody here reads.
    pub fn start(tasks: &Tasks, name: &'static str, api: Api<K>, config: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::start_kind(tasks, name, api, config, K::DynamicType::default())
    }

    /// The same for a kind that is known only at run time.
    pub fn start_kind(
        tasks: &Tasks,
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        kind: K::DynamicType,
    ) -> Self {
        let writer = Writer::new(kind.clone());
        let store = writer.as_reader();
        let (ring, bell) = watch::channel(0);
        let changes =
            watcher(api, config).default_backoff().modify(|object| object.managed_fields_mut().clear());
        tasks.spawn(name, async move {
            let mut changes = std::pin::pin!(changes.reflect(writer));
            while let Some(change) = changes.next().await {
                match change {
                    // A list that is being read shows only when it is complete.
                    Ok(Event::Init | Event::InitApply(_)) => {}
                    Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                        ring.send_modify(|count| *count += 1);
                    }
                    Err(error) => warn!(watch = name, %error, "the watch broke and is taken up again"),
                }
            }
            Ok(())
        });
        Self { store, bell, kind }
    }

    /// Waits until the store is complete for the first time. Any number may wait: the store's own way to wait wakes
    /// only the last of them.
    pub async fn ready(&self) -> Result<()> {
        let mut bell = self.bell.clone();
        bell.wait_for(|count| *count > 0).await.context("a watch ended before it was complete")?;
        Ok(())
    }

    /// Everything there is.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The object of that name; namespace only for kinds that have one.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let reference = ObjectRef::new_with(name, self.kind.clone());
        self.store.get(&match namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        })
    }

    /// Waits for the next change after the last one that this reader waited for.
    pub async fn changed(&mut self) -> Result<()> {
        self.bell.changed().await.context("a watch ended")
    }
}
