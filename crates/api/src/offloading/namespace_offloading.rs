//! NamespaceOffloading: the one object by which an administrator says which clusters a namespace may use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::labels;
use crate::schema;

/// Which clusters the namespace uses, what it is called there, and where its pods may run.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1alpha1",
    kind = "NamespaceOffloading",
    namespaced,
    doc = "Extends its namespace over other clusters. A namespace has one, and its name is offloading.",
    status = "NamespaceOffloadingStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "nso",
    printcolumn(name = "Mapping", type_ = "string", json_path = ".spec.namespaceMappingStrategy"),
    printcolumn(name = "Pods", type_ = "string", json_path = ".spec.podOffloadingStrategy"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.offloadingPhase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "self.metadata.name == 'offloading'",
        "metadata.name must be offloading: a namespace has one such object"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceOffloadingSpec {
    /// What the namespace is called on other clusters: with DefaultName its own name, a dash and the
    /// identifier of this cluster; with EnforceSameName just its own name. It cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("default" = NamespaceMappingStrategy::default()),
        transform = schema::rule("self == oldSelf", "namespaceMappingStrategy cannot be changed")
    )]
    pub namespace_mapping_strategy: Option<NamespaceMappingStrategy>,

    /// Where pods of the namespace may run: here and on the selected clusters (LocalAndRemote), only here
    /// (Local), or only on the selected clusters (Remote).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = PodOffloadingStrategy::default()))]
    pub pod_offloading_strategy: Option<PodOffloadingStrategy>,

    /// Which clusters the namespace uses: those whose node matches one of the terms. When left out, all of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "NodeSelector",
        transform = schema::node_selector,
        extend("default" = every_virtual_node())
    )]
    pub cluster_selector: Option<NodeSelector>,
}

impl NamespaceOffloadingSpec {
    /// What the namespace is called on other clusters.
    pub fn namespace_mapping_strategy(&self) -> NamespaceMappingStrategy {
        self.namespace_mapping_strategy.unwrap_or_default()
    }

    /// Where pods of the namespace may run.
    pub fn pod_offloading_strategy(&self) -> PodOffloadingStrategy {
        self.pod_offloading_strategy.unwrap_or_default()
    }

    /// Which clusters the namespace uses.
    pub fn cluster_selector(&self) -> NodeSelector {
        self.cluster_selector.clone().unwrap_or_else(every_virtual_node)
    }
}

/// The selector that holds when none is given.
fn every_virtual_node() -> NodeSelector {
    let is_virtual_node = NodeSelectorRequirement {
        key: labels::TYPE_VIRTUAL_NODE.key().into(),
        operator: "In".into(),
        values: Some(vec![labels::TYPE_VIRTUAL_NODE.value().into()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![is_virtual_node]), match_fields: None };
    NodeSelector { node_selector_terms: vec![term] }
}

/// What a namespace is called on other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum NamespaceMappingStrategy {
    /// Its own name, a dash and the identifier of the home cluster.
    #[default]
    DefaultName,
    /// Its own name.
    EnforceSameName,
}

/// Where pods of a namespace may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum PodOffloadingStrategy {
    /// Here and on the selected clusters.
    #[default]
    LocalAndRemote,
    /// Only here. Services are still known on the selected clusters.
    Local,
    /// Only on the selected clusters.
    Remote,
}

/// What became of the namespace on other clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceOffloadingStatus {
    /// Ready when the namespace exists on every selected cluster; NoClusterSelected when none matches;
    /// SomeFailed or AllFailed when it could not be created on some or all; Terminating while it is being
    /// removed. It is left out as long as a selected cluster has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloading_phase: Option<OffloadingPhase>,

    /// For each cluster, by its identifier, whether the namespace is wanted there (OffloadingRequired) and
    /// exists (Ready).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(4096), transform = schema::each(schema::conditions))]
    pub remote_namespaces_conditions: BTreeMap<String, Vec<Condition>>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What holds for the offloading as a whole, and what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// The types of condition in `remoteNamespacesConditions`.
pub mod condition {
    /// The namespace exists on the cluster.
    pub const READY: &str = "Ready";
    /// The namespace is wanted on the cluster.
    pub const OFFLOADING_REQUIRED: &str = "OffloadingRequired";
}

/// What became of the namespace on all selected clusters together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum OffloadingPhase {
    /// It exists on every selected cluster.
    Ready,
    /// No cluster matches the selector.
    NoClusterSelected,
    /// It could not be created on some of them.
    SomeFailed,
    /// It could not be created on any of them.
    AllFailed,
    /// It is being removed from them.
    Terminating,
}

#[cfg(test)]
mod tests {
    use super::{NamespaceMappingStrategy, NamespaceOffloadingSpec, PodOffloadingStrategy};
    use serde_json::json;

    #[test]
    fn an_empty_spec_means_every_virtual_node_under_its_default_name() {
        let spec = NamespaceOffloadingSpec::default();
        assert_eq!(spec.namespace_mapping_strategy(), NamespaceMappingStrategy::DefaultName);
        assert_eq!(spec.pod_offloading_strategy(), PodOffloadingStrategy::LocalAndRemote);
        let expression = json!({"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]});
        let term = json!({"matchExpressions": [expression]});
        assert_eq!(
            serde_json::to_value(spec.cluster_selector()).unwrap(),
            json!({"nodeSelectorTerms": [term]})
        );
    }
}
