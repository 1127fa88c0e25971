//! What there is over there under the name of a pod at home, and whose it is.

use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Snapshot;
use crate::pods::inward::{Ending, Seen};

/// The ShadowPod of that name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shadow<'a> {
    Absent,
    /// Not from this cluster.
    Foreign,
    /// Of an earlier pod of that name.
    Former(&'a ShadowPod),
    /// Of this pod.
    Own(&'a ShadowPod),
}

/// What there is over there.
#[derive(Clone, Copy, Debug)]
pub(super) struct There<'a> {
    pub(super) shadow: Shadow<'a>,
    /// The pod that runs for the one at home.
    pub(super) remote: Option<&'a Pod>,
    /// A pod that runs for this one or for an earlier one of that name.
    pub(super) left: Option<&'a Pod>,
}

/// Whether something over there comes from this cluster.
pub(super) fn is_ours(home: &str, meta: &ObjectMeta) -> bool {
    labels::ORIGIN_ID.of(meta) == Some(home)
}

/// Whether something over there is for this very pod.
pub(super) fn is_of(pod: &Pod, meta: &ObjectMeta) -> bool {
    pod.metadata.uid.as_deref().is_some_and(|uid| annotations::ORIGIN_UID.of(meta) == Some(uid))
}

fn made_from(pod: &Pod) -> Option<&str> {
    annotations::SHADOW_UID.of(&pod.metadata)
}

/// The pod of that name over there, if it comes from this cluster.
pub(super) fn left<'a>(snapshot: &Snapshot<'a>) -> Option<&'a Pod> {
    snapshot.remote.filter(|remote| made_here(snapshot.home, &remote.metadata))
}

/// Whether a pod over there was made for one of this cluster.
pub(super) fn made_here(home: &str, meta: &ObjectMeta) -> bool {
    is_ours(home, meta) && annotations::SHADOW_UID.of(meta).is_some()
}

impl<'a> There<'a> {
    pub(super) fn of(snapshot: &Snapshot<'a>, pod: &Pod) -> Self {
        let shadow = match snapshot.shadow {
            None => Shadow::Absent,
            Some(shadow) if !is_ours(snapshot.home, &shadow.metadata) => Shadow::Foreign,
            Some(shadow) if is_of(pod, &shadow.metadata) => Shadow::Own(shadow),
            Some(shadow) => Shadow::Former(shadow),
        };
        let left = left(snapshot);
        let remote = match shadow {
            Shadow::Own(shadow) => left.filter(|left| made_from(left) == shadow.metadata.uid.as_deref()),
            Shadow::Absent => left.filter(|left| is_of(pod, &left.metadata)),
            Shadow::Foreign | Shadow::Former(_) => None,
        };
        Self { shadow, remote, left }
    }
}

pub(super) fn phase_of(shadow: &ShadowPod) -> ShadowPodPhase {
    shadow.status.as_ref().and_then(|status| status.phase).unwrap_or_default()
}

/// How the pod of a ShadowPod has ended for good, by what the provider says.
pub(super) fn ending_of(shadow: &ShadowPod) -> Option<Ending> {
    match phase_of(shadow) {
        ShadowPodPhase::Succeeded => Some(Ending::Succeeded),
        ShadowPodPhase::Failed => Some(Ending::Failed),
        ShadowPodPhase::Pending | ShadowPodPhase::Active | ShadowPodPhase::Rejected => None,
    }
}

/// The pod of a ShadowPod; `is_wished` says that the ShadowPod is as it should be.
pub(super) fn seen<'a>(shadow: &ShadowPod, remote: &'a Pod, is_wished: bool) -> Seen<'a> {
    let is_going = remote.metadata.deletion_timestamp.is_some();
    // Two watches show the two: what is said when this pod is not the one that is noted down may be about the next one.
    let noted = shadow.status.as_ref().filter(|status| status.pod_uid == remote.metadata.uid);
    Seen {
        pod: remote,
        recreations: noted.and_then(|status| status.recreations).unwrap_or_default(),
        is_current: is_wished && shows_wish(shadow, remote),
        is_last: !is_going || ending_of(shadow).is_some(),
        complaint: None,
    }
}

/// Whether the pod, and whoever runs it, has followed the ShadowPod.
fn shows_wish(shadow: &ShadowPod, remote: &Pod) -> bool {
    let observed = shadow.status.as_ref().and_then(|status| status.observed_generation);
    let seen = remote.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_none_or(|observed| Some(observed) >= shadow.metadata.generation)
        && seen.is_none_or(|seen| Some(seen) >= remote.metadata.generation)
}
