//! The Service of the address manager points to whoever leads: the leader says so itself, in the one EndpointSlice.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tracing::warn;

use crate::ipam::{MANAGER, PORT};

/// The Service, and its EndpointSlice.
pub const SERVICE: &str = "ferro-ipam";
/// The label by which a slice is known to be of a Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether it still points here.
const PERIOD: Duration = Duration::from_mins(1);

/// Points the Service to this address, for ever: whoever takes the slice away or changes it, it comes back.
pub async fn keep(client: Client, namespace: String, ip: IpAddr) -> Result<()> {
    loop {
        let rest = match open(&client, &namespace, ip).await {
            Ok(()) => PERIOD,
            Err(error) => {
                warn!(error = format!("{error:#}"), "other processes cannot find the address manager");
                PAUSE
            }
        };
        tokio::time::sleep(rest).await;
    }
}

async fn open(client: &Client, namespace: &str, ip: IpAddr) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(SERVICE).await.context("cannot find the Service of the address manager")?;
    let owner = service.owner_ref(&()).context("the Service of the address manager has no identity")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let present = slices.get_opt(SERVICE).await.context("cannot read where the Service points to")?;
    if present.is_some_and(|present| points_to(&present, &owner, ip)) {
        return Ok(());
    }
    let apply = PatchParams::apply(MANAGER).force();
    let slice = Patch::Apply(slice(&owner, ip));
    slices.patch(SERVICE, &apply, &slice).await.context("cannot point the Service here")?;
    Ok(())
}

fn slice(owner: &OwnerReference, ip: IpAddr) -> Value {
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE, "ownerReferences": [owner],
            "labels": {
                labels::PART_OF.key(): labels::PART_OF.value(),
                SERVICE_NAME: SERVICE,
                "endpointslice.kubernetes.io/managed-by": "ferro-controller",
            },
        },
        "addressType": family,
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "grpc", "port": PORT, "protocol": "TCP"}],
    })
}

/// Whether a slice is of this Service, and leads here and nowhere else.
fn points_to(slice: &EndpointSlice, owner: &OwnerReference, ip: IpAddr) -> bool {
    let is_of_service = slice.labels().get(SERVICE_NAME).is_some_and(|name| name == SERVICE);
    let is_owned = slice.owner_references().iter().any(|of| of.uid == owner.uid);
    let leads_here = slice.endpoints.iter().all(|endpoint| {
        let is_ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
        endpoint.addresses == [ip.to_string()] && is_ready == Some(true)
    });
    let ports = slice.ports.as_deref().unwrap_or_default();
    let has_port = ports.iter().all(|port| port.port == Some(PORT.into()));
    is_of_service && is_owned && slice.endpoints.len() == 1 && leads_here && ports.len() == 1 && has_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_left_alone_only_as_it_was_written() {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Service".into(),
            name: SERVICE.into(),
            uid: "1".into(),
            ..OwnerReference::default()
        };
        let ip: IpAddr = "10.0.0.7".parse().unwrap();
        let written: EndpointSlice = serde_json::from_value(slice(&owner, ip)).unwrap();
        assert!(points_to(&written, &owner, ip));
        assert!(!points_to(&written, &owner, "10.0.0.8".parse().unwrap()));
        assert!(!points_to(&written, &OwnerReference { uid: "2".into(), ..owner.clone() }, ip));
        let mut two = written.clone();
        two.endpoints.extend(written.endpoints.clone());
        assert!(!points_to(&two, &owner, ip));
        let bare = EndpointSlice { ports: None, ..written };
        assert!(!points_to(&bare, &owner, ip));
    }
}
