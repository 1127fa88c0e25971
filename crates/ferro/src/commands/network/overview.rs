//! All networks at a glance: ours, those of each peer under both names, and the tunnel between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferro_api::discovery::{ForeignCluster, PeeringState};
use ferro_api::net::{Connection, ConnectionStatus, Probe, Throughput, TunnelEndpoint};
use ferro_core::network::trace::Fault;
use ferro_core::network::{Problem, Translation, Tunnel, tunnels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::network::{Network, complaint};
use crate::output::{self, View};
use crate::{peers, table};

const NARROW: [&str; 11] = [
    "PEER",
    "CONNECTION",
    "ENDPOINT",
    "THEIR PODS",
    "AT HOME",
    "OUR PODS THERE",
    "LATENCY",
    "JITTER",
    "LOSS",
    "SENT",
    "RECEIVED",
];
const MORE: [&str; 5] = ["THEIR EXTERNAL", "AT HOME", "OUR EXTERNAL THERE", "PROBED", "CLUSTER ID"];

/// What is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    pods: Option<String>,
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    services: Option<String>,
    #[serde(rename = "externalCIDR", skip_serializing_if = "Option::is_none")]
    external: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Gateway>,
    peers: Vec<Peer>,
    /// What is wrong, each with what to do about it.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gateway {
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
}

/// A peer, and what was agreed with it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Peer {
    name: String,
    #[serde(rename = "clusterID")]
    cluster_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    their_pods: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    their_external: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    our_pods: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    our_external: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<Throughput>,
}

/// A network under the names of both.
#[derive(Debug, Serialize)]
struct Named {
    here: String,
    there: String,
}

impl Named {
    fn of(network: Translation) -> Self {
        Self { here: network.here().to_string(), there: network.there().to_string() }
    }
}

/// Prints the overview.
pub(super) fn show(network: &Network, view: Option<View>) -> anyhow::Result<()> {
    let overview = Overview::of(network);
    output::value(&overview, |wide| overview.text(wide, Timestamp::now()), view)
}

impl Overview {
    fn of(network: &Network) -> Self {
        let (usable, unusable) = tunnels(&network.endpoints, &network.mappings);
        let names = network.names();
        let mut peers: Vec<_> =
            network.endpoints.iter().map(|endpoint| Peer::of(endpoint, &usable, &names)).collect();
        let without: Vec<_> = network.peers.iter().filter(|peer| lacks_tunnel(peer, network)).collect();
        peers.extend(without.iter().map(|peer| Peer::without_tunnel(peer)));
        peers.sort_by(|one, other| one.name.cmp(&other.name));
        Self {
            pods: network.known.pods.map(|pods| pods.to_string()),
            services: network.known.services.map(|services| services.to_string()),
            external: network.known.external.map(|external| external.to_string()),
            gateway: network
                .gateway
                .as_ref()
                .map(|gateway| Gateway { node: gateway.node.clone(), endpoint: gateway.endpoint.clone() }),
            peers,
            problems: problems(network, &usable, &unusable, &without),
        }
    }

    fn text(&self, wide: bool, now: Timestamp) -> String {
        let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known yet".into());
        let gateway = self.gateway.as_ref().map(|gateway| {
            let at = gateway.endpoint.as_ref().map(|at| format!(", reached at {at}")).unwrap_or_default();
            format!("on {}{at}", gateway.node)
        });
        let rows = [
            ("Pods:", &self.pods),
            ("Services:", &self.services),
            ("External:", &self.external),
            ("Gateway:", &gateway),
        ];
        let rows: Vec<_> =
            rows.iter().map(|(key, value)| vec![(*key).into(), output::plain(&or_unknown(value))]).collect();
        let mut text = table::aligned(&rows);
        if !self.peers.is_empty() {
            let more: &[&str] = if wide { &MORE } else { &[] };
            let head = [NARROW.as_slice(), more].concat().into_iter().map(str::to_owned).collect();
            let rows = self.peers.iter().map(|peer| peer.row(wide, now));
            text.push('\n');
            text.push_str(&table::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        }
        if !self.problems.is_empty() {
            text.push_str("\nWhat is wrong, and what to do:\n");
        }
        for problem in &self.problems {
            // Writing to a string cannot fail.
            _ = writeln!(text, "- {}", output::plain(problem));
        }
        text
    }
}

/// Whether a peering is made, or being made, and has no tunnel.
fn lacks_tunnel(peer: &ForeignCluster, network: &Network) -> bool {
    let Some(status) = &peer.status else { return false };
    let directions = [&status.outgoing, &status.incoming].into_iter().flatten();
    let wants = directions
        .map(|direction| direction.state)
        .any(|state| matches!(state, PeeringState::Established | PeeringState::Unreachable));
    let has = network
        .endpoints
        .iter()
        .any(|endpoint| Some(endpoint.spec.cluster_id.as_str()) == peers::cluster_id(peer));
    wants && !has && !network.external_mode
}

fn problems(
    network: &Network,
    usable: &BTreeMap<String, Tunnel>,
    unusable: &[Problem],
    without: &[&ForeignCluster],
) -> Vec<String> {
    let mut problems = Vec::new();
    if network.external_mode {
        problems.push(
            "liqonetConfig.mode is external: somebody else joins the networks, and nothing is known of it here".into(),
        );
    } else if network.known.pods.is_none() {
        problems.push(
            "no networks are stored yet: the controller does so as soon as it runs; see 'ferro status'"
                .into(),
        );
    } else if network.gateway.is_none() {
        problems.push(Fault::NoGateway.to_string());
    }
    let names = network.names();
    let name = |id: &String| names.get(id).unwrap_or(id).clone();
    problems.extend(unusable.iter().map(|problem| format!("{}: {problem}", name(&problem.peer))));
    let usable = network.endpoints.iter().filter(|endpoint| usable.contains_key(&endpoint.spec.cluster_id));
    problems.extend(usable.filter_map(|endpoint| complaint(&name(&endpoint.spec.cluster_id), endpoint)));
    problems.extend(without.iter().map(|peer| {
        let said = peer.status.as_ref().and_then(|status| status.network.as_ref()?.message.clone());
        let name = peer.name_any();
        format!("{name}: {}", said.unwrap_or_else(|| Fault::NoTunnel(name.clone()).to_string()))
    }));
    problems
}

impl Peer {
    fn of(
        endpoint: &TunnelEndpoint,
        usable: &BTreeMap<String, Tunnel>,
        names: &BTreeMap<String, String>,
    ) -> Self {
        let id = endpoint.spec.cluster_id.clone();
        let tunnel = usable.get(&id);
        let agreement = tunnel.map(|tunnel| tunnel.agreement);
        let ours = agreement.and_then(|agreement| agreement.ours);
        let connection = endpoint.status.as_ref().and_then(|status| status.connection.as_ref());
        let at =
            tunnel.map_or_else(|| endpoint.spec.endpoint_ip.clone(), |tunnel| tunnel.endpoint.to_string());
        Self {
            name: names.get(&id).unwrap_or(&id).clone(),
            cluster_id: id,
            connection: connection.and_then(word),
            endpoint: Some(at),
            their_pods: agreement.map(|agreement| Named::of(agreement.their_pods)),
            their_external: agreement.and_then(|agreement| agreement.their_external).map(Named::of),
            our_pods: ours.map(|ours| Named::of(ours.pods)),
            our_external: ours.and_then(|ours| ours.external).map(Named::of),
            probe: connection.and_then(|connection| connection.probe.clone()),
            throughput: connection.and_then(|connection| connection.throughput.clone()),
        }
    }

    fn without_tunnel(peer: &ForeignCluster) -> Self {
        let cluster_id = peers::cluster_id(peer).unwrap_or_default().to_owned();
        Self { name: peer.name_any(), cluster_id, ..Self::default() }
    }

    fn row(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let or_nothing = |cell: Option<String>| cell.unwrap_or_else(|| table::NOTHING.into());
        let here = |named: &Option<Named>| or_nothing(named.as_ref().map(|named| named.here.clone()));
        let there = |named: &Option<Named>| or_nothing(named.as_ref().map(|named| named.there.clone()));
        let probe = self.probe.clone().unwrap_or_default();
        let throughput = self.throughput.clone().unwrap_or_default();
        let mut row = vec![
            self.name.clone(),
            self.connection.unwrap_or(table::NOTHING).into(),
            or_nothing(self.endpoint.clone()),
            here(&self.their_pods),
            there(&self.their_pods),
            there(&self.our_pods),
            or_nothing(probe.round_trip_microseconds.map(time)),
            or_nothing(probe.jitter_microseconds.map(time)),
            or_nothing(probe.lost_per_thousand.map(share)),
            or_nothing(throughput.sent_bytes_per_second.map(rate)),
            or_nothing(throughput.received_bytes_per_second.map(rate)),
        ];
        if wide {
            row.extend([
                here(&self.their_external),
                there(&self.their_external),
                there(&self.our_external),
                table::since(probe.measured_at.map(|Time(at)| at), now),
                self.cluster_id.clone(),
            ]);
        }
        row.into_iter().map(|cell| output::plain(&cell)).collect()
    }
}

fn word(connection: &Connection) -> Option<&'static str> {
    connection.status.map(|status| match status {
        ConnectionStatus::Connected => "connected",
        ConnectionStatus::Connecting => "connecting",
        ConnectionStatus::Error => "error",
    })
}

/// A short time, with no more digits than say something.
pub(crate) fn time(microseconds: u32) -> String {
    match (microseconds / 100_000, microseconds / 1000) {
        (0, 0) => format!("{microseconds}us"),
        (0, milliseconds) => format!("{milliseconds}.{}ms", microseconds % 1000 / 100),
        (_, milliseconds) => format!("{milliseconds}ms"),
    }
}

/// So many of a thousand.
pub(crate) fn share(per_thousand: u16) -> String {
    match (per_thousand / 10, per_thousand % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, tenths) => format!("{whole}.{tenths}%"),
    }
}

/// Bytes per second, with three digits at most.
fn rate(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1000 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000, unit + 1);
    }
    format!("{value}{}", UNITS.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::{Overview, rate, share, time};
    use crate::network::tests::{TURIN, connected, joined};
    use crate::peers::tests::peer;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn soon() -> Timestamp {
        "2030-01-01T00:00:03Z".parse().unwrap()
    }

    #[test]
    fn two_clusters_with_the_same_networks_are_shown_under_both_names() {
        assert_eq!(
            Overview::of(&joined(&connected())).text(false, soon()),
            "\
Pods:       10.244.0.0/24
Services:   10.96.0.0/16
External:   192.168.0.0/24
Gateway:    on rome-1, reached at 192.0.2.1:51820

PEER    CONNECTION   ENDPOINT          THEIR PODS    AT HOME         OUR PODS THERE   LATENCY   JITTER   LOSS   SENT     RECEIVED
turin   connected    192.0.2.2:30020   10.0.0.0/24   10.244.0.0/24   10.0.40.0/24     812us     40us     0.4%   12kB/s   930B/s
"
        );
    }

    #[test]
    fn the_wide_table_has_the_other_networks_too() {
        let text = Overview::of(&joined(&connected())).text(true, soon());
        let row = text.lines().last().unwrap();
        let cells: Vec<_> = row.split_whitespace().skip(11).collect();
        assert_eq!(cells, ["192.168.7.0/24", "192.168.0.0/24", "192.168.8.0/24", "3s", TURIN]);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let connecting = json!({"status": "connecting", "statusMessage": "192.0.2.2:30020 does not answer"});
        let mut network = joined(&connecting);
        let said = Overview::of(&network).problems;
        assert_eq!(said, ["turin: the tunnel is connecting: 192.0.2.2:30020 does not answer"]);
        network.gateway = None;
        network.endpoints[0].spec.pod_cidr = "10.244.0.0".into();
        let overview = Overview::of(&network);
        assert_eq!(
            overview.problems,
            [
                "no gateway has told where it runs; see 'ferro status'",
                "turin: TunnelEndpoint liqo-tenant-turin/turin: podCIDR is \"10.244.0.0\", which is not a network",
            ]
        );
        let row = overview.text(false, soon());
        assert!(row.contains("turin   connecting   192.0.2.2   -"), "{row}");
    }

    #[test]
    fn a_peer_without_a_tunnel_is_not_forgotten() {
        let mut network = joined(&connected());
        network.endpoints.clear();
        let overview = Overview::of(&network);
        assert!(overview.text(false, soon()).contains("\nturin   -            -"), "{overview:?}");
        assert!(overview.problems[0].starts_with("turin: there is no TunnelEndpoint for turin yet"));
        let waits =
            json!({"outgoing": {"state": "Established"}, "network": {"state": "Pending", "message": "soon"}});
        network.peers = vec![peer("milan", &json!({"authUrl": "x"}), &waits)];
        assert_eq!(Overview::of(&network).problems, ["milan: soon"]);
        network.external_mode = true;
        let said = Overview::of(&network);
        assert!(said.peers.is_empty() && said.problems[0].contains("liqonetConfig.mode is external"));
    }

    #[test]
    fn programs_get_the_same() {
        let value = serde_json::to_value(Overview::of(&joined(&connected()))).unwrap();
        assert_eq!(value["podCIDR"], "10.244.0.0/24");
        assert_eq!(value["gateway"], json!({"node": "rome-1", "endpoint": "192.0.2.1:51820"}));
        let peer = &value["peers"][0];
        assert_eq!(peer["theirPods"], json!({"here": "10.0.0.0/24", "there": "10.244.0.0/24"}));
        assert_eq!(peer["ourPods"], json!({"here": "10.244.0.0/24", "there": "10.0.40.0/24"}));
        assert_eq!(peer["probe"]["roundTripMicroseconds"], 812);
        assert_eq!(value["problems"], json!([]));
    }

    #[test]
    fn figures_are_short() {
        for (microseconds, text) in [(7, "7us"), (1840, "1.8ms"), (99_950, "99.9ms"), (120_400, "120ms")] {
            assert_eq!(time(microseconds), text);
        }
        for (per_thousand, text) in [(0, "0%"), (4, "0.4%"), (1000, "100%")] {
            assert_eq!(share(per_thousand), text);
        }
        for (bytes, text) in [(0, "0B/s"), (999, "999B/s"), (12_345, "12kB/s"), (u64::MAX, "18446744TB/s")] {
            assert_eq!(rate(bytes), text);
        }
    }
}
