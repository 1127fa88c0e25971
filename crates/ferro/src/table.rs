//! Peers as a table, column under column, without anything but spaces: it is read by people and cut by programs.

use std::fmt::Write as _;

use ferro_api::common::ResourceQuota;
use ferro_api::discovery::{
    AuthState, DiscoveryType, ForeignCluster, NetworkState, PeeringState, PeeringStatus, TrustMode,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::output;

/// Between two columns.
const GAP: usize = 3;
/// What stands for nothing.
pub(crate) const NOTHING: &str = "-";
/// The resources that a table has room for.
const SHOWN: [&str; 3] = ["cpu", "memory", "pods"];

const NARROW: [&str; 7] = ["NAME", "TYPE", "TRUST", "AUTH", "OUTGOING", "INCOMING", "NETWORK"];
const MORE: [&str; 4] = ["CLUSTER ID", "AUTH URL", "GETS", "GIVES"];

/// The table of these peers.
pub(crate) fn peers(peers: &[ForeignCluster], wide: bool, now: Timestamp) -> String {
    let more: &[&str] = if wide { &MORE } else { &[] };
    let head = [NARROW.as_slice(), more, &["AGE"]].concat().into_iter().map(str::to_owned).collect();
    let rows = peers.iter().map(|peer| row(peer, wide, now));
    aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

fn row(peer: &ForeignCluster, wide: bool, now: Timestamp) -> Vec<String> {
    let (spec, status) = (&peer.spec, peer.status.clone().unwrap_or_default());
    let mut row = vec![
        peer.name_any(),
        found(spec.discovery_type()).into(),
        trust(spec.trust_mode()).into(),
        status.authentication.map_or(NOTHING, |authentication| auth(authentication.state)).into(),
        direction(status.outgoing.as_ref()).into(),
        direction(status.incoming.as_ref()).into(),
        status.network.map_or(NOTHING, |status| network(status.state)).into(),
    ];
    if wide {
        let quota = |direction: Option<PeeringStatus>| resources(direction.and_then(|it| it.resource_quota));
        let identity = spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.clone());
        row.extend([
            identity.unwrap_or_else(|| NOTHING.into()),
            spec.auth_url.clone().unwrap_or_else(|| NOTHING.into()),
            quota(status.outgoing),
            quota(status.incoming),
        ]);
    }
    row.push(age(peer, now));
    row.into_iter().map(|cell| output::plain(&cell)).collect()
}

/// Each column as wide as its widest cell; the last one as it is.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| widest(column).unwrap_or(0) + GAP).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            _ = write!(line, "{cell:width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn found(how: DiscoveryType) -> &'static str {
    match how {
        DiscoveryType::Lan => "LAN",
        DiscoveryType::Wan => "WAN",
        DiscoveryType::Manual => "MANUAL",
        DiscoveryType::IncomingPeering => "INCOMING",
    }
}

fn trust(mode: TrustMode) -> &'static str {
    match mode {
        TrustMode::Unknown => NOTHING,
        TrustMode::Trusted => "Trusted",
        TrustMode::Untrusted => "Untrusted",
    }
}

fn auth(state: AuthState) -> &'static str {
    match state {
        AuthState::Pending => "PENDING",
        AuthState::Accepted => "ACCEPTED",
        AuthState::Refused => "REFUSED",
    }
}

fn direction(status: Option<&PeeringStatus>) -> &'static str {
    status.map_or(NOTHING, |status| state(status.state))
}

/// The word for a state.
pub(crate) fn state(state: PeeringState) -> &'static str {
    match state {
        PeeringState::None => "None",
        PeeringState::Pending => "Pending",
        PeeringState::Established => "Established",
        PeeringState::Refused => "Refused",
        PeeringState::Unreachable => "Unreachable",
        PeeringState::Disconnecting => "Disconnecting",
    }
}

fn network(state: NetworkState) -> &'static str {
    match state {
        NetworkState::None => "None",
        NetworkState::Pending => "Pending",
        NetworkState::Established => "Established",
        NetworkState::Error => "Error",
        NetworkState::External => "External",
    }
}

fn resources(quota: Option<ResourceQuota>) -> String {
    let hard = quota.unwrap_or_default().hard;
    let amounts = SHOWN.iter().filter_map(|name| Some(format!("{name}={}", hard.get(*name)?.0)));
    let amounts: Vec<_> = amounts.collect();
    if amounts.is_empty() { NOTHING.into() } else { amounts.join(",") }
}

fn age(peer: &ForeignCluster, now: Timestamp) -> String {
    since(peer.creation_timestamp().map(|created| created.0), now)
}

/// How long ago it was, in the two greatest units that say something, as kubectl does.
pub(crate) fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    let Some(then) = then else { return NOTHING.into() };
    let seconds = now.duration_since(then).as_secs().max(0);
    match (seconds / 86_400, seconds / 3600, seconds / 60) {
        (0, 0, minutes) if minutes < 2 => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) if hours < 10 => format!("{hours}h{}m", minutes % 60),
        (days, hours, _) if days < 2 => format!("{hours}h"),
        (days, _, _) => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::peers;
    use crate::peers::tests::peer;
    use ferro_api::discovery::ForeignCluster;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn two() -> Vec<ForeignCluster> {
        let spec = json!({
            "authUrl": "https://192.0.2.7:30443", "discoveryType": "LAN", "trustMode": "Untrusted",
            "clusterIdentity": {"clusterID": "d14e610e-4c1b-802c-a5f1-5ef6f39c0490", "clusterName": "milan"},
        });
        let status = json!({
            "authentication": {"state": "ACCEPTED"},
            "outgoing": {"state": "Established", "resourceQuota": {"hard": {
                "cpu": "4", "memory": "8Gi", "pods": "110", "example.org/gpu": "1",
            }}},
            "incoming": {"state": "None"},
            "network": {"state": "Established"},
        });
        vec![
            peer("milan-9b173a94ba", &spec, &status),
            peer("new", &json!({"authUrl": "new.example.org"}), &json!(null)),
        ]
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_table_shows_how_far_each_peering_has_come() {
        assert_eq!(
            peers(&two(), false, at("2030-01-01T00:00:42Z")),
            "\
NAME               TYPE     TRUST       AUTH       OUTGOING      INCOMING   NETWORK       AGE
milan-9b173a94ba   LAN      Untrusted   ACCEPTED   Established   None       Established   42s
new                MANUAL   -           -          -             -          -             42s
"
        );
    }

    #[test]
    fn the_wide_table_has_addresses_and_resources_too() {
        let table = peers(&two()[..1], true, at("2030-01-03T00:00:00Z"));
        let (head, row) = table.split_once('\n').unwrap();
        let columns: Vec<_> = head.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
        assert_eq!(columns[6..], ["NETWORK", "CLUSTER ID", "AUTH URL", "GETS", "GIVES", "AGE"]);
        assert!(
            row.trim_end().ends_with(
                "d14e610e-4c1b-802c-a5f1-5ef6f39c0490   https://192.0.2.7:30443   cpu=4,memory=8Gi,pods=110   -       2d"
            ),
            "{row}"
        );
    }

    #[test]
    fn an_age_is_short() {
        for (now, age) in [
            ("2030-01-01T00:01:59Z", "119s"),
            ("2030-01-01T00:02:00Z", "2m"),
            ("2030-01-01T03:07:00Z", "3h7m"),
            ("2030-01-02T11:00:00Z", "35h"),
            ("2030-02-01T00:00:00Z", "31d"),
            ("2029-12-31T23:59:59Z", "0s"),
        ] {
            assert_eq!(super::age(&two()[0], at(now)), age);
        }
    }
}
