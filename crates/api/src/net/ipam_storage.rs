//! IpamStorage: what the address manager has handed out, so that it survives a restart.
//!
//! Only the address manager writes it, and often; therefore its values are bounded but not checked one by
//! one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::set_as_map;
use crate::schema;

/// Networks and addresses in use.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "net.liqo.io",
    version = "v1alpha1",
    kind = "IpamStorage",
    doc = "The networks and addresses that the address manager has handed out. Not meant to be edited.",
    derive = "PartialEq",
    derive = "Default",
    shortname = "ipams",
    printcolumn(name = "Pod CIDR", type_ = "string", json_path = ".spec.podCIDR"),
    printcolumn(name = "Service CIDR", type_ = "string", json_path = ".spec.serviceCIDR"),
    printcolumn(name = "External CIDR", type_ = "string", json_path = ".spec.externalCIDR"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IpamStorageSpec {
    /// For each network, the state of its allocator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        with = "BTreeMap<String, String>",
        transform = schema::at_most(16_384),
        transform = schema::each(schema::bytes),
        transform = schema::of_one_writer
    )]
    pub prefixes: BTreeMap<String, ByteString>,

    /// The networks from which replacements are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::each(schema::cidr))]
    pub pools: Vec<String>,

    /// For each peer, by its cluster identifier, the networks agreed with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(16_384))]
    pub cluster_subnets: BTreeMap<String, Subnets>,

    /// The network of addresses that stand for endpoints which are not pods of this cluster.
    #[serde(rename = "externalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub external_cidr: Option<String>,

    /// For each endpoint that is published, by its address, the address that stands for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(65_536), transform = schema::of_one_writer)]
    pub endpoint_mappings: BTreeMap<String, EndpointMapping>,

    /// The peers, by their cluster identifiers, that have a NatMapping.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set_as_map")]
    #[schemars(with = "BTreeMap<String, String>", transform = schema::set_as_map(16_384))]
    pub nat_mappings_configured: BTreeSet<String>,

    /// The network of this cluster's pods.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub pod_cidr: Option<String>,

    /// The network of this cluster's services.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub service_cidr: Option<String>,
}

/// The networks agreed with one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnets {
    /// The network that the peer uses in place of this cluster's pod network, or None when it uses that one.
    #[serde(rename = "localNATPodCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(43))]
    pub local_nat_pod_cidr: Option<String>,

    /// The network that this cluster uses for the peer's pods.
    #[serde(rename = "remotePodCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(43))]
    pub remote_pod_cidr: Option<String>,

    /// The network that the peer uses in place of this cluster's external network, or None when it uses that
    /// one.
    #[serde(rename = "localNATExternalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(43))]
    pub local_nat_external_cidr: Option<String>,

    /// The network that this cluster uses for the peer's other endpoints.
    #[serde(rename = "remoteExternalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(43))]
    pub remote_external_cidr: Option<String>,
}

/// The address that stands for one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointMapping {
    /// The address in this cluster's external network, as this cluster names it; for a pod, its own.
    #[schemars(transform = schema::at_most(45))]
    pub ip: String,

    /// The peers, by their cluster identifiers, for which somebody has asked for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set_as_map")]
    #[schemars(with = "BTreeMap<String, String>", transform = schema::set_as_map(16_384))]
    pub cluster_mappings: BTreeSet<String>,

    /// The peers, by their cluster identifiers, to which an EndpointSlice is reflected that names it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set_as_map")]
    #[schemars(with = "BTreeMap<String, String>", transform = schema::set_as_map(16_384))]
    pub reflected_to: BTreeSet<String>,

    /// Whether it is reflected to all peers: a node of this cluster, with the reach full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_clusters: Option<bool>,

    /// The peer, by its cluster identifier, to which it is reflected as its own: a pod that runs here for it, with the
    /// reach strict.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(63))]
    pub guest_of: Option<String>,
}

impl EndpointMapping {
    /// Whether it is reflected to all peers.
    pub fn all_clusters(&self) -> bool {
        self.all_clusters.unwrap_or_default()
    }
}
