//! A pod over there that has less time to end than it asks for: because who deleted the pod at home gave it less, or because
//! the pod at home is gone.
//!
//! A kubelet keeps to the time that a pod is first deleted with. A shorter one that comes later stands in the pod, and is not
//! looked at (kubernetes/kubernetes#83916). And a provider deletes a pod with its own grace as soon as its ShadowPod is
//! gone. So home ends the pod first, and deletes the ShadowPod after that; which is marked before, so that the provider
//! makes no other pod in between. Where it was too late for that, the shorter time is written all the same.

use ferro_api::names::annotations;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::there::is_of;
use super::{Case, Write, delete};
use crate::pods::inward::Ending;

/// The grace of a pod that says nothing about it, in seconds.
const USUAL: i64 = 30;
/// The least: one that has none is gone before its containers are.
const LEAST: i64 = 1;

/// How long a pod may take to end, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    given: i64,
    /// What the pod asks for itself.
    own: i64,
}

impl Time {
    /// The time of a pod that is gone from home, and so was deleted by force. A kubelet gives the least to one that it finds.
    pub(super) const NONE: Self = Self { given: LEAST, own: i64::MAX };

    /// The time that the pod at home was given; none as long as nobody deletes it.
    fn of(pod: &Pod) -> Option<Self> {
        let given = pod.metadata.deletion_grace_period_seconds?.max(LEAST);
        let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Some(Self { given, own: own.unwrap_or(USUAL) })
    }

    /// Ends a pod over there, unless it has as little time already or would get it from the provider.
    pub(super) fn end(self, left: &Pod) -> Option<Write> {
        let meta = &left.metadata;
        let told = meta.deletion_timestamp.as_ref().and(meta.deletion_grace_period_seconds);
        let is_sooner = self.given < told.unwrap_or(self.own) && Ending::of(left).is_none();
        let uid = meta.uid.clone().filter(|_| is_sooner)?;
        Some(Write::EndRemote { uid, grace: u32::try_from(self.given).unwrap_or(u32::MAX) })
    }

    /// Deletes a ShadowPod, after the pod over there if that has less time than the provider would give it.
    pub(super) fn dismiss(self, shadow: &ShadowPod, left: Option<&Pod>) -> Vec<Write> {
        let end = left.and_then(|left| self.end(left));
        let mark = end.as_ref().and_then(|_| mark(shadow));
        mark.into_iter().chain(end).chain(delete(shadow)).collect()
    }
}

impl Case<'_> {
    /// The time of what is left over there. That of an earlier pod of the same name is gone from home.
    fn time(&self, left: &Pod) -> Option<Time> {
        if is_of(self.pod, &left.metadata) { Time::of(self.pod) } else { Some(Time::NONE) }
    }

    /// Ends what is left over there, if it has less time than it gets anyway. The ShadowPod is gone by now.
    pub(super) fn end(&self, left: &Pod) -> Option<Write> {
        self.time(left)?.end(left)
    }

    /// Deletes a ShadowPod that is not wanted any more, after its pod if that has less time than it gets anyway.
    pub(super) fn dismiss(&self, shadow: &ShadowPod) -> Vec<Write> {
        let left = self.there.left;
        match left.and_then(|left| self.time(left)) {
            Some(time) => time.dismiss(shadow, left),
            None => delete(shadow).into_iter().collect(),
        }
    }
}

/// Marks a ShadowPod that is not marked already, nor on its way.
fn mark(shadow: &ShadowPod) -> Option<Write> {
    let meta = &shadow.metadata;
    let is_open = meta.deletion_timestamp.is_none() && annotations::ENDING.of(meta).is_none();
    let uid = meta.uid.clone().filter(|_| is_open)?;
    Some(Write::MarkEnding { uid })
}

/// The merge patch by which a ShadowPod is marked. What it shows counts no more and makes room: there may be as many
/// annotations as are allowed.
pub fn marking() -> Value {
    let (ending, content) = (annotations::ENDING.key(), annotations::POD_CONTENT.key());
    json!({"metadata": {"annotations": {ending: "true", content: null}}})
}
