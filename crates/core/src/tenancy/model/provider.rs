//! A provider that takes writes as an API server does.

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::common::{ClusterIdentity, ResourceQuota};
use ferro_api::config::TenancyConfig;
use ferro_api::names::{annotations, finalizers, labels};
use ferro_api::tenancy::{Tenant, TenantDelegation};
use ferro_api::virtualkubelet::{NamespaceMap, NamespaceMapStatus};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::Subject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::replication::apply;
use crate::resources::tests::quantities;
use crate::tenancy::{Item, Kind, Map, Namespaces, Plan, Snapshot, Wish, Write, plan};

pub(in crate::tenancy) const CONSUMER: &str = "34750f98-bd59-8cfc-946d-a45aaabe933b";
const US: &str = "d14e610e-4c1b-402c-a5f1-5ef6f39c0490";
const INSTALLATION: &str = "ferro-home";
pub(in crate::tenancy) const CONTROL: &str = "liqo-tenant-rome";

#[derive(Debug)]
pub(in crate::tenancy) struct Provider {
    pub(in crate::tenancy) tenant: Option<Tenant>,
    pub(in crate::tenancy) config: TenancyConfig,
    pub(in crate::tenancy) offered: Option<ResourceQuota>,
    pub(in crate::tenancy) wish: Wish,
    pub(in crate::tenancy) forced: bool,
    pub(in crate::tenancy) is_spoilt: bool,
    pub(in crate::tenancy) map: Option<NamespaceMap>,
    pub(in crate::tenancy) delegations: Vec<TenantDelegation>,
    pub(in crate::tenancy) identity: Vec<Subject>,
    pub(in crate::tenancy) troubles: BTreeMap<String, String>,
    pub(in crate::tenancy) furniture: BTreeMap<(Kind, Option<String>, String), DynamicObject>,
    /// What somebody else has made here, by name.
    pub(in crate::tenancy) foreign: BTreeMap<String, Namespace>,
    pub(in crate::tenancy) squatted: BTreeSet<String>,
    pub(in crate::tenancy) writes: Vec<Write>,
    namespaces: BTreeMap<String, Namespace>,
    versions: u64,
}

/// A namespace that nobody of ours has made.
fn namespace(name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

impl Namespaces for Provider {
    fn get(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(name).or_else(|| self.foreign.get(name))
    }

    fn of_tenant(&self) -> Vec<&Namespace> {
        self.namespaces.values().collect()
    }
}

impl Provider {
    pub(in crate::tenancy) fn new() -> Self {
        let subject = |kind: &str, name: &str| Subject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..Subject::default()
        };
        let mut provider = Self {
            tenant: None,
            config: TenancyConfig::default(),
            offered: Some(ResourceQuota { hard: quantities([("cpu", "4"), ("memory", "8Gi")]) }),
            wish: Wish::Use,
            forced: false,
            is_spoilt: false,
            map: None,
            delegations: Vec::new(),
            identity: vec![subject("User", &format!("{CONSUMER}:0"))],
            troubles: BTreeMap::new(),
            furniture: BTreeMap::new(),
            foreign: BTreeMap::new(),
            squatted: BTreeSet::new(),
            writes: Vec::new(),
            namespaces: BTreeMap::new(),
            versions: 0,
        };
        for name in ["default", "kube-system", "liqo-tenant-x", INSTALLATION] {
            provider.squat(name);
        }
        provider
    }

    pub(in crate::tenancy) fn plan(&self) -> Plan {
        self.look(plan)
    }

    /// What somebody makes of it as it is now.
    pub(in crate::tenancy) fn look<T>(&self, with: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        let furniture: Vec<(Kind, &DynamicObject)> =
            self.furniture.iter().map(|((kind, _, _), object)| (*kind, object)).collect();
        let delegations: Vec<&TenantDelegation> = self.delegations.iter().collect();
        with(&Snapshot {
            us: US,
            installation: INSTALLATION,
            consumer: &ClusterIdentity {
                cluster_id: CONSUMER.to_owned(),
                cluster_name: Some("rome".to_owned()),
            },
            wish: self.wish,
            forced: self.forced,
            tenant: self.tenant.as_ref(),
            config: &self.config,
            offered: self.offered.as_ref(),
            control: Some(CONTROL),
            map: self.map(),
            namespaces: self,
            furniture: &furniture,
            identity: &self.identity,
            delegations: &delegations,
            views: &["10.60.0.0/16".parse().unwrap()],
            is_joined_elsewhere: false,
            own: &[],
            troubles: &self.troubles,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    pub(in crate::tenancy) fn map(&self) -> Map<'_> {
        match &self.map {
            None => Map::Absent,
            Some(_) if self.is_spoilt => Map::Unusable,
            Some(map) => Map::Present(map),
        }
    }

    /// One plan after the other, with what is shown after what is done, for at most so many writes.
    pub(in crate::tenancy) fn work(&mut self, most: usize) -> usize {
        let mut done = 0;
        for _ in 0..10 {
            let writes = self.plan().writes;
            done += self.perform(writes, most - done);
            if done == most {
                return done;
            }
            let shown = self.plan().shown;
            done += self.perform(shown, most - done);
            if done == most || self.plan() == Plan::default() {
                return done;
            }
        }
        done
    }

    fn perform(&mut self, writes: Vec<Write>, most: usize) -> usize {
        let writes: Vec<Write> = writes.into_iter().take(most).collect();
        let done = writes.len();
        for write in writes {
            self.write(write);
        }
        done
    }

    /// Works until there is nothing left to do, and what goes is gone.
    pub(in crate::tenancy) fn rest(&mut self) {
        for _ in 0..20 {
            self.work(usize::MAX);
            self.empty();
            if self.plan() == Plan::default() {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.plan());
    }

    pub(in crate::tenancy) fn ask(&mut self, desired: BTreeMap<String, String>) {
        let map = self.map.get_or_insert_with(|| {
            let mut map = NamespaceMap::default();
            map.metadata.name = Some(CONSUMER.to_owned());
            map
        });
        map.spec.desired_mapping = desired;
        *map.metadata.generation.get_or_insert(0) += 1;
    }

    pub(in crate::tenancy) fn map_status(&self) -> Option<NamespaceMapStatus> {
        let status = self.map.as_ref()?.status.clone()?;
        Some(NamespaceMapStatus { conditions: Vec::new(), ..status })
    }

    pub(in crate::tenancy) fn mine(&self) -> Vec<&str> {
        self.namespaces.keys().map(String::as_str).collect()
    }

    pub(in crate::tenancy) fn labels(&self, name: &str) -> BTreeMap<String, String> {
        self.namespaces[name].metadata.labels.clone().unwrap_or_default()
    }

    pub(in crate::tenancy) fn origin(&self, name: &str) -> Option<String> {
        let namespace = self.namespaces.get(name)?;
        annotations::ORIGIN_NAMESPACE.of(&namespace.metadata).map(str::to_owned)
    }

    pub(in crate::tenancy) fn furniture_in(&self, name: &str) -> usize {
        self.furniture.keys().filter(|(_, namespace, _)| namespace.as_deref() == Some(name)).count()
    }

    pub(in crate::tenancy) fn thing(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Option<&DynamicObject> {
        self.furniture.get(&(kind, Some(namespace.to_owned()), name.to_owned()))
    }

    pub(in crate::tenancy) fn squat(&mut self, name: &str) {
        if !self.namespaces.contains_key(name) && crate::names::is_dns_label(name) {
            self.foreign.insert(name.to_owned(), namespace(name));
            self.squatted.insert(name.to_owned());
        }
    }

    pub(in crate::tenancy) fn raze(&mut self, name: &str) {
        self.foreign.remove(name);
        self.squatted.remove(name);
        if let Some(namespace) = self.namespaces.get_mut(name) {
            namespace.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        }
    }

    pub(in crate::tenancy) fn loot(&mut self, index: usize) {
        if let Some(key) = self.furniture.keys().nth(index).cloned() {
            self.furniture.remove(&key);
        }
    }

    pub(in crate::tenancy) fn tamper(&mut self, index: usize) {
        if let Some(object) = self.furniture.values_mut().nth(index) {
            let data = object.data.as_object_mut().unwrap();
            data.values_mut().for_each(|value| *value = json!({"tampered": "with"}));
        }
    }

    /// What is on its way out is gone, with all that was in it.
    pub(in crate::tenancy) fn empty(&mut self) {
        self.namespaces.retain(|_, namespace| namespace.metadata.deletion_timestamp.is_none());
        let there: BTreeSet<String> = self.namespaces.keys().cloned().collect();
        let is_there = |name: &String| there.contains(name) || name == CONTROL;
        self.furniture.retain(|(_, within, _), _| within.as_ref().is_none_or(is_there));
    }

    fn write(&mut self, write: Write) {
        self.writes.push(write.clone());
        match write {
            Write::CreateTenant(tenant) => {
                assert!(self.tenant.is_none());
                self.tenant = Some(*tenant);
            }
            Write::HoldTenant => {
                let meta = &mut self.tenant.as_mut().unwrap().metadata;
                meta.finalizers.get_or_insert_default().push(finalizers::TENANT.to_owned());
            }
            Write::DeleteTenant => {
                let meta = &mut self.tenant.as_mut().unwrap().metadata;
                assert!(labels::PART_OF.is_on(meta), "it was not made by us");
                meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }
            Write::ReleaseTenant => self.release_tenant(),
            Write::CreateNamespace(namespace) => self.create_namespace(*namespace),
            Write::StampNamespace(name, patch) => patched(self.namespaces.get_mut(&name).unwrap(), &patch),
            Write::DeleteNamespace(name) => {
                let namespace = self.namespaces.get_mut(&name).expect("only what is ours is deleted");
                namespace.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }
            Write::Put(item) => self.put(*item),
            Write::Remove(kind, namespace, name) => {
                assert!(self.furniture.remove(&(kind, namespace, name)).is_some(), "only what is there");
            }
            Write::ShowMap(patch) => patched(self.map.as_mut().unwrap(), &patch),
            Write::ShowTenant(patch) => patched(self.tenant.as_mut().unwrap(), &patch),
            Write::ShowDelegation(name, patch) => {
                let is_it =
                    |delegation: &&mut TenantDelegation| delegation.metadata.name.as_ref() == Some(&name);
                patched(self.delegations.iter_mut().find(is_it).unwrap(), &patch);
            }
        }
    }

    fn release_tenant(&mut self) {
        let is_left =
            self.namespaces.values().any(|namespace| namespace.metadata.deletion_timestamp.is_none());
        assert!(!is_left && (self.forced || self.namespaces.is_empty()), "namespaces go first");
        let tenant = self.tenant.as_mut().unwrap();
        tenant.metadata.finalizers = None;
        if tenant.metadata.deletion_timestamp.is_some() {
            self.tenant = None;
        }
    }

    fn create_namespace(&mut self, namespace: Namespace) {
        let held = self.tenant.as_ref().is_some_and(|tenant| tenant.metadata.finalizers.is_some());
        assert!(held, "a namespace is made only for a Tenant that is held");
        assert_eq!(labels::TENANT.of(&namespace.metadata), Some(CONSUMER));
        let name = namespace.metadata.name.clone().unwrap();
        assert!(crate::names::is_dns_label(&name) && self.get(&name).is_none(), "{name} cannot be made");
        self.namespaces.insert(name, namespace);
    }

    /// As an API server takes it: into a namespace that is there, and in place of nothing but what was seen.
    fn put(&mut self, item: Item) {
        let meta = &item.object.metadata;
        assert!(labels::PART_OF.is_on(meta) && labels::TENANT.of(meta) == Some(CONSUMER));
        let is_there = |name: &String| self.namespaces.contains_key(name) || name == CONTROL;
        assert!(meta.namespace.as_ref().is_none_or(is_there), "into a namespace of the Tenant");
        let key = (item.kind, meta.namespace.clone(), meta.name.clone().unwrap());
        let present = self.furniture.get(&key).and_then(|present| present.metadata.resource_version.clone());
        assert_eq!(present, meta.resource_version, "in place of what was seen");
        self.versions += 1;
        let mut object = item.object;
        object.metadata.resource_version = Some(self.versions.to_string());
        self.furniture.insert(key, object);
    }
}

fn patched<K: serde::Serialize + serde::de::DeserializeOwned>(object: &mut K, patch: &Value) {
    let mut value = serde_json::to_value(&*object).unwrap();
    apply(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}
