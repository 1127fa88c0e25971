//! How the tunnels fare, in the status of each TunnelEndpoint: the one writer of `connection`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferro_api::net::{Connection, TunnelEndpoint};
use ferro_core::network::report::{Measured, Observed, connection, is_news};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info};

use super::house::{House, INNER, TUNNEL};
use super::notice::{MANAGER, Place};
use crate::dataplane::Statistics;

/// Writes down how tunnels fare.
pub(super) struct Reporter {
    client: Client,
    interfaces: serde_json::Value,
    /// What was written last, which a watch shows only later.
    written: BTreeMap<String, Connection>,
}

impl Reporter {
    pub(super) fn new(client: Client, house: &House, place: &Place) -> Self {
        let interfaces = json!({
            "tunnelIFaceName": TUNNEL, "tunnelIFaceIndex": house.tunnel,
            "vethIFaceName": INNER, "vethIFaceIndex": house.inner,
            "localTunnelPublicIP": place.endpoint.to_string(),
        });
        Self { client, interfaces, written: BTreeMap::new() }
    }

    /// Writes what is news. A write that fails is tried again at the next look.
    pub(super) async fn report(
        &mut self,
        endpoints: &[Arc<TunnelEndpoint>],
        statistics: &BTreeMap<String, Statistics>,
    ) {
        let now = Timestamp::now();
        self.written.retain(|uid, _| endpoints.iter().any(|endpoint| endpoint.uid().as_ref() == Some(uid)));
        for endpoint in endpoints {
            let seen = statistics.get(&endpoint.spec.cluster_id).map(observed).unwrap_or_default();
            let seen = connection(&seen, now);
            let uid = endpoint.uid().unwrap_or_default();
            let in_status = || endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
            if is_news(self.written.get(&uid).or_else(in_status), &seen, now) {
                self.write(endpoint, uid, seen).await;
            }
        }
    }

    async fn write(&mut self, endpoint: &TunnelEndpoint, uid: String, seen: Connection) {
        let namespace = endpoint.namespace().unwrap_or_default();
        let api: Api<TunnelEndpoint> = Api::namespaced(self.client.clone(), &namespace);
        let mut status = self.interfaces.clone();
        // A merge: what is no longer so must be taken away by name.
        let mut connection = json!(seen);
        if seen.probe.is_none() {
            connection["probe"] = json!(null);
        }
        status["connection"] = connection;
        let patch = Patch::Merge(json!({"status": status}));
        let name = endpoint.name_any();
        match api.patch_status(&name, &PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }, &patch).await {
            Ok(_) => {
                info!(peer = endpoint.spec.cluster_id, state = ?seen.status, message = seen.status_message, "tunnel");
                self.written.insert(uid, seen);
            }
            Err(error) => debug!(%error, name, "cannot write how a tunnel fares"),
        }
    }
}

fn observed(statistics: &Statistics) -> Observed {
    Observed {
        has_session: statistics.has_session,
        endpoint: statistics.endpoint,
        probe: statistics.probe.map(|probe| Measured {
            round_trip: probe.round_trip,
            jitter: probe.jitter,
            lost_per_thousand: probe.lost_per_thousand,
            missed: probe.missed,
        }),
    }
}
