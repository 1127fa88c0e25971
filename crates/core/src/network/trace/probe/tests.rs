//! Every way to be silent, on the way of V1, and the link that is then called broken.

use super::super::tests::{only, v1};
use super::*;

const NODE: &str = "10.244.0.1";
const GATEWAYS_NODE: &str = "172.18.0.2";
const GATEWAY: &str = "169.254.77.2";
const PEER: &str = "192.168.7.1";
const POD: &str = "10.0.0.5";

fn heard(what: Returned, hops: u8, from: &str) -> Heard {
    Heard { hops, from: from.parse().unwrap(), what }
}

/// What is heard when each of these answers, and the peer's gateway does not.
fn expired(from: &[&str]) -> Vec<Heard> {
    let hops = [1, 2, 3, 5, 6];
    hops.iter().zip(from).map(|(hops, from)| heard(Returned::Expired, *hops, from)).collect()
}

/// Each place in a line, and the last one.
fn judged(to: &str, heard: &[Heard], tunnel: Option<bool>) -> (Vec<String>, Probed) {
    let probed = judge(&only(&v1(to)), heard, tunnel);
    let line = |probed: &Probed| {
        let state = match &probed.state {
            State::Answered(ip) => ip.to_string(),
            State::Passed => "passed".into(),
            State::Broken(_) => "broken".into(),
            State::Unknown(_) => "unknown".into(),
        };
        format!("{}: {state}", probed.place)
    };
    (probed.iter().map(line).collect(), probed.last().unwrap().clone())
}

/// The link that is broken, and the sentence about it.
fn broken(heard: &[Heard], tunnel: Option<bool>) -> (Link, String) {
    let (lines, last) = judged(POD, heard, tunnel);
    match last.state {
        State::Broken(gap) => (last.link, gap.to_string()),
        _ => panic!("nothing is broken: {lines:?}"),
    }
}

#[test]
fn a_way_that_leads_there_is_shown_by_who_answered() {
    let mut all = expired(&[NODE, GATEWAYS_NODE, GATEWAY, PEER, PEER]);
    all.push(heard(Returned::Arrived, 7, POD));
    assert_eq!(
        judged(POD, &all, None).0,
        [
            "node a-2: 10.244.0.1",
            "overlay to a-1: 172.18.0.2",
            "gateway on a-1: 169.254.77.2",
            "gateway of turin: 192.168.7.1",
            "endpoint in turin: 10.0.0.5",
        ]
    );
}

#[test]
fn who_is_silent_and_passes_packets_on_is_not_broken() {
    let (lines, last) = judged(POD, &[heard(Returned::Arrived, 7, POD)], Some(false));
    assert!(lines[..4].iter().all(|line| line.ends_with("passed")), "{lines:?}");
    assert_eq!(last.state, State::Answered(POD.parse().unwrap()));
    let (lines, _) = judged(POD, &expired(&[NODE, GATEWAYS_NODE, GATEWAY])[2..], Some(false));
    assert_eq!(lines[..3], ["node a-2: passed", "overlay to a-1: passed", "gateway on a-1: 169.254.77.2"]);
}

#[test]
fn the_link_behind_the_last_answer_is_the_broken_one() {
    let all = expired(&[NODE, GATEWAYS_NODE, GATEWAY]);
    for (answers, tunnel, link, said) in [
        (0, Some(true), Link::Pod, "not even from the node a-2"),
        (1, Some(true), Link::Overlay, "not over ferro.vxlan to a-1: let UDP port 18800 through"),
        (2, Some(true), Link::Gateway, "nothing comes back from the gateway on it"),
        (3, Some(false), Link::Tunnel, "the gateway of turin does not answer it"),
        (3, Some(true), Link::Peer, "nothing comes back from behind it"),
    ] {
        let found = broken(&all[..answers], tunnel);
        assert_eq!(found.0, link, "{found:?}");
        assert!(found.1.contains(said), "{found:?}");
    }
}

#[test]
fn what_cannot_be_told_from_here_is_not_called_broken() {
    let unknown = |to: &str, heard: &[Heard], tunnel| match judged(to, heard, tunnel).1.state {
        State::Unknown(gap) => gap.to_string(),
        other => panic!("{other:?}"),
    };
    let here = expired(&[NODE, GATEWAYS_NODE, GATEWAY]);
    assert!(unknown(POD, &here, None).contains("could not be asked"));
    assert!(unknown("192.168.7.1", &here, Some(true)).contains("answers to pings alone"));
    let there = expired(&[NODE, GATEWAYS_NODE, GATEWAY, PEER]);
    assert!(unknown(POD, &there, None).contains("10.0.0.5 does not answer to datagrams"));
    assert!(unknown("192.168.7.45", &there, None).contains("192.168.7.45 does not answer"));
}

#[test]
fn who_says_that_the_way_ends_is_believed() {
    let mut there = expired(&[NODE, GATEWAYS_NODE, GATEWAY, PEER]);
    there.push(heard(Returned::Unreachable, 6, PEER));
    let found = broken(&there, Some(true));
    assert_eq!(found.0, Link::Endpoint);
    assert!(found.1.starts_with("192.168.7.1 says that 10.0.0.5 cannot be reached"), "{found:?}");
    // The first node has no route: whatever is sent, it says so.
    let refused: Vec<_> = (1..=7).map(|hops| heard(Returned::Unreachable, hops, NODE)).collect();
    let found = broken(&refused, Some(true));
    assert_eq!(found.0, Link::Overlay);
    assert!(found.1.starts_with("10.244.0.1 says that it has no way to 10.0.0.5"), "{found:?}");
    // The gateway's node looks for the gateway in vain.
    let mut here = expired(&[NODE, GATEWAYS_NODE]);
    here.extend((3..=7).map(|hops| heard(Returned::Unreachable, hops, GATEWAYS_NODE)));
    let found = broken(&here, Some(true));
    assert_eq!(found.0, Link::Gateway);
    assert!(found.1.starts_with("172.18.0.2 says that it has no way to 10.0.0.5"), "{found:?}");
}

#[test]
fn a_way_that_is_broken_as_computed_or_stays_here_has_nothing_to_judge() {
    let mut way = only(&v1(POD));
    way.broken = Some(super::super::Fault::NoGateway);
    assert!(judge(&way, &[], None).is_empty());
    assert!(judge(&only(&v1("10.244.0.9")), &[], None).is_empty());
}
