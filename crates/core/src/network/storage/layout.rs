//! Which of several `IpamStorage` objects holds what: an object is read and written as a whole, so none may grow large.
//!
//! - Flow: new mappings go where there is room, all of one turn into the same object if they fit, and stay there; so a
//!   turn is one write as a rule. The first object also holds what was agreed with peers. An object that holds nothing
//!   any more is deleted along with the next turn.
//! - Guarantees: a write names only what changed in its object. Whichever writes of a turn were done, reading gives a
//!   sound value again: an address is stored in one object together with its endpoint, and a freed one is not given out
//!   in the same turn, so that no two endpoints can come to share one. What was half done is put right by the turn that
//!   reading returns.
//! - Assumptions: one writer, and every write is made from the version that was read last. That cannot be said of the
//!   making of an object: therefore the first one says before how many there may be, and whoever reads makes those that
//!   are [`missing`], so that a former writer cannot any more.

mod draft;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::net::IpamStorageSpec;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::super::{Ipam, Mapping, OwnNetworks, QUARANTINE, Turn};
use super::{BadStorage, parse, read, restored};
use draft::Draft;

/// An object with so many bytes takes no new mappings. Small, because each write makes the API server read, check and
/// store all of it.
const FULL: usize = 16 * 1024;
/// Mappings that are published to more and more peers may grow up to here; then they move.
const MOST: usize = 512 * 1024;
/// What an entry takes, about: a mapping, each of its peers, and an address that rests.
const MAPPING: usize = 64;
const PEER: usize = 48;
const REST: usize = 112;
/// So many objects of the storage share one sheet of mappings for a peer.
const SHEET: u32 = 4;

const NAME: &str = "ipam";

/// The name of an object.
pub fn name(part: u32) -> String {
    if part == 0 { NAME.to_owned() } else { format!("{NAME}-{part}") }
}

/// Which object has this name; none that is not ours.
pub fn part(name_of: &str) -> Option<u32> {
    if name_of == NAME {
        return Some(0);
    }
    let number: u32 = name_of.strip_prefix(NAME)?.strip_prefix('-')?.parse().ok()?;
    (name(number) == name_of).then_some(number)
}

/// The objects that somebody may still be about to make.
pub fn missing(objects: &BTreeMap<u32, IpamStorageSpec>) -> Result<Vec<u32>, BadStorage> {
    let Some(first) = objects.get(&0) else { return Ok(Vec::new()) };
    let mut announced = 0;
    for (network, bytes) in &first.prefixes {
        announced = announced.max(parse(network, bytes)?.parts.unwrap_or_default());
    }
    Ok((0..announced).filter(|number| !objects.contains_key(number)).collect())
}

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    /// How many mappings it holds, and what they take, about.
    mappings: usize,
    mapped: usize,
    /// How many addresses rest of those that it says rest.
    rests: usize,
    /// All that it says rest, also those that have rested: they go with the next write to it.
    resting: BTreeMap<IpAddr, Timestamp>,
}

impl Part {
    /// What it will take once it is written again.
    fn weight(&self) -> usize {
        self.mapped + REST * self.rests
    }

    fn is_empty(&self) -> bool {
        self.mappings == 0 && self.rests == 0
    }
}

/// Since when an address rests, and which object says so.
type Rest = (Timestamp, IpAddr, u32);

/// Which object holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    parts: BTreeMap<u32, Part>,
    /// Those that take new mappings.
    open: BTreeSet<u32>,
    /// Those with nothing in them that is needed.
    empty: BTreeSet<u32>,
    /// Addresses that rest, by age, so that those that have rested are found without looking at the others.
    ages: BTreeSet<Rest>,
    places: BTreeMap<IpAddr, u32>,
    /// Mappings that are somewhere else, too: they were being moved.
    strays: BTreeSet<(u32, IpAddr)>,
    /// The number of the last turn that was stored.
    turn: u64,
    /// So many objects there may be, as the first one says.
    announced: u32,
    /// Whether the first object has the networks of this cluster as they are now.
    is_own_current: bool,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is made.
    Create,
    /// It is changed by a merge patch.
    Patch,
    /// It is deleted.
    Delete,
}

/// When a write may be done: after all that come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// What announces others.
    First,
    /// Most.
    Second,
    /// What something moves away from.
    Last,
}

impl Wave {
    /// In their order.
    pub const ALL: [Self; 3] = [Self::First, Self::Second, Self::Last];
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object.
    pub part: u32,
    /// What is done to it.
    pub deed: Deed,
    /// The specification of a new one, or a patch to it.
    pub spec: Value,
    /// When it may be done.
    pub wave: Wave,
}

/// How a turn is stored.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to write.
    pub writes: Vec<Write>,
    parts: BTreeMap<u32, Part>,
    deleted: BTreeSet<u32>,
    places: BTreeMap<IpAddr, Option<u32>>,
    rested: BTreeSet<Rest>,
    resting: BTreeSet<Rest>,
    announced: u32,
}

impl Layout {
    /// What these objects hold, and what must be put right in it; none before the first start.
    ///
    /// Addresses and names that rest do so in full from now on: since when they do was written by another clock, perhaps,
    /// and by one that is ahead they would be given out too soon.
    pub fn read(
        objects: &BTreeMap<u32, IpamStorageSpec>,
        own: &OwnNetworks,
        now: Timestamp,
    ) -> Result<Option<(Self, Turn)>, BadStorage> {
        let Some(first) = objects.get(&0) else { return Ok(None) };
        let (mut layout, mut whole, mut strays) = (Self::default(), first.clone(), Vec::new());
        whole.endpoint_mappings.clear();
        whole.prefixes.clear();
        for (number, object) in objects {
            layout.take_in(*number, object, now, &mut whole, &mut strays)?;
        }
        layout.is_own_current = is_own(first, own);
        let Some(mut before) = Ipam::from_storage(&whole, own.clone())? else { return Ok(None) };
        before.rest_anew(now);
        let turn = heal(&before, strays, now);
        Ok(Some((layout, turn)))
    }

    fn take_in(
        &mut self,
        number: u32,
        object: &IpamStorageSpec,
        now: Timestamp,
        whole: &mut IpamStorageSpec,
        strays: &mut Vec<(IpAddr, Mapping)>,
    ) -> Result<(), BadStorage> {
        let mut part = Part::default();
        for (text, mapping) in &object.endpoint_mappings {
            let endpoint = read(text, "a key of endpointMappings")?;
            let ip = read(&mapping.ip, &format!("endpointMappings[{text}].ip"))?;
            let stray = restored(ip, mapping);
            part.mappings += 1;
            part.mapped += weight(&stray);
            if let Entry::Vacant(place) = self.places.entry(endpoint) {
                place.insert(number);
                whole.endpoint_mappings.insert(text.clone(), mapping.clone());
            } else {
                self.strays.insert((number, endpoint));
                strays.push((endpoint, stray));
            }
        }
        for (network, bytes) in &object.prefixes {
            let record = parse(network, bytes)?;
            // The names of networks rest in the first object, with those in use.
            if record.since.is_some() && record.peer.is_none() {
                let rests: IpNet = read(network, "a key of prefixes")?;
                part.resting.insert(rests.addr(), now);
                part.rests += 1;
                self.ages.insert((now, rests.addr(), number));
            }
            self.turn = self.turn.max(record.turn.unwrap_or_default());
            if number == 0 {
                self.announced = self.announced.max(record.parts.unwrap_or_default());
            }
            let known = whole.prefixes.get(network).map(|bytes| parse(network, bytes)).transpose()?;
            if known.is_none_or(|known| (known.turn, known.since) < (record.turn, record.since)) {
                whole.prefixes.insert(network.clone(), bytes.clone());
            }
        }
        self.keep(number, part);
        Ok(())
    }

    fn keep(&mut self, number: u32, part: Part) {
        note(&mut self.open, number, part.weight() < FULL);
        // The first one is always needed.
        note(&mut self.empty, number, number != 0 && part.is_empty());
        self.parts.insert(number, part);
    }

    /// The addresses that have rested since they were looked at last.
    fn rested(&self, now: Timestamp) -> BTreeSet<Rest> {
        let quarantine = QUARANTINE.try_into().unwrap_or_default();
        let rested = self.ages.iter().take_while(|(since, ..)| now.duration_since(*since) >= quarantine);
        rested.copied().collect()
    }

    /// The sheet of a peer's mappings on which an endpoint stands.
    pub fn sheet(&self, endpoint: &IpAddr) -> u32 {
        self.places.get(endpoint).map_or(0, |part| part / SHEET)
    }

    /// How a turn is stored.
    pub fn plan(&self, turn: &Turn) -> Plan {
        let mut draft = Draft::new(self, turn);
        let is_first = !self.parts.contains_key(&0);
        if is_first || !self.is_own_current {
            draft.own();
        }
        if is_first || turn.is_agreement_touched {
            draft.agreements();
        }
        let arriving: Vec<IpAddr> =
            turn.touched.iter().copied().filter(|endpoint| draft.has_to_go_elsewhere(*endpoint)).collect();
        for endpoint in arriving {
            draft.add(endpoint);
        }
        for (number, endpoint) in &self.strays {
            draft.remove(*number, *endpoint);
        }
        for (ip, endpoint) in &turn.freed {
            draft.rest(*ip, endpoint);
        }
        draft.finish()
    }

    /// The plan was carried out.
    pub fn done(&mut self, plan: Plan) {
        let mut lightened = BTreeSet::new();
        for rest in &plan.rested {
            self.ages.remove(rest);
            lightened.insert(rest.2);
            if let Some(part) = self.parts.get_mut(&rest.2) {
                part.rests = part.rests.saturating_sub(1);
            }
        }
        for number in lightened {
            if let Some(part) = self.parts.remove(&number) {
                self.keep(number, part);
            }
        }
        self.ages.extend(plan.resting);
        for (number, part) in plan.parts {
            self.keep(number, part);
        }
        for number in plan.deleted {
            self.parts.remove(&number);
            self.open.remove(&number);
            self.empty.remove(&number);
        }
        for (endpoint, place) in plan.places {
            match place {
                Some(place) => _ = self.places.insert(endpoint, place),
                None => _ = self.places.remove(&endpoint),
            }
        }
        if !plan.writes.is_empty() {
            self.turn += 1;
            self.announced = plan.announced;
        }
        self.strays.clear();
        self.is_own_current = true;
    }
}

/// Makes sense of what was half done, or edited.
fn heal(before: &Ipam, strays: Vec<(IpAddr, Mapping)>, now: Timestamp) -> Turn {
    let mut turn = Turn::new(before, now);
    for (endpoint, stray) in strays {
        turn.touched.insert(endpoint);
        let here = turn.after.mappings.get_mut(&endpoint).filter(|here| here.ip == stray.ip);
        if let Some(here) = here {
            here.peers.extend(stray.peers);
            here.reflected_to.extend(stray.reflected_to);
            here.to_all |= stray.to_all;
            here.guest_of = here.guest_of.take().or(stray.guest_of);
        }
    }
    let mut addresses = BTreeSet::new();
    for (endpoint, mapping) in before.mappings() {
        let is_foreign = !before.is_fit(endpoint, mapping);
        if is_foreign || !addresses.insert(mapping.ip) {
            turn.touched.insert(*endpoint);
            turn.after.mappings.remove_mut(endpoint);
        }
    }
    let known = before.peers();
    let nobodys = before
        .mappings()
        .filter(|(_, mapping)| mapping.is_idle() || mapping.asked().any(|peer| !known.contains_key(peer)));
    for (endpoint, _) in nobodys {
        turn.touched.insert(*endpoint);
        let Some(mut mapping) = turn.after.mappings.get(endpoint).cloned() else { continue };
        for asked in [&mut mapping.peers, &mut mapping.reflected_to] {
            asked.retain(|peer| known.contains_key(peer));
        }
        if mapping.is_idle() {
            turn.after.external.free(mapping.ip, *endpoint, now);
            turn.freed.insert(mapping.ip, *endpoint);
            turn.after.mappings.remove_mut(endpoint);
        } else {
            turn.after.mappings.insert_mut(*endpoint, mapping);
        }
    }
    turn
}

fn is_own(first: &IpamStorageSpec, own: &OwnNetworks) -> bool {
    let pools: Vec<String> = own.pools.iter().map(ToString::to_string).collect();
    first.pools == pools
        && first.pod_cidr == Some(own.pod.to_string())
        && first.service_cidr == Some(own.service.to_string())
}

fn note(set: &mut BTreeSet<u32>, number: u32, is_in: bool) {
    if is_in {
        set.insert(number);
    } else {
        set.remove(&number);
    }
}

fn weight(mapping: &Mapping) -> usize {
    MAPPING + PEER * mapping.asked().count()
}

#[cfg(test)]
mod tests;
