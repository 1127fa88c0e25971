//! A peer's table as lines that a person can read, under the name and in the form that the contract prints.
//!
//! The gateway runs no iptables; the lines say what its own table does, in words that are known.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::{PeerTable, Translation, chain};

/// What is done to one peer's packets, in this order; what no line is about is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    /// The name under which they are shown.
    pub chain: String,
    /// The peer's networks as they are named here: only from them does anything come, and to them it goes.
    pub views: Vec<IpNet>,
    /// Of what comes out of the tunnel.
    pub inbound: Vec<String>,
    /// Of what goes into the tunnel.
    pub outbound: Vec<String>,
}

impl Rules {
    /// The lines of this peer's table.
    pub fn of(peer: &str, table: &PeerTable) -> Self {
        let redirected = table
            .redirections()
            .into_iter()
            .map(|(address, endpoint)| format!("-d {address} -j DNAT --to-destination {endpoint}"));
        let published = table
            .published()
            .into_iter()
            .map(|(endpoint, address)| format!("-s {endpoint} -j SNAT --to-source {address}"));
        let (pods, transit) = (&table.ours().pods, table.transit());
        let reached = match table.open_pods() {
            None => vec![inward(pods)],
            Some(only) => {
                let only = only.into_iter().filter_map(|pod| one(pods, pod));
                only.chain([answers(pods)]).collect()
            }
        };
        Self {
            chain: chain(peer),
            views: table.views().to_vec(),
            inbound: redirected.chain(reached).chain(transit.iter().map(inward)).collect(),
            outbound: [outward(pods)]
                .into_iter()
                .chain(published)
                .chain(transit.iter().map(outward))
                .collect(),
        }
    }
}

fn inward(network: &Translation) -> String {
    prefix("-d", network.there(), network.here())
}

/// One pod of a network of which not all are reached.
fn one(network: &Translation, pod: IpAddr) -> Option<String> {
    Some(format!("-d {} -j DNAT --to-destination {pod}", network.outward(pod)?))
}

/// What passes to the others of it.
fn answers(network: &Translation) -> String {
    prefix("-m conntrack --ctdir REPLY -d", network.there(), network.here())
}

fn outward(network: &Translation) -> String {
    prefix("-s", network.here(), network.there())
}

fn prefix(which: &str, before: IpNet, after: IpNet) -> String {
    if before == after {
        return format!("{which} {before} -j ACCEPT");
    }
    format!("{which} {before} -j NETMAP --to {after}")
}

#[cfg(test)]
mod tests {
    use super::super::{Agreement, Ours, ReachablePods};
    use super::*;

    fn network(here: &str, there: &str) -> Translation {
        Translation::new(here.parse().unwrap(), there.parse().unwrap()).unwrap()
    }

    fn rules(ours: Translation, transit: Vec<Translation>) -> Rules {
        Rules::of("cluster-1", &table(ours, transit))
    }

    fn table(ours: Translation, transit: Vec<Translation>) -> PeerTable {
        let agreement = Agreement {
            their_pods: network("10.0.0.0/24", "10.244.0.0/24"),
            their_external: Some(network("192.168.7.0/24", "192.168.0.0/24")),
            ours: Some(Ours { pods: ours, external: None }),
        };
        let written = [("10.0.0.5".parse().unwrap(), "192.168.0.45".parse().unwrap())].into();
        PeerTable::new(&agreement, &written, transit).unwrap()
    }

    #[test]
    fn v5_a_redirection_reads_as_the_contract_prints_it() {
        let shown = rules(network("10.244.0.0/24", "10.0.40.0/24"), Vec::new());
        assert_eq!(
            format!("iptables -t nat -A {} {}", shown.chain, shown.inbound[0]),
            "iptables -t nat -A LIQO-PRRT-MAP-CLS-cluster-1 -d 192.168.0.45 -j DNAT --to-destination 10.0.0.5"
        );
    }

    #[test]
    fn all_that_is_done_is_shown_in_its_order() {
        let transit = network("10.2.0.0/24", "10.5.0.0/24");
        let shown = rules(network("10.244.0.0/24", "10.0.40.0/24"), vec![transit]);
        assert_eq!(shown.views, ["10.0.0.0/24", "192.168.7.0/24"].map(|view| view.parse().unwrap()));
        assert_eq!(
            shown.inbound[1..],
            ["-d 10.0.40.0/24 -j NETMAP --to 10.244.0.0/24", "-d 10.5.0.0/24 -j NETMAP --to 10.2.0.0/24"]
        );
        assert_eq!(
            shown.outbound,
            [
                "-s 10.244.0.0/24 -j NETMAP --to 10.0.40.0/24",
                "-s 10.0.0.5 -j SNAT --to-source 192.168.0.45",
                "-s 10.2.0.0/24 -j NETMAP --to 10.5.0.0/24",
            ]
        );
    }

    #[test]
    fn where_not_all_pods_are_reached_those_are_shown_that_are() {
        let only = ["10.244.0.9".parse().unwrap(), "10.9.9.9".parse().unwrap()].into();
        let table = table(network("10.244.0.0/24", "10.0.40.0/24"), Vec::new());
        let shown = Rules::of("cluster-1", &table.reaching(ReachablePods::Only(only)));
        assert_eq!(
            shown.inbound[1..],
            [
                "-d 10.0.40.9 -j DNAT --to-destination 10.244.0.9",
                "-m conntrack --ctdir REPLY -d 10.0.40.0/24 -j NETMAP --to 10.244.0.0/24",
            ]
        );
        assert_eq!(shown.outbound[0], "-s 10.244.0.0/24 -j NETMAP --to 10.0.40.0/24");
    }

    #[test]
    fn a_network_that_keeps_its_name_is_let_through() {
        let shown = rules(network("10.1.0.0/24", "10.1.0.0/24"), Vec::new());
        assert_eq!(shown.inbound[1], "-d 10.1.0.0/24 -j ACCEPT");
        assert_eq!(shown.outbound[0], "-s 10.1.0.0/24 -j ACCEPT");
    }
}
