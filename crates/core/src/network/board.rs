//! All redirections in force, for gateways to follow: those of the address manager, and those that others wrote.
//!
//! Where the two contradict each other, by endpoint or by address, the address manager's own is in force; the other
//! one shows again when that is gone. Every change tells what it changes for a follower, and costs as much.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Claims, Ipam, Turn, layout::Layout};

/// An endpoint, and the address that a peer uses for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The peer.
    pub peer: String,
    /// The endpoint, as it is known here.
    pub endpoint: IpAddr,
    /// The address that the peer uses.
    pub address: IpAddr,
}

/// What changes for a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// In force from now on, in place of what was in force for the same peer and endpoint.
    pub set: Vec<Entry>,
    /// No longer in force.
    pub removed: Vec<Entry>,
}

impl Delta {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    fn note(&mut self, peer: &str, endpoint: IpAddr, before: Option<IpAddr>, after: Option<IpAddr>) {
        let entry = |address| Entry { peer: peer.to_owned(), endpoint, address };
        match (before, after) {
            (before, Some(after)) if before != Some(after) => self.set.push(entry(after)),
            (Some(before), None) => self.removed.push(entry(before)),
            (_, Some(_)) | (None, None) => {}
        }
    }
}

/// Endpoints and addresses, found by either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pairs {
    addresses: BTreeMap<IpAddr, IpAddr>,
    endpoints: BTreeMap<IpAddr, IpAddr>,
}

impl Pairs {
    fn insert(&mut self, endpoint: IpAddr, address: IpAddr) {
        self.addresses.insert(endpoint, address);
        self.endpoints.insert(address, endpoint);
    }

    fn remove(&mut self, endpoint: IpAddr) -> Option<IpAddr> {
        let address = self.addresses.remove(&endpoint)?;
        // In the middle of a change another endpoint may have it already.
        if self.endpoints.get(&address) == Some(&endpoint) {
            self.endpoints.remove(&address);
        }
        Some(address)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Peer {
    own: Pairs,
    others: Pairs,
    /// The address manager's own, by the sheet on which they stand.
    sheets: BTreeMap<u32, BTreeSet<IpAddr>>,
}

impl Peer {
    fn in_force(&self, endpoint: &IpAddr) -> Option<IpAddr> {
        let others = || {
            let address = self.others.addresses.get(endpoint)?;
            (!self.own.endpoints.contains_key(address)).then_some(address)
        };
        self.own.addresses.get(endpoint).or_else(others).copied()
    }

    fn is_empty(&self) -> bool {
        self.own.addresses.is_empty() && self.others.addresses.is_empty()
    }
}

/// All redirections in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    peers: BTreeMap<String, Peer>,
    /// On which sheet an endpoint stands.
    sheets: BTreeMap<IpAddr, u32>,
}

impl Board {
    /// Follows a turn that was stored. The layout is the one after it. Also tells which sheets of which peers change.
    pub fn follow(&mut self, turn: &Turn, layout: &Layout) -> (Delta, BTreeSet<(String, u32)>) {
        let (mut delta, mut sheets) = (Delta::default(), BTreeSet::new());
        for endpoint in turn.touched() {
            let (old, new) = (self.sheets.get(endpoint).copied().unwrap_or_default(), layout.sheet(endpoint));
            let [before, after] = [turn.before(), turn.after()].map(|ipam| ipam.published(endpoint));
            for peer in before.union(&after) {
                let address = turn.after().redirection(peer, *endpoint);
                if self.set_own(peer, *endpoint, address, new, &mut delta) {
                    sheets.extend([(peer.clone(), old), (peer.clone(), new)]);
                }
            }
            if after.is_empty() {
                self.sheets.remove(endpoint);
            } else {
                self.sheets.insert(*endpoint, new);
            }
        }
        (delta, sheets)
    }

    fn set_own(
        &mut self,
        name: &str,
        endpoint: IpAddr,
        address: Option<IpAddr>,
        sheet: u32,
        delta: &mut Delta,
    ) -> bool {
        let old_sheet = self.sheets.get(&endpoint).copied().unwrap_or_default();
        let peer = self.peers.entry(name.to_owned()).or_default();
        let old = peer.own.addresses.get(&endpoint).copied();
        let is_same = old == address && (old_sheet == sheet || address.is_none());
        let hidden = [old, address].into_iter().flatten();
        let hidden = hidden.filter_map(|address| peer.others.endpoints.get(&address).copied());
        let affected: BTreeSet<IpAddr> = hidden.chain([endpoint]).collect();
        let before: Vec<_> = affected.iter().map(|endpoint| peer.in_force(endpoint)).collect();
        peer.own.remove(endpoint);
        if let Some(stands) = peer.sheets.get_mut(&old_sheet) {
            stands.remove(&endpoint);
            if stands.is_empty() {
                peer.sheets.remove(&old_sheet);
            }
        }
        if let Some(address) = address {
            peer.own.insert(endpoint, address);
            peer.sheets.entry(sheet).or_default().insert(endpoint);
        }
        for (endpoint, before) in affected.iter().zip(before) {
            delta.note(name, *endpoint, before, peer.in_force(endpoint));
        }
        if peer.is_empty() {
            self.peers.remove(name);
        }
        !is_same
    }

    /// Takes over what others wrote, as it is now: by peer, the address for each endpoint. Of two endpoints with one
    /// address the first counts.
    pub fn set_others(&mut self, others: &BTreeMap<String, BTreeMap<IpAddr, IpAddr>>) -> Delta {
        let mut delta = Delta::default();
        let had = self.peers.iter().filter(|(_, peer)| !peer.others.addresses.is_empty());
        let names: BTreeSet<String> =
            had.map(|(name, _)| name.clone()).chain(others.keys().cloned()).collect();
        for name in names {
            let peer = self.peers.entry(name.clone()).or_default();
            let mut new = Pairs::default();
            for (endpoint, address) in others.get(&name).into_iter().flatten() {
                if !new.endpoints.contains_key(address) {
                    new.insert(*endpoint, *address);
                }
            }
            let affected = peer.others.addresses.keys().chain(new.addresses.keys());
            let affected: BTreeSet<IpAddr> = affected.copied().collect();
            let before: Vec<_> = affected.iter().map(|endpoint| peer.in_force(endpoint)).collect();
            peer.others = new;
            for (endpoint, before) in affected.iter().zip(before) {
                delta.note(&name, *endpoint, before, peer.in_force(endpoint));
            }
            if peer.is_empty() {
                self.peers.remove(&name);
            }
        }
        delta
    }

    /// The addresses of our external network that others wrote, under our own name for it.
    pub fn claimed(&self, ipam: &Ipam) -> Claims {
        let mut claimed = Claims::default();
        for (name, peer) in self.peers.iter().filter(|(_, peer)| !peer.others.addresses.is_empty()) {
            let ours = ipam.peers().get(name).and_then(|agreement| agreement.ours);
            let Some(external) = ours.and_then(|ours| ours.external) else { continue };
            for (address, endpoint) in &peer.others.endpoints {
                if let Some(address) = external.inward(*address) {
                    claimed.add(name, *endpoint, address);
                }
            }
        }
        claimed
    }

    /// All that is in force.
    pub fn in_force(&self) -> impl Iterator<Item = Entry> {
        self.peers.iter().flat_map(|(name, peer)| {
            let endpoints = peer.own.addresses.keys().chain(peer.others.addresses.keys());
            let endpoints: BTreeSet<&IpAddr> = endpoints.collect();
            endpoints.into_iter().filter_map(move |endpoint| {
                let address = peer.in_force(endpoint)?;
                Some(Entry { peer: name.clone(), endpoint: *endpoint, address })
            })
        })
    }

    /// The address manager's own on one sheet of a peer.
    pub fn own(&self, peer: &str, sheet: u32) -> BTreeMap<IpAddr, IpAddr> {
        let Some(peer) = self.peers.get(peer) else { return BTreeMap::new() };
        let endpoints = peer.sheets.get(&sheet).into_iter().flatten();
        endpoints.filter_map(|ip| Some((*ip, *peer.own.addresses.get(ip)?))).collect()
    }

    /// The sheets of all peers that the address manager has something on.
    pub fn sheets(&self) -> BTreeSet<(String, u32)> {
        let of = |(name, peer): (&String, &Peer)| {
            peer.sheets.keys().map(|sheet| (name.clone(), *sheet)).collect::<Vec<_>>()
        };
        self.peers.iter().flat_map(of).collect()
    }

    /// How many of its own the address manager has.
    pub fn len(&self) -> usize {
        self.sheets.len()
    }

    /// Whether the address manager has none of its own.
    pub fn is_empty(&self) -> bool {
        self.sheets.is_empty()
    }
}

#[cfg(test)]
mod tests;
