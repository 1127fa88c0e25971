//! What the pods of a virtual node use, as a kubelet tells it: counters, made of the rates that their cluster measures.
//!
//! A consumer may see what its own pods use in the metrics API of a provider, as rates. Whoever scrapes kubelets expects
//! counters, and computes rates from two of them. So a rate counts for the time from the arrival of the one before to its
//! own, and what is computed of it at home is the rate that was measured.
//!
//! # Guarantees
//! - A counter never goes back. It begins with the pod, by UID, and with whoever counts; since when it counts is told as the
//!   start of the container, by which a new counter is known as one.
//! - Only arrival counts, never the clock of a peer: its times only tell one measurement from another.
//! - Only pods and containers that are known here are told, whatever names a peer makes up.
//! - What was not measured for a while is not told, so that nobody takes what was for what is.

mod measurement;
mod page;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub use measurement::{Measurement, Unreadable, measurements};

/// For so long a measurement is told.
const FRESH: SignedDuration = SignedDuration::from_mins(1);
/// What a container has used before anybody counted, in nanoseconds: nobody believes one that has used nothing.
const BEFORE: u128 = 1_000_000;
/// By so much a counter is older than its first measurement, so that this one is after its start.
const EARLIER: SignedDuration = SignedDuration::from_secs(1);

/// A pod at home that runs elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lodger {
    /// Its namespace here.
    pub namespace: String,
    /// Its name, here and there.
    pub name: String,
    /// Its identifier here.
    pub uid: String,
    /// Its namespace over there.
    pub there: String,
    /// Its containers.
    pub containers: Vec<String>,
}

impl Lodger {
    /// A pod that runs in this namespace over there; none if it does not run.
    pub fn of(pod: &Pod, there: &str) -> Option<Self> {
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let first = spec.init_containers.iter().flatten().map(|container| &container.name);
        let main = spec.containers.iter().map(|container| &container.name);
        let late = spec.ephemeral_containers.iter().flatten().map(|container| &container.name);
        is_running.then_some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            there: there.to_owned(),
            containers: first.chain(main).chain(late).cloned().collect(),
        })
    }
}

/// What is counted: since when, until when, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counter {
    since: Timestamp,
    at: Timestamp,
    nanoseconds: u128,
}

impl Counter {
    fn new(now: Timestamp) -> Self {
        Self { since: now.checked_sub(EARLIER).unwrap_or(now), at: now, nanoseconds: BEFORE }
    }

    /// Counts up to now. A clock that was set back stands still.
    fn add(&mut self, nanoseconds: u128, now: Timestamp) {
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
        self.at = self.at.max(now);
    }
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    counter: Counter,
    /// In billionths of a processor.
    rate: u128,
    memory: u64,
}

/// One pod: its own counter goes on when a container of it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Used {
    counter: Counter,
    /// The time of the last measurement, by the clock over there.
    stamp: String,
    containers: BTreeMap<String, Container>,
}

/// All pods of a virtual node, and what they have used together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Since the first measurement.
    counter: Option<Counter>,
    /// By the UID of the pod.
    pods: BTreeMap<String, Used>,
    /// Whether some of what was asked for last was not answered.
    has_failed: bool,
}

impl Meter {
    /// Forgets pods that are gone.
    pub fn keep(&mut self, lodgers: &[Lodger]) {
        self.pods.retain(|uid, _| lodgers.iter().any(|lodger| lodger.uid == *uid));
    }

    /// Whether all that was asked for just now was answered.
    pub fn answered(&mut self, all: bool) {
        self.has_failed = !all;
    }

    /// Takes in what was measured of a pod, if it is news.
    pub fn note(&mut self, lodger: &Lodger, measured: &Measurement, now: Timestamp) {
        let used = self.pods.entry(lodger.uid.clone()).or_insert_with(|| Used {
            counter: Counter::new(now),
            stamp: String::new(),
            containers: BTreeMap::new(),
        });
        if used.stamp == measured.stamp {
            return;
        }
        used.stamp.clone_from(&measured.stamp);
        used.containers.retain(|name, _| measured.containers.contains_key(name));
        let mut increase: u128 = 0;
        for name in &lodger.containers {
            let Some(one) = measured.containers.get(name) else { continue };
            let container = used.containers.entry(name.clone()).or_insert_with(|| Container {
                counter: Counter::new(now),
                rate: 0,
                memory: 0,
            });
            let more = one.billionths.saturating_mul(elapsed(container.counter.at, now)) / 1_000_000_000;
            container.counter.add(more, now);
            (container.rate, container.memory) = (one.billionths, one.memory);
            increase = increase.saturating_add(more);
        }
        used.counter.add(increase, now);
        self.counter.get_or_insert_with(|| Counter::new(now)).add(increase, now);
    }

    /// What is known of these pods, and not too old.
    fn told<'a>(&'a self, lodgers: &'a [Lodger], now: Timestamp) -> Vec<(&'a Lodger, &'a Used)> {
        let is_fresh =
            |used: &&Used| !used.containers.is_empty() && now.duration_since(used.counter.at) <= FRESH;
        let known = |lodger: &'a Lodger| Some((lodger, self.pods.get(&lodger.uid).filter(is_fresh)?));
        lodgers.iter().filter_map(known).collect()
    }
}

impl Used {
    fn memory(&self) -> u64 {
        self.containers.values().fold(0, |sum, container| sum.saturating_add(container.memory))
    }

    fn rate(&self) -> u128 {
        self.containers.values().fold(0, |sum, container| sum.saturating_add(container.rate))
    }
}

/// In nanoseconds.
fn elapsed(from: Timestamp, to: Timestamp) -> u128 {
    u128::try_from(to.duration_since(from).as_nanos()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
