//! ForeignCluster: one other cluster, and what this one wants of it.
//!
//! The two directions are apart: `join` asks the peer for its resources, `incoming` and `offer` answer what
//! the peer asks or offers. Until a peer that was added by its URL has been contacted, nobody knows who it
//! is; therefore `clusterIdentity` may be absent.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ForeignClusterStatus;
use crate::common::{ClusterIdentity, ResourceQuota};
use crate::config::AcceptPolicy;
use crate::schema;

/// What is known about the other cluster, and what this one wants of it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "discovery.liqo.io",
    version = "v1alpha1",
    kind = "ForeignCluster",
    doc = "Another cluster: how it was found, whether it is trusted, and what the two share.",
    status = "ForeignClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "fc",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.discoveryType"),
    printcolumn(name = "Trust", type_ = "string", json_path = ".spec.trustMode"),
    printcolumn(name = "Auth", type_ = "string", json_path = ".status.authentication.state"),
    printcolumn(name = "Outgoing", type_ = "string", json_path = ".status.outgoing.state"),
    printcolumn(name = "Incoming", type_ = "string", json_path = ".status.incoming.state"),
    printcolumn(name = "Network", type_ = "string", json_path = ".status.network.state"),
    printcolumn(
        name = "Cluster ID",
        type_ = "string",
        json_path = ".spec.clusterIdentity.clusterID",
        priority = 1
    ),
    printcolumn(name = "Auth URL", type_ = "string", json_path = ".spec.authUrl", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "self.metadata.name.size() <= 63",
        "metadata.name must have at most 63 characters: it is also the value of a label"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rule(
    "has(self.authUrl) || has(self.clusterIdentity)",
    "authUrl or clusterIdentity must be given: one of them says which cluster is meant"
))]
pub struct ForeignClusterSpec {
    /// Where the auth service of the cluster answers: an https URL, or just a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::auth_url)]
    pub auth_url: Option<String>,

    /// Who the cluster is. Filled in at the first contact when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_identity: Option<ClusterIdentity>,

    /// How the cluster was found: on the local network (LAN), through DNS (WAN), by hand (Manual), or because
    /// it contacted this one (IncomingPeering).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DiscoveryType::default()))]
    pub discovery_type: Option<DiscoveryType>,

    /// Whether to ask the cluster for its resources. When accepted, they appear as a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub join: Option<bool>,

    /// What to answer when the cluster asks for resources of this one: as the configured policy says (Auto),
    /// always yes (Accept), or always no (Refuse). Refuse also ends what was accepted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Decision::default()))]
    pub incoming: Option<Decision>,

    /// What to answer to an offer of the cluster: as the configured policy says (Auto), yes (Accept), or no
    /// (Refuse).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Decision::default()))]
    pub offer: Option<Decision>,

    /// The namespace in which the cluster runs its side of the peering.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub namespace: Option<String>,

    /// Whether the certificate of the cluster comes from a trusted authority (Trusted) or not (Untrusted);
    /// Unknown before the first contact.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = TrustMode::default()))]
    pub trust_mode: Option<TrustMode>,

    /// The key that the auth service must show, as sha256/ and the hash in base64. Any other is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 51), pattern("^sha256/[A-Za-z0-9+/]{43}=$"))]
    pub auth_pin: Option<String>,

    /// What holds for this cluster instead of the general configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PeerPolicy>,

    /// Corrections to the labels that the cluster claims for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<NodeLabels>,
}

impl ForeignClusterSpec {
    /// How the cluster was found.
    pub fn discovery_type(&self) -> DiscoveryType {
        self.discovery_type.unwrap_or_default()
    }

    /// Whether to ask the cluster for its resources.
    pub fn join(&self) -> bool {
        self.join.unwrap_or(false)
    }

    /// What to answer when the cluster asks for resources of this one.
    pub fn incoming(&self) -> Decision {
        self.incoming.unwrap_or_default()
    }

    /// What to answer to an offer of the cluster.
    pub fn offer(&self) -> Decision {
        self.offer.unwrap_or_default()
    }

    /// Whether the certificate of the cluster comes from a trusted authority.
    pub fn trust_mode(&self) -> TrustMode {
        self.trust_mode.unwrap_or_default()
    }
}

/// How a cluster was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum DiscoveryType {
    /// By multicast DNS on the local network.
    #[serde(rename = "LAN")]
    Lan,
    /// By a lookup in a search domain.
    #[serde(rename = "WAN")]
    Wan,
    /// By a person who gave its address.
    #[default]
    Manual,
    /// Because it contacted this cluster.
    IncomingPeering,
}

/// Whether the certificate of a cluster comes from a trusted authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum TrustMode {
    /// It has not been seen yet.
    #[default]
    Unknown,
    /// It comes from a trusted authority.
    Trusted,
    /// It does not.
    Untrusted,
}

/// The answer to a peer. The words are not yes and no, which YAML takes for booleans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum Decision {
    /// As the policy says.
    #[default]
    Auto,
    /// Yes, whatever the policy says.
    Accept,
    /// No, whatever the policy says.
    Refuse,
}

/// What holds for one peer instead of the general configuration. What is left out is as configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerPolicy {
    /// Whether offers of this peer are accepted as they come or wait for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offers: Option<AcceptPolicy>,

    /// Whether requests of this peer are accepted as they come or wait for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<AcceptPolicy>,

    /// How much of the resources that are free this peer is offered, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub resource_sharing_percentage: Option<u8>,

    /// The most that this peer is offered of each resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// The price of each resource for this peer, for a unit of it and an hour.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128))]
    pub prices: BTreeMap<String, Quantity>,
}

/// Corrections to the labels that a peer claims for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLabels {
    /// Labels that the node of this peer gets, whatever the peer says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::each(schema::label_value))]
    pub set: BTreeMap<String, String>,

    /// Keys of labels that the node of this peer never gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(64),
        transform = schema::each(schema::label_key),
        transform = schema::set
    )]
    pub drop: Vec<String>,
}
