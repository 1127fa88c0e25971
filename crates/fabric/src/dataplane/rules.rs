//! The table of addresses, made fit for speed: the same answers as that of `core`, without going through all peers.
//!
//! Where a packet goes is found by a binary search. The networks of peers are cut into pieces that do not overlap, each
//! with the one peer that the table would have found first. What is done to its packets is that peer's table itself:
//! nothing is made of it, so that a change in a large one is as cheap as in a small one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferro_core::network::{Drop, PeerTable, ProbePair};
use ipnet::IpNet;

use super::link::Link;
use crate::wireguard::PeerId;

/// Which peer has an address, for one family.
#[derive(Debug, Default)]
struct Pieces<T> {
    /// Where each piece begins, in order, and whose it is. It ends where the next one begins.
    starts: Vec<(T, Option<usize>)>,
}

impl<T: Ord + Copy> Pieces<T> {
    /// From the first addresses, those behind the last where there is one, and the peers; the first peer wins.
    fn new(networks: &[(T, Option<T>, usize)]) -> Self {
        let mut events: BTreeMap<T, Vec<(bool, usize)>> = BTreeMap::new();
        for (first, behind, peer) in networks {
            events.entry(*first).or_default().push((true, *peer));
            if let Some(behind) = behind {
                events.entry(*behind).or_default().push((false, *peer));
            }
        }
        // A peer may have a network twice.
        let mut open: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut starts: Vec<(T, Option<usize>)> = Vec::new();
        for (at, events) in events {
            for (begins, peer) in events {
                let count = open.iter().filter(|(of, _)| *of == peer).count();
                if begins {
                    open.insert((peer, count))
                } else {
                    open.remove(&(peer, count.saturating_sub(1)))
                };
            }
            let owner = open.first().map(|(peer, _)| *peer);
            if starts.last().is_none_or(|(_, last)| *last != owner) {
                starts.push((at, owner));
            }
        }
        Self { starts }
    }

    fn owner(&self, address: T) -> Option<usize> {
        let behind = self.starts.partition_point(|(start, _)| *start <= address);
        self.starts.get(behind.checked_sub(1)?)?.1
    }
}

/// Which peer has an address.
#[derive(Debug, Default)]
pub(super) struct Owners {
    v4: Pieces<u32>,
    v6: Pieces<u128>,
}

impl Owners {
    fn new<'a>(peers: impl Iterator<Item = &'a PeerTable>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (peer, table) in peers.enumerate() {
            for view in table.views() {
                match view {
                    IpNet::V4(net) => {
                        v4.push((net.network().to_bits(), net.broadcast().to_bits().checked_add(1), peer));
                    }
                    IpNet::V6(net) => {
                        v6.push((net.network().to_bits(), net.broadcast().to_bits().checked_add(1), peer));
                    }
                }
            }
        }
        Self { v4: Pieces::new(&v4), v6: Pieces::new(&v6) }
    }

    /// The peer with this place in the order of all.
    fn owner(&self, ip: IpAddr) -> Option<usize> {
        match ip {
            IpAddr::V4(ip) => self.v4.owner(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.owner(ip.to_bits()),
        }
    }
}

/// One peer, as the workers see it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The identifier of its cluster.
    pub(super) name: String,
    pub(super) table: PeerTable,
    pub(super) probe: Option<ProbePair>,
    pub(super) link: Arc<Link>,
}

/// All that the workers know of peers. It never changes: another one takes its place.
#[derive(Debug, Default)]
pub(super) struct Rules {
    owners: Owners,
    entries: Vec<Entry>,
    by_id: HashMap<PeerId, usize>,
}

impl Rules {
    /// From the peers in the order of their names.
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let by_id = entries.iter().enumerate().map(|(place, entry)| (entry.link.id(), place)).collect();
        Self { owners: Owners::new(entries.iter().map(|entry| &entry.table)), entries, by_id }
    }

    /// All peers.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The peer to which packets for this address go.
    pub(super) fn towards(&self, destination: IpAddr) -> Result<&Entry, Drop> {
        let place = self.owners.owner(destination).ok_or(Drop::NoPeer)?;
        self.entries.get(place).ok_or(Drop::NoPeer)
    }

    /// The peer that the device calls so.
    pub(super) fn of(&self, id: PeerId) -> Option<&Entry> {
        self.entries.get(*self.by_id.get(&id)?)
    }
}

#[cfg(test)]
mod tests {
    use ferro_core::network::{Agreement, Ours, Packet, ReachablePods, Table, Translation};
    use proptest::prelude::*;

    use super::*;

    /// Few bits, so that networks meet.
    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            9 => (0_u32..256).prop_map(|bits| IpAddr::V4((0x0a00_0000 | bits).into())),
            1 => (0_u128..64).prop_map(|bits| IpAddr::V6(((0xfd << 120) | bits).into())),
            1 => any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        ]
    }

    fn network() -> impl Strategy<Value = IpNet> {
        (address(), 0_u8..=8, any::<bool>()).prop_map(|(ip, host, wide)| {
            let longest = if ip.is_ipv4() { 32 } else { 128 };
            let host = if wide && host == 8 { longest } else { host };
            IpNet::new(ip, longest - host).unwrap().trunc()
        })
    }

    fn translation() -> impl Strategy<Value = Translation> {
        (network(), address()).prop_map(|(here, there)| {
            let there = IpNet::new(there, here.prefix_len().min(if there.is_ipv4() { 32 } else { 128 }));
            Translation::new(here, there.unwrap()).unwrap_or(Translation::identity(here))
        })
    }

    fn peer() -> impl Strategy<Value = PeerTable> {
        let redirections = proptest::collection::btree_map(address(), address(), 0..5);
        let transit = proptest::collection::vec(translation(), 0..3);
        let names = (translation(), proptest::option::of(translation()), translation());
        let reachable = proptest::option::of(proptest::collection::btree_set(address(), 0..20));
        (names, redirections, transit, reachable).prop_map(
            |((their_pods, their_external, pods), redirections, transit, reachable)| {
                let ours = Some(Ours { pods, external: None });
                let agreement = Agreement { their_pods, their_external, ours };
                let reachable = reachable.map_or(ReachablePods::All, ReachablePods::Only);
                PeerTable::new(&agreement, &redirections, transit).unwrap().reaching(reachable)
            },
        )
    }

    fn table() -> impl Strategy<Value = Table> {
        proptest::collection::vec(peer(), 0..6).prop_map(|peers| Table {
            peers: peers.into_iter().enumerate().map(|(n, peer)| (n.to_string(), peer)).collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn the_answers_are_those_of_core(
            table in table(),
            packets in proptest::collection::vec((address(), address()), 50),
        ) {
            let peers: Vec<&PeerTable> = table.peers.values().collect();
            let owners = Owners::new(peers.iter().copied());
            for (source, destination) in packets {
                let packet = Packet { source, destination };
                let ours = owners.owner(destination).ok_or(Drop::NoPeer).and_then(|place| {
                    Ok((place.to_string(), peers[place].outbound(packet)?))
                });
                let theirs = table.outbound(packet).map(|(peer, packet)| (peer.to_owned(), packet));
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn a_network_inside_another_peers_belongs_to_the_first() {
        let peer = |view: &str| {
            let agreement = Agreement {
                their_pods: Translation::identity(view.parse().unwrap()),
                their_external: None,
                ours: Some(Ours {
                    pods: Translation::identity("10.9.0.0/16".parse().unwrap()),
                    external: None,
                }),
            };
            PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).unwrap()
        };
        let peers = [peer("10.1.2.0/24"), peer("10.1.0.0/16"), peer("255.0.0.0/8"), peer("0.0.0.0/0")];
        let owners = Owners::new(peers.iter());
        for (ip, owner) in [
            ("10.1.1.255", Some(1)),
            ("10.1.2.0", Some(0)),
            ("10.1.2.255", Some(0)),
            ("10.1.3.0", Some(1)),
            ("10.2.0.0", Some(3)),
            ("255.255.255.255", Some(2)),
            ("0.0.0.0", Some(3)),
            ("fd00::1", None),
        ] {
            assert_eq!(owners.owner(ip.parse().unwrap()), owner, "{ip}");
        }
    }
}
