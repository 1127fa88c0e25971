//! All kinds that a decision about a peer looks at, each watched once.

use anyhow::Result;
use ferro_api::discovery::ResourceRequest;
use ferro_api::names::labels;
use ferro_api::sharing::ResourceOffer;
use ferro_api::tenancy::Tenant;
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt as _};

use crate::home::Home;
use crate::networks::Networks;

/// Whether a watch has seen what was written.
pub(super) type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// What a kind must be to be watched.
pub(super) trait Kind:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// What is watched.
#[derive(Clone)]
pub(super) struct Stock {
    pub(super) namespaces: Watched<Namespace>,
    pub(super) bindings: Watched<RoleBinding>,
    pub(super) requests: Watched<ResourceRequest>,
    pub(super) offers: Watched<ResourceOffer>,
    pub(super) nodes: Watched<Node>,
    pub(super) classes: Watched<StorageClass>,
    pub(super) tenants: Watched<Tenant>,
    pub(super) networks: Networks,
    pub(super) maps: Watched<NamespaceMap>,
}

impl Stock {
    pub(super) fn start(tasks: &Tasks, home: &Home) -> Self {
        let client = &home.client;
        // Those of the peers' own namespaces here are many, and none of them matters.
        let of_peers = format!("{},{}", labels::PART_OF.selector(), labels::REMOTE_ID.key());
        let of_peers = watcher::Config::default().labels(&of_peers);
        let all = watcher::Config::default();
        Self {
            namespaces: Watched::start(tasks, "namespaces", Api::all(client.clone()), of_peers),
            bindings: home.bindings.clone(),
            requests: Watched::start(tasks, "requests", Api::all(client.clone()), all.clone()),
            offers: Watched::start(tasks, "offers", Api::all(client.clone()), all.clone()),
            nodes: home.nodes.clone(),
            classes: Watched::start(tasks, "storage classes", Api::all(client.clone()), all),
            tenants: home.tenants.clone(),
            networks: home.networks.clone(),
            maps: home.maps.clone(),
        }
    }

    pub(super) async fn ready(&self) -> Result<()> {
        self.namespaces.ready().await?;
        self.bindings.ready().await?;
        self.requests.ready().await?;
        self.offers.ready().await?;
        self.nodes.ready().await?;
        self.classes.ready().await?;
        self.tenants.ready().await?;
        self.maps.ready().await?;
        self.networks.ready().await
    }

    /// Waits until any of it changes.
    pub(super) async fn changed(&mut self) -> Result<()> {
        tokio::select! {
            changed = self.namespaces.changed() => changed,
            changed = self.bindings.changed() => changed,
            changed = self.requests.changed() => changed,
            changed = self.offers.changed() => changed,
            changed = self.nodes.changed() => changed,
            changed = self.classes.changed() => changed,
            changed = self.tenants.changed() => changed,
            changed = self.networks.configs.changed() => changed,
            changed = self.networks.tunnels.changed() => changed,
            changed = self.maps.changed() => changed,
        }
    }
}

/// Whether the watch has seen an object that was created.
pub(super) fn has_new<K: Kind>(watched: &Watched<K>, created: &K) -> Check {
    let (watched, namespace, name) = (watched.clone(), created.namespace(), created.name_any());
    Box::new(move || watched.get(namespace.as_deref(), &name).is_some())
}

/// Whether the watch has this version of an object that it knew, or a later one, or has seen it go.
pub(super) fn has<K: Kind>(watched: &Watched<K>, changed: &K) -> Check {
    let (watched, namespace, name) = (watched.clone(), changed.namespace(), changed.name_any());
    let version = number(changed);
    Box::new(move || {
        watched.get(namespace.as_deref(), &name).is_none_or(|object| number(object.as_ref()) >= version)
    })
}

/// Whether the watch knows that the object is going or gone.
pub(super) fn lacks<K: Kind>(watched: &Watched<K>, namespace: Option<&str>, name: &str) -> Check {
    let (watched, namespace, name) = (watched.clone(), namespace.map(str::to_owned), name.to_owned());
    Box::new(move || {
        watched
            .get(namespace.as_deref(), &name)
            .is_none_or(|object| object.meta().deletion_timestamp.is_some())
    })
}

/// Versions are numbers that grow, which Kubernetes has come to promise.
fn number<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
