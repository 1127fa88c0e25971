//! The part of ClusterConfig about the namespaces that peers use here.

use k8s_openapi::api::core::v1::LimitRangeSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

const NAMESPACE_QUOTA: u32 = 100;
/// The kinds of template: those that our controller may write in namespaces of Tenants. None holds a secret, since
/// this object is for many to read, and none grants rights.
const TEMPLATE_KINDS: [&str; 4] = ["ConfigMap", "LimitRange", "NetworkPolicy", "ResourceQuota"];

/// What holds for the namespaces that peers use here, unless their Tenant says something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenancyConfig {
    /// How many namespaces a Tenant may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4096), extend("default" = NAMESPACE_QUOTA))]
    pub namespace_quota: Option<u32>,

    /// The Pod Security level that is enforced in namespaces of Tenants: privileged, baseline or restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = PodSecurity::default()))]
    pub pod_security: Option<PodSecurity>,

    /// What a container, a pod or a claim in namespaces of Tenants may ask for, and what it gets when it asks for
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LimitRangeSpec", transform = schema::limit_range)]
    pub limit_range: Option<LimitRangeSpec>,

    /// Objects that are put into every namespace of a Tenant, and follow this list when it changes: ConfigMaps,
    /// LimitRanges, NetworkPolicies and ResourceQuotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::each(schema::embedded_object(&TEMPLATE_KINDS)),
        transform = schema::at_most(32)
    )]
    pub templates: Vec<Map<String, Value>>,
}

impl TenancyConfig {
    /// How many namespaces a Tenant may have.
    pub fn namespace_quota(&self) -> u32 {
        self.namespace_quota.unwrap_or(NAMESPACE_QUOTA)
    }

    /// The Pod Security level that is enforced.
    pub fn pod_security(&self) -> PodSecurity {
        self.pod_security.unwrap_or_default()
    }
}

/// A level of the Pod Security Standards, with the words of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = schema::described_by_field)]
pub enum PodSecurity {
    /// Everything is allowed.
    Privileged,
    /// What is known to break out of a container is not.
    #[default]
    Baseline,
    /// Only what is known as good practice is.
    Restricted,
}

impl PodSecurity {
    /// The level as the value of a namespace's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}
