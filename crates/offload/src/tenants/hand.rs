//! The one place that writes for Tenants. Different namespaces are written side by side, each in its own order.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use anyhow::{Context, Result, bail};
use ferro_api::names::{finalizers, labels};
use ferro_api::tenancy::{Tenant, TenantDelegation};
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::tenancy::{Item, Kind, Notice, Write};
use ferro_peering::home::Home;
use ferro_runtime::events::Teller;
use ferro_runtime::finalizer::without;
use ferro_runtime::watch::Watched;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tracing::debug;

use super::shelf::Shelf;
use super::stock::Stock;
use super::view::View;

const MANAGER: &str = "ferro-tenancy";
/// So many namespaces of a Tenant are written at a time.
const SIDE_BY_SIDE: usize = 8;

/// Whether a watch has seen what was written.
pub(super) type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// What came of some writes.
#[derive(Default)]
pub(super) struct Outcome {
    /// What the watches have yet to see.
    pub(super) unseen: Vec<Check>,
    /// What went wrong, by the namespace that it concerns.
    pub(super) troubles: BTreeMap<String, String>,
    /// What went wrong beside the namespaces.
    pub(super) fault: Option<anyhow::Error>,
    /// Whether somebody else was faster.
    pub(super) is_overtaken: bool,
}

/// One write.
enum Done {
    /// It is so, and this tells when the watches know.
    Seen(Check),
    /// Somebody else was faster: what is next is decided anew.
    Overtaken,
}

/// Writes.
pub(super) struct Hand {
    client: Client,
    stock: Stock,
    tenants: Watched<Tenant>,
    teller: Teller,
}

impl Hand {
    pub(super) fn new(home: &Home, stock: Stock) -> Self {
        let teller = Teller::new(home.client.clone(), MANAGER, "Reconcile");
        Self { client: home.client.clone(), stock, tenants: home.tenants.clone(), teller }
    }

    /// Performs writes: first what is beside the namespaces, in order, then each namespace by itself.
    pub(super) async fn perform(&self, view: &View, writes: Vec<Write>) -> Outcome {
        let mut beside = Vec::new();
        let mut within: BTreeMap<String, Vec<Write>> = BTreeMap::new();
        for write in writes {
            match write.namespace() {
                Some(namespace) => within.entry(namespace.to_owned()).or_default().push(write),
                None => beside.push(write),
            }
        }
        let mut outcome = Outcome::default();
        outcome.fault = self.perform_in_order(view, beside, &mut outcome).await;
        let rooms = within.into_iter().map(async |(name, writes)| {
            let mut outcome = Outcome::default();
            let fault = self.perform_in_order(view, writes, &mut outcome).await;
            outcome.troubles.extend(fault.map(|fault| (name, format!("{fault:#}"))));
            outcome
        });
        let mut rooms = std::pin::pin!(futures::stream::iter(rooms).buffer_unordered(SIDE_BY_SIDE));
        while let Some(room) = rooms.next().await {
            outcome.unseen.extend(room.unseen);
            outcome.troubles.extend(room.troubles);
            outcome.is_overtaken |= room.is_overtaken;
        }
        outcome
    }

    /// One after the other, until something goes wrong or has to be decided anew.
    async fn perform_in_order(
        &self,
        view: &View,
        writes: Vec<Write>,
        outcome: &mut Outcome,
    ) -> Option<anyhow::Error> {
        for write in writes {
            match self.write(view, write).await {
                Ok(Done::Seen(check)) => outcome.unseen.push(check),
                Ok(Done::Overtaken) => {
                    outcome.is_overtaken = true;
                    return None;
                }
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Writes what is shown.
    pub(super) async fn show(&self, view: &View, write: Write) -> Result<Option<Check>> {
        match self.write(view, write).await? {
            Done::Seen(check) => Ok(Some(check)),
            Done::Overtaken => Ok(None),
        }
    }

    /// An Event on the Tenant; one that cannot be written is not worth stopping for.
    pub(super) async fn tell(&self, view: &View, notice: &Notice) {
        let Some(tenant) = &view.tenant else { return };
        self.teller.tell(&tenant.object_ref(&()), notice.warning, &notice.reason, &notice.note).await;
    }

    async fn write(&self, view: &View, write: Write) -> Result<Done> {
        debug!(tenant = view.facts.consumer.cluster_id, write = word(&write), "writes");
        match write {
            Write::CreateTenant(tenant) => self.create_tenant(*tenant).await,
            Write::HoldTenant => {
                self.patch_tenant(view, |tenant| Ok(Patch::Merge(held(&tenant.metadata)))).await
            }
            Write::ReleaseTenant => {
                self.patch_tenant(view, |tenant| without(&tenant.metadata, finalizers::TENANT)).await
            }
            Write::DeleteTenant => self.delete_tenant(view).await,
            Write::CreateNamespace(namespace) => self.create_namespace(*namespace).await,
            Write::StampNamespace(name, patch) => self.stamp_namespace(&name, patch).await,
            Write::DeleteNamespace(name) => self.delete_namespace(&name).await,
            Write::Put(item) => self.put(*item).await,
            Write::Remove(kind, namespace, name) => self.remove(kind, namespace.as_deref(), &name).await,
            Write::ShowMap(patch) => self.show_map(view, patch).await,
            Write::ShowTenant(patch) => self.show_tenant(view, patch).await,
            Write::ShowDelegation(name, patch) => self.show_delegation(view, &name, patch).await,
        }
    }

    // ---- the Tenant ----

    fn tenants(&self) -> Api<Tenant> {
        Api::all(self.client.clone())
    }

    async fn create_tenant(&self, tenant: Tenant) -> Result<Done> {
        let name = tenant.name_any();
        let created = self.tenants().create(&creating(), &tenant).await;
        match overtaken(created).with_context(|| format!("cannot create the Tenant {name}"))? {
            Some(created) => Ok(Done::Seen(self.tenant_is(&created))),
            None => Ok(Done::Overtaken),
        }
    }

    async fn patch_tenant(
        &self,
        view: &View,
        patch: impl Fn(&Tenant) -> Result<Patch<Value>>,
    ) -> Result<Done> {
        let Some(tenant) = &view.tenant else { return Ok(Done::Overtaken) };
        let name = tenant.name_any();
        let patched = self.tenants().patch(&name, &patching(), &patch(tenant)?).await;
        match overtaken(patched).with_context(|| format!("cannot change the Tenant {name}"))? {
            Some(patched) => Ok(Done::Seen(self.tenant_is(&patched))),
            None => Ok(Done::Overtaken),
        }
    }

    async fn delete_tenant(&self, view: &View) -> Result<Done> {
        let Some(tenant) = &view.tenant else { return Ok(Done::Overtaken) };
        let name = tenant.name_any();
        let deleted = self.tenants().delete(&name, &only(&tenant.metadata)).await;
        overtaken(deleted).with_context(|| format!("cannot delete the Tenant {name}"))?;
        let tenants = self.tenants.clone();
        Ok(Done::Seen(Box::new(move || {
            tenants.get(None, &name).is_none_or(|tenant| tenant.metadata.deletion_timestamp.is_some())
        })))
    }

    async fn show_tenant(&self, view: &View, patch: Value) -> Result<Done> {
        let Some(tenant) = &view.tenant else { return Ok(Done::Overtaken) };
        let name = tenant.name_any();
        let shown = self.tenants().patch_status(&name, &patching(), &Patch::Merge(patch)).await;
        match overtaken(shown).with_context(|| format!("cannot write the status of the Tenant {name}"))? {
            Some(shown) => Ok(Done::Seen(self.tenant_is(&shown))),
            None => Ok(Done::Overtaken),
        }
    }

    fn tenant_is(&self, written: &Tenant) -> Check {
        let (tenants, name, version) = (self.tenants.clone(), written.name_any(), number(written));
        let is_new = tenants.get(None, &name).is_none();
        Box::new(move || match tenants.get(None, &name) {
            Some(tenant) => number(tenant.as_ref()) >= version,
            None => !is_new,
        })
    }

    // ---- namespaces ----

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    async fn create_namespace(&self, namespace: Namespace) -> Result<Done> {
        let name = namespace.name_any();
        let created = self.namespaces().create(&creating(), &namespace).await;
        match overtaken(created).with_context(|| format!("cannot create the namespace {name}"))? {
            Some(created) => Ok(Done::Seen(has(&self.stock.namespaces, &created))),
            // Somebody else has one of that name: it is left alone as soon as the watch knows of it.
            None => Ok(Done::Overtaken),
        }
    }

    async fn stamp_namespace(&self, name: &str, patch: Value) -> Result<Done> {
        let stamped = self.namespaces().patch(name, &patching(), &Patch::Merge(patch)).await;
        match overtaken(stamped).with_context(|| format!("cannot change the namespace {name}"))? {
            Some(stamped) => Ok(Done::Seen(has(&self.stock.namespaces, &stamped))),
            None => Ok(Done::Overtaken),
        }
    }

    /// This one, and no later one of the same name, whosever that is.
    async fn delete_namespace(&self, name: &str) -> Result<Done> {
        let Some(namespace) = self.stock.namespaces.get(None, name) else { return Ok(Done::Overtaken) };
        let deleted = self.namespaces().delete(name, &only(&namespace.metadata)).await;
        overtaken(deleted).with_context(|| format!("cannot delete the namespace {name}"))?;
        let (namespaces, name) = (self.stock.namespaces.clone(), name.to_owned());
        Ok(Done::Seen(Box::new(move || {
            let there = namespaces.get(None, &name);
            there.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some())
        })))
    }

    // ---- what is in them ----

    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }

    async fn put(&self, item: Item) -> Result<Done> {
        let (kind, object) = (item.kind, item.object);
        let (namespace, name, filed) = (object.namespace(), object.name_any(), self.stock.shelf(kind)?);
        let api = self.api(kind, namespace.as_deref());
        let written = match object.metadata.resource_version {
            Some(_) => api.replace(&name, &creating(), &object).await,
            None => api.create(&creating(), &object).await,
        };
        let what = || described(kind, namespace.as_deref(), &name);
        match overtaken(written).with_context(|| format!("cannot write {}", what()))? {
            Some(written) => Ok(Done::Seen(has(filed, &written))),
            None if object.metadata.resource_version.is_some() => Ok(Done::Overtaken),
            None => self.who_has(&api, &name).await.with_context(what),
        }
    }

    /// What could not be created is there already: ours, which the watch will see, or somebody else's.
    async fn who_has(&self, api: &Api<DynamicObject>, name: &str) -> Result<Done> {
        let present = api.get_metadata_opt(name).await.context("cannot be read")?;
        let is_ours = |meta: &ObjectMeta| labels::PART_OF.is_on(meta);
        match present {
            Some(present) if !is_ours(&present.metadata) => {
                bail!("was not made for the Tenant; delete it, and it is made anew")
            }
            Some(_) | None => Ok(Done::Overtaken),
        }
    }

    async fn remove(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Done> {
        let filed = self.stock.shelf(kind)?.clone();
        let Some(object) = filed.get(namespace, name) else { return Ok(Done::Overtaken) };
        let deleted = self.api(kind, namespace).delete(name, &only(&object.metadata)).await;
        overtaken(deleted).with_context(|| format!("cannot delete {}", described(kind, namespace, name)))?;
        let (namespace, name) = (namespace.map(str::to_owned), name.to_owned());
        Ok(Done::Seen(Box::new(move || filed.get(namespace.as_deref(), &name).is_none())))
    }

    // ---- what the consumer reads ----

    async fn show_map(&self, view: &View, patch: Value) -> Result<Done> {
        let Some(map) = view.map() else { return Ok(Done::Overtaken) };
        let api: Api<NamespaceMap> =
            Api::namespaced(self.client.clone(), &map.namespace().unwrap_or_default());
        let shown = api.patch_status(&map.name_any(), &patching(), &Patch::Merge(patch)).await;
        match overtaken(shown).context("cannot write the status of the NamespaceMap")? {
            Some(shown) => Ok(Done::Seen(has(&self.stock.maps, &shown))),
            None => Ok(Done::Overtaken),
        }
    }

    async fn show_delegation(&self, view: &View, name: &str, patch: Value) -> Result<Done> {
        let Some(delegation) = view.delegation(name) else { return Ok(Done::Overtaken) };
        let namespace = delegation.namespace().unwrap_or_default();
        let api: Api<TenantDelegation> = Api::namespaced(self.client.clone(), &namespace);
        let shown = api.patch_status(name, &patching(), &Patch::Merge(patch)).await;
        match overtaken(shown).context("cannot write the status of the TenantDelegation")? {
            Some(shown) => Ok(Done::Seen(has(&self.stock.delegations, &shown))),
            None => Ok(Done::Overtaken),
        }
    }
}

/// Whether the watch has this version of an object, or a later one, or has seen it go.
fn has<K>(shelf: &Shelf<K>, written: &K) -> Check
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    let (shelf, namespace, name) = (shelf.clone(), written.namespace(), written.name_any());
    let (version, is_new) = (number(written), shelf.get(namespace.as_deref(), &name).is_none());
    Box::new(move || match shelf.get(namespace.as_deref(), &name) {
        Some(present) => number(present.as_ref()) >= version,
        None => !is_new,
    })
}

/// Versions are numbers that grow, which Kubernetes has come to promise.
fn number<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// What is gone, or there already, or different from what was seen, is decided anew.
fn overtaken<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(None),
        other => other.map(Some),
    }
}

fn creating() -> PostParams {
    PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }
}

fn patching() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// Deletes this object, and no later one of the same name.
fn only(meta: &ObjectMeta) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: meta.uid.clone(), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// One finalizer more, for this version of the object: finalizers are one list that several write.
fn held(meta: &ObjectMeta) -> Value {
    let others = meta.finalizers.iter().flatten().map(String::as_str);
    let finalizers: Vec<&str> = others.chain([finalizers::TENANT]).collect();
    json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}})
}

fn described(kind: Kind, namespace: Option<&str>, name: &str) -> String {
    let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("the {} {place}{name}", kind.resource().kind)
}

/// What a write is called in the log; its content may be long.
fn word(write: &Write) -> String {
    let text = format!("{write:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
