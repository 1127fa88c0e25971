//! A pod at home that has ended or is being deleted: what is over there goes first, and the pod last.

use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;

use super::there::{Shadow, ending_of, seen};
use super::{Case, Look, Plan, Write, delete};
use crate::offloading::Standing;
use crate::pods::inward::{self, Ending, Seen, Sight, Wait};
use crate::pods::outward;

impl Case<'_> {
    /// A pod that has ended is kept with all that is over there, for its logs; unless something may run there again.
    pub(super) fn keep(&self) -> Plan {
        let delete = match self.there.shadow {
            Shadow::Own(shadow) => delete(shadow).filter(|_| !self.is_over(shadow)).into_iter().collect(),
            Shadow::Former(shadow) => self.dismiss(shadow),
            Shadow::Absent | Shadow::Foreign => Vec::new(),
        };
        Plan::of(delete.into_iter().chain(self.show_rest()))
    }

    /// Whether nothing runs for a ShadowPod of this pod any more, nor ever will.
    pub(super) fn is_over(&self, shadow: &ShadowPod) -> bool {
        let has_ended = |remote: &Pod| Ending::of(remote).is_some();
        self.there.remote.map_or(ending_of(shadow).is_some(), has_ended)
    }

    /// A pod that is deleted goes when nothing of it is left.
    pub(super) fn leave(&self) -> Plan {
        match (self.there.shadow, self.there.left) {
            (Shadow::Own(shadow) | Shadow::Former(shadow), _) => {
                Plan::of(self.dismiss(shadow).into_iter().chain(self.show_rest()))
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
                Seen { pod: remote, recreations: 0, is_current: false, is_last: true, complaint: None }
            }
        };
        self.show(&Sight::Seen(seen))
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
        show.into_iter().chain(uid.map(|uid| Write::Finish { uid, look: self.look() })).collect()
    }

    /// Whether nothing of it can be over there, whatever the peer says: there is no namespace, or it could not get there.
    pub(super) fn was_never_there(&self) -> bool {
        let cannot_go = || self.is_of_a_daemon_set() || outward::never_travels(self.pod);
        self.snapshot.namespace.is_none() || !inward::has_run(self.pod) && cannot_go()
    }

    fn look(&self) -> Look {
        match self.snapshot.standing {
            _ if self.was_never_there() => Look::Spared,
            Standing::GivenUp => Look::Tried,
            Standing::Wanted | Standing::Undecided | Standing::Dropped => Look::Needed,
        }
    }
}
