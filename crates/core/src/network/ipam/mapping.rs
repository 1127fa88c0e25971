//! How one endpoint is published: under which address, to whom, and because of whom.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// An endpoint that is published: none that is a pod of this cluster, unless peers reach only what is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// What stands for it, under our own name: an address of our external network; for a pod, its own.
    pub ip: IpAddr,
    /// The peers to which it is published because somebody asked for it.
    pub peers: BTreeSet<String>,
    /// The peers to which it is published because a slice is reflected there that names it.
    pub reflected_to: BTreeSet<String>,
    /// Whether it is published to all peers, without being asked for: a node, by full reach.
    pub to_all: bool,
    /// The peer to which it is published because it is its own: a pod that runs here for it, by strict reach.
    pub guest_of: Option<String>,
}

impl Mapping {
    pub(super) fn new(ip: IpAddr) -> Self {
        let (peers, reflected_to) = (BTreeSet::new(), BTreeSet::new());
        Self { ip, peers, reflected_to, to_all: false, guest_of: None }
    }

    pub(super) fn is_for(&self, peer: &str) -> bool {
        self.to_all
            || self.peers.contains(peer)
            || self.reflected_to.contains(peer)
            || self.guest_of.as_deref() == Some(peer)
    }

    /// Whether it is kept for nobody.
    pub(in crate::network) fn is_idle(&self) -> bool {
        !self.to_all && self.peers.is_empty() && self.reflected_to.is_empty() && self.guest_of.is_none()
    }

    /// The peers for which anybody asked for it, each as often as somebody did.
    pub(in crate::network) fn asked(&self) -> impl Iterator<Item = &String> {
        self.peers.iter().chain(&self.reflected_to)
    }

    pub(super) fn asked_by(&mut self, asker: Asker) -> &mut BTreeSet<String> {
        match asker {
            Asker::Caller => &mut self.peers,
            Asker::Slices => &mut self.reflected_to,
        }
    }
}

/// Who has an endpoint published to a peer. What one of them gives back stays published for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Whoever calls the address manager, and will call again to give it back.
    Caller,
    /// The slices that are reflected: what none of them names may be given back at any time.
    Slices,
}
