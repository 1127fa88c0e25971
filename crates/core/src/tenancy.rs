//! What a consumer has on its provider: from a Tenant and the map that its cluster sent to namespaces and what is in them.
//!
//! # Flow
//! An accepted incoming peering gets a Tenant, which is held before anything is made for it. Each entry of the
//! replicated `NamespaceMap` becomes a namespace, stamped with the Tenant, and furnished: fences first, rights last.
//! Then the map's status says so, and the Tenant's shows all. Back: the Tenant is deleted, then its namespaces, then what
//! lets the peer see it, then the Tenant itself is let go.
//!
//! # Guarantees
//! - Nothing is remembered: performing any part of a plan and planning again comes to the same end. At rest it is empty.
//! - What was not made for this Tenant is never changed, adopted or deleted, whatever the map says.
//! - There are never more namespaces than the quota says, except those that were there when it was lowered. Who has one
//!   keeps it; of those that wait, the first by name comes next, after a restart as well.
//! - A namespace counts as accepted only with everything in it that belongs there.
//!
//! # Assumptions
//! - One Tenant is decided at a time, from a snapshot that has seen all that was written for it before.
//! - The map is the copy of the peer whose Tenant this is: an admission policy sees to its origin.

pub mod account;
mod delegation;
mod furniture;
mod isolation;
mod life;
mod mapping;
mod plan;
mod pod;
mod refusal;
mod report;
mod terms;

use std::collections::BTreeMap;

use ferro_api::common::{ClusterIdentity, ResourceQuota};
use ferro_api::config::TenancyConfig;
use ferro_api::tenancy::{Tenant, TenantDelegation};
use ferro_api::virtualkubelet::NamespaceMap;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::Subject;
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;

pub use crate::peering::Notice;
pub use delegation::MOST as MOST_DELEGATIONS;
pub use furniture::{Item, Kind, NAME};
pub use isolation::views;
pub use life::{Wish, wish};
pub use plan::plan;
pub use pod::confine;
pub use terms::{Terms, counted};

/// Everything that is known about one Tenant.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The identifier of this cluster.
    pub us: &'a str,
    /// The namespace of the installation.
    pub installation: &'a str,
    /// The consumer. Its identifier is the name of the Tenant.
    pub consumer: &'a ClusterIdentity,
    /// What is to become of the Tenant.
    pub wish: Wish,
    /// Whether a person has said that nothing is to be waited for.
    pub forced: bool,
    /// The Tenant.
    pub tenant: Option<&'a Tenant>,
    /// What holds where the Tenant says nothing.
    pub config: &'a TenancyConfig,
    /// What the consumer is offered.
    pub offered: Option<&'a ResourceQuota>,
    /// The namespace through which the two clusters talk, where the consumer says whom it lets in.
    pub control: Option<&'a str>,
    /// The namespaces that the consumer asks for.
    pub map: Map<'a>,
    /// All namespaces of this cluster, by their names.
    pub namespaces: &'a dyn Namespaces,
    /// What carries the mark of this Tenant, in its namespaces and beside them.
    pub furniture: &'a [(Kind, &'a DynamicObject)],
    /// What the consumer is in this cluster; nothing while it is not let in.
    pub identity: &'a [Subject],
    /// Whom the consumer lets in.
    pub delegations: &'a [&'a TenantDelegation],
    /// The networks of the consumer, under the names that they have here.
    pub views: &'a [IpNet],
    /// Whether somebody else joins the networks, so that nobody here knows those of the consumer.
    pub is_joined_elsewhere: bool,
    /// The networks of this cluster.
    pub own: &'a [IpNet],
    /// What went wrong with a namespace, by its name. Nothing more is tried there in this plan.
    pub troubles: &'a BTreeMap<String, String>,
    /// The time.
    pub now: Timestamp,
}

/// The copy of the consumer's `NamespaceMap`.
#[derive(Clone, Copy, Debug)]
pub enum Map<'a> {
    /// There is none: nothing is asked for.
    Absent,
    /// It counts.
    Present(&'a NamespaceMap),
    /// There is one which is not what a peer may write. Nothing is made or removed because of it.
    Unusable,
}

/// The namespaces of this cluster.
pub trait Namespaces: std::fmt::Debug {
    /// The namespace of that name.
    fn get(&self, name: &str) -> Option<&Namespace>;
    /// Those that carry the mark of this Tenant, in the order of their names.
    fn of_tenant(&self) -> Vec<&Namespace>;
}

/// What to do about a Tenant now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is made and removed. Writes for one namespace are in order; different namespaces do not depend on each other.
    pub writes: Vec<Write>,
    /// What is shown of it as it is now, whether or not `writes` is empty.
    pub shown: Vec<Write>,
    /// What is worth an Event on the Tenant.
    pub notices: Vec<Notice>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create the Tenant, held by the finalizer `finalizers::TENANT`.
    CreateTenant(Box<Tenant>),
    /// Put that finalizer on it.
    HoldTenant,
    /// Delete it.
    DeleteTenant,
    /// Take the finalizer off it.
    ReleaseTenant,

    /// Create a namespace.
    CreateNamespace(Box<Namespace>),
    /// Apply a merge patch to the namespace of that name.
    StampNamespace(String, Value),
    /// Delete the namespace of that name.
    DeleteNamespace(String),
    /// Create something, or replace what is there of the same kind and name and ours.
    Put(Box<Item>),
    /// Delete something: its kind, its namespace, its name.
    Remove(Kind, Option<String>, String),

    /// Apply a merge patch to the status of the map.
    ShowMap(Value),
    /// Apply a merge patch to the status of the Tenant.
    ShowTenant(Value),
    /// Apply a merge patch to the status of the delegation of that name.
    ShowDelegation(String, Value),
}

impl Write {
    /// The namespace that it is about: what goes wrong with it concerns only this one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::CreateNamespace(namespace) => namespace.metadata.name.as_deref(),
            Self::StampNamespace(name, _) | Self::DeleteNamespace(name) => Some(name),
            Self::Put(item) => item.object.metadata.namespace.as_deref(),
            Self::Remove(_, namespace, _) => namespace.as_deref(),
            Self::CreateTenant(_)
            | Self::HoldTenant
            | Self::DeleteTenant
            | Self::ReleaseTenant
            | Self::ShowMap(_)
            | Self::ShowTenant(_)
            | Self::ShowDelegation(..) => None,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
