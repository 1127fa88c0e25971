//! What lies between the two clusters: the peering, the API server over there, the namespace, the tunnel, the addresses.

use std::net::IpAddr;

use ferro_api::discovery::{AuthState, ForeignCluster, ForeignClusterStatus, NetworkState, PeeringState};
use ferro_api::virtualkubelet::MappingPhase;
use k8s_openapi::api::core::v1::Pod;

use super::there::remote;
use super::{Found, Link, Snapshot, State, Step, There, kubectl};
use crate::network::pod_names;
use crate::network::trace::complaint;

/// What stands for a cluster of which not even the name can be seen.
const SOMEBODY: &str = "-";

pub(super) fn name(snapshot: &Snapshot) -> String {
    let name = snapshot.peer.seen().and_then(|peer| peer.metadata.name.clone());
    name.unwrap_or_else(|| SOMEBODY.to_owned())
}

fn status(snapshot: &Snapshot) -> Option<&ForeignClusterStatus> {
    snapshot.peer.seen()?.status.as_ref()
}

/// Whether the two clusters know each other, and this one uses the other.
pub(super) fn peering(snapshot: &Snapshot) -> Step {
    let name = name(snapshot);
    let peer = match &snapshot.peer {
        Found::Some(peer) => peer,
        Found::None => {
            let fault = "no ForeignCluster stands for the cluster of this node any more; see 'ferro peers'";
            return Step::broken(Link::Peering, name, "does not exist", fault);
        }
        Found::Unknown(why) => return Step::new(Link::Peering, name, State::Unknown, why),
    };
    let status = peer.status.clone().unwrap_or_default();
    let outgoing = status.outgoing.unwrap_or_default();
    let authentication = status.authentication.unwrap_or_default();
    if outgoing.state == PeeringState::Established && authentication.state == AuthState::Refused {
        let fault = authentication.message.unwrap_or_else(|| look(peer));
        return Step::broken(Link::Peering, name, "this cluster is let in no more", fault);
    }
    match outgoing.state {
        PeeringState::Established => {
            let heard = status.contact.and_then(|contact| contact.last_seen);
            let ago = heard.map(|heard| snapshot.now.duration_since(heard.0).as_secs().max(0));
            let shows = ago.map_or_else(String::new, |ago| format!(", heard {ago} s ago"));
            Step::new(Link::Peering, name, State::Good, format!("Established{shows}"))
        }
        state @ (PeeringState::None
        | PeeringState::Pending
        | PeeringState::Refused
        | PeeringState::Unreachable
        | PeeringState::Disconnecting) => {
            Step::broken(Link::Peering, name, word(state), outgoing.message.unwrap_or_else(|| look(peer)))
        }
    }
}

fn look(peer: &ForeignCluster) -> String {
    let name = peer.metadata.name.as_deref().unwrap_or_default();
    format!("see 'kubectl describe foreigncluster {name}'")
}

fn word(state: PeeringState) -> &'static str {
    match state {
        PeeringState::None => "None",
        PeeringState::Pending => "Pending",
        PeeringState::Established => "Established",
        PeeringState::Refused => "Refused",
        PeeringState::Unreachable => "Unreachable",
        PeeringState::Disconnecting => "Disconnecting",
    }
}

/// Whether the other cluster answers, as it was asked just now.
pub(super) fn api_server(snapshot: &Snapshot) -> Step {
    let url = status(snapshot).and_then(|status| status.api_server_url.clone());
    let url = url.unwrap_or_else(|| SOMEBODY.to_owned());
    match &snapshot.there {
        There::Answers(_) => Step::new(Link::ApiServer, url, State::Good, "answers"),
        There::Unknown(why) => Step::new(Link::ApiServer, url, State::Unknown, why),
        There::Fails(why) => {
            let fault = format!(
                "{why}; its pods run on as they are; see 'ferro status' in that cluster, and whether this one reaches {url}"
            );
            Step::broken(Link::ApiServer, url, "does not answer", fault)
        }
    }
}

/// The namespace that stands for that of the pod.
pub(super) fn namespace(snapshot: &Snapshot) -> Step {
    let (here, _) = kubectl(&snapshot.pod);
    let mapping = match &snapshot.mapping {
        Found::Some(mapping) => mapping,
        Found::None => {
            let fault =
                format!("the namespace {here} has no counterpart over there; see 'ferro explain {here}'");
            return Step::broken(Link::Namespace, here, "there is none", fault);
        }
        Found::Unknown(why) => return Step::new(Link::Namespace, here, State::Unknown, why),
    };
    let there = mapping.remote_namespace.clone().unwrap_or_else(|| here.clone());
    let because = mapping.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    match mapping.phase {
        MappingPhase::Accepted => Step::new(Link::Namespace, there, State::Good, "Accepted"),
        MappingPhase::CreationLoopBackOff => {
            let fault = format!("it cannot be created over there{because}; see 'ferro explain {here}'");
            Step::broken(Link::Namespace, there, "CreationLoopBackOff", fault)
        }
        MappingPhase::Terminating => {
            let fault = format!(
                "it is being removed over there, and its pods with it{because}; see 'ferro explain {here}'"
            );
            Step::broken(Link::Namespace, there, "Terminating", fault)
        }
    }
}

fn is_external(snapshot: &Snapshot) -> bool {
    let network = status(snapshot).and_then(|status| status.network.as_ref());
    network.is_some_and(|network| network.state == NetworkState::External)
}

/// Whether packets get there.
pub(super) fn tunnel(snapshot: &Snapshot) -> Step {
    let name = name(snapshot);
    if is_external(snapshot) {
        return Step::new(Link::Tunnel, name, State::Good, "somebody else joins the networks");
    }
    let tunnel = match &snapshot.tunnel {
        Found::Some(tunnel) => tunnel,
        Found::None => {
            let fault = "the networks of the two clusters are not joined; see 'ferro network'";
            return Step::broken(Link::Tunnel, name, "does not exist", fault);
        }
        Found::Unknown(why) => return Step::new(Link::Tunnel, name, State::Unknown, why),
    };
    if let Some((state, why)) = complaint(tunnel) {
        return Step::broken(Link::Tunnel, name, state, format!("it is {state}: {why}"));
    }
    let connection = tunnel.status.as_ref().and_then(|status| status.connection.as_ref());
    if connection.is_some_and(|connection| connection.silent == Some(true)) {
        let fault =
            "the last probes had no answer, so that pods behind it count as not ready; see 'ferro network'";
        return Step::broken(Link::Tunnel, name, "silent", fault);
    }
    let probe = connection.and_then(|connection| connection.probe.as_ref());
    let time = probe.and_then(|probe| probe.round_trip_microseconds);
    let shows = time.map_or_else(String::new, |time| format!(", round trip {}", milliseconds(time)));
    Step::new(Link::Tunnel, name, State::Good, format!("connected{shows}"))
}

fn milliseconds(microseconds: u32) -> String {
    format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100)
}

/// By which addresses the pod is known.
pub(super) fn address(snapshot: &Snapshot) -> Step {
    let here = address_of(&snapshot.pod);
    let there = remote(snapshot).and_then(address_of);
    let names = snapshot.tunnel.seen().and_then(pod_names);
    let expected = |there| if is_external(snapshot) { Some(there) } else { names.as_ref()?.inward(there) };
    match (there, here) {
        (Some(there), here) if here.is_some() && here == expected(there) => {
            let shows = here.map(|here| format!("{here} here")).unwrap_or_default();
            Step::new(Link::Address, format!("{there} there"), State::Good, shows)
        }
        (Some(there), None) if expected(there).is_none() => {
            let fault =
                format!("{there} is of no network of its cluster that has a name here; see 'ferro network'");
            Step::broken(Link::Address, format!("{there} there"), "has no name here", fault)
        }
        (Some(there), here) => {
            let here = here
                .map_or_else(|| "not shown here yet".into(), |here| format!("{here} here, not yet its name"));
            Step::new(Link::Address, format!("{there} there"), State::Waiting, here)
        }
        (None, Some(here)) => {
            let there = names.and_then(|names| names.outward(here));
            let name = there.map_or_else(|| SOMEBODY.to_owned(), |there| format!("{there} there"));
            Step::new(Link::Address, name, State::Unknown, format!("{here} here"))
        }
        (None, None) => Step::new(Link::Address, SOMEBODY, State::Waiting, "has none yet"),
    }
}

fn address_of(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
