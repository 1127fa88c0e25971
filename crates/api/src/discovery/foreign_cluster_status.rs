//! The status of a ForeignCluster: each step towards a peering, what it waits for, and the objects behind it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{ObjectRef, ResourceQuota};
use crate::schema;

/// How far the two clusters have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignClusterStatus {
    /// Whether the other cluster has let this one in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,

    /// The peering by which this cluster uses resources of the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing: Option<PeeringStatus>,

    /// The peering by which the other cluster uses resources of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming: Option<PeeringStatus>,

    /// Whether pods of the two clusters reach each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,

    /// The namespaces through which the two clusters talk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_namespaces: Option<TenantNamespaces>,

    /// The URL of the other cluster's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(2048))]
    pub api_server_url: Option<String>,

    /// When the other cluster was last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<Contact>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What holds and what is missing, with the reason and what to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

/// Whether the other cluster has let this one in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authentication {
    /// PENDING until the other cluster has answered, then ACCEPTED or REFUSED.
    pub state: AuthState,

    /// One word on why, such as InvalidToken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(128))]
    pub reason: Option<String>,

    /// Why, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,

    /// When the certificate that the other cluster gave to this one expires. It is renewed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Time>,
}

/// Whether a cluster has been let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(transform = schema::described_by_field)]
pub enum AuthState {
    /// The other cluster has not answered yet.
    #[default]
    Pending,
    /// It gave a certificate.
    Accepted,
    /// It said no.
    Refused,
}

/// One direction of a peering.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeeringStatus {
    /// None when there is no peering; Pending until it is answered, then Established or Refused; Unreachable
    /// while an established one is silent; Disconnecting while it is being ended.
    pub state: PeeringState,

    /// What it waits for, or why it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,

    /// The resources shared in this direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceQuota>,

    /// The ResourceRequest of this direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_request: Option<ObjectRef>,

    /// The ResourceOffer of this direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_offer: Option<ObjectRef>,

    /// The Node that stands for the other cluster; outgoing only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_node: Option<ObjectRef>,
}

/// How far one direction of a peering has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum PeeringState {
    /// There is none.
    #[default]
    None,
    /// Asked for, not answered yet.
    Pending,
    /// In use.
    Established,
    /// Asked for, and refused.
    Refused,
    /// Established, but the other cluster is silent.
    Unreachable,
    /// Being ended.
    Disconnecting,
}

/// Whether pods of the two clusters reach each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// None when the networks are not joined; Pending until they are, then Established; Error when the tunnel
    /// failed; External when somebody else joins them.
    pub state: NetworkState,

    /// What it waits for, or why it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub message: Option<String>,

    /// The NetworkConfig that this cluster sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_network_config: Option<ObjectRef>,

    /// The NetworkConfig that the other cluster sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_network_config: Option<ObjectRef>,

    /// The TunnelEndpoint between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_endpoint: Option<ObjectRef>,
}

/// How far the network between two clusters has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum NetworkState {
    /// Not joined, and not about to be.
    #[default]
    None,
    /// Being joined.
    Pending,
    /// Joined.
    Established,
    /// The tunnel failed.
    Error,
    /// Joined by somebody else.
    External,
}

/// The namespaces through which two clusters talk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantNamespaces {
    /// The namespace that this cluster keeps for the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub local: Option<String>,

    /// The namespace that the other cluster keeps for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub remote: Option<String>,
}

/// When a cluster was last heard of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// When it last announced itself, answered, or refreshed its offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,

    /// How long its last announcement may be believed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_live_seconds: Option<u32>,
}
