//! One of our namespaces: its originals, watched once for all peers that it is reflected to.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferro_core::reflection::{Kind, Ledger, slices};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use kube::Client;
use kube::api::DynamicObject;

use super::watches;

/// All namespaces that are reflected somewhere.
pub(super) struct Sources {
    tasks: Tasks,
    client: Client,
    open: Mutex<HashMap<String, Weak<Source>>>,
}

impl Sources {
    pub(super) fn new(tasks: &Tasks, client: &Client) -> Self {
        Self { tasks: tasks.clone(), client: client.clone(), open: Mutex::default() }
    }

    /// A namespace; it is watched as long as anybody has it.
    pub(super) fn get(&self, namespace: &str) -> Arc<Source> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, source| source.strong_count() > 0);
        if let Some(source) = open.get(namespace).and_then(Weak::upgrade) {
            return source;
        }
        let source = Arc::new(Source {
            tasks: self.tasks.child(),
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            watches: Mutex::default(),
            slices: Mutex::default(),
        });
        open.insert(namespace.to_owned(), Arc::downgrade(&source));
        source
    }
}

/// One of our namespaces.
pub(super) struct Source {
    tasks: Tasks,
    client: Client,
    namespace: String,
    watches: Mutex<HashMap<Kind, Watched<DynamicObject>>>,
    /// Which slices a Service has.
    slices: Mutex<Ledger<String, String>>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.tasks.dismiss();
    }
}

impl Source {
    /// The originals of a kind.
    pub(super) fn of(&self, kind: &Kind) -> Watched<DynamicObject> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || watches::originals(&self.tasks, &self.client, &self.namespace, kind);
        watches.entry(kind.clone()).or_insert_with(start).clone()
    }

    /// The original of that kind and name.
    pub(super) fn get(&self, kind: &Kind, name: &str) -> Option<Arc<DynamicObject>> {
        self.of(kind).get(Some(&self.namespace), name)
    }

    /// The slices of a Service, as far as they have been filed.
    pub(super) fn slices(&self, service: &str) -> Vec<String> {
        self.filed().users(&service.to_owned()).cloned().collect()
    }

    /// Notes down to which Service a slice belongs now. Whoever looks at the slice does this first: a Service that arrives
    /// after that look finds it here.
    pub(super) fn file(&self, slice: &str) {
        let mut filed = self.filed();
        // It is read under the lock, so that whoever files last has seen the most.
        let present = self.get(&Kind::EndpointSlice, slice);
        let service = present.as_ref().and_then(|slice| slices::service(&slice.metadata));
        let service: BTreeSet<String> = service.map(str::to_owned).into_iter().collect();
        let slice = slice.to_owned();
        filed.hold(&slice, &service);
        filed.keep(&slice, &service);
    }

    fn filed(&self) -> MutexGuard<'_, Ledger<String, String>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
