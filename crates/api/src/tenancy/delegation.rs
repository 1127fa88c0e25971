//! TenantDelegation: the owner of a Tenant lets others into its namespaces, in three grades.
//!
//! It lies in the namespace through which the two clusters talk, where the owner may write it. What it grants never
//! exceeds the shipped roles, and holds only inside the Tenant's own namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Subject;
use crate::schema;

/// Who gets which rights, and where.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenancy.liqo.io",
    version = "v1alpha1",
    kind = "TenantDelegation",
    namespaced,
    doc = "Rights that the owner of a Tenant gives to others in the Tenant's namespaces.",
    status = "TenantDelegationStatus",
    derive = "PartialEq",
    shortname = "tntd",
    printcolumn(name = "Level", type_ = "string", json_path = ".spec.level"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TenantDelegationSpec {
    /// Who gets the rights: users, groups, or service accounts of the Tenant's own namespaces.
    #[schemars(length(min = 1, max = 32))]
    pub subjects: Vec<Subject>,

    /// How far the rights go: Viewer reads all but Secrets; Editor also writes most of it, but nothing by which Secrets
    /// could be read; Admin does all that the owner may. None may create Pods or grant rights.
    pub level: DelegationLevel,

    /// The namespaces of the Tenant, by their names here, in which the rights hold. When empty, in all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(256),
        transform = schema::each(schema::namespace),
        transform = schema::set
    )]
    pub namespaces: Vec<String>,
}

/// How far delegated rights go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum DelegationLevel {
    /// Reads all but Secrets.
    Viewer,
    /// Writes, too.
    Editor,
    /// Does all that the owner may.
    Admin,
}

/// What became of the delegation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantDelegationStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the rights are in place, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}
