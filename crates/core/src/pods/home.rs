//! What is to be written at home and over there for one pod that is bound to a virtual node.
//!
//! There is one function for all of a pod's life, because it looks only at what is: a start in the middle, a peer that
//! comes back after a day and a pod that was deleted meanwhile are the same to it.
//!
//! # Flow
//! A pod that may run over there gets a ShadowPod ([`Write::CreateShadow`]), of which the provider makes a pod; what that
//! one does is shown at home. When the pod at home is deleted, the ShadowPod goes first, by which the provider ends its
//! pod; when nothing is left over there, the pod at home goes ([`Write::Finish`]). Where the pod over there has less time to
//! end than the provider would give it, home ends it before the ShadowPod goes ([`Write::EndRemote`]). A pod whose namespace
//! is dropped from the cluster is deleted at home ([`Write::Delete`]), and takes the same way.
//!
//! # Guarantees
//! - Performing any part of a plan, in order, and planning again comes to the same end. At rest a plan is empty.
//! - A ShadowPod that is not ours is never touched, and a new one is made only when nothing of a former is left: no two
//!   pods run for one.
//! - A pod that has run and must not run again is not started again, whatever is lost.
//! - A kubelet over there hears first of the time that the pod at home was given, if that is less than the pod asks for.
//! - Over a peer that does not answer nothing is decided but readiness, unless it was given up by force. Until that is noticed
//!   what is known may be old: no pod is deleted here to be made elsewhere before the peer has answered once more, since it
//!   could not be told to end its own.
//! - Only a pod that has got over there is deleted because its namespace is dropped: one that comes later gets no further,
//!   so that whoever makes pods for this very node does not make them in circles.
//! - The namespace over there is not let go ([`lodges`]) before what is there of its pods, other than of pods that have ended
//!   and are kept at home as well.
//!
//! # Assumptions
//! - Writes are performed in order, up to the first that fails.
//! - Snapshots have seen all that was written for the pod before.
//! - Deletions are done with the UID as precondition, and a create that finds the name taken is an error.
//! - Of a ShadowPod and a pod over there, metadata and status are known, and of the pod which containers for debugging it
//!   has; the pod carries the annotations of its ShadowPod.

mod dropped;
mod ending;
mod living;
mod remains;
mod sooner;
mod stranded;
mod there;
mod tolerations;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Refusal;
use super::inward::{self, Ending, Sight, Surroundings, Wait};
use super::outward::access::Access;
use crate::offloading::Standing;
pub use crate::peering::Notice;
pub use remains::{is_left, keeps_pod, keeps_shadow};
use sooner::Time;
pub use sooner::marking;
use there::{There, is_ours, left};

/// Everything that is known about one pod, or about what is left of one over there.
#[derive(Clone)]
pub struct Snapshot<'a> {
    /// The identifier of this cluster.
    pub home: &'a str,
    /// The pod of that name at home that is bound to the node, whole.
    pub pod: Option<&'a Pod>,
    /// The ShadowPod of that name over there: metadata and status.
    pub shadow: Option<&'a ShadowPod>,
    /// The pod of that name over there: metadata, status, and the names of its containers for debugging.
    pub remote: Option<&'a Pod>,
    /// The namespace over there that stands for that of the pod; none only when the peer has none, or never had.
    pub namespace: Option<&'a str>,
    /// Whether the pod may run over there. It matters only while there is no ShadowPod, or a rejected one.
    pub admitted: Result<(), Refusal>,
    /// Whether pods over there reach the API server of this cluster.
    pub access: &'a Access,
    /// Whether the namespace of the pod is to stay on the cluster of the node.
    pub standing: Standing,
    /// Whether the peer's API answers, and what is known of it is complete.
    pub is_near: bool,
    /// Whether pods over there can be reached from here.
    pub tunnel_is_up: bool,
    /// An address of a pod over there, as it is named at home.
    pub view: &'a dyn Fn(IpAddr) -> Option<IpAddr>,
    /// The address of the virtual node.
    pub host_ip: Option<IpAddr>,
    /// For how long pods stay on a node whose peer is silent.
    pub drain_delay: Duration,
    /// For how long a pod for which there is no room is held back before it fails.
    pub pause: Duration,
    /// The time.
    pub now: Timestamp,
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Snapshot");
        fields.field("pod", &self.pod).field("shadow", &self.shadow).field("remote", &self.remote);
        fields.field("namespace", &self.namespace).field("admitted", &self.admitted);
        fields
            .field("standing", &self.standing)
            .field("is_near", &self.is_near)
            .field("tunnel_is_up", &self.tunnel_is_up);
        fields.finish_non_exhaustive()
    }
}

/// One write, or a look before others. All are about the name of the pod, at home or in [`Snapshot::namespace`].
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create the ShadowPod.
    CreateShadow(Box<ShadowPod>),
    /// Apply a merge patch to the ShadowPod, if it has this UID.
    ChangeShadow {
        /// The UID.
        uid: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete the ShadowPod, if it has this UID.
    DeleteShadow {
        /// The UID.
        uid: String,
    },
    /// Apply [`marking`] to the ShadowPod, if it has this UID. A refusal does not keep what follows from being performed.
    MarkEnding {
        /// The UID.
        uid: String,
    },
    /// Delete the pod over there with this grace, if it has this UID. As long as there is a ShadowPod, a refusal does not
    /// keep what follows from being performed: the provider ends the pod with that.
    EndRemote {
        /// The UID.
        uid: String,
        /// In seconds; at least one, so that it is not gone before its containers are.
        grace: u32,
    },
    /// Ask the API server over there for the ShadowPod. There may be none; but unless it answers, what follows is not
    /// performed.
    Ask,
    /// Apply a merge patch to the pod at home.
    Tolerate(Value),
    /// Apply a **strategic** merge patch to the status of the pod at home.
    Show(Value),
    /// Delete the pod at home with its own grace, if it has this UID.
    Delete {
        /// The UID.
        uid: String,
    },
    /// Delete the pod at home with no grace, if it has this UID, after this look: its owner makes another one.
    Finish {
        /// The UID.
        uid: String,
        /// What is known may be old.
        look: Look,
    },
    /// Tell by an Event on the pod at home.
    Tell(Notice),
}

/// The look before a pod goes that was deleted: whether [`is_left`] of what the API server over there has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// None: it cannot be there.
    Spared,
    /// It goes unless something is found: whoever gave up the peer does not wait for its answer.
    Tried,
    /// It goes when nothing is found.
    Needed,
}

/// What to do about a pod now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to write, in this order.
    pub writes: Vec<Write>,
    /// When to look again although nothing has changed.
    pub again: Option<Duration>,
}

impl Plan {
    /// Whether the pod is about to get over there.
    pub fn begins(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::CreateShadow(_)))
    }

    /// What is to be shown of the pod, where nothing has to come before that.
    pub fn shown(&self) -> Option<&Write> {
        self.writes.iter().find(|write| matches!(write, Write::Show(_))).filter(|_| !self.begins())
    }

    fn of(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { writes: writes.into_iter().collect(), again: None }
    }
}

/// What to do about a pod now.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let Some(pod) = snapshot.pod else { return Plan::of(snapshot.clear()) };
    let case = Case { snapshot, pod, there: There::of(snapshot, pod) };
    let is_going = pod.metadata.deletion_timestamp.is_some();
    // Of a pod that was never there nothing can be left, whether or not the peer answers.
    let is_known = snapshot.is_near || is_going && case.was_never_there();
    if case.is_sent_away() {
        case.send_away()
    } else if !is_known {
        case.hold()
    } else if is_going {
        case.leave()
    } else if Ending::of(pod).is_some() {
        case.keep()
    } else {
        case.live()
    }
}

/// Whether something of the pod is over there, or may be, that the end of its namespace has to wait for. One that is about to
/// get there says so by its plan.
pub fn lodges(snapshot: &Snapshot<'_>) -> bool {
    let of = |pod| Case { snapshot, pod, there: There::of(snapshot, pod) }.lodges();
    snapshot.pod.map_or_else(|| snapshot.is_left_behind(), of)
}

impl Snapshot<'_> {
    /// Nobody at home wants what is over there any more.
    fn clear(&self) -> Vec<Write> {
        if !self.is_near {
            return Vec::new();
        }
        let left = left(self);
        match self.shadow.filter(|shadow| is_ours(self.home, &shadow.metadata)) {
            Some(shadow) => Time::NONE.dismiss(shadow, left),
            None => left.and_then(|left| Time::NONE.end(left)).into_iter().collect(),
        }
    }

    /// Whether something is over there of a pod that is gone from home.
    fn is_left_behind(&self) -> bool {
        self.shadow.is_some_and(|shadow| is_ours(self.home, &shadow.metadata)) || left(self).is_some()
    }
}

/// Deletes a ShadowPod that is not being deleted already.
fn delete(shadow: &ShadowPod) -> Option<Write> {
    let uid = shadow.metadata.uid.clone().filter(|_| shadow.metadata.deletion_timestamp.is_none())?;
    Some(Write::DeleteShadow { uid })
}

/// One pod at home, and what there is of it.
struct Case<'a> {
    snapshot: &'a Snapshot<'a>,
    pod: &'a Pod,
    there: There<'a>,
}

impl Case<'_> {
    /// What is over there is not known, so that nothing follows from it.
    fn hold(&self) -> Plan {
        let is_wanted = self.pod.metadata.deletion_timestamp.is_none() && !inward::has_run(self.pod);
        let is_new = is_wanted && !inward::is_shown(self.pod);
        let is_homeless = is_wanted && self.snapshot.namespace.is_none();
        match &self.snapshot.admitted {
            Err(refusal) if is_new || is_homeless => self.refuse(refusal),
            Ok(()) if is_new => {
                self.wait("the cluster of this node does not answer; the pod starts when it does")
            }
            Ok(()) | Err(_) => Plan::of(self.show(&Sight::Unknown)),
        }
    }

    /// The pod waits for something that comes by itself.
    fn wait(&self, message: &str) -> Plan {
        Plan::of(self.show(&Sight::Nothing(Wait { message: Some(message), ..Wait::default() })))
    }

    /// The pod waits for somebody to do something.
    fn refuse(&self, refusal: &Refusal) -> Plan {
        let wait = Wait { word: Some(&refusal.word), message: Some(&refusal.message), since: None };
        Plan::of(self.show_and_tell(&Sight::Nothing(wait), refusal))
    }

    /// The write by which the pod shows what is seen, if it does not already.
    fn show(&self, sight: &Sight<'_>) -> Option<Write> {
        let snapshot = self.snapshot;
        let around = Surroundings {
            tunnel_is_up: snapshot.tunnel_is_up,
            view: snapshot.view,
            host_ip: snapshot.host_ip,
            now: snapshot.now,
        };
        let wanted = inward::status(self.pod, sight, &around);
        inward::patch(self.pod.status.as_ref(), &wanted).map(Write::Show)
    }

    /// Shows it, and tells why when that word is new.
    fn show_and_tell(&self, sight: &Sight<'_>, why: &Refusal) -> Vec<Write> {
        let shown = inward::ready(self.pod).and_then(|ready| ready.reason.as_deref());
        let is_news = shown != Some(&why.word) || matches!(sight, Sight::Over(..));
        let show = self.show(sight);
        let tell = show.as_ref().filter(|_| is_news).map(|_| {
            Write::Tell(Notice { warning: true, reason: why.word.clone(), note: why.message.clone() })
        });
        show.into_iter().chain(tell).collect()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
