//! The status of a ShadowPod: what became of it, in one word, one sentence and a condition.

use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::change::Refused;
use crate::pods::Refusal;

/// The condition of a ShadowPod: whether its pod is there, as it was wished for.
const READY: &str = "Ready";
/// The word for a wish that a running pod cannot follow.
const CANNOT_CHANGE: &str = "CannotChange";
/// The condition of one whose pod could not be resized as it was wished for. Otherwise it has none.
const RESIZED: &str = "Resized";
/// The word for a pod that is gone without anybody here having said so.
const LOST: &str = "RemotePodLost";
/// As much as a message and a word may have.
const MOST_TEXT: usize = 1000;
const MOST_WORD: usize = 100;

/// What is known of the wish behind a pod that runs.
pub(super) enum Wish {
    /// The pod shows it, as far as it can.
    Followed,
    /// It may not run here.
    Refused(Refusal),
    /// Nobody has looked.
    Unknown,
}

/// The status of one that may not run here.
pub fn rejected(shadow: &ShadowPod, why: &Refusal, now: Timestamp) -> ShadowPodStatus {
    Shown { phase: ShadowPodPhase::Rejected, pod_uid: None, why: Some(why), is_ready: false }
        .status(shadow, now)
}

/// The status of one that cannot be made yet, and is tried again.
pub fn delayed(shadow: &ShadowPod, why: &Refusal, now: Timestamp) -> ShadowPodStatus {
    Shown { phase: ShadowPodPhase::Pending, pod_uid: None, why: Some(why), is_ready: false }
        .status(shadow, now)
}

/// The status after a running pod was changed, as far as that went; nothing if it is as before.
pub fn after_change(shadow: &ShadowPod, refused: &[Refused], now: Timestamp) -> Option<ShadowPodStatus> {
    let before = shadow.status.clone().unwrap_or_default();
    let why = unfollowed(refused.iter(), "the pod runs on, and in part as it was");
    let size = unfollowed(refused.iter().filter(|one| one.is_size), "the pod keeps its size");
    let ready = condition(&before, why.as_ref(), "Active", why.is_none(), now);
    let resized = size.map(|why| {
        let known = condition(&before, Some(&why), CANNOT_CHANGE, false, now);
        Condition { type_: RESIZED.to_owned(), ..known }
    });
    let mut next = before.clone();
    next.observed_generation = shadow.metadata.generation;
    next.conditions = [ready].into_iter().chain(resized).collect();
    (next != before).then_some(next)
}

fn unfollowed<'a>(refused: impl Iterator<Item = &'a Refused>, so: &str) -> Option<Refusal> {
    let all: Vec<&str> = refused.map(|one| one.message.as_str()).collect();
    let text = format!("{so}: {}; delete the pod to have it made anew", all.join("; "));
    (!all.is_empty()).then(|| Refusal::new(CANNOT_CHANGE, text))
}

/// What a running pod does not follow of the wish behind it, as its consumer reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Why.
    pub why: Refusal,
    /// Why it was not resized, if it was to be.
    pub size: Option<String>,
}

/// What the pod of a ShadowPod does not follow of the present wish.
pub fn complaint(shadow: &ShadowPod) -> Option<Complaint> {
    let status = shadow.status.as_ref().filter(|status| status.phase == Some(ShadowPodPhase::Active))?;
    let refused = |type_: &str| {
        status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "False")
    };
    let why = refused(READY).filter(|_| status.observed_generation == shadow.metadata.generation)?;
    Some(Complaint {
        why: Refusal::new(&why.reason, &why.message),
        size: refused(RESIZED).map(|condition| condition.message.clone()),
    })
}

pub(super) fn name_taken(shadow: &ShadowPod, now: Timestamp) -> ShadowPodStatus {
    let text = "there is another pod of this name in the namespace, which was not made from a ShadowPod; \
                delete it, or choose another name";
    rejected(shadow, &Refusal::new("NameTaken", text), now)
}

/// The pod is there.
pub(super) fn active(shadow: &ShadowPod, pod: &Pod, wish: Wish, now: Timestamp) -> ShadowPodStatus {
    let before = shadow.status.as_ref().filter(|before| before.phase == Some(ShadowPodPhase::Active));
    let known = before.and_then(|before| before.conditions.iter().find(|known| known.type_ == READY));
    // What could not be changed was said when it was tried.
    let (refused, stays_said) = match wish {
        Wish::Refused(refusal) => {
            let text = format!("the pod runs on as it was: {}", refusal.message);
            (Some(Refusal::new(refusal.word, text)), false)
        }
        Wish::Followed => (None, known.is_some_and(|known| known.reason == CANNOT_CHANGE)),
        Wish::Unknown => (None, known.is_some()),
    };
    let mut next = Shown {
        phase: ShadowPodPhase::Active,
        pod_uid: pod.metadata.uid.clone(),
        why: refused.as_ref(),
        is_ready: refused.is_none(),
    }
    .status(shadow, now);
    (next.reason, next.message) = (None, None);
    if let Some(before) = before.filter(|_| stays_said) {
        next.conditions.clone_from(&before.conditions);
    }
    next
}

/// The pod has ended.
pub(super) fn ended(shadow: &ShadowPod, pod: &Pod, phase: ShadowPodPhase, now: Timestamp) -> ShadowPodStatus {
    let status = pod.status.as_ref();
    let word = status.and_then(|status| status.reason.clone());
    let why = word.map(|word| {
        let text = status.and_then(|status| status.message.clone()).unwrap_or_default();
        Refusal::new(word, text)
    });
    let is_ready = phase == ShadowPodPhase::Succeeded;
    Shown { phase, pod_uid: pod.metadata.uid.clone(), why: why.as_ref(), is_ready }.status(shadow, now)
}

/// The pod is gone, and nobody here deleted it.
pub(super) fn lost(shadow: &ShadowPod, may_run_again: bool, now: Timestamp) -> ShadowPodStatus {
    let before = shadow.status.clone().unwrap_or_default();
    let (phase, pod_uid, text) = if may_run_again {
        (ShadowPodPhase::Pending, None, "the pod was lost, and is made again")
    } else {
        let text = "the pod was lost before it ended; its restart policy does not let it run again";
        (ShadowPodPhase::Failed, before.pod_uid.clone(), text)
    };
    let why = Refusal::new(LOST, text);
    let mut next = Shown { phase, pod_uid, why: Some(&why), is_ready: false }.status(shadow, now);
    if may_run_again {
        next.recreations = Some(before.recreations.unwrap_or_default().saturating_add(1));
    }
    next
}

/// Since when the condition is as it is.
pub(super) fn since(shadow: &ShadowPod) -> Option<Timestamp> {
    let conditions = &shadow.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == READY).map(|known| known.last_transition_time.0)
}

/// What is the same in all of them.
struct Shown<'a> {
    phase: ShadowPodPhase,
    pod_uid: Option<String>,
    why: Option<&'a Refusal>,
    is_ready: bool,
}

impl Shown<'_> {
    fn status(self, shadow: &ShadowPod, now: Timestamp) -> ShadowPodStatus {
        let before = shadow.status.clone().unwrap_or_default();
        let word = match self.phase {
            ShadowPodPhase::Pending => "Pending",
            ShadowPodPhase::Active => "Active",
            ShadowPodPhase::Succeeded => "Succeeded",
            ShadowPodPhase::Failed => "Failed",
            ShadowPodPhase::Rejected => "Rejected",
        };
        ShadowPodStatus {
            phase: Some(self.phase),
            reason: self.why.map(|why| clipped(&why.word, MOST_WORD)),
            message: self.why.map(|why| clipped(&why.message, MOST_TEXT)),
            pod_uid: self.pod_uid,
            recreations: before.recreations,
            observed_generation: shadow.metadata.generation,
            conditions: vec![condition(&before, self.why, word, self.is_ready, now)],
        }
    }
}

fn condition(
    before: &ShadowPodStatus,
    why: Option<&Refusal>,
    otherwise: &str,
    is_ready: bool,
    now: Timestamp,
) -> Condition {
    let status = if is_ready { "True" } else { "False" };
    let known = before.conditions.iter().find(|known| known.type_ == READY && known.status == status);
    let word: String =
        why.map_or(otherwise, |why| &why.word).chars().filter(char::is_ascii_alphabetic).collect();
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: if word.is_empty() { otherwise.to_owned() } else { clipped(&word, MOST_WORD) },
        message: why.map(|why| clipped(&why.message, MOST_TEXT)).unwrap_or_default(),
        last_transition_time: known.map_or(Time(now), |known| known.last_transition_time.clone()),
        observed_generation: None,
    }
}

fn clipped(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
