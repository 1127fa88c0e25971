//! What one cluster answers to the other: names for its networks, or why there are none.

use ferro_api::net::{NetworkConfig, NetworkConfigStatus};
use ipnet::IpNet;
use serde_json::json;

use super::{Snapshot, Write};
use crate::network::acquisition::shortest_mask;
use crate::network::config::{self, BadConfig, Described, PUBLIC_KEY};
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
    /// Its networks are too large.
    #[error("{0} is larger than a cluster may be; the largest is a /{1}")]
    TooLarge(IpNet, u8),
    /// There are no names for its networks.
    #[error(transparent)]
    NoNames(#[from] Refusal),
    /// The key of its tunnel is that of another one: only one of them can have it.
    #[error(
        "the key of its tunnel is in use for another cluster; make a new one by deleting the gateway's Secret"
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
            Self::TooLarge(..) => "TooLarge",
            Self::NoNames(_) => "NoRoom",
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
        if pods.contains(&others) || others.contains(&pods) {
            return Err(BadAnswer::Ambiguous(pods, others));
        }
    }
    Ok(Answer { pod, external: external.filter(|_| ours.spec.external_cidr.is_some()) })
}

impl Snapshot<'_> {
    /// What the peer says, and the names that its networks have or would have here.
    pub(super) fn judge(&self, theirs: &NetworkConfig) -> Result<(Described, Agreement), Unusable> {
        let described = config::read(&theirs.spec, &self.peer, &self.us.identity().id())?;
        let networks = [Some(described.offered.pod), described.offered.external];
        let too_large = |network: &IpNet| network.prefix_len() < shortest_mask(network);
        if let Some(network) = networks.into_iter().flatten().find(too_large) {
            return Err(Unusable::TooLarge(network, shortest_mask(&network)));
        }
        if self.is_key_in_use(theirs, &described) {
            return Err(Unusable::KeyInUse);
        }
        let agreement = self.ipam.names_for(&self.peer.to_string(), described.offered)?;
        Ok((described, agreement))
    }

    /// Who has a tunnel keeps its key; nobody else can take it over.
    fn is_key_in_use(&self, theirs: &NetworkConfig, described: &Described) -> bool {
        let Some(key) = theirs.spec.backend_config.get(PUBLIC_KEY) else { return false };
        let has_it = self.tunnel.and_then(|tunnel| tunnel.spec.backend_config.get(PUBLIC_KEY)) == Some(key);
        let is_ours = self.gateway.is_some_and(|gateway| gateway.public_key == described.public_key);
        is_ours || (!has_it && (self.holder_of)(key).is_some())
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
