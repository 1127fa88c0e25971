//! One watch per kind, shared by all who read it: a store that is always complete, and a bell that rings on change.
//!
//! Flow: `Watched::start` lists and watches; readers take snapshots from the store and wait for the bell. Guarantees:
//! after `ready` the store holds everything; every change rings the bell after the store has it; a watch that breaks
//! is taken up again with back-off and rings for all that it missed. Assumptions: readers are level-triggered, so a
//! bell that rings once for many changes loses nothing. Who keeps an index of its own follows the changes by name
//! ([`Changes`]), and looks at nothing else.

mod changes;

use std::collections::HashSet;
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
pub use changes::Changes;
use changes::{Followers, Relist, all};

/// What of a server's objects is kept: how much of one that is not trusted, and no more of each than somebody reads.
#[derive(Clone, Copy, Debug)]
pub struct Limit<K> {
    /// How many objects.
    pub most: usize,
    /// Whether an object is not too large.
    pub fits: fn(&K) -> bool,
    /// Takes out of an object what nobody here reads.
    pub trim: fn(&mut K),
}

impl<K> Limit<K> {
    /// Everything is kept.
    pub const NONE: Self = Self { most: usize::MAX, fits: |_| true, trim: |_| {} };
}

/// The namespace of an object, where it has one, and its name.
type Key = (Option<String>, String);

fn key(object: &impl Resource) -> Key {
    (object.meta().namespace.clone(), object.name_any())
}

impl<K: Resource> Limit<K> {
    /// Whether an event is taken in, given the objects that were.
    fn takes(&self, event: &Event<K>, present: &mut HashSet<Key>) -> bool {
        match event {
            Event::Init => present.clear(),
            Event::InitDone => {}
            Event::InitApply(object) | Event::Apply(object) => {
                let key = key(object);
                let has_room = present.contains(&key) || present.len() < self.most;
                if !has_room || !(self.fits)(object) {
                    return false;
                }
                present.insert(key);
            }
            Event::Delete(object) => _ = present.remove(&key(object)),
        }
        true
    }
}

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
    followers: Followers<K>,
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
        Self::start_limited(tasks, name, api, config, kind, Limit::NONE)
    }

    /// The same with a limit: what is too much or too large counts as not there. What is trimmed away does not count.
    pub fn start_limited(
        tasks: &Tasks,
        name: &'static str,
        api: Api<K>,
        config: watcher::Config,
        kind: K::DynamicType,
        limit: Limit<K>,
    ) -> Self {
        let writer = Writer::new(kind.clone());
        let store = writer.as_reader();
        let (ring, bell) = watch::channel(0);
        let changes = watcher(api, config).default_backoff().modify(move |object| {
            object.managed_fields_mut().clear();
            (limit.trim)(object);
        });
        let mut present = HashSet::new();
        let changes = changes.filter(move |change| {
            let taken = change.as_ref().map_or(true, |event| limit.takes(event, &mut present));
            std::future::ready(taken)
        });
        let followers = Followers::default();
        let (told, reader, of) = (followers.clone(), store.clone(), kind.clone());
        tasks.spawn(name, async move {
            let (mut changes, mut relist) = (std::pin::pin!(changes.reflect(writer)), Relist::default());
            while let Some(change) = changes.next().await {
                match change {
                    // A list that is being read shows only when it is complete.
                    Ok(Event::Init) => relist.begin(&reader, &of),
                    Ok(Event::InitApply(_)) => {}
                    Ok(Event::InitDone) => {
                        told.tell(relist.end(&reader, &of));
                        ring.send_modify(|count| *count += 1);
                    }
                    Ok(Event::Apply(object) | Event::Delete(object)) => {
                        told.tell([ObjectRef::from_obj_with(&object, of.clone())]);
                        ring.send_modify(|count| *count += 1);
                    }
                    Err(error) => warn!(watch = name, %error, "the watch broke and is taken up again"),
                }
            }
            Ok(())
        });
        Self { store, bell, kind, followers }
    }

    /// Waits until the store is complete for the first time. Any number may wait: the store's own way to wait wakes
    /// only the last of them.
    pub async fn ready(&self) -> Result<()> {
        let mut bell = self.bell.clone();
        bell.wait_for(|count| *count > 0).await.context("a watch ended before it was complete")?;
        Ok(())
    }

    /// Whether the store has been complete.
    pub fn is_ready(&self) -> bool {
        *self.bell.borrow() > 0
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

    /// From now on notes down what changes, beginning with all that there is.
    pub fn follow(&self) -> Changes<K> {
        let noted = self.followers.join();
        self.followers.tell(all(&self.store, &self.kind));
        Changes::new(noted, self.clone())
    }

    fn find(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.store.get(reference)
    }

    /// Waits for the next change after the last one that this reader waited for.
    pub async fn changed(&mut self) -> Result<()> {
        self.bell.changed().await.context("a watch ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn what_is_too_much_or_too_large_is_not_taken_in() {
        let limit = Limit { most: 2, fits: |map: &ConfigMap| map.data.is_none(), ..Limit::NONE };
        let named = |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.into());
            map
        };
        let large = ConfigMap { data: Some([("a".into(), "b".into())].into()), ..named("c") };
        let mut present = HashSet::new();
        assert!(limit.takes(&Event::Apply(named("a")), &mut present));
        assert!(limit.takes(&Event::Apply(named("b")), &mut present));
        assert!(limit.takes(&Event::Apply(named("a")), &mut present));
        assert!(!limit.takes(&Event::Apply(named("c")), &mut present));
        assert!(limit.takes(&Event::Delete(named("b")), &mut present));
        assert!(!limit.takes(&Event::Apply(large), &mut present));
        assert!(limit.takes(&Event::Apply(named("c")), &mut present));
    }

    #[test]
    fn objects_of_one_name_in_several_namespaces_count_each() {
        let limit = Limit { most: 2, ..Limit::NONE };
        let within = |namespace: &str| {
            let mut map = ConfigMap::default();
            (map.metadata.namespace, map.metadata.name) = (Some(namespace.into()), Some("a".into()));
            map
        };
        let mut present = HashSet::new();
        assert!(limit.takes(&Event::Apply(within("x")), &mut present));
        assert!(limit.takes(&Event::Apply(within("y")), &mut present));
        assert!(!limit.takes(&Event::Apply(within("z")), &mut present));
        assert!(limit.takes(&Event::Delete(within("x")), &mut present));
        assert!(limit.takes(&Event::Apply(within("z")), &mut present));
    }
}
