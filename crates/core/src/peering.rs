//! The mind of the `ForeignCluster` controller: from a snapshot of all about one peer to the next writes.
//!
//! Three machines look at the snapshot. [`outgoing`] uses resources of the peer, [`incoming`] gives resources
//! to it; neither knows of the other. [`removal`] takes over when the `ForeignCluster` is deleted and both
//! have come to an end. Each has one enum of states, one function that recognises the state, and one table
//! that says for every state what to write, what to show and what it waits for.
//!
//! # Flow
//! Consumer: request -> (provider decides) -> offer -> decide -> node -> in use. Back: drain -> node gone ->
//! offer let go -> request gone. Provider: request -> decide -> offer -> (consumer decides) -> in use. Back:
//! withdraw -> (consumer lets go) -> offer gone.
//!
//! # Guarantees
//! - The state is recognised anew each time, from what is; nothing is remembered. Performing any part of a
//!   plan in order, then planning again, comes to the same end.
//! - A plan holds only what is not yet so: at rest it is empty.
//! - What the peer can hold up (its answer, its letting go) is waited for, and the wait is explained; `force`
//!   ends it.
//!
//! # Assumptions
//! - The snapshot is at least as new as the last plan that was performed, and one peer is decided at a time.
//! - The replicator keeps copies and originals in step, and holds originals until their copies are gone.

mod facts;
pub mod incoming;
pub mod outgoing;
pub mod removal;
mod report;
mod snapshot;

use ferro_api::discovery::{PeeringState, ResourceRequestSpec, ResourceRequestStatus};
use ferro_api::sharing::{ResourceOfferSpec, ResourceOfferStatus};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::policy::{self, Reason};

pub(crate) use facts::plain;
pub use outgoing::NAMESPACES_END;
pub use report::{AUTHENTICATED, INCOMING, Notice, OUTGOING, REJECTED_BY_PEER, REMOVED, condition};
pub use snapshot::{Access, IncomingFacts, NodeFacts, OutgoingFacts, Snapshot, Standing, Tenant};

/// What to do about a peer now.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// The merge patch that brings the status of the `ForeignCluster` up to date.
    pub status: Option<Value>,
    /// What is worth an Event.
    pub notices: Vec<Notice>,
    /// When to plan again, if nothing happens until then.
    pub wake: Option<Timestamp>,
    /// How far the use of the peer's resources has come.
    pub outgoing: outgoing::State,
    /// How far the peer's use of ours has come.
    pub incoming: incoming::State,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// On the `ForeignCluster`: add the finalizer `finalizers::PEERING`.
    AddFinalizer,
    /// On the `ForeignCluster`: take the finalizer off.
    DropFinalizer,
    /// On the `ForeignCluster`, in one patch: set `join`, and the annotation `annotations::AUTO_JOINED`.
    Join,
    /// On the `ForeignCluster`: take the annotation `annotations::FORCE` off.
    ClearForce,

    /// Create the namespace that this cluster keeps for the peer.
    CreateNamespace,
    /// Delete it, with all that is left in it.
    DeleteNamespace,
    /// Take away the peer's rights here.
    RevokePeer,
    /// Delete what this cluster needs to show itself to the peer: keys, certificates, tokens.
    ForgetIdentity,

    /// Create our `ResourceRequest`.
    CreateRequest(Box<ResourceRequestSpec>),
    /// Delete it.
    DeleteRequest,
    /// Take the replicator's finalizer off it: nobody can remove its copy.
    ReleaseRequest,
    /// Write the status of the peer's offer, which is our answer.
    AnswerOffer(Box<ResourceOfferStatus>),
    /// Put the finalizer `finalizers::VIRTUAL_NODE` on the peer's offer.
    HoldOffer,
    /// Take it off.
    LetGoOffer,
    /// Delete the peer's offer: the peer will not do it.
    DiscardOffer,
    /// Register the node.
    CreateNode,
    /// Move all pods off the node, and let no new ones on.
    DrainNode,
    /// Let pods on the node again.
    RestoreNode,
    /// Delete the node.
    DeleteNode,

    /// Write the status of the peer's request, which is our answer.
    AnswerRequest(Box<ResourceRequestStatus>),
    /// Create our `ResourceOffer`.
    CreateOffer(Box<ResourceOfferSpec>),
    /// Apply a merge patch to it.
    PatchOffer(Value),
    /// Set its `withdrawalTimestamp` to now.
    WithdrawOffer,
    /// Delete it.
    DeleteOffer,
    /// Take the replicator's finalizer off it: nobody can remove its copy.
    ReleaseOffer,
}

/// What one machine wants: its part of the writes, what it shows, and when it wants to be asked again.
#[derive(Debug, PartialEq)]
struct Step {
    shown: PeeringState,
    reason: Reason,
    writes: Vec<Write>,
    wake: Option<Timestamp>,
}

/// What to do about a peer now.
pub fn decide(snapshot: &Snapshot<'_>) -> Plan {
    let (outgoing, incoming) = (outgoing::View::new(snapshot), incoming::View::new(snapshot));
    let (out_state, in_state) = (outgoing.state(), incoming.state());
    let (out_step, in_step) = (outgoing.step(out_state), incoming.step(in_state));
    let removal = snapshot.is_going().then(|| removal::step(snapshot));

    let mut report = report::Report::new(snapshot);
    report.outgoing(&out_step, snapshot);
    report.incoming(&in_step, snapshot);
    report.removal(removal.as_ref().map(|removal| &removal.reason));

    let clear_force = when(is_force_spent(snapshot, &out_step, &in_step), Write::ClearForce);
    let end = removal.map(|removal| removal.writes).unwrap_or_default();
    let (first, end): (Vec<_>, Vec<_>) = end.into_iter().partition(|write| *write == Write::RevokePeer);
    let writes = [preparations(snapshot), first, out_step.writes, in_step.writes, end, clear_force].concat();
    Plan {
        writes,
        status: report.patch(),
        notices: report.notices(),
        wake: out_step.wake.into_iter().chain(in_step.wake).min(),
        outgoing: out_state,
        incoming: in_state,
    }
}

/// What comes before any peering: the finalizer first, so that nothing is left behind by a deletion.
fn preparations(snapshot: &Snapshot<'_>) -> Vec<Write> {
    if snapshot.is_going() {
        return Vec::new();
    }
    let admitted = snapshot.access.peer_admitted || snapshot.access.standing == Standing::Accepted;
    let mut writes = Vec::new();
    if !snapshot.is_held() {
        writes.push(Write::AddFinalizer);
    }
    if admitted && snapshot.tenant == Tenant::Absent {
        writes.push(Write::CreateNamespace);
    }
    if snapshot.access.standing == Standing::Accepted && joins_by_itself(snapshot) {
        writes.push(Write::Join);
    }
    writes
}

/// Once for each peer: whoever ends the peering later is not overruled.
fn joins_by_itself(snapshot: &Snapshot<'_>) -> bool {
    let rule = snapshot.config.advertisement().outgoing().auto_join.unwrap_or_default();
    let spec = &snapshot.peer.spec;
    !spec.join() && !snapshot.was_auto_joined() && policy::joins_by_itself(spec, &rule)
}

/// Force is for what is being ended now, and not for the next time.
fn is_force_spent(snapshot: &Snapshot<'_>, outgoing: &Step, incoming: &Step) -> bool {
    let is_ending = |step: &Step| step.shown == PeeringState::Disconnecting;
    snapshot.is_forced() && !snapshot.is_going() && !is_ending(outgoing) && !is_ending(incoming)
}

/// The write, if it is needed.
fn when(needed: bool, write: Write) -> Vec<Write> {
    if needed { vec![write] } else { Vec::new() }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
