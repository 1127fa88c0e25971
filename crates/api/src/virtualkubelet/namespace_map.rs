//! NamespaceMap: the namespaces wanted on one peer, and those that exist there.
//!
//! There is one for each virtual node. The consumer writes the spec, the provider the status; whoever asks
//! about a remote namespace asks the status, and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The namespaces that are wanted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtualkubelet.liqo.io",
    version = "v1alpha1",
    kind = "NamespaceMap",
    namespaced,
    doc = "Which namespaces of one cluster have a counterpart on another, and under what name.",
    status = "NamespaceMapStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "nsm",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMapSpec {
    /// For each namespace here, the name it is to have on the other cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        transform = schema::at_most(4096),
        transform = schema::each(schema::namespace),
        transform = schema::of_one_writer
    )]
    pub desired_mapping: BTreeMap<String, String>,
}

/// The namespaces that exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMapStatus {
    /// For each namespace here, what became of its counterpart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(4096), transform = schema::of_one_writer)]
    pub current_mapping: BTreeMap<String, CurrentMapping>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether all namespaces exist, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// What became of one namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentMapping {
    /// Accepted when the namespace exists; CreationLoopBackOff while it cannot be created; Terminating while
    /// it is being removed.
    pub phase: MappingPhase,

    /// The name of the namespace on the other cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub remote_namespace: Option<String>,

    /// Why it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,
}

/// How far one namespace has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum MappingPhase {
    /// It exists and may be used.
    Accepted,
    /// It cannot be created, and is tried again.
    CreationLoopBackOff,
    /// It is being removed.
    Terminating,
}
