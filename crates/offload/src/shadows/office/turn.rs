//! One turn for one name: looks, plans a step, takes it, and looks again, until nothing is to be done.

use std::time::Duration;

use anyhow::{Result, bail};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodStatus};
use ferro_core::pods::Refusal;
use ferro_core::pods::provider::{self, Change, Refused, Step, Verdict, verdict};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tracing::debug;

use super::super::Key;
use super::super::hand::Answer;
use super::super::recent::COUNTS;
use super::super::view::View;
use super::{Office, lock};

/// A name is settled in fewer steps than this; one that is not shall not keep the API server busy.
const MOST_STEPS: usize = 8;

/// How a turn goes on.
enum Next {
    /// Something was written or learnt: look again.
    Look,
    /// The watches will tell.
    Rest,
    /// Look again after a pause.
    Later(Duration),
}

impl Office {
    /// Brings one name as far as it goes now; says after how long to look again if nothing happens.
    pub(super) async fn turn(&self, key: &Key) -> Result<Option<Duration>> {
        for _ in 0..MOST_STEPS {
            let view = View::of(self, key);
            let snapshot = view.snapshot();
            if !provider::takes_room(&snapshot) {
                lock(&self.quota).release(&key.0, &key.1);
            }
            match self.take(key, &view, provider::plan(&snapshot)).await? {
                Next::Look => {}
                Next::Rest => return Ok(self.recent.has(key).then_some(COUNTS)),
                Next::Later(pause) => return Ok(Some(pause)),
            }
        }
        bail!("this is never settled")
    }

    async fn take(&self, key: &Key, view: &View, step: Step) -> Result<Next> {
        debug!(tenant = self.tenant, pod = ?key, step = word(&step), "next step");
        match (step, &view.shadow, &view.pod) {
            (Step::Wait(pause), _, _) => Ok(Next::Later(pause)),
            (Step::AwaitTenant, _, _) => {
                lock(&self.waiting).insert(key.clone());
                // It may have come between the look and this.
                Ok(if self.usable().is_some() { Next::Look } else { Next::Rest })
            }
            (Step::Delete(uid), _, _) => self.delete(key, &uid).await,
            (Step::Open(uid), Some(shadow), Some(pod)) => self.open_gate(key, shadow, pod, &uid).await,
            (Step::Create(pod), Some(shadow), _) => self.create(key, shadow, &pod).await,
            (Step::Show(status), Some(shadow), _) => self.show(key, shadow, &status).await,
            (Step::Lose(status), Some(shadow), _) => self.lose(key, shadow, &status).await,
            (Step::Change(wanted), Some(shadow), Some(pod)) => self.change(key, shadow, pod, &wanted).await,
            // Without a ShadowPod none of the others is planned, nor a change or a gate without a pod.
            (
                Step::Rest
                | Step::Create(_)
                | Step::Show(_)
                | Step::Lose(_)
                | Step::Change(_)
                | Step::Open(_),
                _,
                _,
            ) => Ok(Next::Rest),
        }
    }

    async fn create(&self, key: &Key, shadow: &ShadowPod, pod: &Pod) -> Result<Next> {
        if let Err(refusal) = self.charge(key, pod) {
            return self.refuse(key, shadow, &refusal).await;
        }
        let status = match self.hand.create(key, pod).await? {
            Answer::Done(created) => {
                // A RuntimeClass or a LimitRange may have added to it.
                let charged = self.charge(key, &created);
                let uid = created.metadata.uid.clone().unwrap_or_default();
                self.note(key, created);
                let Err(refusal) = charged else { return Ok(Next::Look) };
                return self.give_up(key, shadow, &uid, &refusal).await;
            }
            Answer::Refused(status) => status,
        };
        match verdict(status.code, &status.message) {
            Verdict::Rejected(refusal) => self.refuse(key, shadow, &refusal).await,
            Verdict::Later(refusal) => {
                self.delay(key, shadow, &refusal).await?;
                bail!("the pod cannot be created yet: {}", refusal.message)
            }
            Verdict::Exists => {
                if let Some(present) = self.hand.pod(key).await? {
                    self.note(key, present);
                }
                Ok(Next::Look)
            }
            Verdict::Gone => Ok(Next::Rest),
            Verdict::Fault => bail!("the pod cannot be created: {}", status.message),
        }
    }

    /// Takes a pod away for which there is no room.
    async fn give_up(&self, key: &Key, shadow: &ShadowPod, uid: &str, refusal: &Refusal) -> Result<Next> {
        // It goes first: should the answer be lost, it is made and weighed anew.
        self.delete(key, uid).await?;
        self.reject(key, shadow, refusal).await
    }

    /// Rejects a pod, for want of room only when that is sure.
    async fn refuse(&self, key: &Key, shadow: &ShadowPod, refusal: &Refusal) -> Result<Next> {
        let tenant = self.usable();
        let pause =
            tenant.and_then(|tenant| provider::weighed_again(&tenant, shadow, refusal, Timestamp::now()));
        let Some(pause) = pause else { return self.reject(key, shadow, refusal).await };
        self.delay(key, shadow, refusal).await?;
        Ok(Next::Later(pause))
    }

    /// Shows why a pod is not made yet, unless that is shown already.
    async fn delay(&self, key: &Key, shadow: &ShadowPod, refusal: &Refusal) -> Result<()> {
        let next = provider::delayed(shadow, refusal, Timestamp::now());
        if shadow.status.as_ref() != Some(&next) {
            self.show(key, shadow, &next).await?;
        }
        Ok(())
    }

    async fn reject(&self, key: &Key, shadow: &ShadowPod, refusal: &Refusal) -> Result<Next> {
        let status = provider::rejected(shadow, refusal, Timestamp::now());
        self.show(key, shadow, &status).await
    }

    /// Writes a status, with an Event where somebody should look.
    async fn show(&self, key: &Key, shadow: &ShadowPod, status: &ShadowPodStatus) -> Result<Next> {
        let Some(mut shown) = self.hand.show(key, shadow, status).await? else { return Ok(Next::Rest) };
        let is_news = match status.phase.unwrap_or_default() {
            ShadowPodPhase::Rejected => true,
            ShadowPodPhase::Pending | ShadowPodPhase::Failed => status.reason.is_some(),
            ShadowPodPhase::Active | ShadowPodPhase::Succeeded => false,
        };
        provider::keep_of_shadow(&mut shown);
        self.recent.note_shadow(key, shown);
        if is_news && self.may_tell() {
            self.hand.tell(shadow, status).await;
        }
        Ok(Next::Look)
    }

    /// A watch may be behind: what is said now cannot be unsaid.
    async fn lose(&self, key: &Key, shadow: &ShadowPod, status: &ShadowPodStatus) -> Result<Next> {
        match self.hand.pod(key).await? {
            Some(pod) if provider::is_made_from(&pod, shadow) => {
                self.note(key, pod);
                Ok(Next::Look)
            }
            Some(_) | None => self.show(key, shadow, status).await,
        }
    }

    async fn delete(&self, key: &Key, uid: &str) -> Result<Next> {
        match self.hand.delete(key, uid).await? {
            Some(going) => self.note(key, going),
            None => self.recent.note_gone(key, uid),
        }
        Ok(Next::Look)
    }

    /// Lets a pod run, unless there is no room for it, as when it could not be taken away for that before.
    async fn open_gate(&self, key: &Key, shadow: &ShadowPod, pod: &Pod, uid: &str) -> Result<Next> {
        if let Err(refusal) = self.charge(key, pod) {
            return self.give_up(key, shadow, uid, &refusal).await;
        }
        match self.hand.open(key, uid).await? {
            Some(opened) => self.note(key, opened),
            None => return Ok(Next::Later(COUNTS)),
        }
        Ok(Next::Look)
    }

    /// Brings a running pod as near to a new wish as it goes. What cannot be done is said before the pod shows the wish.
    async fn change(&self, key: &Key, shadow: &ShadowPod, pod: &Pod, wanted: &Pod) -> Result<Next> {
        let present = match self.hand.pod(key).await? {
            Some(present) if present.metadata.uid == pod.metadata.uid => present,
            // The watch will show it.
            Some(_) | None => return Ok(Next::Later(COUNTS)),
        };
        let mut plan = provider::changes(&present, wanted);
        for change in &plan.changes {
            let is_size = matches!(change, Change::Resize(_));
            if is_size && let Err(refusal) = self.charge(key, &provider::resized(&present, wanted)) {
                plan.refused.push(Refused { is_size, message: refusal.message });
                continue;
            }
            let Answer::Refused(status) = self.hand.change(key, change).await? else { continue };
            if is_size {
                _ = self.charge(key, &present);
            }
            match verdict(status.code, &status.message) {
                Verdict::Rejected(refusal) => {
                    plan.refused.push(Refused { is_size, message: refusal.message });
                }
                Verdict::Gone => return Ok(Next::Later(COUNTS)),
                Verdict::Later(_) | Verdict::Exists | Verdict::Fault => {
                    bail!("the pod cannot be changed: {}", status.message)
                }
            }
        }
        if let Some(status) = provider::after_change(shadow, &plan.refused, Timestamp::now()) {
            self.show(key, shadow, &status).await?;
        }
        match self.hand.mark(key, &plan.metadata).await? {
            Some(marked) => self.note(key, marked),
            None => return Ok(Next::Later(COUNTS)),
        }
        Ok(Next::Look)
    }

    fn note(&self, key: &Key, mut pod: Pod) {
        provider::keep_of_pod(&mut pod);
        self.recent.note_pod(key, pod);
    }
}

/// What a step is called in the log; its content may be long.
fn word(step: &Step) -> &'static str {
    match step {
        Step::Rest => "rest",
        Step::Wait(_) => "wait",
        Step::AwaitTenant => "wait for the Tenant",
        Step::Create(_) => "create",
        Step::Open(_) => "open the gate",
        Step::Change(_) => "change",
        Step::Delete(_) => "delete",
        Step::Show(_) => "show",
        Step::Lose(_) => "lose",
    }
}
