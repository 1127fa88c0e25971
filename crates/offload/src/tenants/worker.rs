//! The task of one Tenant: looks, decides, writes, shows; and looks again when its bell rings.
//!
//! What goes wrong with a namespace is remembered until it is tried again, so that it is shown and the others go on.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_core::auth::{Meter, Pace};
use ferro_core::tenancy::{Plan, Write};
use futures::FutureExt as _;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{error, warn};

use super::hand::Check;
use super::view::View;
use super::{AT_REST, GATHER, Office};

/// Pause after something that failed; longer and longer, as long as it fails.
const RETRY: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 8;
/// How often something is changed or removed for one Tenant: whoever asks for something else all the time is answered at
/// this pace. Namespaces that are only made do not count, since the quota bounds them: to make more, some have to go.
const PACE: Pace = Pace { burst: 30, every: Duration::from_secs(1) };
/// The status of a Tenant is a whole list, and is written so often at most unless it has news: otherwise a consumer that
/// asks for one namespace after the other would cost one more request for each.
const SHOW: Duration = Duration::from_secs(3);
/// A watch that somebody else's write reaches takes about as long.
const SOON: Duration = Duration::from_millis(200);
/// How often is looked whether a watch has seen a write.
const GLANCE: Duration = Duration::from_millis(5);
/// A watch that has not seen a write after this long never will: somebody else was faster.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks after one Tenant.
pub(super) struct Worker {
    tenant: String,
    office: Arc<Office>,
    bell: Arc<Notify>,
    /// What went wrong with namespaces, by their names, and when it is tried again.
    troubles: BTreeMap<String, String>,
    retry: Option<Instant>,
    failures: u32,
    meter: Meter,
    shown: Option<Instant>,
}

impl Worker {
    pub(super) fn new(tenant: String, office: Arc<Office>, bell: Arc<Notify>) -> Self {
        Self {
            tenant,
            office,
            bell,
            troubles: BTreeMap::new(),
            retry: None,
            failures: 0,
            meter: Meter::default(),
            shown: None,
        }
    }

    /// For ever: what fails is tried again, and a fault of ours in one Tenant's task ends no other.
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            let wake = match AssertUnwindSafe(self.turn()).catch_unwind().await {
                Ok(Ok(wake)) => wake,
                Ok(Err(error)) => {
                    warn!(tenant = self.tenant, error = format!("{error:#}"), "will be tried again");
                    self.fail()
                }
                Err(_) => {
                    error!(tenant = self.tenant, "a fault in the controller; will be tried again");
                    self.fail()
                }
            };
            tokio::select! {
                () = self.bell.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Brings the Tenant as far as it goes now; says when to look again if nothing happens.
    async fn turn(&mut self) -> Result<Instant> {
        if self.retry.is_some_and(|retry| retry <= Instant::now()) {
            (self.retry, self.troubles) = (None, BTreeMap::new());
        }
        loop {
            let now = Timestamp::now();
            let wait = self.meter.wait(&PACE, now);
            if !wait.is_zero() {
                return Ok(Instant::now() + wait);
            }
            let Some((mut view, mut plan)) = self.look() else { return Ok(Instant::now() + AT_REST) };
            if !plan.writes.is_empty() {
                let is_free = only_makes(&plan.writes);
                let is_overtaken = self.work(&view, std::mem::take(&mut plan.writes)).await;
                if !is_free || !matches!(is_overtaken, Ok(false)) {
                    self.meter.count(&PACE, now);
                }
                if is_overtaken? {
                    return Ok(Instant::now() + SOON);
                }
                let Some(next) = self.look() else { return Ok(Instant::now() + AT_REST) };
                (view, plan) = next;
            }
            let is_done = plan.writes.is_empty();
            let later = self.show(&view, plan).await?;
            if is_done {
                return Ok(self.settle().min(later.unwrap_or(Instant::now() + AT_REST)));
            }
        }
    }

    /// What there is, and what follows from it.
    fn look(&self) -> Option<(View, Plan)> {
        let view = View::of(&self.office, &self.tenant)?;
        let plan = view.plan(&self.troubles);
        Some((view, plan))
    }

    /// Writes; says whether somebody else was faster, so that the watches know something new in a moment.
    async fn work(&mut self, view: &View, writes: Vec<Write>) -> Result<bool> {
        let outcome = self.office.hand.perform(view, writes).await;
        wait_for(outcome.unseen).await;
        for (namespace, trouble) in &outcome.troubles {
            warn!(tenant = self.tenant, namespace, trouble, "will be tried again");
        }
        self.troubles.extend(outcome.troubles);
        outcome.fault.map_or(Ok(outcome.is_overtaken), Err)
    }

    /// Shows what there is. What is only a longer list may wait a moment, for what comes next; says until when.
    async fn show(&mut self, view: &View, plan: Plan) -> Result<Option<Instant>> {
        let is_news = !plan.notices.is_empty();
        let next = self.shown.map(|shown| shown + SHOW).filter(|next| *next > Instant::now() && !is_news);
        let (mut unseen, mut later) = (Vec::new(), None);
        for write in plan.shown {
            let is_list = matches!(write, Write::ShowTenant(_));
            if is_list && next.is_some() {
                later = next;
                continue;
            }
            unseen.extend(self.office.hand.show(view, write).await?);
            if is_list {
                self.shown = Some(Instant::now());
            }
        }
        for notice in &plan.notices {
            self.office.hand.tell(view, notice).await;
        }
        wait_for(unseen).await;
        Ok(later)
    }

    /// When to try again what is in trouble.
    fn settle(&mut self) -> Instant {
        if self.troubles.is_empty() {
            self.failures = 0;
            return Instant::now() + AT_REST;
        }
        let retry = self.retry.unwrap_or_else(|| self.fail());
        self.retry = Some(retry);
        retry
    }

    fn fail(&mut self) -> Instant {
        self.failures = self.failures.saturating_add(1);
        Instant::now() + pause(self.failures)
    }
}

/// Waits until the watches have seen what was written. The bell is left alone: what rings meanwhile may be about
/// something else, and is heard afterwards.
async fn wait_for(mut unseen: Vec<Check>) {
    let end = Instant::now() + PATIENCE;
    loop {
        unseen.retain(|check| !check());
        if unseen.is_empty() || Instant::now() >= end {
            return;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Whether namespaces are made and furnished, and nothing else is done.
fn only_makes(writes: &[Write]) -> bool {
    let made = writes.iter().filter(|write| matches!(write, Write::CreateNamespace(_)));
    let made: BTreeSet<&str> = made.filter_map(Write::namespace).collect();
    writes.iter().all(|write| write.namespace().is_some_and(|namespace| made.contains(namespace)))
}

/// How long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    RETRY * 2_u32.pow(failures.saturating_sub(1).min(MOST_DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use ferro_core::tenancy::Kind;
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn what_fails_is_tried_less_and_less_often() {
        let pauses = [1, 2, 3, 9, 10, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 256, 256, 256]);
    }

    #[test]
    fn namespaces_that_are_only_made_are_not_slowed_down() {
        let name = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata: name("a"), ..Namespace::default() };
        let make = || Write::CreateNamespace(Box::new(namespace.clone()));
        let remove = |namespace: Option<&str>| {
            Write::Remove(Kind::LimitRange, namespace.map(str::to_owned), "x".to_owned())
        };
        assert!(only_makes(&[make(), remove(Some("a"))]));
        for other in [remove(Some("b")), remove(None), Write::DeleteNamespace("b".into()), Write::HoldTenant]
        {
            assert!(!only_makes(&[make(), other.clone()]), "{other:?}");
        }
    }
}
