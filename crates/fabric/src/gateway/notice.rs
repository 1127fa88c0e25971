//! What others need to know of this gateway, in a ConfigMap: where it is, and its public key.

use std::net::IpAddr;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::names::labels;
use ferro_core::network::gateway::CONFIG_MAP;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::wireguard::PublicKey;

/// The name of the field manager of all that the gateway writes.
pub(super) const MANAGER: &str = "ferro-gateway";

/// The node that a gateway is on.
pub(super) struct Place {
    /// Its name.
    pub(super) node: String,
    /// Its address among the nodes.
    pub(super) internal: IpAddr,
    /// The address at which others reach it.
    pub(super) endpoint: IpAddr,
}

/// Finds out where this is.
pub(super) async fn place(client: &Client, node: &str) -> Result<Place> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await.with_context(|| format!("cannot read the node {node:?}"))?;
    let of_kind = |kind: &str| {
        let addresses = found.status.as_ref()?.addresses.as_ref()?;
        let mut of_kind = addresses.iter().filter(|address| address.type_ == kind);
        of_kind.find_map(|address| address.address.parse().ok())
    };
    let internal: Option<IpAddr> = of_kind("InternalIP");
    let internal = internal.with_context(|| format!("the node {node} has no InternalIP"))?;
    Ok(Place { node: node.to_owned(), internal, endpoint: of_kind("ExternalIP").unwrap_or(internal) })
}

/// Tells others.
pub(super) async fn publish(
    client: &Client,
    namespace: &str,
    place: &Place,
    key: &PublicKey,
    port: u16,
) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}},
        "data": {
            "publicKey": STANDARD.encode(key.0),
            "node": place.node,
            "nodeIP": place.internal.to_string(),
            "endpointIP": place.endpoint.to_string(),
            "port": port.to_string(),
        },
    });
    let apply = PatchParams::apply(MANAGER).force();
    maps.patch(CONFIG_MAP, &apply, &Patch::Apply(map))
        .await
        .context("cannot publish where the gateway is")?;
    Ok(())
}
