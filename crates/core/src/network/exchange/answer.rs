//! What one cluster answers to the other: names for its networks, or why there are none.

use std::net::IpAddr;

use ferro_api::net::{NetworkConfig, NetworkConfigStatus};
use ipnet::IpNet;
use serde_json::json;

use super::{Snapshot, Wish, Write, is_going};
use crate::network::acquisition::{overlap, shortest_mask};
use crate::network::config::{self, BadConfig, Described};
use crate::network::{Agreement, Answer, Naming, Ours, Refusal, Unlike};
use crate::peering::condition;
use crate::policy::Reason;
use crate::replication::difference;

/// The condition by which the receiver of a `NetworkConfig` says whether it uses it.
pub const PROCESSED: &str = "Processed";

/// Why what a peer says of its networks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is not believed, or makes no sense.
    #[error(transparent)]
    Bad(#[from] BadConfig),
    /// Its networks are of a family that gateways and nodes do not carry yet.
    #[error("{0} is a network of IPv6, which cannot be joined yet; its pods need addresses of IPv4")]
    V6(IpNet),
    /// Its networks are too large.
    #[error("{0} is larger than a cluster may be; the largest is a /{1}")]
    TooLarge(IpNet, u8),
    /// There are no names for its networks.
    #[error(transparent)]
    NoNames(#[from] Refusal),
    /// Its tunnel would lead through a tunnel.
    #[error("its gateway is at {0}, which is in {1} here; that network is in use")]
    EndpointInside(IpAddr, IpNet),
    /// The key of its tunnel is that of another one: only one of them can have it.
    #[error(
        "the key of its tunnel is in use for another cluster; make a new one by deleting the gateway's Secret, and restart \
         ferro-gateway there"
    )]
    KeyInUse,
}

impl Unusable {
    fn word(&self) -> &'static str {
        match self {
            Self::Bad(BadConfig::Unsigned | BadConfig::Unproven(_)) => "NotSigned",
            Self::Bad(BadConfig::AnotherReceiver) => "AnotherReceiver",
            Self::Bad(BadConfig::AnotherBackend(_)) => "AnotherBackend",
            Self::Bad(BadConfig::Unreadable { .. }) => "Unreadable",
            Self::V6(_) => "IPv6",
            Self::TooLarge(..) => "TooLarge",
            Self::NoNames(_) => "NoRoom",
            Self::EndpointInside(..) => "EndpointInside",
            Self::KeyInUse => "KeyInUse",
        }
    }
}

/// Why a peer's answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// It is not a network.
    #[error("{0} of its answer is not a network")]
    Unreadable(&'static str),
    /// It cannot stand for ours.
    #[error(transparent)]
    Unlike(#[from] Unlike),
    /// Two of our networks have the same name.
    #[error("it has {0} for one network and {1} for another, which overlap")]
    Ambiguous(IpNet, IpNet),
}

/// How the receiver of our `NetworkConfig` names our networks; none while it has not said so.
pub fn answer_to(ours: &NetworkConfig) -> Option<Result<Answer, BadAnswer>> {
    let status = ours.status.as_ref().filter(|status| status.processed())?;
    Some(read_answer(ours, status))
}

fn read_answer(ours: &NetworkConfig, status: &NetworkConfigStatus) -> Result<Answer, BadAnswer> {
    let naming = |field, text: &str| text.parse::<Naming>().map_err(|_| BadAnswer::Unreadable(field));
    let pod = naming("podCIDRNAT", status.pod_cidr_nat.as_deref().unwrap_or_default())?;
    let external = status.external_cidr_nat.as_deref();
    let external = external.map(|text| naming("externalCIDRNAT", text)).transpose()?;
    let network = |field, text: &str| text.parse::<IpNet>().map_err(|_| BadAnswer::Unreadable(field));
    let pods = pod.of(network("podCIDR", &ours.spec.pod_cidr)?)?.there();
    if let Some((external, text)) = external.zip(ours.spec.external_cidr.as_deref()) {
        let others = external.of(network("externalCIDR", text)?)?.there();
        if overlap(&pods, &others) {
            return Err(BadAnswer::Ambiguous(pods, others));
        }
    }
    Ok(Answer { pod, external: external.filter(|_| ours.spec.external_cidr.is_some()) })
}

/// Where the peer's end of the tunnel is, as far as that is believed. It is to be kept free before names are found, so
/// that none of them hides it.
pub fn end(snapshot: &Snapshot<'_>) -> Option<IpAddr> {
    let is_there = |theirs: &&NetworkConfig| snapshot.wish != Wish::Part && !is_going(&theirs.metadata);
    let theirs = snapshot.theirs.filter(is_there)?;
    Some(snapshot.believe(theirs).ok()?.endpoint.ip())
}

impl Snapshot<'_> {
    /// What the peer says, and the names that its networks have or would have here.
    pub(super) fn judge(&self, theirs: &NetworkConfig) -> Result<(Described, Agreement), Unusable> {
        let described = self.believe(theirs)?;
        let agreement = self.ipam.names_for(&self.peer.to_string(), described.offered, self.now)?;
        let ip = described.endpoint.ip();
        match agreement.networks().find(|network| network.contains(&ip)) {
            Some(network) => Err(Unusable::EndpointInside(ip, network)),
            None => Ok((described, agreement)),
        }
    }

    /// What the peer says, if nothing of it is in the way of others.
    fn believe(&self, theirs: &NetworkConfig) -> Result<Described, Unusable> {
        let described = config::read(&theirs.spec, &self.peer, &self.us.identity().id())?;
        let networks = [Some(described.offered.pod), described.offered.external];
        if let Some(network) = networks.into_iter().flatten().find(|network| network.addr().is_ipv6()) {
            return Err(Unusable::V6(network));
        }
        let too_large = |network: &IpNet| network.prefix_len() < shortest_mask(network);
        if let Some(network) = networks.into_iter().flatten().find(too_large) {
            return Err(Unusable::TooLarge(network, shortest_mask(&network)));
        }
        if self.is_key_in_use(&described) {
            return Err(Unusable::KeyInUse);
        }
        let ip = described.endpoint.ip();
        match self.around(ip) {
            Some(network) => Err(Unusable::EndpointInside(ip, network)),
            None => Ok(described),
        }
    }

    /// The network of this cluster, or of another peer as it is named here, in which an address lies.
    fn around(&self, ip: IpAddr) -> Option<IpNet> {
        let (own, peer) = (self.ipam.own(), self.peer.to_string());
        let others = self.ipam.peers().iter().filter(|(other, _)| **other != peer);
        let others = others.flat_map(|(_, agreement)| agreement.networks());
        let mut all = [own.pod, own.service, self.ipam.external()].into_iter().chain(others);
        all.find(|network| network.contains(&ip))
    }

    fn is_key_in_use(&self, described: &Described) -> bool {
        let is_ours = self.gateway.is_some_and(|gateway| gateway.public_key == described.public_key);
        is_ours || (self.holder_of)(&described.key_text()).is_some()
    }

    /// Our answer: these names.
    pub(super) fn accept(&self, theirs: &NetworkConfig, agreement: &Agreement) -> Vec<Write> {
        let (names, told) = (agreement.answer(), Reason::new("Answered", "the networks have names here"));
        let next = NetworkConfigStatus {
            processed: Some(true),
            pod_cidr_nat: Some(names.pod.to_string()),
            external_cidr_nat: names.external.map(|external| external.to_string()),
            ..self.said(theirs, true, &told)
        };
        answer(theirs, &next)
    }

    /// Our answer: no, and why.
    pub(super) fn refuse(&self, theirs: &NetworkConfig, unusable: &Unusable) -> Vec<Write> {
        let told = Reason::new(unusable.word(), unusable.to_string());
        answer(theirs, &self.said(theirs, false, &told))
    }

    fn said(&self, theirs: &NetworkConfig, processed: bool, told: &Reason) -> NetworkConfigStatus {
        let present = theirs.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        NetworkConfigStatus {
            processed: Some(processed),
            conditions: condition(present, PROCESSED, processed, told, self.now),
            ..NetworkConfigStatus::default()
        }
    }

    /// Whether the address manager knows this answer.
    pub(super) fn is_noted(&self, noted: &Ours, answer: Answer) -> bool {
        let pods = answer.pod.of(self.ipam.own().pod);
        let external = answer.external.map(|external| external.of(self.ipam.external())).transpose();
        pods.is_ok_and(|pods| pods == noted.pods) && external.is_ok_and(|it| it == noted.external)
    }
}

/// No answer any more: what was said before does not hold.
pub(super) fn take_back(theirs: &NetworkConfig) -> Vec<Write> {
    let is_answered = theirs.status.as_ref().is_some_and(NetworkConfigStatus::processed);
    let nothing = NetworkConfigStatus { processed: Some(false), ..NetworkConfigStatus::default() };
    if is_answered { answer(theirs, &nothing) } else { Vec::new() }
}

fn answer(theirs: &NetworkConfig, next: &NetworkConfigStatus) -> Vec<Write> {
    let present = theirs.status.clone().unwrap_or_default();
    let patch = difference(&json!({"status": present}), &json!({"status": next}));
    patch.map(Write::Answer).into_iter().collect()
}
