//! SearchDomain: a DNS domain in which other clusters are registered.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ObjectRef;
use crate::schema;

/// The domain, and how it is looked up.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "discovery.liqo.io",
    version = "v1alpha1",
    kind = "SearchDomain",
    doc = "A DNS domain in which other clusters are registered. It is looked up from time to time.",
    status = "SearchDomainStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "sd",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.domain"),
    printcolumn(name = "Clusters", type_ = "integer", json_path = ".status.found"),
    printcolumn(name = "Last search", type_ = "date", json_path = ".status.lastSearchTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SearchDomainSpec {
    /// The domain, such as example.org.
    #[schemars(length(min = 1, max = 253), pattern("^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?$"))]
    pub domain: String,

    /// Whether clusters found in this domain are asked for resources as soon as they have authenticated this
    /// one. When left out, the general configuration decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_join: Option<bool>,

    /// The DNS server that is asked, as address or address:port. When left out, it is as configured in
    /// general.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(253))]
    pub dns_server: Option<String>,

    /// How often the domain is looked up, in seconds. When left out, it is as configured in general.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub search_period_seconds: Option<u32>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchDomainStatus {
    /// The ForeignClusters found in this domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(4096), transform = schema::keyed_by(&["name"]))]
    pub foreign_clusters: Vec<ObjectRef>,

    /// How many clusters were found in this domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u32>,

    /// When the domain was last looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_search_time: Option<Time>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the last lookup succeeded, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}
