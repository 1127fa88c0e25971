//! The address manager: all networks and addresses that are in use between this cluster and its peers, as one value.
//!
//! - Flow: a peer's networks are acquired under names of ours, the peer says how it names ours, and from then on any
//!   endpoint can be mapped to the address at which that peer reaches it.
//! - Guarantees: no two networks in use overlap; no address stands for two endpoints; the same question has the same
//!   answer, also after a restart; what nobody uses any more is free again.
//! - Assumptions: the caller stores the value before it tells anybody what came of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use rpds::RedBlackTreeMapSync;

use super::{
    Agreement, Answer, Exhausted, ExternalAddresses, Networks, Offered, Ours, Translation, Unlike,
    map_to_network, replacement,
};

/// The networks of this cluster, and those that it must not hand out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNetworks {
    /// Of the pods.
    pub pod: IpNet,
    /// Of the services; it never leaves the cluster.
    pub service: IpNet,
    /// Of the nodes, and whatever an administrator keeps for other purposes.
    pub reserved: BTreeSet<IpNet>,
    /// Where replacements are taken from.
    pub pools: Vec<IpNet>,
}

/// An endpoint that is not a pod of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address of our external network that stands for it, under our own name.
    pub ip: IpAddr,
    /// The peers to which it is published.
    pub peers: BTreeSet<String>,
}

/// Why networks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None is left.
    #[error("no network of the size of {0} is free; widen the pools or reserve less")]
    NoRoom(IpNet),
    /// It cannot stand for ours.
    #[error("the peer's answer cannot be used: {0}")]
    Unlike(#[from] Unlike),
    /// Nothing was agreed on before.
    #[error("nothing is known of the networks of the cluster {0} yet")]
    UnknownPeer(String),
}

/// Why an endpoint cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// There is no such peer.
    #[error("the cluster {0} is not a peer")]
    UnknownPeer(String),
    /// The peer has not said yet how it names our networks.
    #[error("the networks are not agreed on with the cluster {0} yet; try again")]
    NotReady(String),
    /// The peer takes no addresses of our external network.
    #[error("the cluster {0} reaches pods only")]
    PodsOnly(String),
    /// Nothing can be reached at it.
    #[error("{0} is not the address of an endpoint")]
    NotAnEndpoint(IpAddr),
    /// No address is left.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// By endpoint; a clone shares all that does not change.
pub(super) type Mappings = RedBlackTreeMapSync<IpAddr, Mapping>;

/// All networks and addresses in use. A clone costs what peers there are, not what is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipam {
    pub(super) own: OwnNetworks,
    pub(super) external: ExternalAddresses,
    pub(super) peers: BTreeMap<String, Agreement>,
    pub(super) mappings: Mappings,
}

impl Ipam {
    /// The first start: chooses an external network of this length.
    pub fn new(own: OwnNetworks, external_length: u8) -> Result<Self, Refusal> {
        let wanted = IpNet::new(own.pod.network(), external_length).unwrap_or(own.pod);
        let taken = [own.pod, own.service].into_iter().chain(own.reserved.iter().copied()).collect();
        let external = replacement(&wanted, &own.pools, &taken).ok_or(Refusal::NoRoom(wanted))?;
        let external = ExternalAddresses::new(external);
        Ok(Self { own, external, peers: BTreeMap::new(), mappings: Mappings::default() })
    }

    /// The networks of this cluster.
    pub fn own(&self) -> &OwnNetworks {
        &self.own
    }

    /// The network of addresses for endpoints that are not pods of this cluster.
    pub fn external(&self) -> IpNet {
        self.external.network()
    }

    /// What was agreed with each peer.
    pub fn peers(&self) -> &BTreeMap<String, Agreement> {
        &self.peers
    }

    /// Finds names for the networks of a peer. The same offer has the same answer; another one takes its place.
    pub fn acquire(&mut self, peer: &str, offered: Offered) -> Result<Answer, Refusal> {
        let agreement = self.names_for(peer, offered)?;
        self.peers.insert(peer.to_owned(), agreement);
        Ok(agreement.answer())
    }

    /// What [`Self::acquire`] would come to.
    pub fn names_for(&self, peer: &str, offered: Offered) -> Result<Agreement, Refusal> {
        let before = self.peers.get(peer);
        if let Some(agreement) = before.filter(|agreement| agreement.offered() == offered) {
            return Ok(*agreement);
        }
        let ours = before.and_then(|agreement| agreement.ours);
        let mut taken: Vec<IpNet> = self.taken(peer).collect();
        let mut name = |network: IpNet| {
            let named = self.name(network, &taken)?;
            taken.push(named.here());
            Ok::<_, Refusal>(named)
        };
        Ok(Agreement {
            their_pods: name(offered.pod.trunc())?,
            their_external: offered.external.map(|external| name(external.trunc())).transpose()?,
            ours,
        })
    }

    /// A network keeps its name where that is free, and private: a peer must not draw traffic to itself that is meant
    /// for the rest of the world.
    fn name(&self, network: IpNet, taken: &[IpNet]) -> Result<Translation, Refusal> {
        let taken: Networks = taken.iter().copied().collect();
        let is_private = self.own.pools.iter().any(|pool| pool.contains(&network));
        if is_private && taken.overlapping(&network).is_none() {
            return Ok(Translation::identity(network));
        }
        let stand_in = replacement(&network, &self.own.pools, &taken).ok_or(Refusal::NoRoom(network))?;
        Ok(Translation::new(stand_in, network)?)
    }

    /// All networks that are in use, but for those of this peer.
    fn taken<'a>(&'a self, except: &'a str) -> impl Iterator<Item = IpNet> + 'a {
        let own = [self.own.pod, self.own.service, self.external.network()];
        let peers = self.peers.iter().filter(move |(peer, _)| *peer != except);
        own.into_iter()
            .chain(self.own.reserved.iter().copied())
            .chain(peers.flat_map(|(_, agreement)| agreement.networks()))
    }

    /// Notes how a peer names our networks; one that says nothing of the external network reaches pods only.
    pub fn agree(&mut self, peer: &str, answer: Answer) -> Result<(), Refusal> {
        let (pod, network) = (self.own.pod, self.external.network());
        let agreement = self.peers.get_mut(peer).ok_or_else(|| Refusal::UnknownPeer(peer.to_owned()))?;
        let external = answer.external.map(|external| external.of(network)).transpose()?;
        agreement.ours = Some(Ours { pods: answer.pod.of(pod)?, external });
        Ok(())
    }

    /// Forgets a peer and all that was kept for it.
    pub fn release(&mut self, peer: &str, now: Timestamp) {
        self.peers.remove(peer);
        for endpoint in self.published_to(peer) {
            self.unmap(peer, endpoint, now);
        }
    }

    /// The endpoints that are published to a peer under an address of their own.
    pub(super) fn published_to(&self, peer: &str) -> Vec<IpAddr> {
        let published = self.mappings.iter().filter(|(_, mapping)| mapping.peers.contains(peer));
        published.map(|(endpoint, _)| *endpoint).collect()
    }

    /// The address at which a peer reaches an endpoint.
    pub fn map(&mut self, peer: &str, endpoint: IpAddr, now: Timestamp) -> Result<IpAddr, MapError> {
        let agreement = self.peers.get(peer).ok_or_else(|| MapError::UnknownPeer(peer.to_owned()))?;
        let ours = agreement.ours.ok_or_else(|| MapError::NotReady(peer.to_owned()))?;
        if !is_endpoint(endpoint) {
            return Err(MapError::NotAnEndpoint(endpoint));
        }
        if let Some(there) = ours.pods.outward(endpoint) {
            return Ok(there);
        }
        // A pod of the peer itself: it need not go through this cluster.
        if let Some(there) = agreement.their_pods.outward(endpoint) {
            return Ok(there);
        }
        let external = ours.external.ok_or_else(|| MapError::PodsOnly(peer.to_owned()))?;
        let no_endpoint = MapError::NotAnEndpoint(endpoint);
        if external.here().contains(&endpoint) || map_to_network(endpoint, external.here()).is_none() {
            return Err(no_endpoint);
        }
        let mut mapping = match self.mappings.get(&endpoint) {
            Some(mapping) => mapping.clone(),
            None => Mapping { ip: self.external.allocate(now)?, peers: BTreeSet::new() },
        };
        let ip = mapping.ip;
        if mapping.peers.insert(peer.to_owned()) {
            self.mappings.insert_mut(endpoint, mapping);
        }
        external.outward(ip).ok_or(no_endpoint)
    }

    /// Ends the publication of an endpoint to a peer. What was not published stays as it is.
    pub fn unmap(&mut self, peer: &str, endpoint: IpAddr, now: Timestamp) {
        let Some(mut mapping) = self.mappings.get(&endpoint).cloned() else { return };
        if !mapping.peers.remove(peer) {
            return;
        }
        if mapping.peers.is_empty() {
            self.external.free(mapping.ip, now);
            self.mappings.remove_mut(&endpoint);
        } else {
            self.mappings.insert_mut(endpoint, mapping);
        }
    }

    /// Where a pod of a peer, by the address that it has there, is reached from here.
    pub fn home_pod_ip(&self, peer: &str, ip: IpAddr) -> Result<IpAddr, MapError> {
        let agreement = self.peers.get(peer).ok_or_else(|| MapError::UnknownPeer(peer.to_owned()))?;
        agreement.their_pods.inward(ip).ok_or(MapError::NotAnEndpoint(ip))
    }

    /// Whether an address is of a pod of this cluster.
    pub fn belongs_to_pod_cidr(&self, ip: IpAddr) -> bool {
        self.own.pod.contains(&ip)
    }

    /// For each endpoint that is published to a peer under an address of its own, that address.
    pub fn redirections(&self, peer: &str) -> BTreeMap<IpAddr, IpAddr> {
        let to = |endpoint| Some((endpoint, self.redirection(peer, endpoint)?));
        self.published_to(peer).into_iter().filter_map(to).collect()
    }

    /// The address under which an endpoint is published to a peer, if it has one of its own.
    pub fn redirection(&self, peer: &str, endpoint: IpAddr) -> Option<IpAddr> {
        let external = self.peers.get(peer)?.ours?.external?;
        let mapping = self.mappings.get(&endpoint).filter(|mapping| mapping.peers.contains(peer))?;
        external.outward(mapping.ip)
    }

    /// The endpoints that have an address of our external network, and how.
    pub fn mappings(&self) -> impl Iterator<Item = (&IpAddr, &Mapping)> {
        self.mappings.iter()
    }

    /// How many endpoints have an address of our external network.
    pub fn mapped(&self) -> usize {
        self.mappings.size()
    }

    /// How an endpoint is mapped.
    pub fn mapping(&self, endpoint: &IpAddr) -> Option<&Mapping> {
        self.mappings.get(endpoint)
    }
}

/// Whether one host may be found at the address.
fn is_endpoint(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast || is_link_local)
}

#[cfg(test)]
mod tests;
