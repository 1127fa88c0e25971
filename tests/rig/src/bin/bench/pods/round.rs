//! One Deployment, from its creation until all of its pods are ready: how long that takes, and what it costs.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use rig::audit::Asked;

use super::echo::Echo;
use super::stage::{Place, Stage};
use crate::processes;

/// What is still done when all are ready belongs to it as well.
const AFTER: Duration = Duration::from_secs(2);
/// So long nothing is done before the next one.
const REST: Duration = Duration::from_secs(5);
/// Whoever sets up, looks on and writes for comparison.
const ONLOOKERS: [&str; 2] = ["kubernetes-admin", super::echo::USER];

/// What came of it.
pub struct Round {
    /// From the request until the last pod is seen ready at home.
    pub took: Duration,
    /// The same by the seed's method: from the first Initialized to the last Ready, by the times that are written there.
    pub seed: Duration,
    /// Processor time of all processes of ferro, in seconds.
    pub cpu: f64,
    pub requests: Requests,
    /// From when a pod is seen ready on turin until it is at home, in ascending order.
    pub lags: Vec<Duration>,
    /// Writes that are seen at home, at the same time and in ascending order.
    pub echoes: Vec<Duration>,
}

/// Requests, by who asked which API server for what; Events are apart.
#[derive(Default)]
pub struct Requests {
    pub all: BTreeMap<String, usize>,
    pub ours: usize,
    pub events: usize,
    /// Writes of ours that met another one.
    pub conflicts: usize,
}

impl Requests {
    pub fn total(&self) -> usize {
        self.all.values().sum()
    }

    /// Leases and what is asked of no kind come with time and not with pods.
    fn add(&mut self, cluster: &str, asked: &Asked) {
        let is_timed = asked.resource.is_empty() || asked.resource == "leases";
        if is_timed || ONLOOKERS.contains(&asked.user.as_str()) {
            return;
        }
        let is_ours =
            asked.user.starts_with("system:serviceaccount:liqo:") || !asked.user.starts_with("system:");
        self.conflicts += usize::from(is_ours && asked.code == 409);
        if asked.resource == "events" {
            self.events += 1;
            return;
        }
        self.ours += usize::from(is_ours);
        let who = if is_ours { "ferro" } else { asked.user.rsplit(':').next().unwrap_or_default() };
        let below = asked.subresource.as_deref().map(|below| format!("/{below}")).unwrap_or_default();
        *self.all.entry(format!("{cluster} {who} {} {}{below}", asked.verb, asked.resource)).or_default() +=
            1;
    }
}

/// Runs so many pods there, and takes them away again.
pub async fn run(stage: &Stage, place: Place, count: usize, app: &str) -> Result<Round> {
    let marks = (stage.rome.audit.mark().await?, stage.turin.audit.mark().await?);
    let before = cpu()?;
    let echo = Echo::begin(&stage.rome.cluster).await?;
    let begin = Instant::now();
    let there = async {
        match place {
            Place::Local => Ok(HashMap::default()),
            Place::Offloaded => stage.turin.sightings(app, count).await,
        }
    };
    let (here, there, ()) =
        tokio::try_join!(stage.rome.sightings(app, count), there, stage.create(place, app, count))?;
    let last = here.values().max().context("no pods")?;
    let echoes = echo.end().await;
    tokio::time::sleep(AFTER).await;
    let cpu = cpu()? - before;
    let mut requests = Requests::default();
    for (side, mark) in [(&stage.rome, marks.0), (&stage.turin, marks.1)] {
        for asked in side.audit.since(mark).await? {
            requests.add(&side.cluster.plan.name, &asked);
        }
    }
    let mut lags: Vec<Duration> =
        there.iter().filter_map(|(name, at)| Some(here.get(name)?.saturating_duration_since(*at))).collect();
    lags.sort();
    let seed = by_the_seed(&stage.rome.of(app)).context("the pods do not say when they were ready")?;
    stage.delete(place, app).await?;
    tokio::time::sleep(REST).await;
    Ok(Round { took: *last - begin, seed, cpu, requests, lags, echoes })
}

fn cpu() -> Result<f64> {
    Ok(processes::roles()?.iter().map(|usage| usage.cpu.as_secs_f64()).sum())
}

fn by_the_seed(pods: &[std::sync::Arc<Pod>]) -> Option<Duration> {
    let times = |type_: &'static str| pods.iter().filter_map(move |pod| at(pod, type_));
    times("Ready").max()?.duration_since(times("Initialized").min()?).try_into().ok()
}

/// When a condition last changed, in whole seconds.
fn at(pod: &Pod, type_: &str) -> Option<Timestamp> {
    let mut conditions = pod.status.as_ref()?.conditions.as_ref()?.iter();
    Some(conditions.find(|condition| condition.type_ == type_)?.last_transition_time.as_ref()?.0)
}
