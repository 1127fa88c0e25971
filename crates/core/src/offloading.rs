//! Which namespaces other clusters are asked for: from offloadings, virtual nodes and what peers answer to the wanted writes.
//!
//! # Flow
//! A `NamespaceOffloading`, or the label `liqo.io/enabled`, extends a namespace over the clusters that its selector
//! matches: the object is held by a finalizer, the Namespace is marked for the webhook, and each of those clusters gets an
//! entry in its `NamespaceMap`, which is copied there. What comes back in the status of the map is shown in the status of
//! the offloading. Back: that it goes is shown, by which the agent of the node deletes its pods ([`standing`]); when these
//! are gone the entries go, then what there is over there, then the conditions, then the finalizer.
//!
//! # Guarantees
//! - [`Index`] is told what changed and looks at nothing else: one namespace more among a hundred costs what it costs
//!   among none. A plan has one patch for each map that changes, with only the entries that change.
//! - Nothing is remembered that is not in the API: an index that is filled anew comes to the same plan. Performing any
//!   part of a plan, and planning again, comes to the same end. At rest the plan is empty.
//! - What a person made is never overwritten or deleted by the label.
//! - The entry of a namespace that is dropped stays while its pods are there, or nobody knows ([`Occupants`]), unless force,
//!   a peer that is lost, or the end of the peering releases it. An offloading that lost its finalizer is held again first.
//! - An offloading that goes waits for other clusters, unless its own force, or the end of the peering, releases it. The
//!   end of a peering waits for the map instead.
//!
//! # Assumptions
//! - The index is filled with everything there is before the first plan.
//! - A map is made when its first entry is wanted, and goes with the peering: until something is offloaded, a peering
//!   costs no write.

mod cluster;
mod index;
mod judgement;
mod maps;
mod name;
mod occupants;
mod plan;
mod refusal;
mod report;
mod standing;
mod wish;

use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::NamespaceMap;
use serde_json::Value;

pub use crate::peering::Notice;
pub use cluster::map_is_for;
pub use index::Index;
pub use name::{NameError, remote_name};
pub use occupants::Occupants;
pub use refusal::REFUSED;
pub use standing::{Standing, standing};
pub use wish::{Wish, wish};

/// The one name that a `NamespaceOffloading` can have.
pub const OFFLOADING: &str = "offloading";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Put the finalizer `finalizers::OFFLOADING` on the offloading of this namespace.
    Hold(String),
    /// Create the offloading that the label on its namespace asks for.
    Create(Box<NamespaceOffloading>),
    /// Delete the offloading of this namespace, which the label had made.
    Delete(String),
    /// Put the label `labels::OFFLOADED` on this Namespace, and say so on its offloading.
    Admit(String, Option<Notice>),
    /// Take it off.
    Dismiss(String),
    /// Apply a strategic merge patch to the status of this Namespace: why its label makes no offloading, or that this
    /// does not hold any more.
    Refuse(String, Value, Option<Notice>),

    /// Create a map.
    CreateMap(Box<NamespaceMap>),
    /// Apply a merge patch to the map for this cluster.
    PatchMap(String, Value),
    /// Delete it.
    DeleteMap(String),
    /// Take the finalizer `finalizers::NAMESPACE_MAP` off it.
    LetGoMap(String),
    /// Take the replicator's finalizer off it: nobody can remove its copy.
    AbandonMap(String),

    /// Apply a merge patch to the status of the offloading of this namespace, and tell what is new.
    Show(String, Value, Option<Notice>),
    /// Take the finalizer off the offloading of this namespace.
    LetGo(String),
}

/// What a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A namespace.
    Namespace(&'a str),
    /// A cluster, by its identifier.
    Cluster(&'a str),
}

/// Writes of one stage may be done in any order, and at the same time; those of the next come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Offloadings and Namespaces.
    Here,
    /// Maps.
    There,
    /// What people are shown.
    Shown,
    /// Offloadings that go.
    Released,
}

impl Write {
    /// What the write is about.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Hold(namespace)
            | Self::Delete(namespace)
            | Self::Admit(namespace, _)
            | Self::Dismiss(namespace)
            | Self::Refuse(namespace, _, _)
            | Self::Show(namespace, _, _)
            | Self::LetGo(namespace) => Subject::Namespace(namespace),
            Self::Create(offloading) => {
                Subject::Namespace(offloading.metadata.namespace.as_deref().unwrap_or_default())
            }
            Self::CreateMap(map) => Subject::Cluster(cluster::remote_id(map)),
            Self::PatchMap(cluster, _)
            | Self::DeleteMap(cluster)
            | Self::LetGoMap(cluster)
            | Self::AbandonMap(cluster) => Subject::Cluster(cluster),
        }
    }

    /// The entries that it takes from a map one by one: cluster and namespace.
    pub fn dropped(&self) -> Vec<(&str, &str)> {
        let Self::PatchMap(cluster, patch) = self else { return Vec::new() };
        let entries = patch.pointer("/spec/desiredMapping").and_then(Value::as_object);
        let dropped = entries.into_iter().flatten().filter(|(_, name)| name.is_null());
        dropped.map(|(namespace, _)| (cluster.as_str(), namespace.as_str())).collect()
    }

    /// When it is to be done.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Hold(_)
            | Self::Create(_)
            | Self::Delete(_)
            | Self::Admit(..)
            | Self::Dismiss(_)
            | Self::Refuse(..) => Stage::Here,
            Self::CreateMap(_)
            | Self::PatchMap(..)
            | Self::DeleteMap(_)
            | Self::LetGoMap(_)
            | Self::AbandonMap(_) => Stage::There,
            Self::Show(..) => Stage::Shown,
            Self::LetGo(_) => Stage::Released,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
