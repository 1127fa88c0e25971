//! The API server of a home cluster, and what people do to it.

mod look;
mod others;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::{CurrentMapping, NamespaceMap};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::offloading::{Index, Standing, standing};

/// The identifier of the home cluster.
pub(in crate::offloading) const HOME: &str = "d14e610e-4c1b-402c-a5f1-5ef6f39c0490";
const INSTALLATION: &str = "installed-here";

/// How the other end behaves.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::offloading) enum Provider {
    Answers,
    /// It has no room for anything new.
    Refuses(String),
    /// Nothing comes from it, and nothing reaches it.
    Silent,
}

/// Another cluster.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::offloading) struct Peer {
    pub(in crate::offloading) peered: bool,
    forced: bool,
    state: &'static str,
    reason: &'static str,
    labels: BTreeMap<String, String>,
    has_node: bool,
    pub(in crate::offloading) provider: Provider,
    /// What the copy of the map asks for, and what came of it.
    copy: Option<BTreeMap<String, String>>,
    there: BTreeMap<String, CurrentMapping>,
    /// The namespaces that have pods there.
    pub(in crate::offloading) pods: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(in crate::offloading) struct World {
    pub(in crate::offloading) namespaces: BTreeMap<String, Namespace>,
    pub(in crate::offloading) offloadings: BTreeMap<String, NamespaceOffloading>,
    pub(in crate::offloading) clusters: BTreeMap<String, Peer>,
    /// By cluster.
    pub(in crate::offloading) maps: BTreeMap<String, NamespaceMap>,
    index: Index,
    /// What the watches have yet to see.
    unseen: BTreeSet<(char, String)>,
    versions: u64,
    now: Timestamp,
}

impl World {
    pub(in crate::offloading) fn new() -> Self {
        Self {
            namespaces: BTreeMap::new(),
            offloadings: BTreeMap::new(),
            clusters: BTreeMap::new(),
            maps: BTreeMap::new(),
            index: Index::new(HOME, INSTALLATION),
            unseen: BTreeSet::new(),
            versions: 0,
            now: Timestamp::from_second(1_700_000_000).unwrap(),
        }
    }

    pub(in crate::offloading) fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    pub(in crate::offloading) fn make_namespace(&mut self, name: &str) {
        if !self.namespaces.contains_key(name) {
            let metadata = self.new_meta(name, None);
            self.namespaces.insert(name.into(), Namespace { metadata, ..Namespace::default() });
        }
    }

    pub(in crate::offloading) fn label(&mut self, name: &str, on: bool) {
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        if on {
            labels::ENABLED.put_on(&mut namespace.metadata);
        } else {
            labels::ENABLED.take_off(&mut namespace.metadata);
        }
        self.bump('n', name);
    }

    pub(in crate::offloading) fn delete_namespace(&mut self, name: &str) {
        let now = Time(self.now);
        if let Some(namespace) = self.namespaces.get_mut(name) {
            namespace.metadata.deletion_timestamp.get_or_insert(now);
            self.bump('n', name);
        }
    }

    /// Creates the offloading of a namespace, unless there is one or the namespace goes.
    pub(in crate::offloading) fn offload(&mut self, namespace: &str, spec: &Value) {
        let goes = self.namespaces[namespace].metadata.deletion_timestamp.is_some();
        if goes || self.offloadings.contains_key(namespace) {
            return;
        }
        self.wait(1);
        let metadata = self.new_meta("offloading", Some(namespace));
        let spec = serde_json::from_value(spec.clone()).unwrap();
        self.offloadings.insert(namespace.into(), NamespaceOffloading { metadata, spec, status: None });
        self.bump('o', namespace);
    }

    pub(in crate::offloading) fn reselect(&mut self, namespace: &str, selector: &Value) {
        if let Some(offloading) = self.offloadings.get_mut(namespace) {
            offloading.spec.cluster_selector = Some(serde_json::from_value(selector.clone()).unwrap());
            self.bump('o', namespace);
        }
    }

    pub(in crate::offloading) fn delete(&mut self, namespace: &str) {
        let now = Time(self.now);
        let Some(offloading) = self.offloadings.get_mut(namespace) else { return };
        if offloading.metadata.deletion_timestamp.is_some() {
            return;
        }
        offloading.metadata.deletion_timestamp = Some(now);
        self.bump('o', namespace);
        self.sweep();
    }

    pub(in crate::offloading) fn force(&mut self, namespace: &str) {
        if let Some(offloading) = self.offloadings.get_mut(namespace) {
            annotations::FORCE.put_on(&mut offloading.metadata, "true");
            self.bump('o', namespace);
        }
    }

    /// Somebody replaces an offloading by one without finalizers.
    pub(in crate::offloading) fn strip(&mut self, namespace: &str) {
        if let Some(offloading) = self.offloadings.get_mut(namespace) {
            offloading.metadata.finalizers = None;
            self.bump('o', namespace);
            self.sweep();
        }
    }

    pub(in crate::offloading) fn join(&mut self, id: &str, labels: &[(&str, &str)]) {
        let known = self.clusters.remove(id);
        let (provider, copy, there) = known.map_or((Provider::Answers, None, BTreeMap::new()), |known| {
            (known.provider, known.copy, known.there)
        });
        let peer = Peer {
            peered: true,
            forced: false,
            state: "Established",
            reason: "Established",
            labels: BTreeMap::new(),
            has_node: true,
            provider,
            copy,
            there,
            pods: BTreeSet::new(),
        };
        self.clusters.insert(id.into(), peer);
        self.relabel(id, labels);
    }

    pub(in crate::offloading) fn relabel(&mut self, id: &str, labels: &[(&str, &str)]) {
        let Some(peer) = self.clusters.get_mut(id) else { return };
        let own = [("liqo.io/type", "virtual-node"), ("liqo.io/remoteID", id)];
        let all = own.iter().chain(labels).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        peer.labels = all.collect();
        self.see_cluster(id);
    }

    pub(in crate::offloading) fn lose_node(&mut self, id: &str) {
        if let Some(peer) = self.clusters.get_mut(id).filter(|peer| peer.peered) {
            peer.has_node = false;
            // Kubernetes deletes pods whose node is gone.
            peer.pods.clear();
            self.see_cluster(id);
        }
    }

    /// The controller of peers registers nodes anew that are missing.
    pub(in crate::offloading) fn renew_nodes(&mut self) {
        for id in self.clusters.keys().cloned().collect::<Vec<_>>() {
            let peer = self.clusters.get_mut(&id).unwrap();
            peer.has_node |= peer.peered;
            self.see_cluster(&id);
        }
    }

    pub(in crate::offloading) fn unpeer(&mut self, id: &str, force: bool) {
        let Some(peer) = self.clusters.get_mut(id).filter(|peer| peer.peered) else { return };
        (peer.peered, peer.forced) = (false, force);
        (peer.state, peer.reason) = ("Disconnecting", "NodeDrains");
        self.see_cluster(id);
    }

    pub(in crate::offloading) fn provider(&mut self, id: &str, provider: Provider) {
        if let Some(peer) = self.clusters.get_mut(id) {
            peer.provider = provider;
        }
    }

    /// A pod of a namespace comes to a cluster, if it may.
    pub(in crate::offloading) fn run(&mut self, namespace: &str, id: &str) {
        let is_there = self.current(id)[namespace]["phase"] == "Accepted";
        let is_wanted = self.offloadings.get(namespace).is_some_and(|offloading| {
            offloading.metadata.deletion_timestamp.is_none()
                && self.selected(id).contains(namespace)
                && standing(Some(offloading), id) == Standing::Wanted
        });
        if is_there && is_wanted {
            self.clusters.get_mut(id).unwrap().pods.insert(namespace.to_owned());
            self.see_pods();
        }
    }

    /// The keep-alive notices that a peer is silent, or back.
    pub(in crate::offloading) fn hear(&mut self, id: &str, state: &'static str) {
        self.clusters.get_mut(id).unwrap().state = state;
        self.see_cluster(id);
    }

    pub(in crate::offloading) fn delete_map(&mut self, id: &str) {
        let now = Time(self.now);
        if let Some(map) = self.maps.get_mut(id) {
            map.metadata.deletion_timestamp.get_or_insert(now);
            self.bump('m', id);
            self.sweep();
        }
    }

    /// What is deleted and held by nobody is gone.
    fn sweep(&mut self) {
        let is_gone = |meta: &ObjectMeta| {
            meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        };
        self.offloadings.retain(|_, object| !is_gone(&object.metadata));
        self.maps.retain(|_, object| !is_gone(&object.metadata));
    }

    fn finalize_map(&mut self, id: &str, released: &str) {
        let meta = &mut self.maps.get_mut(id).unwrap().metadata;
        assert!(meta.deletion_timestamp.is_some());
        meta.finalizers.get_or_insert_default().retain(|name| name != released);
        self.bump('m', id);
        self.sweep();
    }

    fn new_uid(&mut self) -> String {
        self.versions += 1;
        format!("uid-{}", self.versions)
    }

    fn new_meta(&mut self, name: &str, namespace: Option<&str>) -> ObjectMeta {
        if namespace.is_none() {
            self.unseen.insert(('n', name.to_owned()));
        }
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            uid: Some(self.new_uid()),
            creation_timestamp: Some(Time(self.now)),
            generation: Some(1),
            ..ObjectMeta::default()
        }
    }

    /// Another version, which the watches have yet to see.
    fn bump(&mut self, kind: char, name: &str) {
        self.versions += 1;
        let meta = match kind {
            'n' => self.namespaces.get_mut(name).map(|object| &mut object.metadata),
            'o' => self.offloadings.get_mut(name).map(|object| &mut object.metadata),
            _ => self.maps.get_mut(name).map(|object| &mut object.metadata),
        };
        if let Some(meta) = meta {
            meta.resource_version = Some(self.versions.to_string());
        }
        self.unseen.insert((kind, name.to_owned()));
    }

    fn see_cluster(&mut self, id: &str) {
        self.unseen.insert(('c', id.to_owned()));
        self.see_pods();
    }

    fn see_pods(&mut self) {
        self.unseen.insert(('p', String::new()));
    }
}

/// The namespace that is kept for a peer.
fn tenant(id: &str) -> String {
    format!("liqo-tenant-{id}")
}
