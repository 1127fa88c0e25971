//! Claims whose volumes lie where their pods run: on a peer, or in this cluster.
//!
//! A claim of a class of ours waits until the scheduler has chosen a node for its pod. If that stands for a peer, a claim
//! like it is made over there, and here a volume that stands for that one and that only pods on that peer's node can use.
//! If it is a node of this cluster, a stand-in claim in our own namespace gets a volume of a real class, which is handed
//! over to the claim and is an ordinary one from then on.
//!
//! # Flow
//! [`plan`] looks at one claim, by its UID, and at what there is of it: at all times it may be cut off and begun anew. What
//! an API server refuses is made into writes by [`refused`]. [`travels`] says whether a pod finds its claims over there.
//!
//! # Guarantees
//! - Performing any part of a plan, in order, and planning again comes to the same end. At rest a plan is empty.
//! - Over there a claim is made only as long as no volume here stands for it. So what is lost is never replaced by
//!   something empty: it is said to be lost, and no pod is sent that would use it.
//! - A claim over there is deleted only when Kubernetes has released its volume here and the reclaim policy says so, or
//!   when no pod can have used it. What was not made for this very claim is not touched.
//! - A claim over there may wait for its pod, and the pod does not wait for it: the volume here is made when that claim
//!   exists, bound or not.
//! - Nothing is made for a claim whose class is not known: the class says whether data outlives its claim.
//!
//! # Assumptions
//! - Snapshots have seen all that was written for the claim before.
//! - Deletions and changes are done with the UID as precondition, and a create that finds the name taken changes nothing.

mod abroad;
mod at_home;
mod handle;
mod made;
#[cfg(test)]
mod model;
mod read;
mod shown;
#[cfg(test)]
mod tests;
mod travel;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

pub use crate::peering::Notice;
pub use handle::Handle;
pub use made::{stand_in_name, volume_name};
pub use read::{SELECTED_NODE, bound_to, is_of_ours, peer_of, selected_node};
pub use shown::refused;
pub use travel::{claims_of, ephemeral_name, is_lost, travels};

/// Who provisions the claims of our classes; also the driver of the volumes that stand for claims on peers, which no
/// kubelet has, so that none mounts one by mistake.
pub const PROVISIONER: &str = "storage.liqo.io";
/// The parameter of a class that names the class of volumes in this cluster. Without it, the default one is taken.
pub const CLASS_HERE: &str = "classHere";
/// The parameter of a class that names the class of volumes on peers. Without it, each takes its own default.
pub const CLASS_THERE: &str = "classThere";

/// Everything that is known about one claim, or about what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The identifier of this cluster.
    pub home: &'a str,
    /// The namespace of the installation, where stand-ins lie.
    pub own_namespace: &'a str,
    /// The claim.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The class of the claim, which is one of ours; none while it is not known, or does not exist any more.
    pub class: Option<&'a StorageClass>,
    /// Our volume for the claim, which stands for one over there.
    pub volume: Option<&'a PersistentVolume>,
    /// The claim that gets a volume of this cluster for it.
    pub stand_in: Option<&'a PersistentVolumeClaim>,
    /// The volume that the stand-in has.
    pub real: Option<&'a PersistentVolume>,
    /// Where the pod shall run for which the claim is wanted; none while the scheduler has not chosen, and for a node that
    /// is not there any more.
    pub place: Option<Place<'a>>,
    /// The peer that has, or shall have, the claim: see [`peer_of`].
    pub peer: Option<Peer<'a>>,
    /// The time.
    pub now: Timestamp,
}

/// Where a pod shall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// On this node of this cluster.
    Here(&'a str),
    /// On the peer with this identifier.
    There(&'a str),
}

/// A peer, as far as one claim is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// The namespace over there that stands for that of the claim; none only when the peer has none.
    pub namespace: Option<&'a str>,
    /// Whether the peer's API answers, and what is known of its claims is complete.
    pub is_near: bool,
    /// The claim of that name over there.
    pub claim: Option<&'a PersistentVolumeClaim>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Put our finalizer on the claim, and for which peer.
    Hold {
        /// The peer.
        peer: String,
    },
    /// Take both off.
    LetGo,
    /// Take the chosen node off the claim, so that the scheduler chooses again.
    GiveBack,
    /// Create the claim over there.
    CreateThere(Box<PersistentVolumeClaim>),
    /// Apply a merge patch to the claim over there, if it has this UID.
    GrowThere {
        /// The UID.
        uid: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete the claim over there, if it has this UID.
    DeleteThere {
        /// The UID.
        uid: String,
    },
    /// Create the volume that stands for it.
    CreateVolume(Box<PersistentVolume>),
    /// Apply a merge patch to that volume.
    GrowVolume(Value),
    /// Delete that volume, if it has this UID.
    DeleteVolume {
        /// The UID.
        uid: String,
    },
    /// Take our finalizer off that volume.
    ReleaseVolume,
    /// Create the stand-in.
    CreateStandIn(Box<PersistentVolumeClaim>),
    /// Delete the stand-in, if it has this UID.
    DeleteStandIn {
        /// The UID.
        uid: String,
    },
    /// Apply a merge patch to the volume of this name, if it is as it was seen.
    HandOver {
        /// The name of the volume.
        volume: String,
        /// The merge patch, with the version that was seen.
        patch: Value,
    },
    /// Apply a **strategic** merge patch to the status of the claim.
    Show(Value),
    /// Tell by an Event on the claim.
    Tell(Notice),
}

/// What to write for a claim now, in this order.
pub fn plan(snapshot: &Snapshot<'_>) -> Vec<Write> {
    if let Some(volume) = snapshot.volume {
        return snapshot.dismiss().into_iter().chain(snapshot.keep(volume)).collect();
    }
    let Some(claim) = snapshot.claim else { return snapshot.dismiss().into_iter().collect() };
    let is_going = claim.metadata.deletion_timestamp.is_some();
    let is_open = !is_going && bound_to(claim).is_none() && snapshot.class.is_some();
    let place = snapshot.place.filter(|_| is_open);
    let held = read::held_for(claim);
    if held.is_some_and(|peer| place != Some(Place::There(peer))) {
        return snapshot.dismiss().into_iter().chain(snapshot.retreat(claim)).collect();
    }
    let class = snapshot.class.filter(|_| is_open);
    let mode = class.map(|class| shown::mode(claim, class, snapshot.now)).unwrap_or_default();
    let rest: Vec<Write> = match place {
        None => snapshot.dismiss().into_iter().collect(),
        Some(Place::Here(node)) => snapshot.settle_here(claim, node),
        Some(Place::There(_)) => snapshot.dismiss().into_iter().chain(snapshot.settle_there(claim)).collect(),
    };
    mode.into_iter().chain(rest).collect()
}
