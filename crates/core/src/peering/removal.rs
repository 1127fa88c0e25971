//! The machine of the end: a `ForeignCluster` that is deleted goes last, after everything that it stands for.

use ferro_api::names::finalizers::VIRTUAL_NODE;

use super::facts::is_held;
use super::snapshot::{Snapshot, Tenant};
use super::{Write, when};
use crate::policy::Reason;

/// How far the removal of a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Peerings are ended, as the other machines say.
    Ending,
    /// Objects of other controllers are still there.
    Clearing,
    /// The rights of both are taken away.
    Parting,
    /// The namespace is being deleted.
    Emptying,
    /// Nothing is left.
    Done,
}

/// What the removal wants.
pub(super) struct Step {
    pub(super) reason: Reason,
    pub(super) writes: Vec<Write>,
}

/// Where the removal stands, and what comes next. By force the peer's rights go before anything else, so that it cannot
/// put back what is taken away.
#[rustfmt::skip]
pub(super) fn step(snapshot: &Snapshot<'_>) -> Step {
    if snapshot.is_forced() && snapshot.access.peer_admitted {
        return Step { reason: parting(), writes: vec![Write::RevokePeer] };
    }
    let (reason, writes) = match state(snapshot) {
        State::Ending   => (ending(snapshot),   vec![]),
        State::Clearing => (clearing(snapshot), vec![]),
        State::Parting  => (parting(),          part(snapshot)),
        State::Emptying => (emptying(),         delete_namespace(snapshot)),
        State::Done     => (done(),             when(snapshot.is_held(), Write::DropFinalizer)),
    };
    Step { reason, writes }
}

fn state(snapshot: &Snapshot<'_>) -> State {
    let (outgoing, incoming) = (&snapshot.outgoing, &snapshot.incoming);
    // What the peer leaves here and we do not hold goes with the namespace: it must not be able to keep its rights by it.
    let held = outgoing.offer.is_some_and(|offer| is_held(offer, VIRTUAL_NODE));
    let uses = outgoing.request.is_some() || held || outgoing.node.is_some();
    let rights = snapshot.access.peer_admitted || snapshot.access.identity_kept;
    if uses || incoming.offer.is_some() {
        State::Ending
    } else if !snapshot.remaining.is_empty() {
        // What cannot be removed at a peer that is lost is given up by whoever made it, as long as we know who we are there.
        State::Clearing
    } else if rights {
        State::Parting
    } else if snapshot.tenant != Tenant::Absent {
        State::Emptying
    } else {
        State::Done
    }
}

/// The peer's rights first: from then on it cannot put anything into the namespace that is to go.
fn part(snapshot: &Snapshot<'_>) -> Vec<Write> {
    let revoke = when(snapshot.access.peer_admitted, Write::RevokePeer);
    let forget = when(snapshot.access.identity_kept, Write::ForgetIdentity);
    [revoke, forget].concat()
}

fn delete_namespace(snapshot: &Snapshot<'_>) -> Vec<Write> {
    when(matches!(snapshot.tenant, Tenant::Present(_)), Write::DeleteNamespace)
}

fn ending(snapshot: &Snapshot<'_>) -> Reason {
    let peer = snapshot.name();
    let text = format!(
        "the peerings are ended first; if {peer} is gone for good: ferro remove {peer} --force, which leaves \
         behind what this cluster has there"
    );
    Reason::new("PeeringsEnd", text)
}

fn clearing(snapshot: &Snapshot<'_>) -> Reason {
    Reason::new("ObjectsRemain", format!("waits until these are gone: {}", snapshot.remaining.join(", ")))
}

fn parting() -> Reason {
    Reason::new("RightsEnd", "the rights that the two clusters gave each other are taken back")
}

fn emptying() -> Reason {
    Reason::new("NamespaceGoes", "the namespace for the other cluster is being deleted")
}

fn done() -> Reason {
    Reason::new("NothingLeft", "nothing is left of the other cluster")
}
