//! A pod whose namespace is dropped from the cluster that it runs on: it is deleted, for its owner to make it again elsewhere.

use super::remains::is_kept;
use super::there::Shadow;
use super::{Case, Notice, Plan, Write};
use crate::admission;
use crate::offloading::Standing;
use crate::pods::Refusal;
use crate::pods::inward::{self, Ending};

/// The word of a pod that is deleted for that reason.
const DROPPED: &str = "ClusterDropped";

impl Case<'_> {
    /// Whether the pod has to go although nobody has deleted it.
    pub(super) fn is_sent_away(&self) -> bool {
        let snapshot = self.snapshot;
        let is_dropped = match snapshot.standing {
            Standing::Wanted => self.has_no_place(),
            Standing::Undecided => false,
            Standing::Dropped => snapshot.is_near || snapshot.namespace.is_none(),
            Standing::GivenUp => true,
        };
        let has_got_there = matches!(self.there.shadow, Shadow::Own(_)) || inward::has_run(self.pod);
        is_dropped && has_got_there && !self.is_on_its_way()
    }

    /// Whether the namespace of the pod neither is over there nor is to be: nobody says any more that it was dropped.
    fn has_no_place(&self) -> bool {
        let unselected = admission::Refusal::NotSelected(String::new());
        self.snapshot.namespace.is_none() && self.is_refused_for(&unselected)
    }

    fn is_on_its_way(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some() || Ending::of(self.pod).is_some()
    }

    pub(super) fn send_away(&self) -> Plan {
        let mut owners = self.pod.metadata.owner_references.iter().flatten();
        let then = if owners.any(|owner| owner.controller == Some(true)) {
            "the pod is deleted, and whoever owns it makes it again where it may be"
        } else {
            "the pod is deleted, and as nobody owns it, nobody makes it again; create it anew"
        };
        let note =
            format!("the namespace of the pod is not to be on the cluster of this node any more: {then}");
        let tell = Write::Tell(Notice { warning: false, reason: DROPPED.to_owned(), note });
        let delete = self.pod.metadata.uid.clone().map(|uid| Write::Delete { uid });
        Plan::of(self.ask().into_iter().chain([tell]).chain(delete))
    }

    /// Its owner makes another one at once, so that who runs this one must be able to hear that it ends; unless nothing can
    /// be left there, or that was given up.
    fn ask(&self) -> Option<Write> {
        let is_awaited = self.snapshot.standing == Standing::Dropped && self.snapshot.namespace.is_some();
        is_awaited.then_some(Write::Ask)
    }

    /// Why a pod does not begin that may be there, in a namespace that may be about to go.
    pub(super) fn not_now() -> Refusal {
        let message = "the namespace of the pod was about to leave the cluster of this node; the pod starts when it is decided \
                       that it stays";
        Refusal::new(DROPPED, message)
    }

    /// Whether something of the pod is over there. Of a peer that does not answer, nobody knows; but pods of a DaemonSet
    /// never get there. One that has ended waits for nothing, unless somebody deletes it: then all of it has to go.
    pub(super) fn lodges(&self) -> bool {
        let snapshot = self.snapshot;
        if snapshot.namespace.is_none() {
            // Nothing can be there; but it has to be sent away as long as it is known why.
            return inward::has_run(self.pod) && !self.is_on_its_way();
        }
        if !snapshot.is_near {
            return !self.is_of_a_daemon_set();
        }
        let is_over = is_kept(self.pod);
        self.there.left.is_some_and(|left| !is_over || !is_kept(left))
            || match self.there.shadow {
                Shadow::Own(shadow) => !is_over || !self.is_over(shadow),
                Shadow::Former(_) => true,
                Shadow::Absent | Shadow::Foreign => false,
            }
    }

    pub(super) fn is_of_a_daemon_set(&self) -> bool {
        self.is_refused_for(&admission::Refusal::OfADaemonSet)
    }

    fn is_refused_for(&self, why: &admission::Refusal) -> bool {
        self.snapshot.admitted.as_ref().err().is_some_and(|refusal| refusal.word == why.word())
    }
}
