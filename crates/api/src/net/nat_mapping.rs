//! NatMapping: addresses at which a peer reaches endpoints of this cluster that are not its pods, and which pods it
//! reaches where it does not reach all of them.
//!
//! A general redirect: entries may come from the address manager or from anyone else, and all are honoured.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The redirections for one peer.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "net.liqo.io",
    version = "v1alpha1",
    kind = "NatMapping",
    doc = "Redirects traffic of one peer: what it sends to one address goes to another.",
    derive = "PartialEq",
    derive = "Default",
    shortname = "natm",
    printcolumn(name = "Cluster ID", type_ = "string", json_path = ".spec.clusterID"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NatMappingSpec {
    /// The identifier of the peer whose traffic is redirected.
    #[serde(rename = "clusterID")]
    #[schemars(transform = schema::cluster_id)]
    pub cluster_id: String,

    /// For each endpoint, by its address in this cluster, the address that the peer uses for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::at_most(65_536), transform = schema::each(schema::ip_in_bulk))]
    pub cluster_mappings: BTreeMap<String, String>,
}
