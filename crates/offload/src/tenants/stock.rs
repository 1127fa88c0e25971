//! What there is of all Tenants, each kind watched once.

use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_api::tenancy::TenantDelegation;
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::tenancy::Kind;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};

use super::bells::Bells;
use super::shelf::Shelf;

/// What is watched.
#[derive(Clone)]
pub(super) struct Stock {
    /// All namespaces, since a name that a consumer asks for may be taken by anybody.
    pub(super) namespaces: Shelf<Namespace>,
    pub(super) maps: Shelf<NamespaceMap>,
    pub(super) delegations: Shelf<TenantDelegation>,
    furniture: Vec<(Kind, Shelf<DynamicObject>)>,
}

impl Stock {
    pub(super) fn start(tasks: &Tasks, home: &Home, bells: &Bells) -> Self {
        let ours = format!("{},{}", labels::PART_OF.selector(), labels::TENANT.key());
        let ours = watcher::Config::default().labels(&ours);
        let client = &home.client;
        let furniture = Kind::ALL.map(|kind| {
            let (resource, owner) = (kind.resource(), |object: &DynamicObject| tenant_of(&object.metadata));
            let api = Api::all_with(client.clone(), &resource);
            let watched = Watched::start_kind(tasks, "furniture", api, ours.clone(), resource);
            (kind, Shelf::start(tasks, watched, owner, bells.clone()))
        });
        let delegations: Watched<TenantDelegation> =
            Watched::start(tasks, "delegations", Api::all(client.clone()), watcher::Config::default());
        let sender =
            |delegation: &TenantDelegation| labels::ORIGIN_ID.of(&delegation.metadata).map(str::to_owned);
        let occupant = |namespace: &Namespace| tenant_of(&namespace.metadata);
        // A peer's map has its identifier as name.
        let author = |map: &NamespaceMap| Some(map.name_any());
        Self {
            namespaces: Shelf::start(tasks, home.namespaces.clone(), occupant, bells.clone()),
            maps: Shelf::start(tasks, home.maps.clone(), author, bells.clone()),
            delegations: Shelf::start(tasks, delegations, sender, bells.clone()),
            furniture: furniture.into(),
        }
    }

    pub(super) async fn ready(&self) -> Result<()> {
        self.namespaces.ready().await?;
        self.maps.ready().await?;
        self.delegations.ready().await?;
        for (_, shelf) in &self.furniture {
            shelf.ready().await?;
        }
        Ok(())
    }

    /// Whoever has a namespace or anything in it, with or without a Tenant.
    pub(super) fn tenants(&self) -> Vec<String> {
        let furniture = self.furniture.iter().flat_map(|(_, shelf)| shelf.tenants());
        self.namespaces.tenants().into_iter().chain(furniture).collect()
    }

    /// Everything of one kind.
    pub(super) fn shelf(&self, kind: Kind) -> Result<&Shelf<DynamicObject>> {
        let mut shelves = self.furniture.iter();
        shelves
            .find(|(known, _)| *known == kind)
            .map(|(_, shelf)| shelf)
            .context("a kind that is not watched")
    }

    /// Everything that carries the mark of one Tenant.
    pub(super) fn furniture(&self, tenant: &str) -> Vec<(Kind, Arc<DynamicObject>)> {
        let of_kind = |(kind, shelf): &(Kind, Shelf<DynamicObject>)| {
            let kind = *kind;
            shelf.of(tenant).into_iter().map(move |object| (kind, object)).collect::<Vec<_>>()
        };
        self.furniture.iter().flat_map(of_kind).collect()
    }
}

/// The Tenant that an object of ours is marked with.
fn tenant_of(meta: &ObjectMeta) -> Option<String> {
    labels::TENANT.of(meta).filter(|_| labels::PART_OF.is_on(meta)).map(str::to_owned)
}
