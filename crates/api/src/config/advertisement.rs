//! The part of ClusterConfig about sharing: two acceptance policies, what is offered, and the keep-alive.
//!
//! Offers received and requests received are two decisions: by the first this cluster becomes a consumer, by
//! the second a provider. Both can be decided otherwise for a single peer, on its ForeignCluster.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ResourceQuota;
use crate::discovery::{DiscoveryType, TrustMode};
use crate::schema;

const MAX_ACCEPTABLE: u32 = 1_000_000;
const KEEPALIVE_THRESHOLD: u32 = 3;
const KEEPALIVE_RETRY_TIME: u32 = 20;
const DRAIN_DELAY: u32 = 24 * 60 * 60;
const SHARED_PERCENTAGE: u8 = 80;

/// How resources are offered to peers, and how the offers and requests of peers are answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisementConfig {
    /// Which offers of peers are accepted. An accepted offer becomes a node of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingoing_config: Option<IngoingConfig>,

    /// Which requests of peers for resources of this cluster are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_config: Option<RequestConfig>,

    /// What this cluster offers to its peers, and which peers it asks for resources by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing_config: Option<OutgoingConfig>,

    /// How many refreshes of an offer may be missed before the node of that peer is no longer ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = KEEPALIVE_THRESHOLD))]
    pub keepalive_threshold: Option<u32>,

    /// How often an offer is refreshed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = KEEPALIVE_RETRY_TIME))]
    pub keepalive_retry_time: Option<u32>,

    /// How long the node of a lost peer keeps its pods before they are started elsewhere, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000), extend("default" = DRAIN_DELAY))]
    pub drain_delay_seconds: Option<u32>,
}

impl AdvertisementConfig {
    /// The section, with every default where it is left out.
    pub fn ingoing(&self) -> IngoingConfig {
        self.ingoing_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn requests(&self) -> RequestConfig {
        self.request_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn outgoing(&self) -> OutgoingConfig {
        self.outgoing_config.clone().unwrap_or_default()
    }

    /// How many refreshes may be missed before a peer counts as lost.
    pub fn keepalive_threshold(&self) -> u32 {
        self.keepalive_threshold.unwrap_or(KEEPALIVE_THRESHOLD)
    }

    /// How often an offer is refreshed.
    pub fn keepalive_retry_time(&self) -> Duration {
        seconds(self.keepalive_retry_time.unwrap_or(KEEPALIVE_RETRY_TIME))
    }

    /// How long the node of a lost peer keeps its pods.
    pub fn drain_delay(&self) -> Duration {
        seconds(self.drain_delay_seconds.unwrap_or(DRAIN_DELAY))
    }
}

/// Which offers of peers are accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngoingConfig {
    /// AutoAcceptMax accepts offers as they come, up to the maximum; Manual leaves each one to a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = AcceptPolicy::default()))]
    pub accept_policy: Option<AcceptPolicy>,

    /// How many offers may be accepted at the same time with AutoAcceptMax.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000), extend("default" = MAX_ACCEPTABLE))]
    pub max_acceptable_advertisement: Option<u32>,
}

impl IngoingConfig {
    /// Who decides on an offer.
    pub fn accept_policy(&self) -> AcceptPolicy {
        self.accept_policy.unwrap_or_default()
    }

    /// How many offers may be accepted at the same time with AutoAcceptMax.
    pub fn max_acceptable_advertisement(&self) -> u32 {
        self.max_acceptable_advertisement.unwrap_or(MAX_ACCEPTABLE)
    }
}

/// Which requests of peers for resources of this cluster are accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestConfig {
    /// AutoAcceptMax accepts requests as they come, up to the maximum; Manual leaves each one to a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = AcceptPolicy::default()))]
    pub accept_policy: Option<AcceptPolicy>,

    /// How many requests may be accepted at the same time with AutoAcceptMax.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000), extend("default" = MAX_ACCEPTABLE))]
    pub max_acceptable_requests: Option<u32>,
}

impl RequestConfig {
    /// Who decides on a request.
    pub fn accept_policy(&self) -> AcceptPolicy {
        self.accept_policy.unwrap_or_default()
    }

    /// How many requests may be accepted at the same time with AutoAcceptMax.
    pub fn max_acceptable_requests(&self) -> u32 {
        self.max_acceptable_requests.unwrap_or(MAX_ACCEPTABLE)
    }
}

/// Who decides on an offer or a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum AcceptPolicy {
    /// Accepted as they come, up to a maximum.
    #[default]
    AutoAcceptMax,
    /// Each one waits for a person.
    Manual,
}

/// What this cluster offers to its peers, and which peers it asks for resources by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingConfig {
    /// How much of the resources that are free an offer holds, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = SHARED_PERCENTAGE))]
    pub resource_sharing_percentage: Option<u8>,

    /// The most that a single peer is offered of each resource. Resources that are not named have no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// The price of each resource, for a unit of it and an hour.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128))]
    pub prices: BTreeMap<String, Quantity>,

    /// Further information that goes with every offer, such as the currency of the prices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128), transform = schema::each(schema::at_most(1024)))]
    pub properties: BTreeMap<String, String>,

    /// Which clusters are asked for resources as soon as they are discovered and have authenticated this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_join: Option<AutoJoin>,
}

impl OutgoingConfig {
    /// How much of the resources that are free an offer holds, in percent.
    pub fn resource_sharing_percentage(&self) -> u8 {
        self.resource_sharing_percentage.unwrap_or(SHARED_PERCENTAGE)
    }
}

/// Which clusters are joined without being asked to: those that match both lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoJoin {
    /// Join clusters that were discovered in one of these ways. None are joined when this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(4), transform = schema::set)]
    pub discovery_types: Vec<DiscoveryType>,

    /// Join clusters whose certificate is trusted in one of these ways. None are joined when this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(3), transform = schema::set)]
    pub trust_modes: Vec<TrustMode>,
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}
