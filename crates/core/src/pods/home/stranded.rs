//! A pod whose node over there is dead: it was told to go and cannot, so that nothing is made in its place there. It is
//! deleted at home, as Kubernetes deletes the pods of its own dead nodes, for its owner to make it again elsewhere.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;

use super::{Case, Notice, Plan, Write};
use crate::pods::inward::{self, Ending};

/// The word of a pod that is deleted for that reason.
const STRANDED: &str = "NodeLost";
/// The grace of a pod that says nothing about it, in seconds.
const USUAL_GRACE: i64 = 30;
/// So long a grace is believed, whatever the other cluster says, in seconds.
const LONGEST_GRACE: i64 = 86_400;
/// So much longer than its grace a pod may take to go.
const MARGIN: i64 = 60;

impl Case<'_> {
    /// What to do about a pod that may never go from over there; nothing as long as it goes, or is not told to.
    ///
    /// The time counts from when the disruption was first shown here, by the clock of this cluster.
    pub(super) fn stranded(&self, remote: &Pod) -> Option<Plan> {
        let is_told = remote.metadata.deletion_timestamp.is_some() && Ending::of(remote).is_none();
        let since = inward::disrupted_since(self.pod).filter(|_| is_told)?;
        let grace = remote.metadata.deletion_grace_period_seconds.unwrap_or(USUAL_GRACE);
        let limit = SignedDuration::from_secs(grace.clamp(0, LONGEST_GRACE) + MARGIN);
        let left = limit - self.snapshot.now.duration_since(since);
        if left.is_positive() {
            let again = Duration::try_from(left).ok();
            return Some(Plan { again, ..Plan::default() });
        }
        let note = "the node of this pod on the other cluster does not let it go, and seems to be dead; the pod is deleted \
                    here, so that whoever owns it makes it again elsewhere, and goes when that node is back or removed";
        let tell = Write::Tell(Notice { warning: true, reason: STRANDED.to_owned(), note: note.to_owned() });
        let delete = self.pod.metadata.uid.clone().map(|uid| Write::Delete { uid });
        // In a cut that nobody has noticed yet, the pod may have gone long ago, and another runs in its place.
        Some(Plan::of([Write::Ask, tell].into_iter().chain(delete)))
    }
}
