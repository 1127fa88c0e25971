//! The Service of the address manager points to whoever leads: the leader says so itself, in the one EndpointSlice.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;
use tracing::warn;

use crate::ipam::PORT;

/// The Service, and its EndpointSlice.
pub const SERVICE: &str = "ferro-ipam";
const MANAGER: &str = "ferro-ipam";

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(5);

/// Points the Service to this address; tries until it does.
pub async fn keep(client: Client, namespace: String, ip: IpAddr) -> Result<()> {
    while let Err(error) = open(&client, &namespace, ip).await {
        warn!(error = format!("{error:#}"), "other processes cannot find the address manager");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn open(client: &Client, namespace: &str, ip: IpAddr) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(SERVICE).await.context("cannot find the Service of the address manager")?;
    let owner = service.owner_ref(&()).context("the Service of the address manager has no identity")?;
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE, "ownerReferences": [owner],
            "labels": {
                labels::PART_OF.key(): labels::PART_OF.value(),
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "ferro-controller",
            },
        },
        "addressType": family,
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "grpc", "port": PORT, "protocol": "TCP"}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let apply = PatchParams::apply(MANAGER).force();
    slices.patch(SERVICE, &apply, &Patch::Apply(slice)).await.context("cannot point the Service here")?;
    Ok(())
}
