//! The address manager: all networks and addresses that are in use between this cluster and its peers, as one value.
//!
//! - Flow: a peer's networks are acquired under names of ours, the peer says how it names ours, and from then on any
//!   endpoint can be mapped to the address at which that peer reaches it. Where peers reach only what is published, that
//!   publishes pods, too; where they reach nodes, these are published to all of them.
//! - Guarantees: no two networks in use overlap; no address stands for two endpoints; the same question has the same
//!   answer, also after a restart; what nobody uses any more is free again, once it has rested.
//! - Assumptions: the caller stores the value before it tells anybody what came of a change.

mod mapping;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::config::Reach;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use rpds::RedBlackTreeMapSync;

use super::acquisition::shortest_mask;
use super::{
    Agreement, Answer, Claims, Exhausted, ExternalAddresses, Networks, Offered, Ours, QUARANTINE,
    Translation, Unlike, map_to_network, replacement,
};

pub use mapping::{Asker, Mapping};
use names::Names;

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
    /// What peers reach.
    pub reach: Reach,
}

/// Why networks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None is left.
    #[error(
        "no network of the size of {0} is free; widen the pools, reserve less, or wait until freed ones have rested"
    )]
    NoRoom(IpNet),
    /// An external network of this length would be of no use.
    #[error(
        "an external network cannot have a mask of {length} bits; set liqonetConfig.externalCIDRMaskLength in the \
         ClusterConfig to a number from {least} to {most}"
    )]
    Mask {
        /// What was wanted.
        length: u8,
        /// That of the largest one that peers take.
        least: u8,
        /// That of the smallest one with an address for an endpoint.
        most: u8,
    },
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
    /// It is the peer that publishes it.
    #[error("{0} stands for an endpoint of that cluster itself, which reaches it without this one")]
    TheirOwn(IpAddr),
    /// No address is left.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// A name that a peer had for one of its networks. Whoever still remembers it must not reach somebody else under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) peer: String,
    /// The network, as the peer calls it.
    pub(super) original: IpNet,
    pub(super) since: Timestamp,
}

impl Rest {
    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) >= QUARANTINE.try_into().unwrap_or_default()
    }
}

/// By endpoint; a clone shares all that does not change.
pub(super) type Mappings = RedBlackTreeMapSync<IpAddr, Mapping>;

/// All networks and addresses in use. A clone costs what peers there are, not what is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipam {
    pub(super) own: OwnNetworks,
    pub(super) external: ExternalAddresses,
    pub(super) peers: BTreeMap<String, Agreement>,
    /// By the name.
    pub(super) resting: BTreeMap<IpNet, Rest>,
    pub(super) mappings: Mappings,
}

impl Ipam {
    /// The first start: chooses an external network of this length.
    pub fn new(own: OwnNetworks, external_length: u8) -> Result<Self, Refusal> {
        let wanted = external_of(&own.pod, external_length)?;
        let taken = [own.pod, own.service].into_iter().chain(own.reserved.iter().copied()).collect();
        let external = replacement(&wanted, &own.pools, &taken).ok_or(Refusal::NoRoom(wanted))?;
        let external = ExternalAddresses::new(external);
        let (peers, resting) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { own, external, peers, resting, mappings: Mappings::default() })
    }

    /// The same with the first address at another place. Who begins anew does not know what was given out before; at a
    /// place by chance it hardly meets what peers still remember.
    #[must_use]
    pub fn starting_at(mut self, chance: u32) -> Self {
        self.external.start_at(chance);
        self
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
    pub fn acquire(&mut self, peer: &str, offered: Offered, now: Timestamp) -> Result<Answer, Refusal> {
        let agreement = self.names_for(peer, offered, now)?;
        let before = self.peers.insert(peer.to_owned(), agreement);
        self.rest(peer, before, now);
        Ok(agreement.answer())
    }

    /// What [`Self::acquire`] would come to.
    pub fn names_for(&self, peer: &str, offered: Offered, now: Timestamp) -> Result<Agreement, Refusal> {
        let before = self.peers.get(peer);
        if let Some(agreement) = before.filter(|agreement| agreement.offered() == offered) {
            return Ok(*agreement);
        }
        let ours = before.and_then(|agreement| agreement.ours);
        let offers = [Some(offered.pod), offered.external].into_iter().flatten().map(|offer| offer.trunc());
        let former = self.former(peer, now);
        let mut names = Names { own: &self.own, taken: Vec::new(), former, offered: offers.collect() };
        let others = self.resting.iter().filter(|(_, rest)| rest.peer != peer && !rest.is_over(now));
        names.taken.extend(self.taken(peer).chain(others.map(|(network, _)| *network)));
        Ok(Agreement {
            their_pods: names.name(offered.pod.trunc())?,
            their_external: offered.external.map(|external| names.name(external.trunc())).transpose()?,
            ours,
        })
    }

    /// The names that a peer has, or had until just now.
    fn former(&self, peer: &str, now: Timestamp) -> Vec<Translation> {
        let present = self.peers.get(peer).into_iter().flat_map(Agreement::theirs);
        let rests = self.resting.iter().filter(|(_, rest)| rest.peer == peer && !rest.is_over(now));
        let rests = rests.filter_map(|(network, rest)| Translation::new(*network, rest.original).ok());
        present.chain(rests).collect()
    }

    /// Lets names rest that a peer has no longer. Only those that it had last do: one that changes its mind all the
    /// time must not use up what there is.
    fn rest(&mut self, peer: &str, before: Option<Agreement>, now: Timestamp) {
        let after: Vec<Translation> = self.peers.get(peer).into_iter().flat_map(Agreement::theirs).collect();
        let gone: Vec<Translation> =
            before.iter().flat_map(Agreement::theirs).filter(|name| !after.contains(name)).collect();
        let in_use: Networks = after.iter().map(Translation::here).collect();
        self.resting.retain(|_, rest| !rest.is_over(now) && (rest.peer != peer || gone.is_empty()));
        for name in gone {
            let rest = Rest { peer: peer.to_owned(), original: name.there(), since: now };
            self.resting.insert(name.here(), rest);
        }
        // What is the peer's again, or is its own under another name, rests no longer.
        self.resting.retain(|network, _| in_use.overlapping(network).is_none());
    }

    /// Lets all that rest do so in full from now on: who wrote down since when may have had another clock.
    pub(super) fn rest_anew(&mut self, now: Timestamp) {
        self.external.rest_anew(now);
        for rest in self.resting.values_mut() {
            rest.since = now;
        }
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
        let before = self.peers.remove(peer);
        self.rest(peer, before, now);
        for endpoint in self.published_to(peer) {
            for asker in [Asker::Caller, Asker::Slices] {
                self.unmap_for(asker, peer, endpoint, now);
            }
        }
    }

    /// The endpoints that are published to a peer.
    pub(super) fn published_to(&self, peer: &str) -> Vec<IpAddr> {
        let published = self.mappings.iter().filter(|(_, mapping)| mapping.is_for(peer));
        published.map(|(endpoint, _)| *endpoint).collect()
    }

    /// Whether somebody asked for an endpoint to be published to a peer.
    pub fn is_asked_for(&self, peer: &str, endpoint: IpAddr) -> bool {
        self.mappings.get(&endpoint).is_some_and(|mapping| mapping.peers.contains(peer))
    }

    /// The endpoints that slices had published to a peer.
    pub fn reflected_to(&self, peer: &str) -> BTreeSet<IpAddr> {
        let reflected = self.mappings.iter().filter(|(_, mapping)| mapping.reflected_to.contains(peer));
        reflected.map(|(endpoint, _)| *endpoint).collect()
    }

    /// The address at which a peer reaches an endpoint, for whoever calls.
    pub fn map(&mut self, peer: &str, endpoint: IpAddr, now: Timestamp) -> Result<IpAddr, MapError> {
        self.map_for(Asker::Caller, &Claims::default(), (peer, endpoint), now)
    }

    /// The address at which a peer reaches an endpoint, beside addresses of our external network that others use without
    /// having asked. One that they use for this very endpoint is taken over.
    pub fn map_for(
        &mut self,
        asker: Asker,
        claimed: &Claims,
        (peer, endpoint): (&str, IpAddr),
        now: Timestamp,
    ) -> Result<IpAddr, MapError> {
        let agreement = self.peers.get(peer).ok_or_else(|| MapError::UnknownPeer(peer.to_owned()))?;
        let ours = agreement.ours.ok_or_else(|| MapError::NotReady(peer.to_owned()))?;
        // A service is reached where its endpoints are; its own address means something only on nodes of this cluster.
        if !is_endpoint(endpoint) || self.own.service.contains(&endpoint) {
            return Err(MapError::NotAnEndpoint(endpoint));
        }
        if let Some(there) = ours.pods.outward(endpoint) {
            // Otherwise all pods are reached, and nothing is stored for one.
            if self.own.reach == Reach::Strict {
                self.publish(asker, peer, endpoint, endpoint);
            }
            return Ok(there);
        }
        // A pod of the peer itself: it need not go through this cluster.
        if let Some(there) = agreement.their_pods.outward(endpoint) {
            return Ok(there);
        }
        // Nor need what the peer itself publishes, and packets that came back through here would be nobody's.
        if agreement.their_external.is_some_and(|external| external.here().contains(&endpoint)) {
            return Err(MapError::TheirOwn(endpoint));
        }
        let external = ours.external.ok_or_else(|| MapError::PodsOnly(peer.to_owned()))?;
        let no_endpoint = MapError::NotAnEndpoint(endpoint);
        if external.here().contains(&endpoint) || map_to_network(endpoint, external.here()).is_none() {
            return Err(no_endpoint);
        }
        let ip = match self.mappings.get(&endpoint) {
            Some(mapping) => mapping.ip,
            None => self.address_for(claimed, Some(peer), endpoint, now)?,
        };
        self.publish(asker, peer, endpoint, ip);
        external.outward(ip).ok_or(no_endpoint)
    }

    /// The address that others use for an endpoint, if it can be had, or else one of those that are free.
    fn address_for(
        &mut self,
        claimed: &Claims,
        peer: Option<&str>,
        endpoint: IpAddr,
        now: Timestamp,
    ) -> Result<IpAddr, Exhausted> {
        match claimed.address(peer, &endpoint) {
            Some(ip) if self.external.take(ip, endpoint, now) => Ok(ip),
            Some(_) | None => self.external.allocate_beside(claimed, now),
        }
    }

    fn publish(&mut self, asker: Asker, peer: &str, endpoint: IpAddr, ip: IpAddr) {
        let known = self.mappings.get(&endpoint).cloned();
        let mut mapping = known.unwrap_or_else(|| Mapping::new(ip));
        if mapping.asked_by(asker).insert(peer.to_owned()) {
            self.mappings.insert_mut(endpoint, mapping);
        }
    }

    /// Ends the publication of an endpoint to a peer, for whoever called.
    pub fn unmap(&mut self, peer: &str, endpoint: IpAddr, now: Timestamp) {
        self.unmap_for(Asker::Caller, peer, endpoint, now);
    }

    /// Ends the publication of an endpoint to a peer, unless others have asked for it. What was not published stays as it
    /// is.
    pub(super) fn unmap_for(&mut self, asker: Asker, peer: &str, endpoint: IpAddr, now: Timestamp) {
        let Some(mut mapping) = self.mappings.get(&endpoint).cloned() else { return };
        if mapping.asked_by(asker).remove(peer) {
            self.keep(endpoint, mapping, now);
        }
    }

    /// Keeps how an endpoint is published, unless that is for nobody.
    fn keep(&mut self, endpoint: IpAddr, mapping: Mapping, now: Timestamp) {
        if mapping.is_idle() {
            self.external.free(mapping.ip, endpoint, now);
            self.mappings.remove_mut(&endpoint);
        } else {
            self.mappings.insert_mut(endpoint, mapping);
        }
    }

    /// The endpoints that are published to all peers.
    pub(super) fn to_all(&self) -> BTreeSet<IpAddr> {
        self.mappings.iter().filter(|(_, mapping)| mapping.to_all).map(|(endpoint, _)| *endpoint).collect()
    }

    /// Whether a node can be published: at other addresses it is reached without, or not at all.
    pub(super) fn is_publishable(&self, node: &IpAddr) -> bool {
        let is_named = self.own.pod.contains(node) || self.external().contains(node);
        is_endpoint(*node) && !is_named && map_to_network(*node, self.external()).is_some()
    }

    /// Publishes an endpoint to all peers, those that are to come included.
    pub(super) fn open(
        &mut self,
        claimed: &Claims,
        endpoint: IpAddr,
        now: Timestamp,
    ) -> Result<(), Exhausted> {
        let mapping = match self.mappings.get(&endpoint) {
            Some(mapping) => mapping.clone(),
            None => Mapping::new(self.address_for(claimed, None, endpoint, now)?),
        };
        self.mappings.insert_mut(endpoint, Mapping { to_all: true, ..mapping });
        Ok(())
    }

    /// Leaves an endpoint to those for whom somebody asked.
    pub(super) fn close(&mut self, endpoint: IpAddr, now: Timestamp) {
        if let Some(mapping) = self.mappings.get(&endpoint).cloned() {
            self.keep(endpoint, Mapping { to_all: false, ..mapping }, now);
        }
    }

    /// The pods that are published to whom they belong.
    pub(super) fn guests(&self) -> BTreeMap<IpAddr, String> {
        let guests =
            self.mappings.iter().filter_map(|(pod, mapping)| Some((*pod, mapping.guest_of.clone()?)));
        guests.collect()
    }

    /// Publishes a pod to whom it belongs.
    pub(super) fn lodge(&mut self, pod: IpAddr, peer: &str) {
        let known = self.mappings.get(&pod).cloned().unwrap_or_else(|| Mapping::new(pod));
        self.mappings.insert_mut(pod, Mapping { guest_of: Some(peer.to_owned()), ..known });
    }

    /// Leaves a pod to those for whom somebody asked.
    pub(super) fn dismiss(&mut self, pod: IpAddr, now: Timestamp) {
        if let Some(mapping) = self.mappings.get(&pod).cloned() {
            self.keep(pod, Mapping { guest_of: None, ..mapping }, now);
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

    /// For each endpoint that is published to a peer, the address under which it is.
    pub fn redirections(&self, peer: &str) -> BTreeMap<IpAddr, IpAddr> {
        let to = |endpoint| Some((endpoint, self.redirection(peer, endpoint)?));
        self.published_to(peer).into_iter().filter_map(to).collect()
    }

    /// The address under which an endpoint is published to a peer, if it is.
    pub fn redirection(&self, peer: &str, endpoint: IpAddr) -> Option<IpAddr> {
        let ours = self.peers.get(peer)?.ours?;
        let mapping = self.mappings.get(&endpoint).filter(|mapping| mapping.is_for(peer))?;
        ours.pods.outward(endpoint).or_else(|| ours.external?.outward(mapping.ip))
    }

    /// The peers to which an endpoint is published.
    pub(super) fn published(&self, endpoint: &IpAddr) -> BTreeSet<String> {
        match self.mappings.get(endpoint) {
            Some(mapping) if mapping.to_all => self.peers.keys().cloned().collect(),
            Some(mapping) => mapping.asked().chain(&mapping.guest_of).cloned().collect(),
            None => BTreeSet::new(),
        }
    }

    /// Whether what stands for an endpoint can: for a pod only itself, for others an address of our external network.
    pub(super) fn is_fit(&self, endpoint: &IpAddr, mapping: &Mapping) -> bool {
        if self.own.pod.contains(endpoint) {
            mapping.ip == *endpoint
        } else {
            self.external().contains(&mapping.ip)
        }
    }

    /// The endpoints that are published, and how.
    pub fn mappings(&self) -> impl Iterator<Item = (&IpAddr, &Mapping)> {
        self.mappings.iter()
    }

    /// How many endpoints are published.
    pub fn mapped(&self) -> usize {
        self.mappings.size()
    }

    /// How an endpoint is mapped.
    pub fn mapping(&self, endpoint: &IpAddr) -> Option<&Mapping> {
        self.mappings.get(endpoint)
    }
}

/// A network of this length beside those of the pods. A larger one is refused by peers, and a smaller one has no address
/// to give.
fn external_of(pod: &IpNet, length: u8) -> Result<IpNet, Refusal> {
    let (least, most) = (shortest_mask(pod), pod.max_prefix_len().saturating_sub(2));
    let network = IpNet::new(pod.network(), length).ok().filter(|_| (least..=most).contains(&length));
    network.ok_or(Refusal::Mask { length, least, most })
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
