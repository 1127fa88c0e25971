//! Which of several `IpamStorage` objects holds what: an object is read and written as a whole, so none may grow large.
//!
//! - Flow: new mappings go where there is room, all of one turn into the same object if they fit, and stay there; so a
//!   turn is one write as a rule. The first object also holds what was agreed with peers.
//! - Guarantees: a write names only what changed in its object. Whichever writes of a turn were done, reading gives a
//!   sound value again: an address is stored in one object together with its endpoint, and a freed one is not given out
//!   in the same turn, so that no two endpoints can come to share one. What was half done is put right by the turn that
//!   reading returns.
//! - Assumptions: one writer, and every write is made from the version that was read last.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::net::IpamStorageSpec;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::{Ipam, Mapping, OwnNetworks, Turn};
use super::{BadStorage, Record, originals, parse, read, stored, subnets};

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

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    weight: usize,
    /// The addresses that rest, as far as this object says so; it may be out of date.
    resting: BTreeMap<IpAddr, Timestamp>,
}

/// Which object holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    parts: BTreeMap<u32, Part>,
    /// Those that take new mappings.
    open: BTreeSet<u32>,
    places: BTreeMap<IpAddr, u32>,
    /// Mappings that are somewhere else, too: they were being moved.
    strays: BTreeSet<(u32, IpAddr)>,
    /// The number of the last turn that was stored.
    turn: u64,
    /// Whether the first object has the networks of this cluster as they are now.
    is_own_current: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object.
    pub part: u32,
    /// Whether it is to be made.
    pub is_new: bool,
    /// The specification of a new one; otherwise a merge patch to it.
    pub spec: Value,
    /// Whether it may be done only when the others are: something moves away from it.
    pub is_last: bool,
}

/// How a turn is stored.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to write.
    pub writes: Vec<Write>,
    parts: BTreeMap<u32, Part>,
    places: BTreeMap<IpAddr, Option<u32>>,
}

impl Layout {
    /// What these objects hold, and what must be put right in it; none before the first start.
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
            layout.take_in(*number, object, &mut whole, &mut strays)?;
        }
        layout.is_own_current = is_own(first, own);
        let Some(before) = Ipam::from_storage(&whole, own.clone())? else { return Ok(None) };
        let turn = heal(&before, strays, now);
        Ok(Some((layout, turn)))
    }

    fn take_in(
        &mut self,
        number: u32,
        object: &IpamStorageSpec,
        whole: &mut IpamStorageSpec,
        strays: &mut Vec<(IpAddr, Mapping)>,
    ) -> Result<(), BadStorage> {
        let mut part = Part::default();
        for (text, mapping) in &object.endpoint_mappings {
            let endpoint = read(text, "a key of endpointMappings")?;
            let ip = read(&mapping.ip, &format!("endpointMappings[{text}].ip"))?;
            let stray = Mapping { ip, peers: mapping.cluster_mappings.clone() };
            part.weight += weight(&stray);
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
            if let Some(since) = record.since {
                let rests: IpNet = read(network, "a key of prefixes")?;
                part.resting.insert(rests.addr(), since);
                part.weight += REST;
            }
            self.turn = self.turn.max(record.turn.unwrap_or_default());
            let known = whole.prefixes.get(network).map(|bytes| parse(network, bytes)).transpose()?;
            if known.is_none_or(|known| (known.turn, known.since) < (record.turn, record.since)) {
                whole.prefixes.insert(network.clone(), bytes.clone());
            }
        }
        self.keep(number, part);
        Ok(())
    }

    fn keep(&mut self, number: u32, part: Part) {
        if part.weight < FULL {
            self.open.insert(number);
        } else {
            self.open.remove(&number);
        }
        self.parts.insert(number, part);
    }

    /// The sheet of a peer's mappings on which an endpoint stands.
    pub fn sheet(&self, endpoint: &IpAddr) -> u32 {
        self.places.get(endpoint).map_or(0, |part| part / SHEET)
    }

    /// How a turn is stored.
    pub fn plan(&self, turn: &Turn) -> Plan {
        let mut draft = Draft { layout: self, turn, sheets: BTreeMap::new(), places: BTreeMap::new() };
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
        for (number, part) in plan.parts {
            self.keep(number, part);
        }
        for (endpoint, place) in plan.places {
            match place {
                Some(place) => _ = self.places.insert(endpoint, place),
                None => _ = self.places.remove(&endpoint),
            }
        }
        if !plan.writes.is_empty() {
            self.turn += 1;
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
        }
    }
    let mut addresses = BTreeSet::new();
    for (endpoint, mapping) in before.mappings() {
        let is_foreign = !before.external().contains(&mapping.ip);
        if is_foreign || !addresses.insert(mapping.ip) {
            turn.touched.insert(*endpoint);
            turn.after.mappings.remove_mut(endpoint);
        }
    }
    let known = before.peers();
    let nobodys = before.mappings().filter(|(_, mapping)| {
        mapping.peers.is_empty() || mapping.peers.iter().any(|peer| !known.contains_key(peer))
    });
    for (endpoint, _) in nobodys {
        turn.touched.insert(*endpoint);
        let Some(mut mapping) = turn.after.mappings.get(endpoint).cloned() else { continue };
        mapping.peers.retain(|peer| known.contains_key(peer));
        if mapping.peers.is_empty() {
            turn.after.external.free(mapping.ip, now);
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

fn weight(mapping: &Mapping) -> usize {
    MAPPING + PEER * mapping.peers.len()
}

/// What changes in one object.
#[derive(Default)]
struct Sheet {
    part: Part,
    spec: Map<String, Value>,
    is_last: bool,
}

impl Sheet {
    fn set(&mut self, field: &str, key: String, value: Value) {
        let field = self.spec.entry(field).or_insert_with(|| json!({}));
        if let Value::Object(field) = field {
            field.insert(key, value);
        }
    }

    fn forget_rest(&mut self, ip: IpAddr) {
        self.part.resting.remove(&ip);
        self.part.weight = self.part.weight.saturating_sub(REST);
        self.set("prefixes", IpNet::from(ip).to_string(), Value::Null);
    }
}

/// A plan in the making.
struct Draft<'a> {
    layout: &'a Layout,
    turn: &'a Turn,
    sheets: BTreeMap<u32, Sheet>,
    places: BTreeMap<IpAddr, Option<u32>>,
}

impl Draft<'_> {
    fn sheet(&mut self, number: u32) -> &mut Sheet {
        let known = self.layout.parts.get(&number);
        self.sheets
            .entry(number)
            .or_insert_with(|| Sheet { part: known.cloned().unwrap_or_default(), ..Sheet::default() })
    }

    /// The networks of this cluster.
    fn own(&mut self) {
        let (own, external) = (&self.turn.after.own, self.turn.after.external());
        let spec = [
            ("pools", json!(own.pools)),
            ("podCIDR", json!(own.pod)),
            ("serviceCIDR", json!(own.service)),
            ("externalCIDR", json!(external)),
        ];
        self.sheet(0).spec.extend(spec.map(|(field, value)| (field.to_owned(), value)));
    }

    /// What was agreed with peers.
    fn agreements(&mut self) {
        let (before, after) = (&self.turn.before.peers, &self.turn.after.peers);
        let is_first = !self.layout.parts.contains_key(&0);
        let changed = before.keys().chain(after.keys()).collect::<BTreeSet<_>>().into_iter();
        let changed: Vec<&String> =
            changed.filter(|peer| is_first || before.get(*peer) != after.get(*peer)).collect();
        let networks = after.values().flat_map(originals);
        let kept: BTreeMap<IpNet, Record> = networks.collect();
        for peer in changed {
            let agreement = after.get(peer);
            let sheet = self.sheet(0);
            let here = agreement.map_or(Value::Null, |agreement| {
                let subnets = subnets(agreement);
                // A merge patch takes away only what it names.
                json!({
                    "localNATPodCIDR": subnets.local_nat_pod_cidr,
                    "remotePodCIDR": subnets.remote_pod_cidr,
                    "localNATExternalCIDR": subnets.local_nat_external_cidr,
                    "remoteExternalCIDR": subnets.remote_external_cidr,
                })
            });
            sheet.set("clusterSubnets", peer.clone(), here);
            let mark = agreement.map_or(Value::Null, |_| json!({}));
            sheet.set("natMappingsConfigured", peer.clone(), mark);
            let [old, new] = [before.get(peer), agreement].map(|it| it.into_iter().flat_map(originals));
            for (network, _) in old.chain(new) {
                let record = kept.get(&network).map_or(Value::Null, |record| json!(record.bytes()));
                sheet.set("prefixes", network.to_string(), record);
            }
        }
    }

    /// Changes a mapping where it is; tells whether it must go into another object.
    fn has_to_go_elsewhere(&mut self, endpoint: IpAddr) -> bool {
        let turn = self.turn;
        let (before, after) = (turn.before.mapping(&endpoint), turn.after.mapping(&endpoint));
        let Some(number) = self.layout.places.get(&endpoint).copied() else { return after.is_some() };
        if before == after {
            return false;
        }
        let Some(after) = after else {
            self.remove(number, endpoint);
            return false;
        };
        let (old, new) = (before.map_or(0, weight), weight(after));
        let sheet = self.sheet(number);
        let grown = (sheet.part.weight + new).saturating_sub(old);
        if new > old && grown > MOST {
            sheet.is_last = true;
            self.remove(number, endpoint);
            return true;
        }
        sheet.part.weight = grown;
        sheet.set("endpointMappings", endpoint.to_string(), difference(before, after));
        false
    }

    fn remove(&mut self, number: u32, endpoint: IpAddr) {
        let lost = self.turn.before.mapping(&endpoint).map_or(0, weight);
        let is_place = self.layout.places.get(&endpoint) == Some(&number);
        let sheet = self.sheet(number);
        sheet.part.weight = sheet.part.weight.saturating_sub(lost);
        sheet.set("endpointMappings", endpoint.to_string(), Value::Null);
        if is_place {
            self.places.insert(endpoint, None);
        }
    }

    /// Notes that an address rests, in the object with the endpoint that had it.
    fn rest(&mut self, ip: IpAddr, endpoint: &IpAddr) {
        let Some(since) = self.turn.after.external.resting_since(&ip) else { return };
        let number = self.layout.places.get(endpoint).copied().unwrap_or_else(|| self.room());
        let sheet = self.sheet(number);
        sheet.set("prefixes", IpNet::from(ip).to_string(), json!(Record::rest(since).bytes()));
        if sheet.part.resting.insert(ip, since).is_none() {
            sheet.part.weight += REST;
        }
    }

    /// Puts a new mapping where there is room: into an object that is written anyway, if there is one.
    fn add(&mut self, endpoint: IpAddr) {
        let Some(mapping) = self.turn.after.mapping(&endpoint) else { return };
        let (value, weight) = (json!(stored(mapping)), weight(mapping));
        let number = self.room();
        let sheet = self.sheet(number);
        sheet.part.weight += weight;
        sheet.set("endpointMappings", endpoint.to_string(), value);
        self.places.insert(endpoint, Some(number));
    }

    fn room(&self) -> u32 {
        let written = self.sheets.iter().find(|(_, sheet)| sheet.part.weight < FULL && !sheet.is_last);
        let open = || self.layout.open.iter().find(|number| !self.sheets.contains_key(number)).copied();
        let last = self.layout.parts.keys().chain(self.sheets.keys()).max();
        written.map(|(number, _)| *number).or_else(open).unwrap_or_else(|| last.map_or(0, |last| last + 1))
    }

    fn finish(mut self) -> Plan {
        let external = &self.turn.after.external;
        let record = json!(Record::next(external, self.layout.turn + 1).bytes());
        let mut plan = Plan { places: self.places, ..Plan::default() };
        for sheet in self.sheets.values_mut() {
            let rested = sheet.part.resting.iter();
            let rested = rested.filter(|(ip, since)| external.resting_since(ip) != Some(**since));
            let rested: Vec<IpAddr> = rested.map(|(ip, _)| *ip).collect();
            for ip in rested {
                sheet.forget_rest(ip);
            }
            sheet.set("prefixes", external.network().to_string(), record.clone());
        }
        for (number, sheet) in self.sheets {
            let is_new = !self.layout.parts.contains_key(&number);
            plan.parts.insert(number, sheet.part);
            plan.writes.push(Write {
                part: number,
                is_new,
                spec: Value::Object(sheet.spec),
                is_last: sheet.is_last,
            });
        }
        plan
    }
}

/// What a merge patch must say about a mapping.
fn difference(before: Option<&Mapping>, after: &Mapping) -> Value {
    let none = BTreeSet::new();
    let had = before.map_or(&none, |before| &before.peers);
    let added = after.peers.difference(had).map(|peer| (peer.clone(), json!({})));
    let gone = had.difference(&after.peers).map(|peer| (peer.clone(), Value::Null));
    let peers: Map<String, Value> = added.chain(gone).collect();
    json!({"ip": after.ip, "clusterMappings": peers})
}

#[cfg(test)]
mod tests;
