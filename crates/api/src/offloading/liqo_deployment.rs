//! LiqoDeployment: one Deployment for each group of clusters that are alike.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentSpec};
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The Deployment to copy, and for which clusters.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1alpha1",
    kind = "LiqoDeployment",
    namespaced,
    doc = "Copies a Deployment: one for each combination of label values on the clusters of its namespace.",
    status = "LiqoDeploymentStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ldeploy",
    printcolumn(name = "Labels", type_ = "string", json_path = ".spec.generationLabels"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.template.spec.replicas"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "self.metadata.name.size() <= 52",
        "metadata.name must have at most 52 characters: the names of the Deployments add a suffix to it"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct LiqoDeploymentSpec {
    /// The Deployment of which copies are made.
    pub template: DeploymentTemplate,

    /// Keys of node labels. Clusters with equal values of all of them share one copy. When empty, each
    /// cluster has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(16),
        transform = schema::each(schema::label_key),
        transform = schema::set
    )]
    pub generation_labels: Vec<String>,

    /// Which of the clusters that the namespace uses get a copy: those whose node matches one of the terms.
    /// When left out, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NodeSelector", transform = schema::node_selector)]
    pub selected_clusters: Option<NodeSelector>,
}

/// The Deployment of which copies are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTemplate {
    /// What every copy carries in its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,

    /// The specification of every copy.
    pub spec: DeploymentSpec,
}

/// The part of an object's metadata that a template can give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of every copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(256), transform = schema::each(schema::label_value))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of every copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(256))]
    pub annotations: BTreeMap<String, String>,
}

/// The copies that exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiqoDeploymentStatus {
    /// The copies, by the names of their Deployments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(4096))]
    pub current_deployment: BTreeMap<String, CurrentDeployment>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether all copies exist and are available, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// One copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentDeployment {
    /// The label values of the clusters that this copy is for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(16))]
    pub generation_labels_values: BTreeMap<String, String>,

    /// The condition of the Deployment that changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_last_condition: Option<DeploymentCondition>,
}
