//! NetworkConfig: what one cluster tells another about its networks, and how the other will name them.
//!
//! Two forms are in use for the cluster it is meant for, and two spellings for the tunnel's address. Both are
//! accepted; [`NetworkConfigSpec::receiver`] and [`NetworkConfigSpec::endpoint`] give their one meaning, and
//! [`NetworkConfigSpec::for_cluster`] writes the newer form.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ClusterIdentity;
use crate::schema;

/// The networks of the cluster that sends it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "net.liqo.io",
    version = "v1alpha1",
    kind = "NetworkConfig",
    namespaced,
    doc = "The networks of one cluster, as told to another, and what the other uses in their place.",
    status = "NetworkConfigStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "netcfg",
    printcolumn(name = "Pod CIDR", type_ = "string", json_path = ".spec.podCIDR"),
    printcolumn(name = "Pod NAT", type_ = "string", json_path = ".status.podCIDRNAT"),
    printcolumn(name = "External CIDR", type_ = "string", json_path = ".spec.externalCIDR", priority = 1),
    printcolumn(
        name = "External NAT",
        type_ = "string",
        json_path = ".status.externalCIDRNAT",
        priority = 1
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpointIP"),
    printcolumn(name = "Processed", type_ = "boolean", json_path = ".status.processed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = schema::rule(
        "has(self.cluster) || has(self.clusterID)",
        "cluster.clusterID or clusterID must be given: it says which cluster this is for"
    ),
    transform = schema::rule(
        "!has(self.cluster) || !has(self.clusterID) || self.cluster.clusterID == self.clusterID",
        "cluster.clusterID and clusterID must be equal when both are given"
    ),
    transform = schema::rule(
        "has(self.endpointIP) || has(self.EndpointIP)",
        "endpointIP must be given: it says where the tunnel ends"
    ),
    transform = schema::rule(
        "!has(self.endpointIP) || !has(self.EndpointIP) || self.endpointIP == self.EndpointIP",
        "endpointIP and EndpointIP must be equal when both are given"
    )
)]
pub struct NetworkConfigSpec {
    /// The cluster that this is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterIdentity>,

    /// The identifier of the cluster that this is for; an older form of cluster.clusterID.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: Option<String>,

    /// The network of the pods.
    #[serde(rename = "podCIDR")]
    #[schemars(transform = schema::cidr)]
    pub pod_cidr: String,

    /// The network of addresses that stand for endpoints which are not pods of the cluster. Without it, only
    /// pods can be reached.
    #[serde(rename = "externalCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr)]
    pub external_cidr: Option<String>,

    /// Networks that stand for clusters behind this one, each reached through it.
    #[serde(rename = "transitCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = schema::set,
        transform = schema::at_most(64),
        transform = schema::each(schema::cidr)
    )]
    pub transit_cidrs: Vec<String>,

    /// The public address of the node at which the tunnel ends.
    #[serde(rename = "endpointIP", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ip)]
    pub endpoint_ip: Option<String>,

    /// An older spelling of endpointIP.
    #[serde(rename = "EndpointIP", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::ip)]
    pub endpoint_ip_old: Option<String>,

    /// The technology of the tunnel, such as wireguard.
    #[schemars(length(min = 1, max = 63))]
    pub backend_type: String,

    /// What the technology needs to know, such as port and publicKey.
    #[serde(rename = "backend_config", default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(32), transform = schema::each(schema::at_most(1024)))]
    pub backend_config: BTreeMap<String, String>,

    /// The signature of the cluster that sends this, so that another may pass it on unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// The cluster that a NetworkConfig is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// Its name, where given.
    pub name: Option<&'a str>,
}

impl NetworkConfigSpec {
    /// A NetworkConfig for this cluster, with nothing else in it yet.
    pub fn for_cluster(cluster: ClusterIdentity) -> Self {
        Self { cluster: Some(cluster), ..Self::default() }
    }

    /// The cluster that this is for, whichever form was used. The schema lets nothing pass without it.
    pub fn receiver(&self) -> Option<Receiver<'_>> {
        match (&self.cluster, &self.cluster_id) {
            (Some(cluster), _) => {
                Some(Receiver { id: &cluster.cluster_id, name: cluster.cluster_name.as_deref() })
            }
            (None, Some(id)) => Some(Receiver { id, name: None }),
            (None, None) => None,
        }
    }

    /// Where the tunnel ends, whichever spelling was used. The schema lets nothing pass without it.
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint_ip.as_deref().or(self.endpoint_ip_old.as_deref())
    }
}

/// A signature with the identity key of a cluster, from which its identifier is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// The public half of the identity key, in base64.
    #[schemars(length(max = 64), pattern("^[A-Za-z0-9+/]+=*$"))]
    pub public_key: String,

    /// The signature of the rest of the spec, in base64.
    #[schemars(length(max = 128), pattern("^[A-Za-z0-9+/]+=*$"))]
    pub value: String,
}

/// How the cluster that received it names the networks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfigStatus {
    /// Whether the receiver has decided which networks it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub processed: Option<bool>,

    /// The network that the receiver uses in place of podCIDR, or None when it uses that one.
    #[serde(rename = "podCIDRNAT", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none)]
    pub pod_cidr_nat: Option<String>,

    /// The network that the receiver uses in place of externalCIDR, or None when it uses that one.
    #[serde(rename = "externalCIDRNAT", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cidr_or_none)]
    pub external_cidr_nat: Option<String>,

    /// For each transit network, the one that the receiver uses in its place, or None when it uses that one.
    #[serde(rename = "transitCIDRNATs", default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(64), transform = schema::each(schema::cidr_or_none))]
    pub transit_cidr_nats: BTreeMap<String, String>,

    /// Whether the receiver could process it, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions)]
    pub conditions: Vec<Condition>,
}

impl NetworkConfigStatus {
    /// Whether the receiver has decided which networks it uses.
    pub fn processed(&self) -> bool {
        self.processed.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{NetworkConfigSpec, Receiver};
    use crate::common::ClusterIdentity;

    #[test]
    fn both_forms_name_the_same_receiver() {
        let older = NetworkConfigSpec { cluster_id: Some("c1".into()), ..NetworkConfigSpec::default() };
        let newer =
            NetworkConfigSpec::for_cluster(ClusterIdentity { cluster_id: "c1".into(), cluster_name: None });
        assert_eq!(older.receiver(), Some(Receiver { id: "c1", name: None }));
        assert_eq!(newer.receiver(), older.receiver());
    }

    #[test]
    fn both_spellings_give_the_same_endpoint() {
        let older =
            NetworkConfigSpec { endpoint_ip_old: Some("192.0.2.7".into()), ..NetworkConfigSpec::default() };
        let newer =
            NetworkConfigSpec { endpoint_ip: Some("192.0.2.7".into()), ..NetworkConfigSpec::default() };
        assert_eq!(older.endpoint(), Some("192.0.2.7"));
        assert_eq!(newer.endpoint(), older.endpoint());
    }
}
