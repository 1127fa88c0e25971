//! Whose the key of a tunnel is, where several claim it: theirs by whose tunnel packets have got through with it.
//!
//! A public key is known to all peers of its owner, and each of them may say that it is its own. Who says it first has
//! some time to show it. Who has not by then gives way to another one, who has the same time, and so on: sooner or later
//! it is the owner's turn, which can show it, and keeps the key from then on.

use std::time::Duration;

use ferro_api::names::labels;
use ferro_api::net::TunnelEndpoint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::network::config::PUBLIC_KEY;

/// So long a claim counts that was not shown to be true.
const TURN: Duration = Duration::from_mins(1);

/// Which other cluster has a key that a peer says is its own, by its identifier.
pub fn holder_of<'a>(
    tunnels: impl IntoIterator<Item = &'a TunnelEndpoint>,
    peer: &str,
    key: &str,
    now: Timestamp,
) -> Option<&'a str> {
    let has_it =
        |tunnel: &&TunnelEndpoint| labels::PART_OF.is_on(&tunnel.metadata) && claimed(tunnel) == Some(key);
    let (own, others): (Vec<_>, Vec<_>) =
        tunnels.into_iter().filter(has_it).partition(|tunnel| tunnel.spec.cluster_id == peer);
    let counts = |other: &&TunnelEndpoint| match own.first() {
        None => is_shown(other) || is_new(other, now),
        Some(own) => !is_shown(own) && (is_shown(other) || made(other) > made(own)),
    };
    others.into_iter().find(counts).map(|other| other.spec.cluster_id.as_str())
}

fn claimed(tunnel: &TunnelEndpoint) -> Option<&str> {
    tunnel.spec.backend_config.get(PUBLIC_KEY).map(String::as_str)
}

/// Whether the gateway says that packets got through with this key.
fn is_shown(tunnel: &TunnelEndpoint) -> bool {
    let connection = tunnel.status.as_ref().and_then(|status| status.connection.as_ref());
    let shown = connection.and_then(|connection| connection.peer_configuration.get(PUBLIC_KEY));
    shown.is_some_and(|shown| Some(shown.as_str()) == claimed(tunnel))
}

fn is_new(tunnel: &TunnelEndpoint, now: Timestamp) -> bool {
    let turn = TURN.try_into().unwrap_or_default();
    made(tunnel).is_none_or(|made| now.duration_since(made) < turn)
}

/// Who has come to the key only later gives way the sooner.
fn made(tunnel: &TunnelEndpoint) -> Option<Timestamp> {
    tunnel.metadata.creation_timestamp.as_ref().map(|Time(made)| *made)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::super::tests::at;
    use super::*;

    /// The tunnel to a peer, made in this second, with the key that it claims and the one that it has shown.
    fn tunnel(peer: &str, second: i64, claimed: &str, shown: Option<&str>) -> TunnelEndpoint {
        let mut tunnel = TunnelEndpoint::default();
        labels::PART_OF.put_on(&mut tunnel.metadata);
        tunnel.metadata.creation_timestamp = Some(Time(at(second)));
        tunnel.spec.cluster_id = peer.into();
        tunnel.spec.backend_config = [(PUBLIC_KEY.to_owned(), claimed.to_owned())].into();
        let connection = json!({"status": "connecting", "peerConfiguration": {"publicKey": shown}});
        let status = json!({"connection": shown.map(|_| connection)});
        tunnel.status = serde_json::from_value(status).unwrap();
        tunnel
    }

    #[test]
    fn a_key_is_theirs_who_have_shown_it() {
        let hour = at(3600);
        let milan = tunnel("milan", 0, "k", Some("k"));
        let liar = tunnel("liar", 9, "k", None);
        assert_eq!(holder_of([&milan], "liar", "k", hour), Some("milan"));
        assert_eq!(holder_of([&milan], "liar", "other", hour), None);
        assert_eq!(holder_of([&milan, &liar], "liar", "k", hour), Some("milan"));
        assert_eq!(holder_of([&milan, &liar], "milan", "k", hour), None, "also while it is down");
        // That it has shown another one says nothing.
        let turned = tunnel("liar", 0, "k", Some("its own"));
        assert_eq!(holder_of([&turned], "milan", "k", hour), None);
        let foreign = TunnelEndpoint { metadata: ObjectMeta::default(), ..milan };
        assert_eq!(holder_of([&foreign], "liar", "k", hour), None, "not a tunnel of ours");
    }

    #[test]
    fn who_only_claims_a_key_keeps_it_from_its_owner_for_a_while_at_most() {
        let (liar, seconds) = (tunnel("liar", 0, "k", None), i64::try_from(TURN.as_secs()).unwrap());
        assert_eq!(holder_of([&liar], "milan", "k", at(seconds - 1)), Some("liar"));
        assert_eq!(holder_of([&liar], "milan", "k", at(seconds)), None);
        // It is made for Milan, and then nobody else may have it: neither who has it still, nor who asks again.
        let milan = tunnel("milan", seconds, "k", None);
        for tunnels in [&[&liar, &milan][..], &[&milan]] {
            assert_eq!(holder_of(tunnels.iter().copied(), "liar", "k", at(seconds + 1)), Some("milan"));
            assert_eq!(holder_of(tunnels.iter().copied(), "milan", "k", at(seconds + 1)), None);
        }
        let milan = tunnel("milan", seconds, "k", Some("k"));
        assert_eq!(holder_of([&milan], "liar", "k", at(9 * seconds)), Some("milan"));
    }
}
