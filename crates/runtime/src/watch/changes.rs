//! What has changed since a reader last looked, by name: each object once, however often it changed.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Result;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Resource;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};

use super::Watched;

type Noted<K> = Mutex<HashSet<ObjectRef<K>>>;

/// What one reader has yet to look at. It grows no larger than the store and what was deleted meanwhile.
pub struct Changes<K: 'static + Lookup>
where
    K::DynamicType: Eq + Hash + Clone,
{
    noted: Arc<Noted<K>>,
    watched: Watched<K>,
}

impl<K> Changes<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    pub(super) fn new(noted: Arc<Noted<K>>, watched: Watched<K>) -> Self {
        Self { noted, watched }
    }

    /// Waits until there may be something to look at.
    pub async fn changed(&mut self) -> Result<()> {
        self.watched.changed().await
    }

    /// All that changed since this was last called, as it is now; nothing for what is gone.
    pub fn take(&mut self) -> Vec<(ObjectRef<K>, Option<Arc<K>>)> {
        let noted = std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner));
        noted.into_iter().map(|reference| (reference.clone(), self.watched.find(&reference))).collect()
    }
}

/// All who are to be told.
pub(super) struct Followers<K: Lookup>(Arc<Mutex<Vec<Weak<Noted<K>>>>>)
where
    K::DynamicType: Eq + Hash + Clone;

impl<K: Lookup> Followers<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    pub(super) fn join(&self) -> Arc<Noted<K>> {
        let noted = Arc::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&noted));
        noted
    }

    /// Tells those that are still there.
    pub(super) fn tell(&self, changed: impl IntoIterator<Item = ObjectRef<K>>) {
        let mut followers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|follower| follower.strong_count() > 0);
        if followers.is_empty() {
            return;
        }
        let changed: Vec<ObjectRef<K>> = changed.into_iter().collect();
        for noted in followers.iter().filter_map(Weak::upgrade) {
            noted.lock().unwrap_or_else(PoisonError::into_inner).extend(changed.iter().cloned());
        }
    }
}

impl<K: Lookup> Clone for Followers<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Lookup> Default for Followers<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// A list that is being read anew: what it lacks has gone while nobody watched.
pub(super) struct Relist<K: Lookup>
where
    K::DynamicType: Eq + Hash + Clone,
{
    before: HashSet<ObjectRef<K>>,
}

impl<K: Lookup + Clone> Relist<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    /// The store keeps the former list until the new one is complete.
    pub(super) fn begin(&mut self, store: &Store<K>, kind: &K::DynamicType) {
        self.before = all(store, kind).collect();
    }

    /// Everything that was there, or is.
    pub(super) fn end(&mut self, store: &Store<K>, kind: &K::DynamicType) -> HashSet<ObjectRef<K>> {
        let mut changed = std::mem::take(&mut self.before);
        changed.extend(all(store, kind));
        changed
    }
}

impl<K: Lookup> Default for Relist<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn default() -> Self {
        Self { before: HashSet::new() }
    }
}

/// The names of everything in a store.
pub(super) fn all<K: Lookup + Clone>(
    store: &Store<K>,
    kind: &K::DynamicType,
) -> impl Iterator<Item = ObjectRef<K>>
where
    K::DynamicType: Eq + Hash + Clone,
{
    let kind = kind.clone();
    store.state().into_iter().map(move |object| ObjectRef::from_obj_with(&*object, kind.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;

    fn named(name: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        (map.metadata.name, map.metadata.namespace) = (Some(name.into()), Some("default".into()));
        map
    }

    fn reference(name: &str) -> ObjectRef<ConfigMap> {
        ObjectRef::new(name).within("default")
    }

    #[test]
    fn each_follower_is_told_of_each_change_once_and_those_that_left_of_none() {
        let followers: Followers<ConfigMap> = Followers::default();
        let (one, other) = (followers.join(), followers.join());
        drop(other);
        followers.tell([reference("a"), reference("b")]);
        followers.tell([reference("a")]);
        assert_eq!(one.lock().unwrap().len(), 2);
        assert_eq!(followers.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn what_a_new_list_lacks_has_changed_as_well() {
        let mut writer: Writer<ConfigMap> = Writer::default();
        let (store, mut relist) = (writer.as_reader(), Relist::default());
        for list in [["a", "b"], ["b", "c"]] {
            writer.apply_watcher_event(&Event::Init);
            relist.begin(&store, &());
            for name in list {
                writer.apply_watcher_event(&Event::InitApply(named(name)));
            }
            writer.apply_watcher_event(&Event::InitDone);
            let changed = relist.end(&store, &());
            assert!(list.iter().all(|name| changed.contains(&reference(name))));
            assert!(changed.contains(&reference("a")), "it was there, or is");
        }
    }
}
