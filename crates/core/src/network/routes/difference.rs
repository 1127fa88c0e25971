//! From what a kernel has of ours and what it is to have to what is done, in order.
//!
//! What keeps addresses and guards the node comes first and goes last, so that no packet leaves with a sender that is
//! changed, or comes in that should not; a way is complete before a route leads to it, and is taken apart only after.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Exemption, Family, Hop, Mac, Overlay, Present, PresentOverlay, Route, Rule, Wanted};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes our table, in place of an earlier one.
    WriteExemption(Family, Exemption),
    /// Removes our table.
    RemoveExemption(Family),
    /// Makes the link between the nodes.
    CreateOverlay(Overlay),
    /// Sets whatever can be set while the link is in use.
    TuneOverlay(Overlay),
    /// Removes what is there under its name.
    RemoveOverlay,
    /// Says which link address a next hop has.
    PutNeighbour(IpAddr, Mac),
    /// Forgets it.
    RemoveNeighbour(IpAddr),
    /// Says which node a link address is at.
    PutForwarding(Mac, IpAddr),
    /// Forgets it.
    RemoveForwarding(Mac, IpAddr),
    /// Makes a route where there is none.
    AddRoute(Route),
    /// Makes a route in place of one of ours.
    ReplaceRoute(Route),
    /// Removes one of ours.
    RemoveRoute(Route),
    /// Makes a rule.
    AddRule(Rule),
    /// Removes one of ours.
    RemoveRule(Rule),
}

/// What makes the kernel have what is wanted: nothing if it has.
pub fn changes(have: &Present, want: &Wanted) -> Vec<Change> {
    let mut difference = Difference { have: have.clone(), all: Vec::new() };
    difference.write_exemptions(want);
    difference.make_overlay(want);
    difference.add(want);
    difference.remove(want);
    difference.all
}

struct Difference {
    /// What is there after the changes so far.
    have: Present,
    all: Vec<Change>,
}

impl Difference {
    fn write_exemptions(&mut self, want: &Wanted) {
        for (family, exemption) in &want.exemptions {
            let present = self.have.exemptions.get(family).and_then(Option::as_ref);
            if present != Some(exemption) {
                self.all.push(Change::WriteExemption(*family, exemption.clone()));
            }
        }
    }

    fn make_overlay(&mut self, want: &Wanted) {
        let Some(wanted) = &want.overlay else { return };
        let present = self.have.overlay.as_ref();
        if present.is_some_and(|present| !is_like(present, wanted)) {
            self.all.push(Change::RemoveOverlay);
            self.lose_overlay();
        }
        match &self.have.overlay {
            None => {
                self.all.push(Change::CreateOverlay(wanted.clone()));
                self.all.push(Change::TuneOverlay(wanted.clone()));
            }
            Some(present) if present.overlay.as_ref() != Some(wanted) || !present.is_in_use => {
                self.all.push(Change::TuneOverlay(wanted.clone()));
            }
            Some(_) => {}
        }
    }

    /// All that lies on a link goes with it.
    fn lose_overlay(&mut self) {
        self.have.overlay = None;
        self.have.neighbours.clear();
        self.have.forwarding.clear();
        self.have.routes.retain(|route| !matches!(route.hop, Hop::Overlay(_)));
    }

    fn add(&mut self, want: &Wanted) {
        for (ip, mac) in missing(&want.neighbours, &self.have.neighbours) {
            self.all.push(Change::PutNeighbour(ip, mac));
        }
        for (mac, ip) in missing(&want.forwarding, &self.have.forwarding) {
            self.all.push(Change::PutForwarding(mac, ip));
        }
        let mut routes: Vec<Route> = self.possible(want).difference(&self.have.routes).copied().collect();
        // First where packets go when they can go nowhere, then the tables that rules lead to.
        routes.sort_by_key(|route| (route.hop != Hop::Nowhere, std::cmp::Reverse(route.table)));
        for route in routes {
            let is_there = self.have.routes.iter().any(|present| present.key() == route.key());
            self.all.push(if is_there { Change::ReplaceRoute(route) } else { Change::AddRoute(route) });
        }
        for rule in want.rules.difference(&self.have.rules) {
            self.all.push(Change::AddRule(rule.clone()));
        }
    }

    /// The wanted routes whose link is there: the gateway makes its own.
    fn possible(&self, want: &Wanted) -> BTreeSet<Route> {
        let is_possible = |route: &&Route| self.have.has_gateway || !matches!(route.hop, Hop::Gateway(_));
        want.routes.iter().filter(is_possible).copied().collect()
    }

    fn remove(&mut self, want: &Wanted) {
        for rule in self.have.rules.difference(&want.rules) {
            self.all.push(Change::RemoveRule(rule.clone()));
        }
        let keys: BTreeSet<_> = want.routes.iter().map(Route::key).collect();
        let mut routes: Vec<Route> =
            self.have.routes.iter().filter(|route| !keys.contains(&route.key())).copied().collect();
        routes.sort_by_key(|route| route.hop == Hop::Nowhere);
        self.all.extend(routes.into_iter().map(Change::RemoveRoute));
        if want.overlay.is_some() {
            for ip in self.have.neighbours.keys().filter(|ip| !want.neighbours.contains_key(*ip)) {
                self.all.push(Change::RemoveNeighbour(*ip));
            }
            for (mac, ip) in
                self.have.forwarding.iter().filter(|(mac, _)| !want.forwarding.contains_key(*mac))
            {
                self.all.push(Change::RemoveForwarding(*mac, *ip));
            }
        } else if self.have.overlay.is_some() {
            self.all.push(Change::RemoveOverlay);
        }
        for family in self.have.exemptions.keys().filter(|family| !want.exemptions.contains_key(*family)) {
            self.all.push(Change::RemoveExemption(*family));
        }
    }
}

/// Whether the link can become the wanted one without being made anew.
fn is_like(present: &PresentOverlay, wanted: &Overlay) -> bool {
    present.overlay.as_ref().is_some_and(|overlay| Overlay { mtu: wanted.mtu, ..overlay.clone() } == *wanted)
}

fn missing<K: Ord + Copy, V: PartialEq + Copy>(want: &BTreeMap<K, V>, have: &BTreeMap<K, V>) -> Vec<(K, V)> {
    want.iter()
        .filter(|(key, value)| have.get(*key) != Some(*value))
        .map(|(key, value)| (*key, *value))
        .collect()
}
