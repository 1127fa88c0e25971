//! A change of a pod as a JSON patch that adds at the deepest place there is, so that nothing beside it is touched.

use ferro_api::names::taints;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm, PodSpec};
use serde::Serialize;
use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// One operation `add` of a JSON patch, which puts in what is absent and replaces what is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename = "add")]
pub struct Addition {
    /// The place, as a JSON pointer.
    pub path: &'static str,
    /// What is put there.
    pub value: Value,
}

/// The pod's own required terms.
pub(super) fn own_selector(spec: &PodSpec) -> Option<&NodeSelector> {
    let node = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    node.required_during_scheduling_ignored_during_execution.as_ref()
}

/// Gives a pod these required terms, unless it has them.
pub(super) fn affinity(spec: &PodSpec, terms: &[NodeSelectorTerm]) -> Option<Addition> {
    if own_selector(spec).is_some_and(|own| own.node_selector_terms == terms) {
        return None;
    }
    let affinity = spec.affinity.as_ref();
    let node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let (path, value) = match (affinity, node, own_selector(spec)) {
        (_, _, Some(_)) => (
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
            json!(terms),
        ),
        (_, Some(_), None) => (
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
            json!({"nodeSelectorTerms": terms}),
        ),
        (Some(_), None, None) => {
            ("/spec/affinity/nodeAffinity", json!({REQUIRED: {"nodeSelectorTerms": terms}}))
        }
        (None, None, None) => {
            ("/spec/affinity", json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
        }
    };
    Some(Addition { path, value })
}

/// Lets a pod run on virtual nodes.
pub(super) fn toleration(spec: &PodSpec) -> Addition {
    let toleration = json!(taints::tolerates_not_allowed());
    match spec.tolerations {
        Some(_) => Addition { path: "/spec/tolerations/-", value: toleration },
        None => Addition { path: "/spec/tolerations", value: json!([toleration]) },
    }
}
