//! The Lease by which others see that the gateway lives: what it has said of tunnels counts no longer than that.
//!
//! It also says until when handshakes may have been begun. Peers take none that is not later than the last one, so that
//! the next process goes on from there, also if the clock was set back meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::annotations::HANDSHAKES;
use ferro_api::names::labels;
use ferro_core::network::pulse::{LEASE, RENEWAL, SILENCE};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::notice::MANAGER;

/// So long a renewal may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait after one that failed.
const RETRY: Duration = Duration::from_secs(1);
/// So far ahead handshakes are noted: they go on while the API cannot be reached.
const AHEAD: Duration = Duration::from_mins(1);
/// While the clock is behind, each handshake is a billionth of a second later than the one before: there is room for all.
const ROOM: Duration = Duration::from_secs(1);

/// Until when the processes before have begun handshakes, if there were any.
pub(super) async fn handshakes(client: &Client, namespace: &str) -> Result<Option<Timestamp>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(LEASE).await.context("cannot read the Lease of the gateway")?;
    Ok(lease.and_then(|lease| HANDSHAKES.of(&lease.metadata)?.parse().ok()))
}

/// Until when there may be handshakes before the next renewal, if it was noted until when there were some.
fn until(noted: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let later = now.checked_add(AHEAD).unwrap_or(now);
    noted.map_or(later, |noted| noted.max(later))
}

/// Renews the Lease.
pub(super) struct Pulse {
    leases: Api<Lease>,
    node: String,
    handshakes: Option<Timestamp>,
    heard: watch::Sender<bool>,
}

impl Pulse {
    /// Goes on after these handshakes. Also gives where to look whether others have heard of us.
    pub(super) fn new(
        client: Client,
        namespace: &str,
        node: &str,
        handshakes: Option<Timestamp>,
    ) -> (Self, watch::Receiver<bool>) {
        let (heard, listens) = watch::channel(false);
        let handshakes = handshakes.map(|noted| noted.checked_add(ROOM).unwrap_or(noted));
        let leases = Api::namespaced(client, namespace);
        (Self { leases, node: node.to_owned(), handshakes, heard }, listens)
    }

    /// Renews it, for ever. Without the API forwarding goes on, so that no failure is the end.
    pub(super) async fn keep(mut self) -> Result<()> {
        let (mut last, mut is_failing) = (Instant::now(), false);
        loop {
            self.handshakes = Some(until(self.handshakes, Timestamp::now()));
            let renewed = timeout(PATIENCE, self.renew()).await.context("the API does not answer");
            let wait = match renewed.and_then(|renewed| renewed) {
                Ok(()) => {
                    if is_failing {
                        info!("others hear again that the gateway lives");
                    }
                    (last, is_failing) = (Instant::now(), false);
                    RENEWAL
                }
                Err(error) => {
                    if !is_failing {
                        warn!(error = format!("{error:#}"), "others may think that the gateway is gone");
                    }
                    is_failing = true;
                    RETRY
                }
            };
            self.heard.send_replace(!is_failing || last.elapsed() <= SILENCE);
            sleep(wait).await;
        }
    }

    async fn renew(&self) -> Result<()> {
        let by = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": self.annotations()}, "spec": self.spec()}));
        match self.leases.patch(LEASE, &by, &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => self.create().await,
            patched => patched.map(drop).context("cannot renew the Lease of the gateway"),
        }
    }

    async fn create(&self) -> Result<()> {
        let annotations = Some(self.annotations());
        let mut metadata = ObjectMeta { name: Some(LEASE.into()), annotations, ..ObjectMeta::default() };
        labels::PART_OF.put_on(&mut metadata);
        let lease = Lease { metadata, spec: Some(self.spec()) };
        let by = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        self.leases.create(&by, &lease).await.map(drop).context("cannot make the Lease of the gateway")
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        self.handshakes.iter().map(|until| (HANDSHAKES.key().to_owned(), until.to_string())).collect()
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.node.clone()),
            lease_duration_seconds: i32::try_from(SILENCE.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_noted_ahead_and_never_go_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = until(None, at(1000));
        assert_eq!(first, at(1060));
        assert_eq!(until(Some(first), at(1010)), at(1070));
        assert_eq!(until(Some(first), at(10)), first, "the clock was set back");
        assert_eq!(first.to_string().parse::<Timestamp>().unwrap(), first);
    }
}
