//! What people are shown of the network to a peer, and what the node that stands for it says of itself.

use ferro_api::common::ObjectRef;
use ferro_api::config::NetworkMode;
use ferro_api::discovery::{NetworkState, NetworkStatus};
use ferro_api::net::{ConnectionStatus, NetworkConfig, TunnelEndpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;

use super::{PROCESSED, Wish, answer_to, is_going};

/// So much is repeated of what others say.
const MOST_WORDS: usize = 400;

/// What there is of the network to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// Our `NetworkConfig` for the peer.
    pub ours: Option<&'a NetworkConfig>,
    /// The copy of the peer's.
    pub theirs: Option<&'a NetworkConfig>,
    /// The tunnel.
    pub tunnel: Option<&'a TunnelEndpoint>,
}

/// How far the network to a peer has come. `hindrance` is what keeps this cluster from joining networks at all.
pub fn shown(
    peer: &str,
    mode: NetworkMode,
    wish: Wish,
    objects: Objects<'_>,
    hindrance: Option<&str>,
) -> NetworkStatus {
    let (state, message) = match (mode, wish) {
        (NetworkMode::External, _) => (NetworkState::External, None),
        (NetworkMode::Internal, Wish::Part) => (NetworkState::None, parting(objects)),
        (NetworkMode::Internal, Wish::Keep) if objects.tunnel.is_none() => {
            (NetworkState::None, parting(objects))
        }
        (NetworkMode::Internal, Wish::Keep | Wish::Join) => joining(peer, objects, hindrance),
    };
    NetworkStatus {
        state,
        message,
        local_network_config: objects.ours.map(reference),
        remote_network_config: objects.theirs.map(reference),
        tunnel_endpoint: objects.tunnel.map(reference),
    }
}

fn parting(objects: Objects<'_>) -> Option<String> {
    let is_there = objects.ours.is_some() || objects.tunnel.is_some();
    is_there.then(|| "the networks are being parted".to_owned())
}

fn joining(peer: &str, objects: Objects<'_>, hindrance: Option<&str>) -> (NetworkState, Option<String>) {
    if let Some(tunnel) = objects.tunnel {
        return connection(peer, tunnel);
    }
    let (state, message) = match (objects.ours, objects.theirs) {
        (None, _) => {
            let unsaid = "this cluster is about to tell its networks";
            (NetworkState::Pending, hindrance.unwrap_or(unsaid).to_owned())
        }
        (Some(_), Some(theirs)) if refusal(theirs).is_some() => {
            let why = refusal(theirs).unwrap_or_default();
            (NetworkState::Error, format!("what {peer} says of its networks cannot be used: {why}"))
        }
        (Some(ours), theirs) => match (answer_to(ours), refusal(ours), theirs) {
            (Some(Err(bad)), _, _) => {
                (NetworkState::Error, format!("the answer of {peer} cannot be used: {bad}"))
            }
            (None, Some(why), _) => {
                (NetworkState::Error, format!("{peer} does not use our networks; it says: {why}"))
            }
            (_, _, None) => {
                let text =
                    format!("waits until {peer} tells its networks; if this lasts, is its gateway running?");
                (NetworkState::Pending, text)
            }
            (None, None, Some(_)) => {
                (NetworkState::Pending, format!("waits until {peer} has found names for our networks"))
            }
            (Some(Ok(_)), _, Some(_)) => {
                (NetworkState::Pending, hindrance.unwrap_or("the tunnel is being set up").to_owned())
            }
        },
    };
    (state, Some(message))
}

fn connection(peer: &str, tunnel: &TunnelEndpoint) -> (NetworkState, Option<String>) {
    let connection = tunnel.status.as_ref().and_then(|status| status.connection.as_ref());
    let said = connection.and_then(|connection| connection.status_message.as_deref()).map(plain);
    let text = |unsaid: &str| Some(said.clone().unwrap_or_else(|| unsaid.to_owned()));
    if is_going(&tunnel.metadata) {
        return (NetworkState::Pending, Some("the tunnel is being taken down".to_owned()));
    }
    match connection.and_then(|connection| connection.status) {
        Some(ConnectionStatus::Connected) => (NetworkState::Established, None),
        Some(ConnectionStatus::Error) => (NetworkState::Error, text("the tunnel failed")),
        Some(ConnectionStatus::Connecting) => {
            (NetworkState::Pending, text(&format!("the tunnel to {peer} is being connected")))
        }
        None => {
            let text = "waits for the gateway to set up the tunnel; is it running?";
            (NetworkState::Pending, Some(text.to_owned()))
        }
    }
}

/// Why the receiver of a `NetworkConfig` does not use it, if it says so.
fn refusal(config: &NetworkConfig) -> Option<String> {
    let status = config.status.as_ref().filter(|status| !status.processed())?;
    let no = |condition: &&Condition| condition.type_ == PROCESSED && condition.status == "False";
    status.conditions.iter().find(no).map(|condition| plain(&condition.message))
}

/// The words of others, cut short and without anything that could upset a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MOST_WORDS).collect()
}

fn reference<K: Resource>(object: &K) -> ObjectRef {
    let meta = object.meta();
    ObjectRef { namespace: meta.namespace.clone(), name: meta.name.clone().unwrap_or_default() }
}
