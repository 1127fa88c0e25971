//! What there is, for those who check it.

use std::collections::BTreeSet;

use ferro_api::names::{finalizers, labels};
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use serde_json::{Value, json};

use super::{HOME, INSTALLATION, World};
use crate::offloading::name::offloaded_name;
use crate::selector::Selector;

impl World {
    pub(super) fn is_held(&self, namespace: &str) -> bool {
        let held = self.offloadings[namespace].metadata.finalizers.iter().flatten();
        held.into_iter().any(|name| name == finalizers::OFFLOADING)
    }

    pub(in crate::offloading) fn is_admitted(&self, namespace: &str) -> bool {
        labels::OFFLOADED.is_on(&self.namespaces[namespace].metadata)
    }

    pub(in crate::offloading) fn desired(&self, id: &str) -> Value {
        json!(self.maps.get(id).map(|map| map.spec.desired_mapping.clone()).unwrap_or_default())
    }

    pub(in crate::offloading) fn current(&self, id: &str) -> Value {
        let status = self.maps.get(id).and_then(|map| map.status.clone());
        json!(status.unwrap_or_default().current_mapping)
    }

    pub(in crate::offloading) fn phase(&self, namespace: &str) -> Option<OffloadingPhase> {
        self.offloadings[namespace].status.as_ref().unwrap().offloading_phase
    }

    /// Status, reason and message of the condition Ready.
    pub(in crate::offloading) fn ready(&self, namespace: &str) -> (String, String, String) {
        let status = self.offloadings[namespace].status.clone().unwrap();
        let [ready] = status.conditions.as_slice() else { panic!("{status:?}") };
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }

    /// Type, status and reason of the conditions of one cluster.
    pub(in crate::offloading) fn cluster_conditions(
        &self,
        namespace: &str,
        id: &str,
    ) -> Vec<(&str, &str, &str)> {
        let status = self.offloadings[namespace].status.as_ref().unwrap();
        let conditions = status.remote_namespaces_conditions.get(id).into_iter().flatten();
        conditions.map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_str())).collect()
    }

    /// Whether the controller knows a namespace to be on its way from a cluster.
    pub(in crate::offloading) fn leaves(&self, namespace: &str, id: &str) -> bool {
        self.index.leaves(id, namespace)
    }

    /// The namespaces that are to be on a cluster.
    pub(in crate::offloading) fn selected(&self, id: &str) -> BTreeSet<String> {
        let Some(node) = self.clusters.get(id).filter(|peer| peer.peered).and_then(|peer| peer.node(id))
        else {
            return BTreeSet::new();
        };
        let selects = |offloading: &NamespaceOffloading| {
            let selector = Selector::parse(&offloading.spec.cluster_selector()).unwrap();
            selector.matches(&format!("liqo-{id}"), node.metadata.labels.as_ref().unwrap())
        };
        let selected = self.offloadings.iter().filter(|(_, offloading)| selects(offloading));
        selected.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// The name that a namespace is to have elsewhere.
    pub(in crate::offloading) fn remote(&self, namespace: &str) -> Option<String> {
        offloaded_name(&self.offloadings[namespace].spec, namespace, HOME, INSTALLATION).ok()
    }
}
