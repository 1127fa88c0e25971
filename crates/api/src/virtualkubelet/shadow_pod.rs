//! ShadowPod: a pod that a consumer wants, from which the provider makes a real one.
//!
//! Peers never create pods; the provider's controller does, within the limits it sets, and makes a lost one
//! again while the consumer is away. Labels and annotations of the pod are those of the ShadowPod itself.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The pod that is wanted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "virtualkubelet.liqo.io",
    version = "v1alpha1",
    kind = "ShadowPod",
    namespaced,
    doc = "A pod that another cluster wants to run here, with the name, labels and annotations of this one.",
    status = "ShadowPodStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "shp",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ShadowPodSpec {
    /// The specification of the pod, as in a Pod.
    pub pod: PodSpec,
}

/// What became of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShadowPodStatus {
    /// Pending until the pod exists; Active while it does; Succeeded or Failed when it has ended and is not
    /// made again; Rejected when it may not run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ShadowPodPhase>,

    /// One word on why, such as QuotaExceeded or RemotePodLost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(128))]
    pub reason: Option<String>,

    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,

    /// The UID of the pod that stands for this object now.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(128))]
    pub pod_uid: Option<String>,

    /// How often the pod was lost and made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreations: Option<u32>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the pod was admitted and exists, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// How far a ShadowPod has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum ShadowPodPhase {
    /// There is no pod yet.
    #[default]
    Pending,
    /// There is a pod.
    Active,
    /// The pod ended well, and is not made again.
    Succeeded,
    /// The pod failed or was lost, and is not made again.
    Failed,
    /// The pod may not run here.
    Rejected,
}
