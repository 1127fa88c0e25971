//! ResourceRequest: a consumer asks a provider for resources.
//!
//! It is created in the consumer's tenant namespace and copied to the provider; the status comes back.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What is asked for. A request that names nothing asks for whatever the provider gives.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "discovery.liqo.io",
    version = "v1alpha1",
    kind = "ResourceRequest",
    namespaced,
    doc = "Asks a peer for resources. The peer answers with a ResourceOffer.",
    status = "ResourceRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "rr",
    printcolumn(name = "Offer", type_ = "string", json_path = ".status.offerState"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".spec.planID", priority = 1),
    printcolumn(name = "Auth URL", type_ = "string", json_path = ".spec.authUrl", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequestSpec {
    /// The URL of the asking cluster's auth service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::auth_url)]
    pub auth_url: Option<String>,

    /// The amount of each resource that is wanted. Resources that are not named are left to the provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128))]
    pub resources: BTreeMap<String, Quantity>,

    /// Properties that the offered resources must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128), transform = schema::each(schema::at_most(1024)))]
    pub properties: BTreeMap<String, String>,

    /// The plan of the provider's catalog that is asked for.
    #[serde(rename = "planID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(253))]
    pub plan_id: Option<String>,
}

/// What the provider made of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequestStatus {
    /// Pending until the provider has decided, then Created when it made an offer, or Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer_state: Option<OfferState>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the request is accepted, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum OfferState {
    /// Not decided yet.
    #[default]
    Pending,
    /// There is an offer.
    Created,
    /// There will be none.
    Refused,
}
