//! Whether the networks of two clusters are to be joined: as long as one uses resources of the other.

use ferro_api::config::NetworkMode;
use ferro_api::discovery::{ForeignCluster, ForeignClusterStatus, PeeringState};
use ferro_api::names::annotations;

use crate::peering::{AUTHENTICATED, REJECTED_BY_PEER};

/// What is to become of the network to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to be there.
    Join,
    /// It stays if it is there, since something may still use it.
    Keep,
    /// Nothing is to be left of it.
    Part,
}

/// What is to become of the network to a peer. One that was asked for and not yet agreed to is no reason to open the own
/// network.
pub fn wish(peer: &ForeignCluster, mode: NetworkMode) -> Wish {
    let status = peer.status.as_ref();
    match (mode, status.map(use_of).unwrap_or_default()) {
        (NetworkMode::External, _) | (NetworkMode::Internal, Use::None) => Wish::Part,
        (NetworkMode::Internal, Use::Full) if peer.metadata.deletion_timestamp.is_none() => Wish::Join,
        (NetworkMode::Internal, Use::Full | Use::Ending) => Wish::Keep,
    }
}

/// How far two clusters use each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    #[default]
    None,
    Ending,
    Full,
}

fn use_of(status: &ForeignClusterStatus) -> Use {
    let directions = [&status.outgoing, &status.incoming].into_iter().flatten();
    let uses = directions.map(|direction| match direction.state {
        PeeringState::Established | PeeringState::Unreachable => Use::Full,
        PeeringState::Disconnecting => Use::Ending,
        PeeringState::None | PeeringState::Pending | PeeringState::Refused => Use::None,
    });
    uses.max().unwrap_or_default()
}

/// Whether a person has said that nothing is to be waited for.
pub fn is_forced(peer: &ForeignCluster) -> bool {
    annotations::FORCE.of(&peer.metadata) == Some("true")
}

/// Whether nobody can remove our objects at the peer: by a person's word, or because the peer turns us away.
pub fn is_lost(peer: &ForeignCluster) -> bool {
    let conditions = peer.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let rejected = |type_: &str, reason: &str| type_ == AUTHENTICATED && reason == REJECTED_BY_PEER;
    is_forced(peer) || conditions.iter().any(|condition| rejected(&condition.type_, &condition.reason))
}
