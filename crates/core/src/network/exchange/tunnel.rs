//! The tunnel as gateway and nodes need it: whom it leads to, and every network under both of its names.

use ferro_api::net::{NOT_REMAPPED, TunnelEndpointSpec, TunnelEndpointStatus};
use serde_json::json;

use super::{Snapshot, Write};
use crate::network::config::{BACKEND, Described, PORT, PUBLIC_KEY};
use crate::network::gateway::{Gateway, TUNNEL_INTERFACE, VETH_INTERFACE};
use crate::network::report::unheard;
use crate::network::{Agreement, Naming, Ours, Translation};
use crate::replication::difference;

/// The phase of a tunnel about which everything is agreed on.
const READY: &str = "Ready";

impl Snapshot<'_> {
    /// Makes the tunnel, or brings it up to date.
    pub(super) fn keep_tunnel(
        &self,
        described: &Described,
        agreement: &Agreement,
        ours: &Ours,
        gateway: &Gateway,
    ) -> Vec<Write> {
        let spec = self.tunnel_spec(described);
        let Some(tunnel) = self.tunnel else { return vec![Write::CreateTunnel(Box::new(spec))] };
        if super::is_going(&tunnel.metadata) {
            return Vec::new();
        }
        let change = difference(&json!({"spec": tunnel.spec}), &json!({"spec": spec}));
        if let Some(change) = change {
            // What is shown is about the next version of it.
            return vec![Write::PatchTunnel(change)];
        }
        let present = tunnel.status.clone().unwrap_or_default();
        // How the tunnel fares is the gateway's to say, as long as it says anything.
        let connection = present.connection.clone();
        let next = TunnelEndpointStatus {
            connection: if self.is_gateway_silent { connection.map(unheard) } else { connection },
            observed_generation: tunnel.metadata.generation,
            ..tunnel_status(present.clone(), described, agreement, ours, gateway)
        };
        let change = difference(&json!({"status": present}), &json!({"status": next}));
        change.map(Write::ShowTunnel).into_iter().collect()
    }

    /// Only what was understood is passed on.
    fn tunnel_spec(&self, described: &Described) -> TunnelEndpointSpec {
        TunnelEndpointSpec {
            cluster_id: self.peer.to_string(),
            pod_cidr: described.offered.pod.to_string(),
            external_cidr: described.offered.external.map(|external| external.to_string()),
            endpoint_ip: described.endpoint.ip().to_string(),
            backend_type: BACKEND.into(),
            backend_config: [
                (PORT.to_owned(), described.endpoint.port().to_string()),
                (PUBLIC_KEY.to_owned(), described.key_text()),
            ]
            .into(),
        }
    }
}

/// The networks.
fn tunnel_status(
    present: TunnelEndpointStatus,
    described: &Described,
    agreement: &Agreement,
    ours: &Ours,
    gateway: &Gateway,
) -> TunnelEndpointStatus {
    let answer = agreement.answer();
    TunnelEndpointStatus {
        phase: Some(READY.into()),
        local_pod_cidr: Some(ours.pods.here().to_string()),
        local_nat_pod_cidr: Some(named_there(&ours.pods)),
        remote_nat_pod_cidr: Some(answer.pod.to_string()),
        local_external_cidr: ours.external.map(|external| external.here().to_string()),
        // An API server fills these in where they are left out.
        local_nat_external_cidr: Some(ours.external.as_ref().map_or(NOT_REMAPPED.into(), named_there)),
        remote_nat_external_cidr: Some(answer.external.unwrap_or(Naming::Kept).to_string()),
        remote_endpoint_ip: Some(described.endpoint.ip().to_string()),
        local_endpoint_ip: Some(gateway.endpoint.ip().to_string()),
        tunnel_iface_name: Some(TUNNEL_INTERFACE.into()),
        veth_iface_name: Some(VETH_INTERFACE.into()),
        gateway_ip: Some(gateway.node_ip.to_string()),
        ..present
    }
}

fn named_there(ours: &Translation) -> String {
    Naming::there(ours).to_string()
}
