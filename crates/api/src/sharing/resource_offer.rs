//! ResourceOffer: a provider's answer to a request, refreshed as long as it stands.
//!
//! It is written by the provider and copied to the consumer, whose acceptance comes back in the status. Each
//! refresh is a sign of life: an offer that is no longer refreshed means that the provider is gone.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ResourceQuota;
use crate::schema;

/// What the provider offers.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sharing.liqo.io",
    version = "v1alpha1",
    kind = "ResourceOffer",
    namespaced,
    doc = "Resources that one cluster offers to another. When accepted, they appear there as a node.",
    status = "ResourceOfferStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ro",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.virtualKubeletStatus"),
    printcolumn(name = "CPU", type_ = "string", json_path = ".spec.resourceQuota.hard.cpu"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.resourceQuota.hard.memory"),
    printcolumn(name = "Pods", type_ = "string", json_path = ".spec.resourceQuota.hard.pods"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.clusterId", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOfferSpec {
    /// The identifier of the cluster that makes the offer.
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: String,

    /// The resources that are offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// The price of each resource, for a unit of it and an hour.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128))]
    pub prices: BTreeMap<String, Quantity>,

    /// Further information about the cluster and its offer, such as the currency of the prices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128), transform = schema::each(schema::at_most(1024)))]
    pub properties: BTreeMap<String, String>,

    /// Labels that the cluster claims for itself, such as liqo.io/region.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::each(schema::label_value))]
    pub labels: BTreeMap<String, String>,

    /// The storage classes that pods may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::keyed_by(&["storageClassName"]))]
    pub storage_classes: Vec<OfferedStorageClass>,

    /// The plan of the provider's catalog that this offer fulfils.
    #[serde(rename = "planID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(253))]
    pub plan_id: Option<String>,

    /// When the provider last confirmed the offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTime>,

    /// How often the provider confirms the offer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub renew_period_seconds: Option<u32>,

    /// When the provider took the offer back. Pods that use it are moved elsewhere, then it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawal_timestamp: Option<Time>,
}

/// A storage class of the provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferedStorageClass {
    /// The name of the storage class.
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: String,

    /// Whether it is the one that claims get which name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

/// What the consumer made of the offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOfferStatus {
    /// Pending until the consumer has decided, then Accepted or Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<OfferPhase>,

    /// Whether the node that stands for the offer is there (Created), not there (None), or going away
    /// (Deleting).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_kubelet_status: Option<VirtualKubeletStatus>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the offer is accepted and in use, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum OfferPhase {
    /// Not decided yet.
    #[default]
    Pending,
    /// Taken.
    Accepted,
    /// Not taken.
    Refused,
}

/// Whether there is a node for an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum VirtualKubeletStatus {
    /// There is none.
    #[default]
    None,
    /// There is one.
    Created,
    /// It is going away.
    Deleting,
}
