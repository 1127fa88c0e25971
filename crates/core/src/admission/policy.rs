//! The nodes that a `NamespaceOffloading` allows, as alternatives that a pod's affinity can hold.

use ferro_api::names::labels::TYPE_VIRTUAL_NODE;
use ferro_api::offloading::{NamespaceOffloadingSpec, PodOffloadingStrategy};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use super::refusal::Refusal;
use super::terms;
use crate::selector::Selector;

/// Where pods may run.
pub(super) struct Policy {
    /// Whether only here.
    pub(super) is_local: bool,
    /// A node must match one of these.
    pub(super) alternatives: Vec<NodeSelectorTerm>,
}

impl Policy {
    /// The policy that an offloading says.
    pub(super) fn of(spec: &NamespaceOffloadingSpec) -> Result<Self, Refusal> {
        let strategy = spec.pod_offloading_strategy();
        let is_local = strategy == PodOffloadingStrategy::Local;
        let alternatives = match strategy {
            PodOffloadingStrategy::Local => vec![one(is_no_virtual_node())],
            PodOffloadingStrategy::LocalAndRemote => {
                selected(spec)?.into_iter().chain([one(is_no_virtual_node())]).collect()
            }
            // A node of this cluster may have the labels that are asked for.
            PodOffloadingStrategy::Remote => {
                selected(spec)?.iter().map(|term| terms::both(term, &one(is_virtual_node()))).collect()
            }
        };
        Ok(Self { is_local, alternatives })
    }
}

/// The terms of the selector. Those that are empty select nothing, and would select much with anything added to them.
fn selected(spec: &NamespaceOffloadingSpec) -> Result<Vec<NodeSelectorTerm>, Refusal> {
    let selector = spec.cluster_selector();
    Selector::parse(&selector).map_err(Refusal::Policy)?;
    Ok(selector.node_selector_terms.into_iter().filter(|term| !terms::is_empty(term)).collect())
}

fn one(requirement: NodeSelectorRequirement) -> NodeSelectorTerm {
    NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None }
}

fn is_virtual_node() -> NodeSelectorRequirement {
    of_type("In")
}

fn is_no_virtual_node() -> NodeSelectorRequirement {
    of_type("NotIn")
}

fn of_type(operator: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: TYPE_VIRTUAL_NODE.key().into(),
        operator: operator.into(),
        values: Some(vec![TYPE_VIRTUAL_NODE.value().into()]),
    }
}
