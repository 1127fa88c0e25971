//! The Lease by which others see that the gateway lives: what it has said of tunnels counts no longer than that.

use std::time::Duration;

use anyhow::{Context, Result};
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

/// Renews the Lease.
pub(super) struct Pulse {
    leases: Api<Lease>,
    node: String,
    heard: watch::Sender<bool>,
}

impl Pulse {
    /// Also gives where to look whether others have heard of us.
    pub(super) fn new(client: Client, namespace: &str, node: &str) -> (Self, watch::Receiver<bool>) {
        let (heard, listens) = watch::channel(false);
        (Self { leases: Api::namespaced(client, namespace), node: node.to_owned(), heard }, listens)
    }

    /// Renews it, for ever. Without the API forwarding goes on, so that no failure is the end.
    pub(super) async fn keep(self) -> Result<()> {
        let (mut last, mut is_failing) = (Instant::now(), false);
        loop {
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
        let patch = Patch::Merge(json!({"spec": self.spec()}));
        match self.leases.patch(LEASE, &by, &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => self.create().await,
            patched => patched.map(drop).context("cannot renew the Lease of the gateway"),
        }
    }

    async fn create(&self) -> Result<()> {
        let mut metadata = ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() };
        labels::PART_OF.put_on(&mut metadata);
        let lease = Lease { metadata, spec: Some(self.spec()) };
        let by = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        self.leases.create(&by, &lease).await.map(drop).context("cannot make the Lease of the gateway")
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
