//! Everything that is known about one peer at one moment.

use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::{ForeignCluster, NetworkStatus, ResourceRequest};
use ferro_api::names::{annotations, finalizers};
use ferro_api::sharing::{ResourceOffer, ResourceOfferSpec};
use k8s_openapi::jiff::Timestamp;

/// Everything that is known about one peer.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The peer, with its status as last written.
    pub peer: &'a ForeignCluster,
    /// How this cluster is configured.
    pub config: &'a ClusterConfigSpec,
    /// The URL of this cluster's auth service.
    pub auth_url: Option<&'a str>,
    /// Who has let whom in.
    pub access: Access,
    /// The namespace that this cluster keeps for the peer.
    pub tenant: Tenant<'a>,
    /// What there is of the use of the peer's resources.
    pub outgoing: OutgoingFacts<'a>,
    /// What there is of the peer's use of ours.
    pub incoming: IncomingFacts<'a>,
    /// Whether pods of the two clusters reach each other.
    pub network: &'a NetworkStatus,
    /// Other objects of ours in the peer's namespace, which their controllers remove when the peerings end; without the
    /// peer if it is lost.
    pub remaining: &'a [String],
    /// The time.
    pub now: Timestamp,
}

/// Who has let whom in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What the peer thinks of this cluster.
    pub standing: Standing,
    /// Whether the peer has rights here.
    pub peer_admitted: bool,
    /// Whether this cluster keeps keys, certificates or tokens for the peer.
    pub identity_kept: bool,
}

/// What the peer thinks of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not answered yet, or cannot be reached.
    Pending,
    /// It said no.
    Refused,
    /// It let this cluster in.
    Accepted,
    /// It had let this cluster in, and now turns it away: its API server answered, and knows our certificate
    /// no longer. A cut is not that.
    Rejected,
}

/// A namespace for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant<'a> {
    /// It does not exist.
    Absent,
    /// It exists, under this name.
    Present(&'a str),
    /// It is being deleted.
    Going(&'a str),
}

/// What there is of the use of the peer's resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutgoingFacts<'a> {
    /// Our request.
    pub request: Option<&'a ResourceRequest>,
    /// The copy of the peer's offer.
    pub offer: Option<&'a ResourceOffer>,
    /// The node that stands for the peer.
    pub node: Option<NodeFacts<'a>>,
    /// Whether our `NamespaceMap` for the peer is there, which its controller removes when the node is empty.
    pub mapped: bool,
    /// When the offer was last confirmed, by our clock.
    pub heard: Option<Timestamp>,
    /// How many offers of other peers are accepted.
    pub accepted_elsewhere: u32,
}

/// A virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is being deleted.
    pub going: bool,
    /// Whether [`super::Write::DrainNode`] was done to it.
    pub draining: bool,
    /// How many pods are still on it that a drain moves away.
    pub pods: usize,
}

/// What there is of the peer's use of our resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct IncomingFacts<'a> {
    /// The copy of the peer's request.
    pub request: Option<&'a ResourceRequest>,
    /// Our offer.
    pub offer: Option<&'a ResourceOffer>,
    /// What would be offered now; none while that is not known yet.
    pub quote: Option<&'a ResourceOfferSpec>,
    /// When our offer was last written.
    pub published: Option<Timestamp>,
    /// When a confirmation of our offer last reached the peer.
    pub delivered: Option<Timestamp>,
    /// How many requests of other peers are accepted.
    pub accepted_elsewhere: u32,
}

impl Snapshot<'_> {
    /// How people and commands call the peer.
    pub(super) fn name(&self) -> &str {
        self.peer.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether the `ForeignCluster` is being deleted.
    pub fn is_going(&self) -> bool {
        self.peer.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_held(&self) -> bool {
        let finalizers = self.peer.metadata.finalizers.as_deref().unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == finalizers::PEERING)
    }

    /// Whether everything is to be ended without the peer.
    pub(super) fn is_forced(&self) -> bool {
        annotations::FORCE.of(&self.peer.metadata) == Some("true")
    }

    pub(super) fn was_auto_joined(&self) -> bool {
        annotations::AUTO_JOINED.of(&self.peer.metadata).is_some()
    }

    /// Whether nobody can remove our objects at the peer, so that nothing is gained by waiting for it. Should
    /// the peer let this cluster in again, the replicator removes what it finds of ours there.
    pub(super) fn copies_are_lost(&self) -> bool {
        self.is_forced() || self.access.standing == Standing::Rejected
    }

    /// Whether the peer will not remove its objects here either.
    pub(super) fn peer_is_lost(&self) -> bool {
        self.is_forced() || (self.is_going() && self.access.standing == Standing::Rejected)
    }

    /// What the authentication says about itself.
    pub(super) fn authentication_message(&self) -> Option<String> {
        self.peer.status.as_ref()?.authentication.as_ref()?.message.clone()
    }
}
