//! What keeps senders and guards the node, as a table of nftables, and back.
//!
//! A packet that was accepted in one chain still comes by the next one, in which a CNI masquerades it. Therefore the
//! sender is translated, to itself: a connection is translated once, and whoever comes later finds it done.
//!
//! A node has addresses among those of pods: that of a bridge, for broadcasts. Peers that reach all pods would reach
//! every process of the node there, and ports of services. Therefore what comes from peers is dropped there before
//! anybody changes its receiver. What is for the link between the nodes is dropped last, when it is whole and its
//! receiver is known: from a sender who is no node it could say that it is from anybody.

use std::collections::BTreeSet;

use ferro_core::network::routes::{Exemption, Family, PORT, PREFIX};
use ipnet::IpNet;

use crate::netlink::nftables::{Chain, Expression, Table, Version};

/// The name of our table.
pub(super) const NAME: &str = "ferro";

const OWN: &str = "own";
const VIEWS: &str = "views";
const INSIDE: &str = "inside";
const NODES: &str = "nodes";
const GUARD: &str = "prerouting";
/// Before the routing, on the way in.
const PREROUTING: u32 = 0;
/// On the way to a process of this node.
const INPUT: u32 = 1;
/// Behind the routing, on the way out.
const POSTROUTING: u32 = 4;
/// Before 100, where everybody else changes senders.
const EARLY: i32 = 90;
/// After connections are known, and before -100, where receivers are changed.
const MANGLE: i32 = -150;
const FILTER: i32 = 0;
const UDP: u8 = 17;
/// Which way an answer goes in its connection.
const ANSWER: u8 = 1;
/// The type of a route to somebody else, and those of routes to the node itself: local, broadcast, anycast. There are
/// others: to other nodes there may be no route but ours, which is not asked here.
const UNICAST: u32 = 1;
const OURSELVES: [u32; 3] = [2, 3, 4];

pub(super) fn version(family: Family) -> Version {
    match family {
        Family::V4 => Version::V4,
        Family::V6 => Version::V6,
    }
}

fn is_in(set: &str) -> Expression {
    Expression::IsIn(set.to_owned())
}

/// The table that is written for an exemption.
pub(super) fn table(exemption: &Exemption) -> Table {
    let set = |name: &str, networks: &BTreeSet<IpNet>| (name.to_owned(), networks.clone());
    let Exemption { own, views, inside, nodes, .. } = exemption;
    let guard = (!exemption.opens_node).then(guard);
    Table {
        sets: [set(OWN, own), set(VIEWS, views), set(INSIDE, inside), set(NODES, nodes)].into(),
        chains: [keep_senders(exemption.masquerades), guard_link()].into_iter().chain(guard).collect(),
    }
}

fn keep_senders(masquerades: bool) -> Chain {
    let from_to = |from: &str, to: &str| {
        // The sender is still at hand, but `nft` shows a rule as it was written only if it is taken twice.
        let keep = [Expression::Source, Expression::Snat];
        [Expression::Destination, is_in(to), Expression::Source, is_in(from)]
            .into_iter()
            .chain(keep)
            .collect()
    };
    let mut rules = vec![from_to(OWN, VIEWS), from_to(VIEWS, INSIDE)];
    if masquerades {
        rules.push(vec![Expression::Source, is_in(VIEWS), Expression::Masquerade]);
    }
    Chain { name: "postrouting".into(), kind: "nat".into(), hook: POSTROUTING, priority: EARLY, rules }
}

/// What is for the link between the nodes is from a node, and for one.
fn guard_link() -> Chain {
    let unless = |end: Expression| {
        vec![
            Expression::Protocol,
            Expression::Is(vec![UDP]),
            Expression::DestinationPort,
            Expression::Is(PORT.to_be_bytes().to_vec()),
            end,
            Expression::IsNotIn(NODES.to_owned()),
            Expression::Count,
            Expression::Drop,
        ]
    };
    let rules = vec![unless(Expression::Source), unless(Expression::Destination)];
    Chain { name: "input".into(), kind: "filter".into(), hook: INPUT, priority: FILTER, rules }
}

/// What a peer begins is for pods, and not for the node itself. It is known by its sender, or by the link that it came
/// by: not every network of a peer has a route here.
fn guard() -> Chain {
    let from_peers = [Expression::Source, is_in(VIEWS)];
    let from_our_links = [Expression::Input, Expression::Is(PREFIX.as_bytes().to_vec())];
    let mut rules = vec![
        vec![Expression::Direction, Expression::Is(vec![ANSWER]), Expression::Accept],
        // Nearly all, which then comes by no further rule.
        to_own(&from_peers, UNICAST, &[Expression::Accept]),
    ];
    for from in [from_peers, from_our_links] {
        let dropped = |kind| to_own(&from, kind, &[Expression::Count, Expression::Drop]);
        rules.extend(OURSELVES.map(dropped));
    }
    Chain { name: GUARD.into(), kind: "filter".into(), hook: PREROUTING, priority: MANGLE, rules }
}

/// What becomes of packets from there to an address among those of pods to which there is a route of this type.
fn to_own(from: &[Expression], kind: u32, then: &[Expression]) -> Vec<Expression> {
    let kind = Expression::Is(kind.to_ne_bytes().to_vec());
    let to = [Expression::Destination, is_in(OWN), Expression::ReceiverType, kind];
    [from, &to, then].concat()
}

/// The exemption that a table was written for; none if somebody has changed it.
pub(super) fn written_for(present: &Table) -> Option<Exemption> {
    let set = |name: &str| present.sets.get(name).cloned();
    let exemption = Exemption {
        own: set(OWN)?,
        views: set(VIEWS)?,
        inside: set(INSIDE)?,
        masquerades: present.chains.first()?.rules.len() > 2,
        nodes: set(NODES)?,
        opens_node: !present.chains.iter().any(|chain| chain.name == GUARD),
    };
    (table(&exemption) == *present).then_some(exemption)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemption(masquerades: bool, opens_node: bool) -> Exemption {
        let set = |text: &str| [text.parse().unwrap()].into();
        Exemption {
            own: set("10.244.0.0/16"),
            views: set("10.0.0.0/16"),
            inside: set("192.0.2.1/32"),
            masquerades,
            nodes: set("192.0.2.0/31"),
            opens_node,
        }
    }

    #[test]
    fn an_exemption_is_found_again_in_its_table() {
        for (masquerades, opens_node) in [(false, false), (false, true), (true, false), (true, true)] {
            let exemption = exemption(masquerades, opens_node);
            assert_eq!(written_for(&table(&exemption)), Some(exemption));
        }
    }

    #[test]
    fn a_table_that_somebody_changed_is_no_exemption() {
        for chain in 0..3 {
            let mut table = table(&exemption(true, false));
            table.chains[chain].rules.swap(0, 1);
            assert_eq!(written_for(&table), None, "{chain}");
        }
    }
}
