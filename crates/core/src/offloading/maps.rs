//! The life of a map: made with its first entries, patched by entry, emptied and removed when the peering ends.

use std::collections::BTreeMap;

use ferro_api::names::{finalizers, labels};
use ferro_api::virtualkubelet::{NamespaceMap, NamespaceMapSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::Write;
use super::cluster::{Cluster, is_going, is_held};
use super::index::Index;
use super::wish::Wish;
use crate::replication::mark;

/// Entries that are to be set or, without a name, to be removed.
pub(super) type Entries = BTreeMap<String, Option<String>>;

impl Index {
    pub(super) fn plan_map(&self, id: &str, entries: Entries) -> Option<Write> {
        let cluster = self.clusters.get(id)?;
        match (cluster.map(), cluster.wish()) {
            (None, Wish::Map) => self.create(id, cluster, entries),
            (None, Wish::Keep | Wish::Part) => None,
            // Whatever is wanted then is put into a new one.
            (Some(map), _) if is_going(&map.metadata) => let_go(id, map, cluster.is_lost()),
            (Some(map), Wish::Part) => end(id, map, cluster.is_lost()),
            (Some(_), Wish::Map | Wish::Keep) if entries.is_empty() => None,
            (Some(_), Wish::Map | Wish::Keep) => {
                Some(Write::PatchMap(id.to_owned(), json!({"spec": {"desiredMapping": entries}})))
            }
        }
    }

    /// A map for a cluster, as other objects for a peer are named and marked.
    fn create(&self, id: &str, cluster: &Cluster, entries: Entries) -> Option<Write> {
        let namespace = cluster.peer()?.tenant.clone()?;
        let entries = entries.into_iter().filter_map(|(namespace, name)| Some((namespace, name?)));
        let desired_mapping: BTreeMap<String, String> = entries.collect();
        if desired_mapping.is_empty() {
            return None;
        }
        let mut metadata = ObjectMeta {
            name: Some(self.own.clone()),
            namespace: Some(namespace),
            finalizers: Some(vec![finalizers::NAMESPACE_MAP.to_owned()]),
            ..ObjectMeta::default()
        };
        mark(&mut metadata, id);
        labels::PART_OF.put_on(&mut metadata);
        let map = NamespaceMap { metadata, spec: NamespaceMapSpec { desired_mapping }, status: None };
        Some(Write::CreateMap(Box::new(map)))
    }
}

/// The entries first, then what they stand for, which the peer removes, then the map. Of a peer that is lost nothing can
/// be waited for.
fn end(id: &str, map: &NamespaceMap, lost: bool) -> Option<Write> {
    let id = id.to_owned();
    let is_cleared = map.status.as_ref().is_none_or(|status| status.current_mapping.is_empty());
    if lost || (map.spec.desired_mapping.is_empty() && is_cleared) {
        Some(Write::DeleteMap(id))
    } else if map.spec.desired_mapping.is_empty() {
        None
    } else {
        Some(Write::PatchMap(id, json!({"spec": {"desiredMapping": null}})))
    }
}

/// A map that goes stays until its copy is gone, and with it the namespaces.
fn let_go(id: &str, map: &NamespaceMap, lost: bool) -> Option<Write> {
    let (held, copied) =
        (is_held(&map.metadata, finalizers::NAMESPACE_MAP), is_held(&map.metadata, finalizers::REPLICATION));
    match (held, copied) {
        (_, true) if lost => Some(Write::AbandonMap(id.to_owned())),
        (true, false) => Some(Write::LetGoMap(id.to_owned())),
        (_, true) | (false, false) => None,
    }
}
