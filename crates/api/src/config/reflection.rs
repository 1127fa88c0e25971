//! The part of ClusterConfig about what of an offloaded namespace is copied to other clusters beside pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ReplicatedResource;
use crate::schema;

/// What of an offloaded namespace is copied to the clusters that it uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReflectionConfig {
    /// Services, and with them their endpoints: Auto copies all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ReflectionMode::default()))]
    pub services: Option<ReflectionMode>,

    /// ConfigMaps: Auto copies those that a pod over there refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ReflectionMode::default()))]
    pub config_maps: Option<ReflectionMode>,

    /// Secrets: Auto copies those that a pod or an Ingress over there refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ReflectionMode::default()))]
    pub secrets: Option<ReflectionMode>,

    /// Ingresses: Auto copies all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ReflectionMode::default()))]
    pub ingresses: Option<ReflectionMode>,

    /// Further kinds, of which all objects are copied; none that Kubernetes has itself, and each in one version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::at_most(16),
        transform = schema::rule(
            "self.all(kind, kind.group != '' && !(kind.group == 'discovery.k8s.io' && kind.resource == 'endpointslices') && \
             !(kind.group == 'networking.k8s.io' && kind.resource == 'ingresses'))",
            "kinds of Kubernetes itself are copied as the other settings of this section say, and are not listed"
        ),
        transform = schema::rule(
            "self.all(kind, self.exists_one(other, other.group == kind.group && other.resource == kind.resource))",
            "a kind is listed in one version"
        ),
        transform = schema::keyed_by(&["group", "version", "resource"])
    )]
    pub custom_resources: Vec<ReplicatedResource>,
}

impl ReflectionConfig {
    /// What is done with Services.
    pub fn services(&self) -> ReflectionMode {
        self.services.unwrap_or_default()
    }

    /// What is done with ConfigMaps.
    pub fn config_maps(&self) -> ReflectionMode {
        self.config_maps.unwrap_or_default()
    }

    /// What is done with Secrets.
    pub fn secrets(&self) -> ReflectionMode {
        self.secrets.unwrap_or_default()
    }

    /// What is done with Ingresses.
    pub fn ingresses(&self) -> ReflectionMode {
        self.ingresses.unwrap_or_default()
    }
}

/// Which objects of a kind are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum ReflectionMode {
    /// Those that are needed over there, but for those that are annotated with liqo.io/reflect=false.
    #[default]
    Auto,
    /// Those that are annotated with liqo.io/reflect=true.
    OptIn,
    /// None.
    Never,
}
