//! What is known of namespaces, offloadings and clusters, and what has yet to be looked at since it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::NamespaceMap;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Subject;
use super::cluster::{Cluster, Peer, differences, is_going, map_is_for, node_is_for};
use super::judgement::Wanted;
use super::name::{NameError, is_enforced, offloaded_name};
use super::occupants::Occupants;
use super::refusal;
use crate::selector::{Selector, SelectorError};

/// Everything that decides which namespaces other clusters are asked for.
#[derive(Clone, Debug)]
pub struct Index {
    pub(super) own: String,
    pub(super) installation: String,
    pub(super) namespaces: BTreeMap<String, Home>,
    pub(super) offloadings: BTreeMap<String, Offloading>,
    /// Which namespaces are to have a name on other clusters: more than one only if they get in each other's way.
    pub(super) claims: BTreeMap<String, BTreeSet<String>>,
    pub(super) clusters: BTreeMap<String, Cluster>,
    /// For which cluster a `ForeignCluster`, a node, the map in a namespace is.
    peers: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    maps: BTreeMap<String, String>,
    pub(super) unsettled: BTreeSet<String>,
    pub(super) unsettled_clusters: BTreeSet<String>,
}

/// A namespace of this cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Home {
    pub(super) going: bool,
    /// Whether the label asks for an offloading.
    pub(super) enabled: bool,
    /// Whether its pods are shown to the webhook.
    pub(super) admitted: bool,
    /// Why the label makes no offloading, as it was written.
    pub(super) refusal: Option<String>,
    version: Version,
}

/// An offloading, as far as it was understood.
#[derive(Clone, Debug)]
pub(super) struct Offloading {
    pub(super) object: Arc<NamespaceOffloading>,
    pub(super) selector: Result<Selector, SelectorError>,
    pub(super) remote: Result<String, NameError>,
    /// Whether its pods can be kept where they may be.
    pub(super) enforced: bool,
}

impl Index {
    /// An index that knows nothing yet, of the cluster with this identifier; the namespace is that of its installation.
    pub fn new(own_cluster_id: &str, installation: &str) -> Self {
        Self {
            own: own_cluster_id.to_owned(),
            installation: installation.to_owned(),
            namespaces: BTreeMap::new(),
            offloadings: BTreeMap::new(),
            claims: BTreeMap::new(),
            clusters: BTreeMap::new(),
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            maps: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            unsettled_clusters: BTreeSet::new(),
        }
    }

    /// The offloading of a namespace.
    pub fn offloading(&self, namespace: &str) -> Option<&NamespaceOffloading> {
        self.offloadings.get(namespace).map(|offloading| offloading.object.as_ref())
    }

    /// The map for a cluster.
    pub fn map(&self, cluster: &str) -> Option<&NamespaceMap> {
        self.clusters.get(cluster)?.map()
    }

    /// Whether a namespace that is asked for has pods on a cluster, or may have.
    pub fn is_occupied(&self, cluster: &str, namespace: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|cluster| cluster.is_occupied(namespace))
    }

    /// Whether a namespace is on its way from a cluster: something of it is there, and it is not asked for, or is not to be.
    pub fn leaves(&self, cluster: &str, namespace: &str) -> bool {
        let Some(cluster) = self.clusters.get(cluster).filter(|cluster| cluster.has(namespace)) else {
            return false;
        };
        let offloading = self.offloadings.get(namespace);
        let wanted = offloading.map(|offloading| self.wanted(namespace, offloading, cluster));
        let entry = wanted.as_ref().and_then(Wanted::entry);
        entry.is_none() || entry != cluster.desired(namespace)
    }

    /// Something is to be looked at again although it did not change.
    pub fn again(&mut self, subject: Subject<'_>) {
        match subject {
            Subject::Namespace(namespace) => _ = self.unsettled.insert(namespace.to_owned()),
            Subject::Cluster(cluster) => {
                let map = self.clusters.get(cluster).and_then(Cluster::map);
                let entries = map.into_iter().flat_map(|map| map.spec.desired_mapping.keys());
                self.unsettled.extend(self.offloadings.keys().chain(entries).cloned());
                self.unsettled_clusters.insert(cluster.to_owned());
            }
        }
    }

    /// A namespace is as said, or gone.
    pub fn set_namespace(&mut self, name: &str, namespace: Option<&Namespace>) {
        let known = self.namespaces.get(name);
        let next = namespace.map(Home::of);
        if next.as_ref().zip(known).is_some_and(|(next, known)| next.version.is_before(&known.version)) {
            return;
        }
        let changed = match (known, &next) {
            (Some(known), Some(next)) => !known.is_like(next),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        };
        match next {
            Some(next) => _ = self.namespaces.insert(name.to_owned(), next),
            None => _ = self.namespaces.remove(name),
        }
        if changed {
            self.touch(name);
        }
    }

    /// The offloading of a namespace is as said, or gone.
    pub fn set_offloading(&mut self, namespace: &str, object: Option<Arc<NamespaceOffloading>>) {
        let known = self.offloadings.get(namespace);
        if let (Some(known), Some(object)) = (known, &object)
            && (known.object == *object || is_outdated(&object.metadata, &known.object.metadata))
        {
            return;
        }
        self.touch(namespace);
        self.claim(namespace, false);
        match object {
            Some(object) => {
                let offloading = self.understand(namespace, object);
                self.offloadings.insert(namespace.to_owned(), offloading);
            }
            None => _ = self.offloadings.remove(namespace),
        }
        self.claim(namespace, true);
        self.touch(namespace);
    }

    /// A node is as said, or gone.
    pub fn set_node(&mut self, name: &str, node: Option<&Node>) {
        let next = node.and_then(|node| Some((node_is_for(node)?, node)));
        let former = self.nodes.remove(name);
        if let Some(former) = former.filter(|former| next.is_none_or(|(id, _)| id != former)) {
            self.change(&former, |cluster| _ = cluster.nodes.remove(name));
        }
        if let Some((id, node)) = next {
            let labels = node.metadata.labels.clone().unwrap_or_default();
            self.nodes.insert(name.to_owned(), id.to_owned());
            self.change(id, |cluster| _ = cluster.nodes.insert(name.to_owned(), labels));
        }
    }

    /// A `ForeignCluster` is as said, or gone.
    pub fn set_peer(&mut self, name: &str, peer: Option<&ForeignCluster>) {
        let next = peer.and_then(|peer| Some((&peer.spec.cluster_identity.as_ref()?.cluster_id, peer)));
        let former = self.peers.remove(name);
        if let Some(former) = former.filter(|former| next.is_none_or(|(id, _)| id != former)) {
            self.change(&former, |cluster| cluster.peers.retain(|(_, known), _| known != name));
        }
        if let Some((id, peer)) = next {
            let since = peer.metadata.creation_timestamp.as_ref().map(|time| time.0);
            self.peers.insert(name.to_owned(), id.clone());
            self.change(id, |cluster| {
                cluster.peers.retain(|(_, known), _| known != name);
                cluster.peers.insert((since, name.to_owned()), Peer::of(peer));
            });
        }
    }

    /// A map is as said, or gone. Only that of ours in a namespace which is kept for a peer is of concern.
    pub fn set_map(&mut self, namespace: &str, name: &str, map: Option<Arc<NamespaceMap>>) {
        if name != self.own {
            return;
        }
        let next = map.and_then(|map| Some((map_is_for(&map, &self.own)?.to_owned(), map)));
        let former = self.maps.remove(namespace);
        let is_another = |former: &String| next.as_ref().is_none_or(|(id, _)| id != former);
        if let Some(former) = former.filter(is_another) {
            self.replace_map(&former, namespace, None);
        }
        if let Some((id, map)) = next {
            self.maps.insert(namespace.to_owned(), id.clone());
            self.replace_map(&id, namespace, Some(map));
        }
    }

    /// Which namespaces have pods on which clusters, by the identifiers of these, and on all others.
    pub fn set_occupants(&mut self, told: &BTreeMap<String, Occupants>, others: &Occupants) {
        let of = |id: &String| told.get(id).unwrap_or(others);
        let changed = self.clusters.iter().filter(|(id, cluster)| cluster.occupants != *of(id));
        let changed: Vec<_> = changed.map(|(id, _)| (id.clone(), of(id).clone())).collect();
        for (id, occupants) in changed {
            self.occupy(&id, occupants);
        }
    }

    fn occupy(&mut self, id: &str, occupants: Occupants) {
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        let before = std::mem::replace(&mut cluster.occupants, occupants);
        let asked_for = cluster.map().into_iter().flat_map(|map| map.spec.desired_mapping.keys());
        let concerned = asked_for.filter(|name| before.has(name) != cluster.occupants.has(name));
        let concerned: Vec<String> = concerned.cloned().collect();
        for namespace in &concerned {
            self.touch(namespace);
        }
        self.forget_or_look_at(id);
    }

    fn replace_map(&mut self, id: &str, namespace: &str, map: Option<Arc<NamespaceMap>>) {
        let cluster = self.clusters.entry(id.to_owned()).or_default();
        let known = cluster.map.as_ref();
        let is_elsewhere = known.is_some_and(|known| known.metadata.namespace.as_deref() != Some(namespace));
        let is_late = known.zip(map.as_ref());
        let is_late = is_late.is_some_and(|(known, map)| is_outdated(&map.metadata, &known.metadata));
        if is_late || (map.is_none() && is_elsewhere) {
            return;
        }
        let before = std::mem::replace(&mut cluster.map, map);
        let mut concerned = differences(before.as_deref(), cluster.map.as_deref());
        if goes(before.as_deref()) != goes(cluster.map.as_deref()) {
            concerned.extend(self.selecting(id));
        }
        for namespace in &concerned {
            self.touch(namespace);
        }
        self.forget_or_look_at(id);
    }

    /// The namespaces that are to be on a cluster.
    fn selecting(&self, id: &str) -> Vec<String> {
        let Some(cluster) = self.clusters.get(id) else { return Vec::new() };
        let selecting =
            self.offloadings.iter().filter(|(name, offloading)| offloading.selects(name, cluster));
        selecting.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Changes what is known of a cluster, and finds out which namespaces that concerns.
    fn change(&mut self, id: &str, edit: impl FnOnce(&mut Cluster)) {
        let before = self.clusters.get(id).cloned().unwrap_or_default();
        let mut after = before.clone();
        edit(&mut after);
        if before == after {
            return;
        }
        let is_other_peer = before.peer() != after.peer();
        let concerned = self.offloadings.iter().filter(|(namespace, offloading)| {
            let selected = offloading.selects(namespace, &after);
            let counts = selected || before.has(namespace) || after.has(namespace);
            selected != offloading.selects(namespace, &before) || (is_other_peer && counts)
        });
        let concerned: Vec<String> = concerned.map(|(namespace, _)| namespace.clone()).collect();
        self.clusters.insert(id.to_owned(), after);
        for namespace in &concerned {
            self.touch(namespace);
        }
        self.forget_or_look_at(id);
    }

    fn forget_or_look_at(&mut self, id: &str) {
        if self.clusters.get(id).is_some_and(Cluster::is_forgotten) {
            self.clusters.remove(id);
            self.unsettled_clusters.remove(id);
        } else {
            self.unsettled_clusters.insert(id.to_owned());
        }
    }

    /// A namespace is to be looked at, with those that want its name.
    fn touch(&mut self, namespace: &str) {
        self.unsettled.insert(namespace.to_owned());
        let offloading = self.offloadings.get(namespace);
        if let Some(Ok(remote)) = offloading.map(|offloading| &offloading.remote) {
            self.unsettled.extend(self.claims.get(remote).into_iter().flatten().cloned());
        }
    }

    fn claim(&mut self, namespace: &str, claims: bool) {
        let offloading = self.offloadings.get(namespace);
        let Some(Ok(remote)) = offloading.map(|offloading| &offloading.remote) else { return };
        let claimants = self.claims.entry(remote.clone()).or_default();
        if claims {
            claimants.insert(namespace.to_owned());
        } else {
            claimants.remove(namespace);
            if claimants.is_empty() {
                self.claims.remove(&remote.clone());
            }
        }
    }

    fn understand(&self, namespace: &str, object: Arc<NamespaceOffloading>) -> Offloading {
        let spec = &object.spec;
        let remote = offloaded_name(spec, namespace, &self.own, &self.installation);
        let enforced = is_enforced(spec, namespace, &self.installation);
        Offloading { selector: Selector::parse(&spec.cluster_selector()), remote, enforced, object }
    }
}

impl Home {
    fn of(namespace: &Namespace) -> Self {
        let meta = &namespace.metadata;
        Self {
            going: is_going(meta),
            enabled: labels::ENABLED.is_on(meta),
            admitted: labels::OFFLOADED.is_on(meta),
            refusal: refusal::of(namespace).map(str::to_owned),
            version: Version::of(meta),
        }
    }

    /// Whether nothing is different but the version.
    fn is_like(&self, other: &Self) -> bool {
        Self { version: other.version.clone(), ..self.clone() } == *other
    }
}

/// Whether a map that is there goes.
fn goes(map: Option<&NamespaceMap>) -> Option<bool> {
    map.map(|map| is_going(&map.metadata))
}

/// Which version of which object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    uid: Option<String>,
    number: u64,
}

impl Version {
    /// Versions are numbers that grow, which Kubernetes has come to promise.
    fn of(meta: &ObjectMeta) -> Self {
        let number = meta.resource_version.as_ref().and_then(|version| version.parse().ok());
        Self { uid: meta.uid.clone(), number: number.unwrap_or(0) }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.uid == other.uid && self.number < other.number
    }
}

/// Whether a later version is known: the answer to a write comes before the watch has it.
fn is_outdated(meta: &ObjectMeta, known: &ObjectMeta) -> bool {
    Version::of(meta).is_before(&Version::of(known))
}
