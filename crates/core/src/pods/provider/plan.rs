//! The next step for one ShadowPod and the pod of its name.

use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodStatus};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{kept, shown};
use crate::pods::Refusal;

/// So often a lost pod is made again at once; then after longer and longer.
const AT_ONCE: u32 = 3;
const MOST_DOUBLINGS: u32 = 8;
const NEVER: &str = "Never";
/// So many containers for debugging are tried one by one when not all of them are allowed.
const MOST_TRIED: usize = 32;
/// Until this gate is open, no scheduler finds a node for the pod.
pub(super) const GATE: &str = "liqo.io/noted";

/// All that is known about one name in one namespace.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The ShadowPod.
    pub shadow: Option<&'a ShadowPod>,
    /// The pod, of which no more need be there than [`super::keep_of_pod`] keeps.
    pub pod: Option<&'a Pod>,
    /// The Tenant's name and terms; nothing while no pods may be made for it.
    pub tenant: Option<(&'a str, &'a TenantSpec)>,
    /// Whether the namespace belongs to the Tenant and is not going.
    pub is_open: bool,
    /// The time.
    pub now: Timestamp,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until so much time has passed.
    Wait(Duration),
    /// Nothing, until pods may be made for the Tenant.
    AwaitTenant,
    /// Create the pod, if there is room for it.
    Create(Box<Pod>),
    /// Open the gate of the pod that has this UID.
    Open(String),
    /// Bring the pod as near to this one as a running pod can be brought, and then put on its labels and annotations.
    Change(Box<Pod>),
    /// Delete the pod that has this UID, with its own grace.
    Delete(String),
    /// Write the status of the ShadowPod.
    Show(Box<ShadowPodStatus>),
    /// The pod is not there any more. Ask once more, since this cannot be undone, and write the status.
    Lose(Box<ShadowPodStatus>),
}

/// What to do next.
pub fn plan(snapshot: &Snapshot<'_>) -> Step {
    plan_with(snapshot, super::pod)
}

/// The same, with another way to make pods.
pub(super) fn plan_with(
    snapshot: &Snapshot<'_>,
    make: impl Fn(&ShadowPod, &str, &TenantSpec) -> Result<Pod, Refusal>,
) -> Step {
    if !snapshot.is_open {
        // What is in it goes with it.
        return Step::Rest;
    }
    let make = |shadow: &ShadowPod, tenant: &str, terms: &TenantSpec| {
        if kept::is_too_large(shadow) { Err(kept::too_large()) } else { make(shadow, tenant, terms) }
    };
    let shadow = snapshot.shadow.filter(|shadow| shadow.metadata.deletion_timestamp.is_none());
    match (shadow, snapshot.pod) {
        (None, Some(pod)) if is_marked(pod) => delete(pod),
        (None, _) => Step::Rest,
        (Some(shadow), Some(pod)) if is_marked(pod) && !is_made_from(pod, shadow) => delete(pod),
        // The consumer ends the pod, with less time than it would get from here.
        (Some(shadow), _) if is_ending(shadow) => Step::Rest,
        (Some(shadow), None) => snapshot.without(shadow, make),
        (Some(shadow), Some(pod)) if is_made_from(pod, shadow) => snapshot.with(shadow, pod, make),
        (Some(shadow), Some(_)) if is_final(shadow) => Step::Rest,
        (Some(shadow), Some(_)) if pod_uid(shadow).is_some() => snapshot.lose(shadow),
        (Some(shadow), Some(_)) => Step::Show(Box::new(shown::name_taken(shadow, snapshot.now))),
    }
}

/// Whether the charge of this name stands: the pod is there and has not ended, or is still to be made.
pub fn takes_room(snapshot: &Snapshot<'_>) -> bool {
    let is_wanted = snapshot.shadow.is_some_and(|shadow| {
        shadow.metadata.deletion_timestamp.is_none() && !is_final(shadow) && !is_ending(shadow)
    });
    is_wanted || snapshot.pod.is_some_and(|pod| is_marked(pod) && !has_stopped(pod))
}

/// Whether a pod carries our mark and was made from this ShadowPod.
pub fn is_made_from(pod: &Pod, shadow: &ShadowPod) -> bool {
    is_marked(pod) && annotations::SHADOW_UID.of(&pod.metadata) == shadow.metadata.uid.as_deref()
}

/// Whether a ShadowPod is answered for good; a rejection counts for the spec that was looked at.
pub(super) fn is_final(shadow: &ShadowPod) -> bool {
    let Some(status) = &shadow.status else { return false };
    match status.phase.unwrap_or_default() {
        ShadowPodPhase::Pending | ShadowPodPhase::Active => false,
        ShadowPodPhase::Succeeded | ShadowPodPhase::Failed => true,
        ShadowPodPhase::Rejected => status.observed_generation == shadow.metadata.generation,
    }
}

impl Snapshot<'_> {
    /// There is a pod, made from this ShadowPod.
    fn with(
        &self,
        shadow: &ShadowPod,
        pod: &Pod,
        make: impl Fn(&ShadowPod, &str, &TenantSpec) -> Result<Pod, Refusal>,
    ) -> Step {
        if is_final(shadow) {
            return if has_stopped(pod) { Step::Rest } else { delete(pod) };
        }
        if let Some(phase) = end(shadow, pod) {
            return Step::Show(Box::new(shown::ended(shadow, pod, phase, self.now)));
        }
        if pod_uid(shadow) != pod.metadata.uid.as_deref() {
            // First of all it is noted down: should it be lost, that is known.
            return Step::Show(Box::new(shown::active(shadow, pod, shown::Wish::Unknown, self.now)));
        }
        let is_going = pod.metadata.deletion_timestamp.is_some();
        if let Some(uid) = pod.metadata.uid.clone().filter(|_| is_gated(pod) && !is_going) {
            return Step::Open(uid);
        }
        let wanted = self.tenant.filter(|_| !is_going).map(|(tenant, terms)| make(shadow, tenant, terms));
        let wish = match wanted {
            Some(Ok(wanted)) if content(&wanted) != content(pod) => return Step::Change(Box::new(wanted)),
            Some(Ok(_)) => shown::Wish::Followed,
            Some(Err(refusal)) => {
                let rest =
                    self.tenant.and_then(|(tenant, terms)| allowed(shadow, |wish| make(wish, tenant, terms)));
                match rest {
                    Some(rest) if content(&rest) != content(pod) => return Step::Change(Box::new(rest)),
                    Some(_) | None => shown::Wish::Refused(refusal),
                }
            }
            None => shown::Wish::Unknown,
        };
        let next = shown::active(shadow, pod, wish, self.now);
        if shadow.status.as_ref() == Some(&next) { Step::Rest } else { Step::Show(Box::new(next)) }
    }

    /// There is no pod of this name.
    fn without(
        &self,
        shadow: &ShadowPod,
        make: impl Fn(&ShadowPod, &str, &TenantSpec) -> Result<Pod, Refusal>,
    ) -> Step {
        if is_final(shadow) {
            return Step::Rest;
        }
        if pod_uid(shadow).is_some() {
            return self.lose(shadow);
        }
        let wait = self.pause(shadow);
        if !wait.is_zero() {
            return Step::Wait(wait);
        }
        let Some((tenant, terms)) = self.tenant else { return Step::AwaitTenant };
        // A new pod has no container for debugging, so that one that is refused does not keep it from being made.
        let bare = || make(&undebugged(shadow), tenant, terms);
        match make(shadow, tenant, terms).or_else(|refusal| bare().map_err(|_| refusal)) {
            Ok(wanted) => Step::Create(Box::new(to_create(wanted, runs_once(shadow)))),
            Err(refusal) => Step::Show(Box::new(shown::rejected(shadow, &refusal, self.now))),
        }
    }

    fn lose(&self, shadow: &ShadowPod) -> Step {
        Step::Lose(Box::new(shown::lost(shadow, !runs_once(shadow), self.now)))
    }

    /// How long to wait before a lost pod is made again: something takes it away each time.
    fn pause(&self, shadow: &ShadowPod) -> Duration {
        let losses = shadow.status.as_ref().and_then(|status| status.recreations).unwrap_or_default();
        let Some(lost) = shown::since(shadow).filter(|_| losses > AT_ONCE) else { return Duration::ZERO };
        let pause = Duration::from_secs(1 << (losses - AT_ONCE - 1).min(MOST_DOUBLINGS));
        let passed = self.now.duration_since(lost);
        // A clock that was set back does not make it longer.
        pause.saturating_sub(Duration::try_from(passed).unwrap_or_default())
    }
}

/// Whether the consumer is about to take a ShadowPod away, so that no pod is made from it any more.
fn is_ending(shadow: &ShadowPod) -> bool {
    annotations::ENDING.of(&shadow.metadata).is_some()
}

/// Whether a pod was made by us, from whatever ShadowPod.
fn is_marked(pod: &Pod) -> bool {
    labels::SHADOWED.is_on(&pod.metadata) && annotations::SHADOW_UID.of(&pod.metadata).is_some()
}

/// Who is gone already, or on its way, is not told again.
fn delete(pod: &Pod) -> Step {
    match &pod.metadata.uid {
        Some(uid) if pod.metadata.deletion_timestamp.is_none() => Step::Delete(uid.clone()),
        Some(_) | None => Step::Rest,
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether nothing of a pod runs, nor will.
fn has_stopped(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// How a pod has ended. One that is taken away stops as well, which is not the end of what shall run again.
fn end(shadow: &ShadowPod, pod: &Pod) -> Option<ShadowPodPhase> {
    let is_taken = pod.metadata.deletion_timestamp.is_some();
    let policy = shadow.spec.pod.restart_policy.as_deref();
    match (phase(pod), policy) {
        (Some("Succeeded"), Some(NEVER | "OnFailure")) => Some(ShadowPodPhase::Succeeded),
        (Some("Failed"), Some(NEVER)) => Some(ShadowPodPhase::Failed),
        (Some("Succeeded"), _) if !is_taken => Some(ShadowPodPhase::Succeeded),
        (Some("Failed"), _) if !is_taken => Some(ShadowPodPhase::Failed),
        (Some(_) | None, _) => None,
    }
}

fn pod_uid(shadow: &ShadowPod) -> Option<&str> {
    shadow.status.as_ref()?.pod_uid.as_deref()
}

fn runs_once(shadow: &ShadowPod) -> bool {
    shadow.spec.pod.restart_policy.as_deref() == Some(NEVER)
}

/// Whether a pod waits for us before it may run.
pub(super) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
    gates.iter().any(|gate| gate.name == GATE)
}

/// The **strategic** merge patch that opens our gate of the pod with this UID. Gates of others stay closed: who put one on a
/// pod opens it.
pub fn opening(uid: &str) -> Value {
    json!({"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}})
}

/// Which wish a pod shows.
fn content(pod: &Pod) -> Option<&str> {
    annotations::POD_CONTENT.of(&pod.metadata)
}

/// The pod without those containers for debugging that are refused: nobody can take one back, which must not keep the pod
/// from following all else, nor the next container from it. None if it is something else that is refused.
fn allowed(shadow: &ShadowPod, make: impl Fn(&ShadowPod) -> Result<Pod, Refusal>) -> Option<Pod> {
    let mut rest = undebugged(shadow);
    let mut pod = make(&rest).ok()?;
    let mut taken = Vec::new();
    for container in shadow.spec.pod.ephemeral_containers.iter().flatten().take(MOST_TRIED) {
        taken.push(container.clone());
        rest.spec.pod.ephemeral_containers = Some(taken.clone());
        if let Ok(larger) = make(&rest) {
            pod = larger;
        } else {
            taken.pop();
        }
    }
    Some(pod)
}

/// The wish without containers for debugging.
fn undebugged(shadow: &ShadowPod) -> ShadowPod {
    let mut rest = shadow.clone();
    rest.spec.pod.ephemeral_containers = None;
    rest
}

/// Containers for debugging can only be added to a pod that is there: until then it does not show the whole wish. One that
/// runs once waits behind the gate until it is noted down.
fn to_create(mut pod: Pod, is_gated: bool) -> Pod {
    if let Some(spec) = pod.spec.as_mut().filter(|_| is_gated) {
        spec.scheduling_gates = Some(vec![PodSchedulingGate { name: GATE.to_owned() }]);
    }
    let later = pod.spec.as_mut().and_then(|spec| spec.ephemeral_containers.take());
    if later.is_some_and(|later| !later.is_empty()) {
        annotations::POD_CONTENT.take_off(&mut pod.metadata);
    }
    pod
}
