//! Where a node notes down whom it hears, for the controller to read: a ConfigMap of its own.
//!
//! A change is written at once; many changes in a row are written together, and in a flood only so often. At rest
//! nothing is written but the renewal every five minutes, and not even that when nobody is heard.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::auth::{Meter, Pace};
use ferro_core::discovery::{Announcement, Report};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// What the names of these `ConfigMap`s begin with; the name of the node follows.
pub(crate) const PREFIX: &str = "ferro-sightings-";
/// The key with the report.
pub(crate) const KEY: &str = "sightings.json";

const MANAGER: &str = "ferro-node";
/// How long to wait for more before a change is written.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often changes may be written.
const PACE: Pace = Pace { burst: 10, every: Duration::from_secs(6) };
/// How soon a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

/// What is heard; nothing as long as that is not known.
pub(super) type Heard = Option<BTreeMap<String, Announcement>>;

pub(super) struct Notes {
    maps: Api<ConfigMap>,
    name: String,
}

impl Notes {
    pub(super) fn new(client: Client, namespace: &str, node: &str) -> Self {
        Self { maps: Api::namespaced(client, namespace), name: format!("{PREFIX}{node}") }
    }

    /// What was noted down before, if that still counts.
    pub(super) async fn read(&self) -> Heard {
        let map = match timeout(ANSWER, self.maps.get_opt(&self.name)).await {
            Ok(Ok(map)) => map?,
            Ok(Err(error)) => {
                warn!(map = self.name, %error, "cannot read what was heard before");
                return None;
            }
            Err(_) => return None,
        };
        let now = Timestamp::now();
        let report = Report::parse(map.data?.get(KEY)?.as_bytes(), now).ok()?;
        (report.expires_at > now).then_some(report.heard)
    }

    /// Keeps the notes as they should be, for ever.
    pub(super) async fn keep(&self, mut heard: watch::Receiver<Heard>) -> Result<()> {
        let mut pace = Meter::default();
        let mut noted = heard.borrow_and_update().clone().unwrap_or_default();
        loop {
            // Nobody counts on a report without entries, so that it need not be renewed.
            let renewal = async {
                if noted.is_empty() { std::future::pending().await } else { sleep(Report::RENEWAL).await }
            };
            let is_change = tokio::select! {
                changed = heard.changed() => changed.map(|()| true).context("nobody listens any longer")?,
                () = renewal => false,
            };
            if is_change {
                sleep(pace.wait(&PACE, Timestamp::now()).max(DEBOUNCE)).await;
            }
            let wanted = heard.borrow_and_update().clone().unwrap_or_default();
            if is_change && wanted == noted {
                continue;
            }
            while let Err(error) = self.write(&wanted).await {
                warn!(error = format!("{error:#}"), "cannot note down who is on the LAN; it is tried again");
                sleep(RETRY).await;
            }
            pace.count(&PACE, Timestamp::now());
            noted = wanted;
        }
    }

    async fn write(&self, heard: &BTreeMap<String, Announcement>) -> Result<()> {
        let report = Report::new(heard.clone(), Timestamp::now()).to_json()?;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}},
            "data": {KEY: report},
        });
        let (how, what) = (PatchParams::apply(MANAGER).force(), Patch::Apply(map));
        let written = timeout(ANSWER, self.maps.patch(&self.name, &how, &what)).await;
        let cannot = || format!("cannot write the ConfigMap {}", self.name);
        written.context("the API server does not answer").with_context(cannot)?.with_context(cannot)?;
        Ok(())
    }
}
