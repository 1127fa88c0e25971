//! A way as people and programs read it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ferro_core::network::Packet;
use ferro_core::network::trace::{Hop, Link, Place, Snapshot, Target, Way};
use serde::Serialize;

use crate::{output, table};

const HEAD: [&str; 4] = ["WHERE", "BEFORE", "AFTER", "WHAT HAPPENS"];

/// A way, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    alike: usize,
    hops: Vec<Step<'a>>,
    back: Vec<Step<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<Broken>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step<'a> {
    place: &'a Place,
    before: Packet,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Packet>,
    what: &'a str,
}

#[derive(Serialize)]
struct Broken {
    link: Link,
    message: String,
}

impl<'a> Shown<'a> {
    pub(super) fn of(way: &'a Way, names: &'a BTreeMap<String, String>) -> Self {
        let step =
            |hop: &'a Hop| Step { place: &hop.place, before: hop.before, after: hop.after, what: &hop.what };
        Self {
            to: way.to,
            peer: way.peer.as_ref().map(|id| names.get(id).unwrap_or(id).as_str()),
            alike: way.alike,
            hops: way.hops.iter().map(step).collect(),
            back: way.back.iter().map(step).collect(),
            broken: way
                .broken
                .as_ref()
                .map(|fault| Broken { link: fault.link(), message: fault.to_string() }),
        }
    }
}

/// All ways as tables; the wide form has the answers, too.
pub(super) fn ways(snapshot: &Snapshot, ways: &[Way], wide: bool) -> String {
    let mut text = String::new();
    for way in ways {
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string cannot fail.
        _ = writeln!(text, "{}", output::plain(&title(snapshot, way)));
        if !way.hops.is_empty() {
            text.push('\n');
            text.push_str(&hops(&way.hops));
        }
        if wide && !way.back.is_empty() {
            _ = writeln!(text, "\nThe answer:\n\n{}", hops(&way.back).trim_end());
        }
        if let Some(fault) = &way.broken {
            _ = writeln!(text, "\nBroken at the {}: {}", fault.link(), output::plain(&fault.to_string()));
        }
    }
    text
}

fn title(snapshot: &Snapshot, way: &Way) -> String {
    let service = match &snapshot.target {
        Target::Address(_) => None,
        Target::Service(service) => Some(service.name.as_str()),
    };
    let to = match (way.to, service) {
        (Some(ip), Some(service)) => format!("{ip}, an endpoint of {service}"),
        (Some(ip), None) => ip.to_string(),
        (None, service) => service.unwrap_or_default().to_owned(),
    };
    let peer = way.peer.as_ref().map(|id| snapshot.names.get(id).unwrap_or(id));
    let peer = peer.map(|peer| format!(" in {peer}")).unwrap_or_default();
    let alike = match way.alike {
        0 => String::new(),
        1 => " (1 more endpoint is reached alike)".into(),
        more => format!(" ({more} more endpoints are reached alike)"),
    };
    format!("From {} to {to}{peer}{alike}", snapshot.source.pod)
}

fn hops(hops: &[Hop]) -> String {
    let shown = |packet: Packet| format!("{} > {}", packet.source, packet.destination);
    let rows = hops.iter().map(|hop| {
        let after = match hop.after {
            Some(after) if after == hop.before => "same".into(),
            Some(after) => shown(after),
            None => "known there only".into(),
        };
        let row = [hop.place.to_string(), shown(hop.before), after, hop.what.clone()];
        row.map(|cell| output::plain(&cell)).into()
    });
    let head = HEAD.map(str::to_owned).into();
    table::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{Shown, ways};
    use crate::network::tests::{connected, joined};
    use ferro_core::network::trace::{Gateway, Node, Snapshot, Source, Target, trace};
    use serde_json::{Value, json};

    /// The way from a pod on the second node to a pod of turin.
    fn snapshot(connection: &Value) -> Snapshot {
        let network = joined(connection);
        let node = |ip: &str| Node { ips: vec![ip.parse().unwrap()], ready: true, is_virtual: false };
        Snapshot {
            source: Source {
                pod: "default/client".into(),
                phase: "Running".into(),
                ips: vec!["10.244.0.7".parse().unwrap()],
                node: Some("rome-2".into()),
            },
            target: Target::Address("10.0.0.5".parse().unwrap()),
            names: network.names(),
            networks: network.known,
            external_mode: false,
            reach: network.reach,
            gateway: Some(Gateway { node: "rome-1".into(), node_ip: "172.18.0.2".parse().unwrap() }),
            nodes: [("rome-1".to_owned(), node("172.18.0.2")), ("rome-2".to_owned(), node("172.18.0.3"))]
                .into(),
            endpoints: network.endpoints,
            mappings: network.mappings,
        }
    }

    #[test]
    fn each_hop_is_a_line() {
        let snapshot = snapshot(&connected());
        let text = ways(&snapshot, &trace(&snapshot), false);
        assert_eq!(
            text,
            "\
From default/client to 10.0.0.5 in turin

WHERE                BEFORE                   AFTER                    WHAT HAPPENS
pod default/client   10.244.0.7 > 10.0.0.5    same                     sends
node rome-2          10.244.0.7 > 10.0.0.5    same                     route 10.0.0.0/24 via 172.18.0.2 dev ferro.vxlan
overlay to rome-1    10.244.0.7 > 10.0.0.5    same                     VXLAN to 172.18.0.2, UDP port 18800
gateway on rome-1    10.244.0.7 > 10.0.0.5    10.0.40.7 > 10.0.0.5     10.244.0.7 becomes 10.0.40.7, as turin names it
tunnel to turin      10.0.40.7 > 10.0.0.5     same                     WireGuard to 192.0.2.2:30020
gateway of turin     10.0.40.7 > 10.0.0.5     10.0.40.7 > 10.244.0.5   10.0.0.5 becomes 10.244.0.5, as it is named there
endpoint in turin    10.0.40.7 > 10.244.0.5   same                     gets it, and sees 10.0.40.7 as its client
"
        );
        let wide = ways(&snapshot, &trace(&snapshot), true);
        assert!(wide.contains("\nThe answer:\n\nWHERE") && wide.ends_with("gets the answer\n"), "{wide}");
    }

    #[test]
    fn the_broken_link_comes_last() {
        let snapshot = snapshot(&json!({"status": "error", "statusMessage": "no route"}));
        let found = trace(&snapshot);
        let text = ways(&snapshot, &found, true);
        let (hops, broken) = text.rsplit_once("\n\n").unwrap();
        assert!(hops.lines().last().unwrap().starts_with("gateway on rome-1"), "{text}");
        assert_eq!(broken, "Broken at the tunnel: the tunnel to turin is in error: no route\n");
        let error = super::super::verdict(&found, &[]).unwrap_err().to_string();
        assert_eq!(error, "the way is broken at the tunnel: the tunnel to turin is in error: no route");
    }

    #[test]
    fn programs_get_the_same() {
        let snapshot = snapshot(&connected());
        let found = trace(&snapshot);
        let value = serde_json::to_value(Shown::of(&found[0], &snapshot.names)).unwrap();
        assert_eq!((&value["to"], &value["peer"]), (&json!("10.0.0.5"), &json!("turin")));
        assert_eq!(
            value["hops"][3],
            json!({
                "place": {"kind": "gateway", "name": "rome-1"},
                "before": {"source": "10.244.0.7", "destination": "10.0.0.5"},
                "after": {"source": "10.0.40.7", "destination": "10.0.0.5"},
                "what": "10.244.0.7 becomes 10.0.40.7, as turin names it",
            })
        );
        assert_eq!(value["back"].as_array().unwrap().len(), 5);
        assert_eq!(value.get("broken"), None);
        let mut early = snapshot;
        early.source.phase = "Pending".into();
        let found = trace(&early);
        let value = serde_json::to_value(Shown::of(&found[0], &early.names)).unwrap();
        assert_eq!(value["broken"]["link"], "pod");
    }
}
