//! Tenant: what one consumer cluster may use here, and the namespaces that it has.
//!
//! There is one for each peer whose request for resources was accepted, made by the controller. What is left out of
//! its spec follows the configuration and the offer as they are now; what an administrator sets holds instead.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRangeSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Subject;
use crate::common::{ClusterIdentity, ResourceQuota};
use crate::config::PodSecurity;
use crate::schema;

/// What the consumer may use.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenancy.liqo.io",
    version = "v1alpha1",
    kind = "Tenant",
    doc = "What another cluster may use here: its namespaces, quotas and rules. Its name is the cluster's identifier.",
    status = "TenantStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "tnt",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.clusterName"),
    printcolumn(name = "Namespaces", type_ = "integer", json_path = ".status.namespacesUsed"),
    printcolumn(name = "Quota", type_ = "integer", json_path = ".status.namespaceQuota"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Pod Security", type_ = "string", json_path = ".spec.podSecurity", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "self.metadata.name == self.spec.cluster.clusterID",
        "metadata.name must be the identifier of the cluster, spec.cluster.clusterID"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// The cluster that the Tenant is for. It is always an owner.
    pub cluster: ClusterIdentity,

    /// Users, groups and service accounts that may do in the Tenant's namespaces what the cluster itself may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(32))]
    pub owners: Vec<Subject>,

    /// How many namespaces the Tenant may have. When left out, as tenancyConfig of the ClusterConfig says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4096))]
    pub namespace_quota: Option<u32>,

    /// The most that all namespaces of the Tenant use together. When left out, what the accepted offer says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// The most that any one namespace of the Tenant uses. When left out, the same as resourceQuota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_ceiling: Option<ResourceQuota>,

    /// What a container, a pod or a claim in the Tenant's namespaces may ask for, and what it gets when it asks for
    /// nothing. When left out, as tenancyConfig of the ClusterConfig says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LimitRangeSpec", transform = schema::limit_range)]
    pub limit_range: Option<LimitRangeSpec>,

    /// The Pod Security level that is enforced in the Tenant's namespaces: privileged, baseline or restricted. When
    /// left out, as tenancyConfig of the ClusterConfig says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,

    /// Labels of the nodes that the Tenant's pods run on. When empty, all nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(16), transform = schema::each(schema::label_value))]
    pub node_pool: BTreeMap<String, String>,

    /// The RuntimeClass that the Tenant's pods run with, whatever they ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,

    /// How many objects of a kind each namespace of the Tenant may have, by the kind's plural name and group, such as
    /// persistentvolumeclaims or widgets.example.org.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(64))]
    pub counts: BTreeMap<String, u32>,

    /// Whether the Tenant's pods are kept apart from those of others by NetworkPolicies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub isolation: Option<bool>,
}

impl TenantSpec {
    /// Whether the Tenant's pods are kept apart from those of others.
    pub fn isolation(&self) -> bool {
        self.isolation.unwrap_or(true)
    }
}

/// What the consumer has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// The Tenant's namespaces, and those that were asked for and refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(8192))]
    pub namespaces: Vec<TenantNamespace>,

    /// How many namespaces count against the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces_used: Option<u32>,

    /// How many namespaces the Tenant may have, as it holds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_quota: Option<u32>,

    /// The most that all namespaces of the Tenant use together, as it holds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// What all namespaces of the Tenant use together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(192))]
    pub used: BTreeMap<String, Quantity>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether all namespaces exist and have what belongs into them, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// One namespace of a Tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantNamespace {
    /// The name of the namespace here.
    #[schemars(transform = schema::namespace)]
    pub name: String,

    /// The namespace of the consumer that it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub origin_namespace: Option<String>,

    /// Active when it may be used; Terminating while it is being removed; Refused when it was asked for and may not
    /// exist.
    pub phase: TenantNamespacePhase,

    /// Why it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,
}

/// How far one namespace of a Tenant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum TenantNamespacePhase {
    /// It may be used.
    Active,
    /// It is being removed.
    Terminating,
    /// It was asked for and may not exist.
    Refused,
}
