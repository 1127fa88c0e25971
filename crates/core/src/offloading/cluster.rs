//! One other cluster as the index knows it: who it is, the node that stands for it, and its map.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::virtualkubelet::{CurrentMapping, NamespaceMap};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::occupants::Occupants;
use super::wish::{self, Wish};
use crate::network::exchange::is_lost;

/// One other cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cluster {
    /// Those that claim to be it, the oldest first; that one counts.
    pub(super) peers: BTreeMap<(Option<Timestamp>, String), Peer>,
    /// The nodes that stand for it: one, unless somebody made up another.
    pub(super) nodes: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) map: Option<Arc<NamespaceMap>>,
    /// Who has pods there.
    pub(super) occupants: Occupants,
}

/// What its `ForeignCluster` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// How people call it.
    pub(super) name: String,
    /// The namespace that this cluster keeps for it.
    pub(super) tenant: Option<String>,
    pub(super) wish: Wish,
    /// Whether nobody can remove our objects there.
    pub(super) lost: bool,
    /// Whether it is not heard at the moment.
    pub(super) silent: bool,
}

impl Peer {
    pub(super) fn of(peer: &ForeignCluster) -> Self {
        let namespaces = peer.status.as_ref().and_then(|status| status.tenant_namespaces.as_ref());
        Self {
            name: peer.metadata.name.clone().unwrap_or_default(),
            tenant: namespaces.and_then(|namespaces| namespaces.local.clone()),
            wish: wish::wish(peer),
            lost: is_lost(peer),
            silent: wish::is_silent(peer),
        }
    }
}

impl Cluster {
    pub(super) fn peer(&self) -> Option<&Peer> {
        self.peers.values().next()
    }

    /// What people call it; its identifier if nobody knows it any more.
    pub(super) fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.peer().map_or(id, |peer| &peer.name)
    }

    /// Name and labels of the node that stands for it.
    pub(super) fn node(&self) -> Option<(&str, &BTreeMap<String, String>)> {
        self.nodes.first_key_value().map(|(name, labels)| (name.as_str(), labels))
    }

    /// The map, if it lies where it belongs. One whose peer is gone is to be cleared away, wherever it is.
    pub(super) fn map(&self) -> Option<&NamespaceMap> {
        let tenant = self.peer().map(|peer| &peer.tenant);
        self.map.as_deref().filter(|map| tenant.is_none_or(|tenant| *tenant == map.metadata.namespace))
    }

    /// What is to become of its namespaces.
    pub(super) fn wish(&self) -> Wish {
        self.peer().map_or(Wish::Part, |peer| peer.wish)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.peer().is_none_or(|peer| peer.lost)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.peer().is_some_and(|peer| peer.silent)
    }

    /// Whether nothing is known of it any more.
    pub(super) fn is_forgotten(&self) -> bool {
        self.peers.is_empty() && self.nodes.is_empty() && self.map.is_none()
    }

    /// The name that is asked for a namespace.
    pub(super) fn desired(&self, namespace: &str) -> Option<&str> {
        self.map()?.spec.desired_mapping.get(namespace).map(String::as_str)
    }

    /// What became of it.
    pub(super) fn current(&self, namespace: &str) -> Option<&CurrentMapping> {
        self.map()?.status.as_ref()?.current_mapping.get(namespace)
    }

    /// Whether there is, or may be, something of a namespace over there.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.desired(namespace).is_some() || self.current(namespace).is_some()
    }

    /// Whether there are, or may be, pods of a namespace that is asked for.
    pub(super) fn is_occupied(&self, namespace: &str) -> bool {
        self.desired(namespace).is_some() && self.occupants.has(namespace)
    }
}

/// For which cluster a map is, if it is one of ours: named and marked as our objects for peers are.
pub fn map_is_for<'a>(map: &'a NamespaceMap, own_cluster_id: &str) -> Option<&'a str> {
    let meta = &map.metadata;
    let is_ours = meta.name.as_deref() == Some(own_cluster_id)
        && labels::PART_OF.is_on(meta)
        && labels::REPLICATION.is_on(meta)
        && !labels::REPLICATED.is_on(meta);
    labels::REMOTE_ID.of(meta).filter(|_| is_ours)
}

/// For which cluster a node stands, as long as it stays.
pub(super) fn node_is_for(node: &Node) -> Option<&str> {
    let meta = &node.metadata;
    let stands = labels::TYPE_VIRTUAL_NODE.is_on(meta) && meta.deletion_timestamp.is_none();
    labels::REMOTE_ID.of(meta).filter(|_| stands)
}

/// Whether an object is being deleted.
pub(super) fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// Whether an object has a finalizer.
pub(super) fn is_held(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

/// The namespaces of which something is different in two versions of a map.
pub(super) fn differences(before: Option<&NamespaceMap>, after: Option<&NamespaceMap>) -> Vec<String> {
    let desired = changed_keys(before, after, |map| Some(&map.spec.desired_mapping));
    let current = changed_keys(before, after, |map| Some(&map.status.as_ref()?.current_mapping));
    [desired, current].concat()
}

fn changed_keys<'a, V: PartialEq + 'a>(
    before: Option<&'a NamespaceMap>,
    after: Option<&'a NamespaceMap>,
    of: impl Fn(&'a NamespaceMap) -> Option<&'a BTreeMap<String, V>>,
) -> Vec<String> {
    let (before, after) = (before.and_then(&of), after.and_then(&of));
    let differs =
        |name: &&String| before.and_then(|map| map.get(*name)) != after.and_then(|map| map.get(*name));
    let names = before.into_iter().chain(after).flat_map(BTreeMap::keys);
    names.filter(differs).cloned().collect()
}

/// The cluster that a map of ours is for.
pub(super) fn remote_id(map: &NamespaceMap) -> &str {
    labels::REMOTE_ID.of(&map.metadata).unwrap_or_default()
}
