//! ClusterConfig: everything an administrator can set about this cluster, in one object that is read live.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AdvertisementConfig, AuthConfig, DiscoveryConfig, LiqonetConfig, ReflectionConfig, TenancyConfig,
};
use crate::schema;

const DASHBOARD_LABEL: &str = "liqo-dashboard";

/// What an administrator sets. A change takes effect without a restart.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.liqo.io",
    version = "v1alpha1",
    kind = "ClusterConfig",
    doc = "How this cluster presents itself, finds other clusters, and shares resources with them.",
    status = "ClusterConfigStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "lcfg",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.discoveryConfig.name"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.clusterID"),
    printcolumn(
        name = "Offers",
        type_ = "string",
        json_path = ".spec.advertisementConfig.ingoingConfig.acceptPolicy",
        priority = 1
    ),
    printcolumn(name = "Auth URL", type_ = "string", json_path = ".status.authUrl", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "self.metadata.name.size() <= 63",
        "metadata.name must have at most 63 characters"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfigSpec {
    /// How resources are offered to peers, and how the offers and requests of peers are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertisement_config: Option<AdvertisementConfig>,

    /// How this cluster is announced to others, and how it looks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_config: Option<DiscoveryConfig>,

    /// How peers prove who they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_config: Option<AuthConfig>,

    /// How the networks of this cluster and its peers are joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liqonet_config: Option<LiqonetConfig>,

    /// What holds for the namespaces that peers use here, unless their Tenant says something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy_config: Option<TenancyConfig>,

    /// What of an offloaded namespace is copied to the clusters that it uses, beside its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection_config: Option<ReflectionConfig>,

    /// Which objects are copied to peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatcher_config: Option<DispatcherConfig>,

    /// What the desktop agent needs to know about this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_config: Option<AgentConfig>,

    /// How peers reach the API server of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server_config: Option<ApiServerConfig>,

    /// Labels that describe this cluster, such as liqo.io/region. Peers see them on the node that stands for
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::each(schema::label_value))]
    pub cluster_labels: BTreeMap<String, String>,
}

impl ClusterConfigSpec {
    /// The section, with every default where it is left out.
    pub fn advertisement(&self) -> AdvertisementConfig {
        self.advertisement_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn discovery(&self) -> DiscoveryConfig {
        self.discovery_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn auth(&self) -> AuthConfig {
        self.auth_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn liqonet(&self) -> LiqonetConfig {
        self.liqonet_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn tenancy(&self) -> TenancyConfig {
        self.tenancy_config.clone().unwrap_or_default()
    }

    /// The section, with every default where it is left out.
    pub fn reflection(&self) -> ReflectionConfig {
        self.reflection_config.clone().unwrap_or_default()
    }

    /// The kinds to copy to peers, beside those that a peering itself needs.
    pub fn resources_to_replicate(&self) -> &[ReplicatedResource] {
        self.dispatcher_config.as_ref().map_or(&[], |dispatcher| &dispatcher.resources_to_replicate)
    }

    /// The section, with every default where it is left out.
    pub fn dashboard(&self) -> DashboardConfig {
        self.agent_config.as_ref().and_then(|agent| agent.dashboard_config.clone()).unwrap_or_default()
    }
}

/// Which objects are copied to peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DispatcherConfig {
    /// Kinds whose objects are copied to a peer when they carry the label liqo.io/replication=true.
    /// The kinds that a peering itself needs are always copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(64),
        transform = schema::keyed_by(&["group", "version", "resource"])
    )]
    pub resources_to_replicate: Vec<ReplicatedResource>,
}

/// A kind, as the API server lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedResource {
    /// The API group of the kind; empty for the core group.
    #[schemars(length(max = 253))]
    pub group: String,

    /// The version of the API group.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,

    /// The plural name of the kind, in lower case.
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,
}

/// What the desktop agent needs to know about this cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    /// Where the agent finds the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dashboard_config: Option<DashboardConfig>,
}

/// Where the agent finds the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DashboardConfig {
    /// The namespace of the dashboard's Service or Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub namespace: Option<String>,

    /// The value of the label app on the dashboard's Service or Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::label_value, extend("default" = DASHBOARD_LABEL))]
    pub app_label: Option<String>,
}

impl DashboardConfig {
    /// The value of the label app on the dashboard's Service or Ingress.
    pub fn app_label(&self) -> &str {
        self.app_label.as_deref().unwrap_or(DASHBOARD_LABEL)
    }
}

/// How peers reach the API server of this cluster. What is left out is found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerConfig {
    /// The URL that peers use; by default the endpoint of the Service kubernetes in the namespace default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::https_url)]
    pub url: Option<String>,

    /// The certificates, in PEM, with which peers verify the API server; by default those of
    /// kube-root-ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", transform = schema::bytes, transform = schema::at_most(65_536))]
    pub ca_bundle: Option<ByteString>,
}

/// What this cluster found out about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfigStatus {
    /// The unique identifier of this cluster: made once, from its identity key, and kept for good.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: Option<String>,

    /// The URL of this cluster's auth service, as announced to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(2048))]
    pub auth_url: Option<String>,

    /// The generation of the spec that is in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Whether the configuration is in effect, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}
