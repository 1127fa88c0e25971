//! Which pods on one peer must be named to another: home lies between the two, and names to each only what it knows.
//!
//! A peer that is told of endpoints on another one is a caller of that. Any of its pods may call then, so all of them are
//! named to the other peer, by which their packets are let through and its answers find their way back. Where no two peers
//! have to do with each other, nothing is named.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// A pod: its namespace here, and its name.
pub type PodName = (String, String);

/// Something to look at again: a peer, and a pod that it has, or has no longer, to be told of.
pub type Visit = (String, PodName);

/// The pods on all peers, and who calls whom. Whoever changes something is told what to look at.
#[derive(Clone, Debug, Default)]
pub struct Travellers {
    pods: HashMap<PodName, (String, IpAddr)>,
    /// From the caller to the called one.
    roads: BTreeSet<(String, String)>,
}

impl Travellers {
    /// A pod on a peer has this address here now, or none.
    pub fn set(&mut self, peer: &str, pod: &PodName, address: Option<IpAddr>) -> Vec<Visit> {
        let is_its = self.pods.get(pod).is_none_or(|(present, _)| present == peer);
        let before = match address {
            Some(address) => self.pods.insert(pod.clone(), (peer.to_owned(), address)),
            // One of the same name may have come to another peer meanwhile.
            None if is_its => self.pods.remove(pod),
            None => return Vec::new(),
        };
        if before.as_ref().map(|(peer, address)| (peer.as_str(), *address)) == address.map(|ip| (peer, ip)) {
            return Vec::new();
        }
        let peers = before.iter().map(|(peer, _)| peer.as_str()).chain([peer]).collect::<BTreeSet<_>>();
        let called = peers.into_iter().flat_map(|peer| self.called(peer));
        called.collect::<BTreeSet<_>>().into_iter().map(|to| (to.clone(), pod.clone())).collect()
    }

    /// From now on pods on one peer may call those on another.
    pub fn open(&mut self, from: &str, to: &str) -> Vec<Visit> {
        if from == to || !self.roads.insert((from.to_owned(), to.to_owned())) {
            return Vec::new();
        }
        self.on(from).map(|pod| (to.to_owned(), pod.clone())).collect()
    }

    /// A peer has no pods any more, and calls nobody.
    pub fn leave(&mut self, peer: &str) -> Vec<Visit> {
        let pods: Vec<PodName> = self.on(peer).cloned().collect();
        let visits = pods.iter().flat_map(|pod| self.set(peer, pod, None)).collect();
        self.roads.retain(|(from, _)| from != peer);
        visits
    }

    /// The address of a pod that a peer is to be told of, if it is.
    pub fn address(&self, to: &str, pod: &PodName) -> Option<IpAddr> {
        let (from, address) = self.pods.get(pod)?;
        self.roads.contains(&(from.clone(), to.to_owned())).then_some(*address)
    }

    /// All pods that a peer is to be told of.
    pub fn towards(&self, to: &str) -> Vec<PodName> {
        self.pods.keys().filter(|pod| self.address(to, pod).is_some()).cloned().collect()
    }

    fn on<'a>(&'a self, peer: &'a str) -> impl Iterator<Item = &'a PodName> {
        self.pods.iter().filter(move |(_, (on, _))| on == peer).map(|(pod, _)| pod)
    }

    fn called<'a>(&'a self, from: &'a str) -> impl Iterator<Item = &'a String> {
        self.roads.iter().filter(move |(caller, _)| caller == from).map(|(_, to)| to)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str) -> PodName {
        ("shop".into(), name.into())
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn all_pods_of_a_caller_are_named_to_whom_it_calls_and_to_nobody_else() {
        let mut travellers = Travellers::default();
        assert!(travellers.set("turin", &pod("cart"), Some(ip(1))).is_empty(), "nobody is called");
        assert_eq!(travellers.open("turin", "milan"), [("milan".into(), pod("cart"))]);
        assert!(travellers.open("turin", "milan").is_empty(), "that is no news");
        assert!(travellers.open("turin", "turin").is_empty());
        assert_eq!(travellers.set("turin", &pod("web"), Some(ip(2))), [("milan".into(), pod("web"))]);
        assert!(travellers.set("turin", &pod("web"), Some(ip(2))).is_empty(), "that is no news");
        assert_eq!(travellers.address("milan", &pod("web")), Some(ip(2)));
        assert_eq!(travellers.address("turin", &pod("web")), None);
        travellers.set("milan", &pod("pay"), Some(ip(3)));
        assert_eq!(travellers.address("turin", &pod("pay")), None, "milan calls nobody");
        assert_eq!(travellers.leave("turin").len(), 2);
        assert!(travellers.towards("milan").is_empty());
    }

    #[test]
    fn a_pod_that_is_on_another_peer_by_now_is_not_taken_away_by_the_former() {
        let mut travellers = Travellers::default();
        travellers.open("turin", "milan");
        travellers.set("milan", &pod("web"), Some(ip(1)));
        assert!(travellers.set("turin", &pod("web"), None).is_empty());
        travellers.open("milan", "turin");
        assert_eq!(travellers.address("turin", &pod("web")), Some(ip(1)));
        assert_eq!(travellers.set("turin", &pod("web"), Some(ip(2))).len(), 2, "both are to look");
    }

    proptest! {
        /// Whoever looks only at what it is told to look at knows all.
        #[test]
        fn visits_are_all_that_has_to_be_looked_at(
            turns in proptest::collection::vec((0..4_u8, 0..3_u8, 0..3_u8, proptest::option::of(0..3_u8)), 0..60)
        ) {
            let mut travellers = Travellers::default();
            let mut known: BTreeMap<Visit, IpAddr> = BTreeMap::new();
            for (what, first, second, address) in turns {
                let (a, b) = (first.to_string(), second.to_string());
                let visits = match what {
                    0 => travellers.open(&a, &b),
                    1 => travellers.leave(&a),
                    _ => travellers.set(&a, &pod(&b), address.map(ip)),
                };
                for (peer, pod) in visits {
                    match travellers.address(&peer, &pod) {
                        Some(address) => known.insert((peer, pod), address),
                        None => known.remove(&(peer, pod)),
                    };
                }
                for peer in ["0", "1", "2"] {
                    for name in ["0", "1", "2"] {
                        let said = known.get(&(peer.into(), pod(name))).copied();
                        prop_assert_eq!(said, travellers.address(peer, &pod(name)));
                    }
                }
            }
        }
    }
}
