//! The provider's controller of `ShadowPods`: pods that other clusters want to run here.
//!
//! Flow: changes of `ShadowPods` and of the pods made from them ring for their names; `ferro_core::pods::provider` plans one
//! step at a time; [`hand::Hand`] writes, and what the API server answers counts until the watches have seen it
//! ([`recent::Recent`]). Guarantees: each Tenant has an [`office::Office`] with a queue and an account of its own, and takes
//! turns with the others, so that a flood of one delays no other, and of many for the last unit one has it. One name is
//! worked on by one at a time. Assumptions: this process leads.

mod hand;
mod office;
mod recent;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::names::labels;
use ferro_api::virtualkubelet::ShadowPod;
use ferro_core::pods::provider;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::{Changes, Limit, Watched};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::Semaphore;
use tracing::debug;

use office::Office;

/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);
/// So many names are worked on at once, for all Tenants together.
const TURNS: usize = 128;
/// So many `ShadowPods` are kept, of all Tenants together. Each has fewer by its account; this is the last fence.
const MOST_SHADOWS: usize = 200_000;
/// So many are read at a time: a large one has 128 KiB.
const PAGE: u32 = 200;

/// Namespace and name.
type Key = (String, String);

/// Keeps the pods of other clusters as they should be, for ever.
pub async fn run(tasks: Tasks, home: Home) -> Result<()> {
    let shop = Shop::start(&tasks, home);
    shop.home.ready().await?;
    shop.home.namespaces.ready().await?;
    shop.home.tenants.ready().await?;
    shop.shadows.ready().await?;
    shop.pods.ready().await?;
    Controller {
        tasks,
        shop: Arc::new(shop),
        offices: HashMap::new(),
        owners: HashMap::new(),
        strays: HashMap::new(),
    }
    .run()
    .await
}

/// What all Tenants share.
struct Shop {
    home: Home,
    shadows: Watched<ShadowPod>,
    pods: Watched<Pod>,
    /// Whoever works holds one. They are given out in the order in which they are asked for.
    turns: Semaphore,
}

impl Shop {
    fn start(tasks: &Tasks, home: Home) -> Self {
        let (client, all) = (&home.client, watcher::Config::default().page_size(PAGE));
        let kept = Limit { most: MOST_SHADOWS, trim: provider::keep_of_shadow, ..Limit::NONE };
        let shadows = Watched::start_limited(tasks, "shadow pods", Api::all(client.clone()), all, (), kept);
        let marked = watcher::Config::default().labels(&labels::SHADOWED.selector());
        let kept = Limit { trim: provider::keep_of_pod, ..Limit::NONE };
        let pods = Watched::start_limited(tasks, "shadowed pods", Api::all(client.clone()), marked, (), kept);
        Self { home, shadows, pods, turns: Semaphore::new(TURNS) }
    }

    /// The Tenant that a namespace belongs to.
    fn owner(&self, namespace: &str) -> Option<String> {
        self.home.namespaces.get(None, namespace).and_then(|namespace| owner(&namespace))
    }
}

/// The Tenant that a namespace belongs to: only our own controller sets these marks.
fn owner(namespace: &Namespace) -> Option<String> {
    let meta = &namespace.metadata;
    labels::TENANT.of(meta).filter(|_| labels::PART_OF.is_on(meta)).map(str::to_owned)
}

/// Tells Tenants what there is to do for them.
struct Controller {
    tasks: Tasks,
    shop: Arc<Shop>,
    offices: HashMap<String, (Tasks, Arc<Office>)>,
    /// The Tenants of namespaces, as they were last seen.
    owners: HashMap<String, String>,
    /// What lies in namespaces that are not known, or not anybody's.
    strays: HashMap<String, HashSet<Key>>,
}

impl Controller {
    async fn run(mut self) -> Result<()> {
        let shop = self.shop.clone();
        let (mut shadows, mut pods) = (shop.shadows.follow(), shop.pods.follow());
        let (mut namespaces, mut tenants) = (shop.home.namespaces.follow(), shop.home.tenants.follow());
        let mut rest = tokio::time::interval(AT_REST);
        rest.reset();
        loop {
            self.hear_namespaces(&mut namespaces);
            for (tenant, _) in tenants.take() {
                if let Some((_, office)) = self.offices.get(&tenant.name) {
                    office.renew();
                }
            }
            let shadows_changed = shadows.take().into_iter().map(|(name, _)| (name.namespace, name.name));
            let pods_changed = pods.take().into_iter().map(|(name, _)| (name.namespace, name.name));
            for (namespace, name) in shadows_changed.chain(pods_changed) {
                self.ring((namespace.unwrap_or_default(), name));
            }
            tokio::select! {
                changed = shadows.changed() => changed?,
                changed = pods.changed() => changed?,
                changed = namespaces.changed() => changed?,
                changed = tenants.changed() => changed?,
                _ = rest.tick() => {
                    self.close_offices();
                    (shadows, pods) = (shop.shadows.follow(), shop.pods.follow());
                }
            }
        }
    }

    fn hear_namespaces(&mut self, namespaces: &mut Changes<Namespace>) {
        for (reference, namespace) in namespaces.take() {
            let name = reference.name;
            let Some(namespace) = namespace else {
                self.forget(&name);
                continue;
            };
            if let Some(tenant) = owner(&namespace) {
                self.owners.insert(name.clone(), tenant);
            }
            for key in self.strays.remove(&name).into_iter().flatten() {
                self.ring(key);
            }
        }
    }

    /// A namespace is gone: so is all that was in it, whether or not the watches have seen that.
    fn forget(&mut self, namespace: &str) {
        self.strays.remove(namespace);
        let owner = self.owners.remove(namespace);
        if let Some((_, office)) = owner.and_then(|owner| self.offices.get(&owner)) {
            office.forget_namespace(namespace);
        }
    }

    /// Something about this name has changed.
    fn ring(&mut self, key: Key) {
        match self.shop.owner(&key.0) {
            Some(tenant) => self.office(&tenant).ring(key),
            None => _ = self.strays.entry(key.0.clone()).or_default().insert(key),
        }
    }

    fn office(&mut self, tenant: &str) -> Arc<Office> {
        if let Some((_, office)) = self.offices.get(tenant) {
            return office.clone();
        }
        debug!(tenant, "has an office for its pods");
        let office = Arc::new(Office::open(self.shop.clone(), tenant));
        let tasks = self.tasks.child();
        tasks.spawn("pods of a Tenant", office.clone().run());
        self.offices.insert(tenant.to_owned(), (tasks, office.clone()));
        office
    }

    /// Ends the work for Tenants that are gone, with all that they had.
    fn close_offices(&mut self) {
        let pods = self.shop.pods.all();
        let has_pods: HashSet<&str> =
            pods.iter().filter_map(|pod| labels::ORIGIN_ID.of(&pod.metadata)).collect();
        self.offices.retain(|tenant, (tasks, office)| {
            let is_there = self.shop.home.tenants.get(None, tenant).is_some();
            let stays = is_there || has_pods.contains(tenant.as_str()) || !office.is_idle();
            if !stays {
                tasks.dismiss();
            }
            stays
        });
    }
}
