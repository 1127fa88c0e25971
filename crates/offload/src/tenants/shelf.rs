//! A kind whose objects belong to Tenants, filed by Tenant: a change wakes whom it concerns, and nobody searches through
//! what others have.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use anyhow::{Context, Result};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;

use super::bells::Bells;

/// Namespace and name; the namespace is empty for what has none.
type Key = (String, String);

/// All objects of a kind, as they are now.
pub(super) struct Shelf<K> {
    files: Arc<RwLock<Files<K>>>,
    complete: watch::Receiver<bool>,
}

impl<K> Clone for Shelf<K> {
    fn clone(&self) -> Self {
        Self { files: self.files.clone(), complete: self.complete.clone() }
    }
}

/// How objects are filed.
struct Files<K> {
    /// The Tenant that an object belongs to.
    owner: fn(&K) -> Option<String>,
    objects: HashMap<Key, Arc<K>>,
    tenants: HashMap<String, BTreeSet<Key>>,
}

impl<K> Shelf<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    /// Follows a watch, and rings for the Tenants that a change concerns; for all of them where it is nobody's.
    pub(super) fn start(
        tasks: &Tasks,
        watched: Watched<K>,
        owner: fn(&K) -> Option<String>,
        bells: Bells,
    ) -> Self {
        let (done, complete) = watch::channel(false);
        let files = Arc::new(RwLock::new(Files { owner, objects: HashMap::new(), tenants: HashMap::new() }));
        let shelf = Self { files: files.clone(), complete };
        tasks.spawn("files of Tenants", async move {
            watched.ready().await?;
            let mut news = watched.follow();
            loop {
                let changed = news.take();
                let concerned: Concerned = {
                    let mut files = files.write().unwrap_or_else(PoisonError::into_inner);
                    let file = |(reference, object): (ObjectRef<K>, _)| {
                        files.set((reference.namespace.unwrap_or_default(), reference.name), object)
                    };
                    changed.into_iter().flat_map(file).collect()
                };
                ring(&bells, concerned);
                done.send_replace(true);
                news.changed().await?;
            }
        });
        shelf
    }

    /// Waits until it is complete for the first time.
    pub(super) async fn ready(&self) -> Result<()> {
        let mut complete = self.complete.clone();
        complete.wait_for(|complete| *complete).await.context("a watch ended before it was complete")?;
        Ok(())
    }

    /// The object of that name.
    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        self.read().objects.get(&key).cloned()
    }

    /// What belongs to a Tenant, in the order of namespaces and names.
    pub(super) fn of(&self, tenant: &str) -> Vec<Arc<K>> {
        let files = self.read();
        let keys = files.tenants.get(tenant).into_iter().flatten();
        keys.filter_map(|key| files.objects.get(key).cloned()).collect()
    }

    /// Who has anything.
    pub(super) fn tenants(&self) -> Vec<String> {
        self.read().tenants.keys().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Files<K>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom a change concerns: the owner before and the one after. None stands for nobody.
type Concerned = BTreeSet<Option<String>>;

fn ring(bells: &Bells, concerned: Concerned) {
    for tenant in concerned {
        match tenant {
            Some(tenant) => bells.ring(&tenant),
            None => bells.ring_all(),
        }
    }
}

impl<K> Files<K> {
    /// As an object is now; nothing for one that is gone.
    fn set(&mut self, key: Key, object: Option<Arc<K>>) -> Concerned {
        let before = self.objects.remove(&key).map(|object| self.take_out(&key, &object));
        let after = object.map(|object| {
            let owner = (self.owner)(&object);
            if let Some(owner) = &owner {
                self.tenants.entry(owner.clone()).or_default().insert(key.clone());
            }
            self.objects.insert(key, object);
            owner
        });
        before.into_iter().chain(after).collect()
    }

    fn take_out(&mut self, key: &Key, object: &K) -> Option<String> {
        let owner = (self.owner)(object)?;
        if let Some(keys) = self.tenants.get_mut(&owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.tenants.remove(&owner);
            }
        }
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use ferro_api::names::labels;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn map(tenant: Option<&str>) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        if let Some(tenant) = tenant {
            labels::TENANT.put_on(&mut map.metadata, tenant);
        }
        Arc::new(map)
    }

    fn concerned<const N: usize>(tenants: [Option<&str>; N]) -> Concerned {
        tenants.map(|tenant| tenant.map(str::to_owned)).into()
    }

    #[test]
    fn a_change_concerns_whose_it_was_and_whose_it_is() {
        let owner = |map: &ConfigMap| labels::TENANT.of(&map.metadata).map(str::to_owned);
        let mut files = Files { owner, objects: HashMap::new(), tenants: HashMap::new() };
        let key = || (String::new(), "x".to_owned());
        assert_eq!(files.set(key(), Some(map(Some("a")))), concerned([Some("a")]));
        assert_eq!(files.set(key(), Some(map(Some("b")))), concerned([Some("a"), Some("b")]));
        assert_eq!(files.tenants.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(files.set(key(), Some(map(None))), concerned([Some("b"), None]));
        assert!(files.tenants.is_empty());
        assert_eq!(files.set(key(), None), concerned([None]));
        assert_eq!(files.set(key(), None), concerned([]));
    }
}
