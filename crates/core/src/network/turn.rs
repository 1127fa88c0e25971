//! Several changes of the address manager that are stored together: what was, what is to be, and where they differ.
//!
//! Whoever stores a turn need not look at what did not change: its cost follows the changes, not all that is mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::config::Reach;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;

use super::ipam::Mappings;
use super::{Answer, Asker, Claims, Exhausted, Ipam, MapError, Offered, Refusal};

/// Changes that are stored together.
#[derive(Clone, Debug)]
pub struct Turn {
    pub(super) before: Ipam,
    pub(super) after: Ipam,
    /// The endpoints at which the two may differ.
    pub(super) touched: BTreeSet<IpAddr>,
    /// The addresses that were freed, and the endpoint that had each.
    pub(super) freed: BTreeMap<IpAddr, IpAddr>,
    /// Whether they may differ in what was agreed with peers.
    pub(super) is_agreement_touched: bool,
    /// Addresses of our external network that others use without having asked.
    claimed: Claims,
    pub(super) now: Timestamp,
}

impl Turn {
    /// Nothing has changed yet.
    pub fn new(before: &Ipam, now: Timestamp) -> Self {
        let mut after = before.clone();
        after.external.wake(now);
        Self {
            before: before.clone(),
            after,
            touched: BTreeSet::new(),
            freed: BTreeMap::new(),
            is_agreement_touched: false,
            claimed: Claims::default(),
            now,
        }
    }

    /// Leaves these addresses of our external network to those who use them without having asked.
    pub fn leave(&mut self, claimed: Claims) {
        self.claimed = claimed;
    }

    /// From one value to another, of which it is not known where they differ.
    pub fn between(before: &Ipam, after: &Ipam, now: Timestamp) -> Self {
        let endpoints = before.mappings().chain(after.mappings()).map(|(endpoint, _)| *endpoint);
        let touched = endpoints.collect();
        Self { touched, after: after.clone(), is_agreement_touched: true, ..Self::new(before, now) }
    }

    /// From nothing to this value.
    pub fn from_nothing(after: &Ipam, now: Timestamp) -> Self {
        let mut nothing = after.clone();
        nothing.peers.clear();
        nothing.resting.clear();
        nothing.mappings = Mappings::default();
        Self::between(&nothing, after, now)
    }

    /// As it was.
    pub fn before(&self) -> &Ipam {
        &self.before
    }

    /// As it is to be.
    pub fn after(&self) -> &Ipam {
        &self.after
    }

    /// As it is to be, once it is stored.
    pub fn into_after(self) -> Ipam {
        self.after
    }

    /// The endpoints at which the two may differ.
    pub fn touched(&self) -> &BTreeSet<IpAddr> {
        &self.touched
    }

    /// From now on these are kept free. What peers were given before stays.
    pub fn reserve(&mut self, reserved: BTreeSet<IpNet>) {
        self.after.own.reserved = reserved;
    }

    /// From now on peers reach this. By full reach that is these nodes, by any other none that nobody has asked for. What
    /// was asked for stays published.
    pub fn reach(&mut self, reach: Reach, nodes: &BTreeSet<IpAddr>) -> Result<(), Exhausted> {
        self.after.own.reach = reach;
        let (is, mut wanted) = (self.after.to_all(), nodes.clone());
        wanted.retain(|node| reach == Reach::Full && self.after.is_publishable(node));
        for node in is.difference(&wanted) {
            self.give_up(*node, |ipam, now| ipam.close(*node, now));
        }
        for node in wanted.difference(&is) {
            self.touched.insert(*node);
            self.after.open(&self.claimed, *node, self.now)?;
        }
        Ok(())
    }

    /// From now on these pods are published to whom they belong, and no others for that reason. By any reach but strict
    /// none is: all pods are reached, and nothing is stored for one.
    pub fn host(&mut self, guests: &BTreeMap<IpAddr, String>) {
        let (is, mut wanted) = (self.after.guests(), guests.clone());
        wanted.retain(|pod, _| self.after.own.reach == Reach::Strict && self.after.belongs_to_pod_cidr(*pod));
        for (pod, _) in is.iter().filter(|(pod, peer)| wanted.get(*pod) != Some(*peer)) {
            self.give_up(*pod, |ipam, now| ipam.dismiss(*pod, now));
        }
        for (pod, peer) in wanted.iter().filter(|(pod, peer)| is.get(*pod) != Some(*peer)) {
            self.touched.insert(*pod);
            self.after.lodge(*pod, peer);
        }
    }

    /// [`Ipam::acquire`].
    pub fn acquire(&mut self, peer: &str, offered: Offered) -> Result<Answer, Refusal> {
        self.is_agreement_touched = true;
        self.after.acquire(peer, offered, self.now)
    }

    /// [`Ipam::agree`].
    pub fn agree(&mut self, peer: &str, answer: Answer) -> Result<(), Refusal> {
        self.is_agreement_touched = true;
        let before = self.after.peers().get(peer).and_then(|agreement| agreement.ours);
        self.after.agree(peer, answer)?;
        // Under another name of the network every endpoint has another address.
        if self.after.peers().get(peer).and_then(|agreement| agreement.ours) != before {
            self.touched.extend(self.after.published_to(peer));
        }
        Ok(())
    }

    /// [`Ipam::release`].
    pub fn release(&mut self, peer: &str) {
        self.is_agreement_touched = true;
        for endpoint in self.after.published_to(peer) {
            for asker in [Asker::Caller, Asker::Slices] {
                self.unmap(asker, peer, endpoint);
            }
        }
        self.after.release(peer, self.now);
    }

    /// [`Ipam::map_for`].
    pub fn map(&mut self, asker: Asker, peer: &str, endpoint: IpAddr) -> Result<IpAddr, MapError> {
        self.touched.insert(endpoint);
        self.after.map_for(asker, &self.claimed, (peer, endpoint), self.now)
    }

    /// [`Ipam::unmap_for`].
    pub fn unmap(&mut self, asker: Asker, peer: &str, endpoint: IpAddr) {
        self.give_up(endpoint, |ipam, now| ipam.unmap_for(asker, peer, endpoint, now));
    }

    /// Does something by which an address may become free.
    fn give_up(&mut self, endpoint: IpAddr, how: impl FnOnce(&mut Ipam, Timestamp)) {
        self.touched.insert(endpoint);
        let ip = self.after.mapping(&endpoint).map(|mapping| mapping.ip);
        how(&mut self.after, self.now);
        if let Some(ip) = ip.filter(|_| self.after.mapping(&endpoint).is_none()) {
            self.freed.insert(ip, endpoint);
        }
    }
}
