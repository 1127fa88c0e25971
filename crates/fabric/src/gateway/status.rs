//! How the tunnels fare, in the status of each TunnelEndpoint: the one writer of `connection`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ferro_api::net::{Connection, Throughput, TunnelEndpoint};
use ferro_core::network::report::{Measured, Observed, connection, is_news};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info};

use super::house::House;
use super::notice::MANAGER;
use crate::dataplane::{Quality, Statistics};
use crate::wireguard::REJECT_AFTER_TIME;

/// Writes down how tunnels fare.
pub(super) struct Reporter {
    client: Client,
    interfaces: serde_json::Value,
    /// What was written last, which a watch shows only later.
    written: BTreeMap<String, Written>,
}

/// What was written of a tunnel, and what had gone through it until then.
struct Written {
    connection: Connection,
    at: Instant,
    sent: u64,
    received: u64,
}

impl Reporter {
    pub(super) fn new(client: Client, house: &House) -> Self {
        let interfaces = json!({"tunnelIFaceIndex": house.tunnel, "vethIFaceIndex": house.inner});
        Self { client, interfaces, written: BTreeMap::new() }
    }

    /// Writes what is news. A write that fails is tried again at the next look.
    pub(super) async fn report(
        &mut self,
        endpoints: &[Arc<TunnelEndpoint>],
        statistics: &BTreeMap<String, Statistics>,
        probed: &BTreeSet<String>,
    ) {
        let now = Timestamp::now();
        self.written.retain(|uid, _| endpoints.iter().any(|endpoint| endpoint.uid().as_ref() == Some(uid)));
        for endpoint in endpoints {
            let uid = endpoint.uid().unwrap_or_default();
            let written = self.written.get(&uid);
            let figures = statistics.get(&endpoint.spec.cluster_id);
            let is_probed = probed.contains(&endpoint.spec.cluster_id);
            let seen = figures.map(|figures| observed(figures, is_probed, written)).unwrap_or_default();
            let seen = connection(&seen, now);
            let in_status = || endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
            if !is_news(written.map(|written| &written.connection).or_else(in_status), &seen, now) {
                continue;
            }
            if self.write(endpoint, &seen).await {
                let (sent, received) = figures.map_or((0, 0), |it| (it.sent.bytes, it.received.bytes));
                self.written.insert(uid, Written { connection: seen, at: Instant::now(), sent, received });
            }
        }
    }

    async fn write(&self, endpoint: &TunnelEndpoint, seen: &Connection) -> bool {
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
        let by = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        match api.patch_status(&name, &by, &patch).await {
            Ok(_) => {
                let (state, message) = (seen.status, &seen.status_message);
                info!(peer = endpoint.spec.cluster_id, ?state, message, "how a tunnel fares");
                true
            }
            Err(error) => {
                debug!(%error, name, "cannot write how a tunnel fares");
                false
            }
        }
    }
}

fn observed(statistics: &Statistics, is_probed: bool, written: Option<&Written>) -> Observed {
    let Quality { round_trip, jitter, lost_per_thousand, missed } = statistics.quality;
    let age = statistics.last_handshake.and_then(|at| at.elapsed().ok());
    Observed {
        has_session: age.is_some_and(|age| age < REJECT_AFTER_TIME),
        endpoint: statistics.endpoint,
        probe: is_probed.then_some(Measured { round_trip, jitter, lost_per_thousand, missed }),
        throughput: written.map(|written| throughput(statistics, written)),
    }
}

/// On average since it was written down.
fn throughput(now: &Statistics, before: &Written) -> Throughput {
    let seconds = before.at.elapsed().as_secs().max(1);
    let pace = |now: u64, before: u64| Some(now.saturating_sub(before) / seconds);
    Throughput {
        sent_bytes_per_second: pace(now.sent.bytes, before.sent),
        received_bytes_per_second: pace(now.received.bytes, before.received),
    }
}
