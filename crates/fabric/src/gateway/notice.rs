//! What others need to know of this gateway, in a ConfigMap: where it is, and its public key.
//!
//! It is told again if somebody takes it away: peers and nodes have no other way to learn it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::names::labels;
use ferro_core::network::gateway::CONFIG_MAP;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::wireguard::PublicKey;

/// The name of the field manager of all that the gateway writes.
pub(super) const MANAGER: &str = "ferro-gateway";
/// How often it is looked whether others are still told.
const PERIOD: Duration = Duration::from_mins(1);

/// The node that a gateway is on.
pub(super) struct Place {
    /// Its name.
    pub(super) node: String,
    /// Its address among the nodes.
    pub(super) internal: IpAddr,
    /// The address at which others reach it.
    pub(super) endpoint: IpAddr,
}

/// Finds out where this is. Where others reach it may have been told.
pub(super) async fn place(client: &Client, node: &str, told: Option<IpAddr>) -> Result<Place> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await.with_context(|| format!("cannot read the node {node:?}"))?;
    let of_kind = |kind: &str| {
        let addresses = found.status.as_ref()?.addresses.as_ref()?;
        let mut of_kind = addresses.iter().filter(|address| address.type_ == kind);
        of_kind.find_map(|address| address.address.parse().ok())
    };
    let internal: Option<IpAddr> = of_kind("InternalIP");
    let internal = internal.with_context(|| format!("the node {node} has no InternalIP"))?;
    let endpoint = told.or_else(|| of_kind("ExternalIP")).unwrap_or(internal);
    Ok(Place { node: node.to_owned(), internal, endpoint })
}

/// What others are told.
pub(super) struct Notice {
    maps: Api<ConfigMap>,
    data: BTreeMap<String, String>,
}

impl Notice {
    pub(super) fn new(client: Client, namespace: &str, place: &Place, key: &PublicKey, port: u16) -> Self {
        let data = [
            ("publicKey", STANDARD.encode(key.0)),
            ("node", place.node.clone()),
            ("nodeIP", place.internal.to_string()),
            ("endpointIP", place.endpoint.to_string()),
            ("port", port.to_string()),
        ];
        let data = data.map(|(name, value)| (name.to_owned(), value)).into();
        Self { maps: Api::namespaced(client, namespace), data }
    }

    /// Tells others.
    pub(super) async fn publish(&self) -> Result<()> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}},
            "data": self.data,
        });
        let apply = PatchParams::apply(MANAGER).force();
        self.maps
            .patch(CONFIG_MAP, &apply, &Patch::Apply(map))
            .await
            .context("cannot publish where the gateway is")?;
        Ok(())
    }

    /// Looks from time to time whether others are still told, for ever: somebody may have taken it away.
    pub(super) async fn keep(self) -> Result<()> {
        loop {
            sleep(PERIOD).await;
            if let Err(error) = self.renew().await {
                warn!(error = format!("{error:#}"), "others may not know where the gateway is");
            }
        }
    }

    async fn renew(&self) -> Result<()> {
        let present = self.maps.get_opt(CONFIG_MAP).await.context("cannot read where the gateway is")?;
        if present.is_some_and(|present| says(&present, &self.data)) {
            return Ok(());
        }
        info!("others are told again where the gateway is");
        self.publish().await
    }
}

/// Whether a ConfigMap says all of it. Others may add to it.
fn says(map: &ConfigMap, data: &BTreeMap<String, String>) -> bool {
    let said = |name: &String| map.data.as_ref().and_then(|said| said.get(name));
    data.iter().all(|(name, value)| said(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_changed_is_told_again() {
        let data: BTreeMap<String, String> =
            [("node", "one"), ("port", "5")].map(|(name, value)| (name.into(), value.into())).into();
        let mut map = ConfigMap { data: Some(data.clone()), ..ConfigMap::default() };
        assert!(says(&map, &data));
        map.data.get_or_insert_default().insert("note".into(), "mine".into());
        assert!(says(&map, &data));
        map.data.get_or_insert_default().insert("port".into(), "6".into());
        assert!(!says(&map, &data));
        assert!(!says(&ConfigMap::default(), &data));
    }
}
