//! Small types that several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Who a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// The unique identifier of the cluster: made once, from its identity key, and kept for good.
    #[serde(rename = "clusterID")]
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: String,

    /// The name of the cluster, as people see it. It need not be unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cluster_name)]
    pub cluster_name: Option<String>,
}

/// Points at another object, whose kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// The namespace of the object; absent for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Amounts of resources, named as in a Kubernetes ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The amount of each resource, such as cpu, memory, pods or ephemeral-storage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(128))]
    pub hard: BTreeMap<String, Quantity>,
}

/// Writes a set as a map from each member to an empty object, so that several writers can add members.
pub(crate) mod set_as_map {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::{Value, json};

    pub(crate) fn serialize<S: Serializer>(set: &BTreeSet<String>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(set.iter().map(|member| (member, json!({}))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<String>, D::Error> {
        BTreeMap::<String, Value>::deserialize(from).map(|map| map.into_keys().collect())
    }
}
