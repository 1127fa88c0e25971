//! How two clusters come to one network: from what each has told the other to the next writes about a peer.
//!
//! # Flow
//! Each describes its networks in a `NetworkConfig`, signed, which is copied to the other. Each finds names for the
//! networks of the other and writes them into the status of that copy, which is its answer. Who has both answers writes
//! the `TunnelEndpoint`, by which gateway and nodes are set up. Back: the tunnel first, until the gateway has let it go,
//! then the names, then the `NetworkConfig`, whose finalizer stands for them.
//!
//! # Guarantees
//! - Nothing is remembered: performing any part of a plan, in order, and planning again comes to the same end.
//! - Names are kept for a peer only as long as there is a `NetworkConfig` of ours for it, and no tunnel outlives its names:
//!   they are never given to another peer while packets still go by them.
//! - What a peer says decides only how its own networks are named here, and how ours are named towards it.
//! - Another key or address changes the tunnel and keeps the names. Other networks are negotiated from the beginning.
//!
//! # Assumptions
//! - One peer is decided at a time, and [`Ipam`] is as it is stored.
//! - The replicator keeps copies and originals in step, and holds originals until their copies are gone.

mod answer;
mod key;
mod shown;
mod tunnel;
mod wish;

use ferro_api::common::ClusterIdentity;
use ferro_api::names::finalizers;
use ferro_api::net::{NetworkConfig, NetworkConfigSpec, TunnelEndpoint, TunnelEndpointSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::config::{self, BACKEND, Described, PORT, PUBLIC_KEY};
use super::gateway::Gateway;
use super::{Agreement, Answer, Ipam, Offered};
use crate::identity::{ClusterId, SigningIdentity};
use crate::replication::difference;

use answer::take_back;
pub use answer::{BadAnswer, PROCESSED, Unusable, answer_to, end};
pub use key::holder_of;
pub use shown::{Objects, shown};
pub use wish::{Wish, is_forced, is_lost, wish};

/// Everything that is known about the network to one peer.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// This cluster, which signs.
    pub us: &'a SigningIdentity,
    /// The peer.
    pub peer: ClusterId,
    /// The peer's name, as the `ForeignCluster` has it.
    pub peer_name: Option<&'a str>,
    /// What is to become of the network.
    pub wish: Wish,
    /// Whether nobody can remove the copy of our `NetworkConfig`, so that it is not waited for.
    pub lost: bool,
    /// Whether a person has said that nothing is to be waited for, not even our own gateway.
    pub forced: bool,
    /// Our gateway, if it has said something yet.
    pub gateway: Option<&'a Gateway>,
    /// Whether our gateway has not been heard for so long that its word does not count any more.
    pub is_gateway_silent: bool,
    /// Our networks, and what is agreed on with peers.
    pub ipam: &'a Ipam,
    /// Our `NetworkConfig` for the peer, with the peer's answer.
    pub ours: Option<&'a NetworkConfig>,
    /// The copy of the peer's, with our answer.
    pub theirs: Option<&'a NetworkConfig>,
    /// The tunnel.
    pub tunnel: Option<&'a TunnelEndpoint>,
    /// Which other peer has this key, by its identifier: see [`holder_of`].
    pub holder_of: &'a dyn Fn(&str) -> Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create our `NetworkConfig`, held by the finalizer [`finalizers::ADDRESSES`].
    CreateConfig(Box<NetworkConfigSpec>),
    /// Apply a merge patch to it.
    PatchConfig(Value),
    /// Delete it.
    DeleteConfig,
    /// Put the finalizer [`finalizers::ADDRESSES`] on it.
    HoldConfig,
    /// Take that off.
    LetGoConfig,
    /// Take the replicator's finalizer off it: nobody can remove its copy.
    AbandonConfig,

    /// Find names for the peer's networks.
    Acquire(Offered),
    /// Note how the peer names ours.
    Agree(Answer),
    /// Forget all names and addresses that are kept for the peer.
    Release,

    /// Apply a merge patch to the status of the peer's copy, which is our answer.
    Answer(Value),

    /// Create the tunnel, held by the finalizer [`finalizers::TUNNEL`], which the gateway takes off.
    CreateTunnel(Box<TunnelEndpointSpec>),
    /// Apply a merge patch to it.
    PatchTunnel(Value),
    /// Apply a merge patch to its status.
    ShowTunnel(Value),
    /// Delete it.
    DeleteTunnel,
    /// Take the gateway's finalizer off it.
    AbandonTunnel,
}

/// What to do about the network to a peer now.
pub fn plan(snapshot: &Snapshot<'_>) -> Vec<Write> {
    let is_there = snapshot.ours.is_some_and(|ours| !is_going(&ours.metadata));
    match snapshot.wish {
        Wish::Join => snapshot.join(),
        Wish::Keep if is_there => snapshot.join(),
        Wish::Keep | Wish::Part => snapshot.part(),
    }
}

/// What to do as long as there is no address manager: nothing is made, and by force all goes. The address manager
/// forgets whom it finds to be gone when it starts.
pub fn plan_without_addresses(
    wish: Wish,
    lost: bool,
    forced: bool,
    ours: Option<&NetworkConfig>,
    tunnel: Option<&TunnelEndpoint>,
) -> Vec<Write> {
    let config = match (wish, ours) {
        (Wish::Join | Wish::Keep, _) => return Vec::new(),
        (Wish::Part, Some(ours)) if !is_going(&ours.metadata) => vec![Write::DeleteConfig],
        (Wish::Part, Some(ours)) if lost && tunnel.is_none() => let_go(ours, lost),
        (Wish::Part, _) => Vec::new(),
    };
    [drop_tunnel(tunnel, forced), config].concat()
}

impl Snapshot<'_> {
    /// Our part first, since names are kept for it; then the peer's; then the tunnel.
    fn join(&self) -> Vec<Write> {
        let (first, settled) = self.keep_config();
        let then = if settled { self.follow_peer() } else { Vec::new() };
        [first, then].concat()
    }

    /// What our `NetworkConfig` needs, and whether the rest can be looked at.
    fn keep_config(&self) -> (Vec<Write>, bool) {
        let wanted = self.gateway.map(|gateway| self.described(gateway));
        match (self.ours, wanted) {
            (None, None) => (Vec::new(), false),
            (None, Some(spec)) => (vec![Write::CreateConfig(Box::new(spec))], false),
            // It was deleted to be made anew.
            (Some(ours), _) if is_going(&ours.metadata) => {
                let tunnel = self.drop_tunnel();
                let rest = if self.tunnel.is_none() { let_go(ours, self.lost) } else { Vec::new() };
                ([tunnel, rest].concat(), false)
            }
            // The answer that it has is about other networks.
            (Some(ours), _) if !self.has_our_networks(&ours.spec) => {
                ([self.drop_tunnel(), vec![Write::DeleteConfig]].concat(), false)
            }
            (Some(ours), wanted) => {
                let hold = when(!is_held(&ours.metadata, finalizers::ADDRESSES), Write::HoldConfig);
                let change = wanted
                    .and_then(|spec| difference(&json!({"spec": ours.spec}), &json!({"spec": spec})))
                    .map(Write::PatchConfig);
                let may_go_on = hold.is_empty();
                (hold.into_iter().chain(change).collect(), may_go_on)
            }
        }
    }

    fn follow_peer(&self) -> Vec<Write> {
        let Some(theirs) = self.theirs.filter(|theirs| !is_going(&theirs.metadata)) else {
            return self.drop_tunnel();
        };
        let present = self.ipam.peers().get(&self.peer.to_string());
        match self.judge(theirs) {
            Err(unusable) => [self.refuse(theirs, &unusable), self.drop_tunnel()].concat(),
            Ok((described, _)) => match present.filter(|present| present.offered() == described.offered) {
                Some(agreement) => {
                    [self.accept(theirs, agreement), self.build(&described, agreement)].concat()
                }
                // The names of before may go to others: nothing may use them any more.
                None if self.tunnel.is_some() => [take_back(theirs), self.drop_tunnel()].concat(),
                None => vec![Write::Acquire(described.offered)],
            },
        }
    }

    /// The tunnel, once the peer has answered, too.
    fn build(&self, described: &Described, agreement: &Agreement) -> Vec<Write> {
        let Some(Ok(answer)) = self.ours.and_then(answer_to) else { return self.drop_tunnel() };
        let agreed = agreement.ours.filter(|ours| self.is_noted(ours, answer));
        match (agreed, self.gateway) {
            (None, _) => vec![Write::Agree(answer)],
            (Some(_), None) => Vec::new(),
            (Some(ours), Some(gateway)) => self.keep_tunnel(described, agreement, &ours, gateway),
        }
    }

    /// The tunnel first, then the names, then the `NetworkConfig`.
    fn part(&self) -> Vec<Write> {
        let tunnel = self.drop_tunnel();
        let is_known = self.ipam.peers().contains_key(&self.peer.to_string());
        let release = when(self.tunnel.is_none() && is_known, Write::Release);
        let answer = self.theirs.map(take_back).unwrap_or_default();
        let config = match self.ours {
            Some(ours) if !is_going(&ours.metadata) => vec![Write::DeleteConfig],
            Some(ours) if self.tunnel.is_none() && !is_known => let_go(ours, self.lost),
            Some(_) | None => Vec::new(),
        };
        [tunnel, answer, release, config].concat()
    }

    fn drop_tunnel(&self) -> Vec<Write> {
        drop_tunnel(self.tunnel, self.forced)
    }

    fn has_our_networks(&self, spec: &NetworkConfigSpec) -> bool {
        let external = self.ipam.external().to_string();
        spec.pod_cidr == self.ipam.own().pod.to_string() && spec.external_cidr == Some(external)
    }

    /// Our networks and our gateway, as they are told to the peer.
    fn described(&self, gateway: &Gateway) -> NetworkConfigSpec {
        let receiver = ClusterIdentity {
            cluster_id: self.peer.to_string(),
            cluster_name: self.peer_name.map(str::to_owned),
        };
        let mut spec = NetworkConfigSpec {
            pod_cidr: self.ipam.own().pod.to_string(),
            external_cidr: Some(self.ipam.external().to_string()),
            endpoint_ip: Some(gateway.endpoint.ip().to_string()),
            backend_type: BACKEND.into(),
            backend_config: [
                (PORT.to_owned(), gateway.endpoint.port().to_string()),
                (PUBLIC_KEY.to_owned(), gateway.key_text()),
            ]
            .into(),
            ..NetworkConfigSpec::for_cluster(receiver)
        };
        config::sign(&mut spec, self.us);
        spec
    }
}

/// The gateway lets a tunnel go once it forwards nothing by it; by force that is not waited for.
fn drop_tunnel(tunnel: Option<&TunnelEndpoint>, forced: bool) -> Vec<Write> {
    match tunnel.map(|tunnel| &tunnel.metadata) {
        Some(meta) if !is_going(meta) => vec![Write::DeleteTunnel],
        Some(meta) => when(forced && is_held(meta, finalizers::TUNNEL), Write::AbandonTunnel),
        None => Vec::new(),
    }
}

/// One finalizer at a time: they are one list.
fn let_go(ours: &NetworkConfig, lost: bool) -> Vec<Write> {
    let held = |finalizer| is_held(&ours.metadata, finalizer);
    if held(finalizers::ADDRESSES) {
        return vec![Write::LetGoConfig];
    }
    when(lost && held(finalizers::REPLICATION), Write::AbandonConfig)
}

fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

fn is_held(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

fn when(needed: bool, write: Write) -> Vec<Write> {
    if needed { vec![write] } else { Vec::new() }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
