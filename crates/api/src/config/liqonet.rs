//! The part of ClusterConfig about the network between clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

const POOLS: [&str; 3] = ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"];
const EXTERNAL_CIDR_MASK: u8 = 16;

/// How the networks of this cluster and its peers are joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiqonetConfig {
    /// Who joins the networks: with internal this cluster does; external says that somebody else provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = NetworkMode::default()))]
    pub mode: Option<NetworkMode>,

    /// The network of this cluster's pods, as kube-controller-manager has it in --cluster-cidr. When left out, it is
    /// found out from the nodes.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub pod_cidr: Option<String>,

    /// The network of this cluster's services. When left out, it is found out from the object ServiceCIDR kubernetes.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub service_cidr: Option<String>,

    /// The networks from which replacements are taken when those of a peer overlap with others in use here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        transform = schema::at_most(64),
        transform = schema::each(schema::cidr),
        extend("default" = POOLS)
    )]
    pub pools: Option<Vec<String>>,

    /// Networks in use around this cluster, which must never be given to a peer.
    #[serde(rename = "reservedCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(256),
        transform = schema::each(schema::cidr),
        transform = schema::set
    )]
    pub reserved_cidrs: Vec<String>,

    /// The mask length of the network from which peers get addresses for endpoints that are not pods of this
    /// cluster. Peers take none that is larger than a /12.
    #[serde(rename = "externalCIDRMaskLength", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 12, max = 30), extend("default" = EXTERNAL_CIDR_MASK))]
    pub external_cidr_mask_length: Option<u8>,

    /// What peers can reach: with default all pods, and other endpoints that are reflected to them; with
    /// strict only offloaded pods and reflected endpoints; with full the nodes, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Reach::default()))]
    pub reach: Option<Reach>,

    /// The largest packet that goes through a tunnel, in bytes. When left out, it is found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1280, max = 65_535))]
    pub mtu: Option<u16>,
}

impl LiqonetConfig {
    /// Who joins the networks.
    pub fn mode(&self) -> NetworkMode {
        self.mode.unwrap_or_default()
    }

    /// The networks from which replacements are taken.
    pub fn pools(&self) -> Vec<String> {
        self.pools.clone().unwrap_or_else(|| POOLS.map(String::from).into())
    }

    /// The mask length of the network for endpoints that are not pods of this cluster.
    pub fn external_cidr_mask_length(&self) -> u8 {
        self.external_cidr_mask_length.unwrap_or(EXTERNAL_CIDR_MASK)
    }

    /// What peers can reach.
    pub fn reach(&self) -> Reach {
        self.reach.unwrap_or_default()
    }
}

/// Who joins the networks of this cluster and its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = schema::described_by_field)]
pub enum NetworkMode {
    /// This cluster does.
    #[default]
    Internal,
    /// Somebody else does, and pods reach each other without our help.
    External,
}

/// What peers can reach through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = schema::described_by_field)]
pub enum Reach {
    /// All pods, and other endpoints that are reflected to the peer.
    #[default]
    Default,
    /// Offloaded pods and reflected endpoints only.
    Strict,
    /// All pods, reflected endpoints, and the nodes.
    Full,
}
