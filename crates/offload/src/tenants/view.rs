//! All about one Tenant at one moment, and the decision that follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferro_api::config::TenancyConfig;
use ferro_api::tenancy::{Tenant, TenantDelegation};
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::replication::inbound;
use ferro_core::tenancy::{Kind, Map, Namespaces, Plan, Snapshot, plan};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;

use super::Office;
use super::facts::Facts;

/// All about one Tenant at one moment.
pub(super) struct View {
    us: String,
    installation: String,
    pub(super) facts: Arc<Facts>,
    pub(super) tenant: Option<Arc<Tenant>>,
    map: Copied,
    delegations: Vec<Arc<TenantDelegation>>,
    furniture: Vec<(Kind, Arc<DynamicObject>)>,
    namespaces: Rooms,
    config: TenancyConfig,
}

/// The consumer's map, as it was found.
enum Copied {
    Absent,
    Present(Arc<NamespaceMap>),
    Unusable,
}

/// The namespaces that matter: those of the Tenant, and those whose names the consumer asks for.
#[derive(Debug)]
struct Rooms {
    own: Vec<Arc<Namespace>>,
    asked: BTreeMap<String, Arc<Namespace>>,
}

impl Namespaces for Rooms {
    fn get(&self, name: &str) -> Option<&Namespace> {
        self.asked.get(name).map(AsRef::as_ref)
    }

    fn of_tenant(&self) -> Vec<&Namespace> {
        self.own.iter().map(AsRef::as_ref).collect()
    }
}

impl View {
    /// What is known now; none when nothing is.
    pub(super) fn of(office: &Office, tenant: &str) -> Option<Self> {
        let (facts, stock) = (office.facts(tenant)?, &office.stock);
        let us = office.home.own().ok()?.signer.identity().id().to_string();
        let map = facts.control.as_deref().and_then(|control| stock.maps.get(Some(control), tenant));
        let map = match map {
            None => Copied::Absent,
            Some(map) if inbound(&us, tenant, 1, [map.as_ref()]).taken.is_empty() => Copied::Unusable,
            Some(map) => Copied::Present(map),
        };
        let names = match &map {
            Copied::Present(map) => map.spec.desired_mapping.values().cloned().collect(),
            Copied::Absent | Copied::Unusable => Vec::new(),
        };
        let found = |name: String| stock.namespaces.get(None, &name).map(|namespace| (name, namespace));
        let asked = names.into_iter().filter_map(found).collect();
        let in_control = |delegation: &Arc<TenantDelegation>| delegation.namespace() == facts.control;
        Some(Self {
            map,
            delegations: stock.delegations.of(tenant).into_iter().filter(in_control).collect(),
            furniture: stock.furniture(tenant),
            namespaces: Rooms { own: stock.namespaces.of(tenant), asked },
            tenant: office.home.tenants.get(None, tenant),
            installation: office.home.namespace.clone(),
            config: office.home.settings().tenancy(),
            facts,
            us,
        })
    }

    /// What to do about it.
    pub(super) fn plan(&self, troubles: &BTreeMap<String, String>) -> Plan {
        let furniture: Vec<_> =
            self.furniture.iter().map(|(kind, object)| (*kind, object.as_ref())).collect();
        let delegations: Vec<&TenantDelegation> = self.delegations.iter().map(AsRef::as_ref).collect();
        plan(&Snapshot {
            us: &self.us,
            installation: &self.installation,
            consumer: &self.facts.consumer,
            wish: self.facts.wish,
            forced: self.facts.forced,
            tenant: self.tenant.as_deref(),
            config: &self.config,
            offered: self.facts.offered.as_ref(),
            control: self.facts.control.as_deref(),
            map: match &self.map {
                Copied::Absent => Map::Absent,
                Copied::Present(map) => Map::Present(map),
                Copied::Unusable => Map::Unusable,
            },
            namespaces: &self.namespaces,
            furniture: &furniture,
            identity: &self.facts.identity,
            delegations: &delegations,
            views: &self.facts.views,
            is_joined_elsewhere: self.facts.is_joined_elsewhere,
            own: &self.facts.own,
            troubles,
            now: Timestamp::now(),
        })
    }

    /// The map that counts.
    pub(super) fn map(&self) -> Option<&NamespaceMap> {
        match &self.map {
            Copied::Present(map) => Some(map),
            Copied::Absent | Copied::Unusable => None,
        }
    }

    /// The delegation of that name.
    pub(super) fn delegation(&self, name: &str) -> Option<&TenantDelegation> {
        self.delegations.iter().map(AsRef::as_ref).find(|delegation| delegation.name_any() == name)
    }
}
