//! TunnelEndpoint: the agreed result of two NetworkConfigs, from which routes and gateway are set up.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NOT_REMAPPED;
use crate::schema;

/// The other end of the tunnel, as it described itself.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "net.liqo.io",
    version = "v1alpha1",
    kind = "TunnelEndpoint",
    namespaced,
    doc = "The tunnel to one peer: the networks on both sides, their names there, and how it fares.",
    status = "TunnelEndpointStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "tep",
    printcolumn(name = "Cluster ID", type_ = "string", json_path = ".spec.clusterID", priority = 1),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpointIP"),
    printcolumn(name = "Backend", type_ = "string", json_path = ".spec.backendType"),
    printcolumn(name = "Connection", type_ = "string", json_path = ".status.connection.status"),
    printcolumn(name = "Pod CIDR", type_ = "string", json_path = ".spec.podCIDR", priority = 1),
    printcolumn(name = "Pod NAT", type_ = "string", json_path = ".status.remoteNATPodCIDR", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TunnelEndpointSpec {
    /// The identifier of the peer.
    #[serde(rename = "clusterID")]
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: String,

    /// The network of the peer's pods, as the peer names it.
    #[serde(rename = "podCIDR")]
    #[schemars(transform = schema::cidr)]
    pub pod_cidr: String,

    /// The peer's network of addresses that stand for other endpoints, as the peer names it.
    #[serde(rename = "externalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub external_cidr: Option<String>,

    /// The public address of the node at which the peer's tunnel ends.
    #[serde(rename = "endpointIP")]
    #[schemars(transform = schema::ip)]
    pub endpoint_ip: String,

    /// The technology of the tunnel, such as wireguard.
    #[schemars(length(min = 1, max = 63))]
    pub backend_type: String,

    /// What the technology needs to know about the peer, such as port and publicKey.
    #[serde(rename = "backend_config", default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(32), transform = schema::each(schema::at_most(1024)))]
    pub backend_config: BTreeMap<String, String>,
}

/// The networks in use, the interfaces, and how the tunnel fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelEndpointStatus {
    /// How far the set-up has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(63))]
    pub phase: Option<String>,

    /// The network of this cluster's pods.
    #[serde(rename = "localPodCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub local_pod_cidr: Option<String>,

    /// The network that the peer uses in place of localPodCIDR, or None when it uses that one.
    #[serde(rename = "localNATPodCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none, extend("default" = NOT_REMAPPED))]
    pub local_nat_pod_cidr: Option<String>,

    /// The network that this cluster uses in place of the peer's podCIDR, or None when it uses that one.
    #[serde(rename = "remoteNATPodCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none, extend("default" = NOT_REMAPPED))]
    pub remote_nat_pod_cidr: Option<String>,

    /// This cluster's network of addresses that stand for other endpoints.
    #[serde(rename = "localExternalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub local_external_cidr: Option<String>,

    /// The network that the peer uses in place of localExternalCIDR, or None when it uses that one.
    #[serde(rename = "localNATExternalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none, extend("default" = NOT_REMAPPED))]
    pub local_nat_external_cidr: Option<String>,

    /// The network that this cluster uses in place of the peer's externalCIDR, or None when it uses that one.
    #[serde(rename = "remoteNATExternalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none, extend("default" = NOT_REMAPPED))]
    pub remote_nat_external_cidr: Option<String>,

    /// The public address at which the peer's tunnel ends.
    #[serde(rename = "remoteTunnelPublicIP", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ip)]
    pub remote_endpoint_ip: Option<String>,

    /// The public address at which this cluster's tunnel ends.
    #[serde(rename = "localTunnelPublicIP", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ip)]
    pub local_endpoint_ip: Option<String>,

    /// The index of the tunnel's network interface.
    #[serde(rename = "tunnelIFaceIndex", skip_serializing_if = "Option::is_none")]
    pub tunnel_iface_index: Option<i32>,

    /// The name of the tunnel's network interface.
    #[serde(rename = "tunnelIFaceName", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(63))]
    pub tunnel_iface_name: Option<String>,

    /// The index of the interface between the gateway and its node.
    #[serde(rename = "vethIFaceIndex", skip_serializing_if = "Option::is_none")]
    pub veth_iface_index: Option<i32>,

    /// The name of the interface between the gateway and its node.
    #[serde(rename = "vethIFaceName", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(63))]
    pub veth_iface_name: Option<String>,

    /// The address of the node on which the gateway runs.
    #[serde(rename = "gatewayIP", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ip)]
    pub gateway_ip: Option<String>,

    /// How the tunnel fares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the tunnel is set up and in use, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

impl TunnelEndpointStatus {
    /// The network that the peer uses in place of this cluster's pod network, or None.
    pub fn local_nat_pod_cidr(&self) -> &str {
        self.local_nat_pod_cidr.as_deref().unwrap_or(NOT_REMAPPED)
    }

    /// The network that this cluster uses in place of the peer's pod network, or None.
    pub fn remote_nat_pod_cidr(&self) -> &str {
        self.remote_nat_pod_cidr.as_deref().unwrap_or(NOT_REMAPPED)
    }

    /// The network that the peer uses in place of this cluster's external network, or None.
    pub fn local_nat_external_cidr(&self) -> &str {
        self.local_nat_external_cidr.as_deref().unwrap_or(NOT_REMAPPED)
    }

    /// The network that this cluster uses in place of the peer's external network, or None.
    pub fn remote_nat_external_cidr(&self) -> &str {
        self.remote_nat_external_cidr.as_deref().unwrap_or(NOT_REMAPPED)
    }
}

/// How a tunnel fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Whether the tunnel is connected, connecting, or in error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ConnectionStatus>,

    /// Why the tunnel is in this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(1024))]
    pub status_message: Option<String>,

    /// Whether the last probes through the tunnel had no answer. Long before a tunnel counts as not connected, pods
    /// behind it count as not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<bool>,

    /// The settings of the tunnel towards this peer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(32), transform = schema::each(schema::at_most(1024)))]
    pub peer_configuration: BTreeMap<String, String>,

    /// What the last probes through the tunnel measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,

    /// What went through the tunnel of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
}

/// Whether a tunnel works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = schema::described_by_field)]
pub enum ConnectionStatus {
    /// Packets go through.
    Connected,
    /// Being set up, or set up again.
    #[default]
    Connecting,
    /// It cannot be set up; the message says why.
    Error,
}

/// What the last probes through a tunnel measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// The mean round-trip time, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_microseconds: Option<u32>,

    /// How much the round-trip time varies, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_microseconds: Option<u32>,

    /// How many of a thousand probes were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub lost_per_thousand: Option<u16>,

    /// When this was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<Time>,
}

/// What went through a tunnel, on average since it was last written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Throughput {
    /// To the peer, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes_per_second: Option<u64>,

    /// From the peer, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes_per_second: Option<u64>,
}
