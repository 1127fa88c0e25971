//! A pod at home that has ended or is being deleted: what is over there goes first, and the pod last.

use k8s_openapi::api::core::v1::Pod;

use super::there::{Shadow, ending_of, seen};
use super::{Case, Plan, Write, delete};
use crate::pods::inward::{Ending, Seen, Sight, Wait};

/// The grace of a pod that says nothing about it, in seconds.
const USUAL_GRACE: i64 = 30;

impl Case<'_> {
    /// A pod that has ended is kept with all that is over there, for its logs; unless something may run there again.
    pub(super) fn keep(&self) -> Plan {
        let delete = match self.there.shadow {
            Shadow::Own(shadow) => {
                let has_ended = |remote: &Pod| Ending::of(remote).is_some();
                let is_over = self.there.remote.map_or(ending_of(shadow).is_some(), has_ended);
                (!is_over).then(|| delete(shadow)).flatten()
            }
            Shadow::Former(shadow) => delete(shadow),
            Shadow::Absent | Shadow::Foreign => None,
        };
        Plan::of(delete.into_iter().chain(self.show_rest()))
    }

    /// A pod that is deleted goes when nothing of it is left.
    pub(super) fn leave(&self) -> Plan {
        match (self.there.shadow, self.there.left) {
            (Shadow::Own(shadow) | Shadow::Former(shadow), _) => {
                Plan::of(delete(shadow).into_iter().chain(self.show_rest()))
            }
            (Shadow::Absent | Shadow::Foreign, Some(left)) => {
                Plan::of(self.end(left).into_iter().chain(self.show_rest()))
            }
            (Shadow::Absent | Shadow::Foreign, None) => Plan::of(self.finish()),
        }
    }

    /// What the pod over there shows to the last.
    fn show_rest(&self) -> Option<Write> {
        let remote = self.there.remote?;
        let seen = match self.there.shadow {
            Shadow::Own(shadow) => Seen { is_last: true, ..seen(shadow, remote, false) },
            Shadow::Absent | Shadow::Foreign | Shadow::Former(_) => {
                Seen { pod: remote, recreations: 0, is_current: false, is_last: true }
            }
        };
        self.show(&Sight::Seen(seen))
    }

    /// The provider gives a pod its own grace. Who deletes the pod at home may have given it less. The ShadowPod is gone by
    /// now, so that nothing is made in its place.
    fn end(&self, left: &Pod) -> Option<Write> {
        let grace = self.pod.metadata.deletion_grace_period_seconds?.max(1);
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let given = left.metadata.deletion_timestamp.as_ref();
        let given =
            given.and(left.metadata.deletion_grace_period_seconds).unwrap_or(own.unwrap_or(USUAL_GRACE));
        let uid = left.metadata.uid.clone().filter(|_| grace < given)?;
        Some(Write::EndRemote { uid, grace: u32::try_from(grace).unwrap_or(u32::MAX) })
    }

    /// Who holds the pod by a finalizer, as the controller of Jobs does, wants to see it end.
    fn finish(&self) -> Vec<Write> {
        let meta = &self.pod.metadata;
        let is_held = meta.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        let message = "the pod was deleted before it had ended";
        let deleted = Wait { word: Some("Deleted"), message: Some(message), since: None };
        let show = is_held.then(|| self.show(&Sight::Over(Ending::Failed, deleted))).flatten();
        let is_left_to_others = is_held && meta.deletion_grace_period_seconds == Some(0);
        let uid = meta.uid.clone().filter(|_| !is_left_to_others);
        show.into_iter().chain(uid.map(|uid| Write::Finish { uid })).collect()
    }
}
