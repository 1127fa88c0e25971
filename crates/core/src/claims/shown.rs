//! What people read on a claim: Events, and conditions for what stays so.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{STORAGE, asked, capacity};
use super::{Handle, Notice, Write};
use crate::pods::Refusal;
use crate::pods::inward::text;

/// That the claim over there is not there any more, nor what was in it.
pub(super) const LOST: &str = "DataLost";
/// That the claim over there cannot grow.
const REFUSED: &str = "ResizeRefused";
/// That the class does not wait for a pod, so that no node is ever chosen.
const IMMEDIATE: &str = "ImmediateBinding";

/// Says why nothing comes of it on the chosen node, and lets the scheduler choose again.
pub(super) fn turn_back(refusal: &Refusal) -> Vec<Write> {
    vec![tell(&refusal.word, &refusal.message), Write::GiveBack]
}

fn tell(word: &str, message: &str) -> Write {
    Write::Tell(Notice { warning: true, reason: word.to_owned(), note: message.to_owned() })
}

/// What follows when an API server does not take what was written; none if that says nothing about the claim.
pub fn refused(
    claim: &PersistentVolumeClaim,
    write: &Write,
    code: u16,
    message: &str,
    now: Timestamp,
) -> Option<Vec<Write>> {
    if !matches!(code, 400 | 403 | 413 | 422) {
        return None;
    }
    let message = text(message);
    match write {
        Write::CreateThere(_) => Some(turn_back(&Refusal::new(
            if message.contains("exceeded quota") { "QuotaExceeded" } else { "ClaimRefused" },
            format!("the cluster of the chosen node does not take the claim: {message}"),
        ))),
        Write::CreateStandIn(_) => Some(turn_back(&Refusal::new(
            "ClaimRefused",
            format!("no volume of this cluster can be asked for: {message}"),
        ))),
        Write::GrowThere { .. } => {
            let size = wish(claim);
            let message = format!("{size}: the cluster that has the volume does not let it grow: {message}");
            let show = condition(claim, REFUSED, "Refused", &message, now);
            Some(vec![show, tell(REFUSED, &message)])
        }
        Write::Hold { .. }
        | Write::LetGo
        | Write::GiveBack
        | Write::DeleteThere { .. }
        | Write::CreateVolume(_)
        | Write::GrowVolume(_)
        | Write::DeleteVolume { .. }
        | Write::ReleaseVolume
        | Write::DeleteStandIn { .. }
        | Write::HandOver { .. }
        | Write::Show(_)
        | Write::Tell(_) => None,
    }
}

fn wish(claim: &PersistentVolumeClaim) -> String {
    asked(claim).map(|size| size.0.clone()).unwrap_or_default()
}

/// Whether it was tried to make the claim over there as large as it shall be now.
pub(super) fn was_refused(claim: &PersistentVolumeClaim) -> bool {
    let shown = find(claim, REFUSED).and_then(|shown| shown.message.as_deref());
    shown.is_some_and(|message| message.starts_with(&format!("{}: ", wish(claim))))
}

/// What is over there is as large as it shall be.
pub(super) fn resize_settled(claim: &PersistentVolumeClaim) -> Option<Write> {
    find(claim, REFUSED).map(|_| without(REFUSED))
}

/// The claim over there is gone, or is another one.
pub(super) fn lost(claim: &PersistentVolumeClaim, handle: &Handle, now: Timestamp) -> Vec<Write> {
    if find(claim, LOST).is_some() {
        return Vec::new();
    }
    let Handle { peer, namespace, uid } = handle;
    let message = format!(
        "the claim {uid} in the namespace {namespace} of the cluster {peer} is gone, with what was in it; it is not \
         replaced: delete this claim to begin anew"
    );
    vec![condition(claim, LOST, "ClaimGone", &message, now), tell(LOST, &message)]
}

/// Says of a claim whose class does not wait for a pod that it gets no volume, as long as that is so.
pub(super) fn mode(claim: &PersistentVolumeClaim, class: &StorageClass, now: Timestamp) -> Vec<Write> {
    let is_immediate = class.volume_binding_mode.as_deref() == Some("Immediate");
    match find(claim, IMMEDIATE) {
        Some(_) if !is_immediate => vec![without(IMMEDIATE)],
        None if is_immediate => {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            let message = format!(
                "the StorageClass {name} does not wait for a pod, so nobody chooses where the volume shall be, and none is \
                 made; make the class anew with volumeBindingMode: WaitForFirstConsumer"
            );
            vec![condition(claim, IMMEDIATE, "Immediate", &message, now), tell(IMMEDIATE, &message)]
        }
        Some(_) | None => Vec::new(),
    }
}

/// It is there again, as when a peer was restored.
pub(super) fn found(claim: &PersistentVolumeClaim) -> Vec<Write> {
    find(claim, LOST).map(|_| without(LOST)).into_iter().collect()
}

/// As much as the volume has.
pub(super) fn grown(volume: &PersistentVolume) -> Write {
    Write::Show(json!({"status": {"capacity": {(STORAGE): capacity(volume)}}}))
}

pub(super) fn find<'a>(
    claim: &'a PersistentVolumeClaim,
    kind: &str,
) -> Option<&'a PersistentVolumeClaimCondition> {
    claim.status.as_ref()?.conditions.iter().flatten().find(|shown| shown.type_ == kind)
}

fn condition(
    claim: &PersistentVolumeClaim,
    kind: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Write {
    let since =
        find(claim, kind).and_then(|shown| shown.last_transition_time.as_ref()).map_or(now, |time| time.0);
    let shown = json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    of_status(&shown)
}

fn without(kind: &str) -> Write {
    of_status(&json!({"type": kind, "$patch": "delete"}))
}

fn of_status(condition: &Value) -> Write {
    Write::Show(json!({"status": {"conditions": [condition]}}))
}
