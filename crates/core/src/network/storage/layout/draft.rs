//! A plan in the making: what a turn changes in each object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::super::super::{Mapping, Turn};
use super::super::{Record, stored, subnets};
use super::{Deed, FULL, Layout, MOST, Part, Plan, Rest, Wave, Write, weight};

/// So many objects are deleted along with one turn: others wait for it.
const DELETED: usize = 8;

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
}

/// A plan in the making.
pub(super) struct Draft<'a> {
    layout: &'a Layout,
    turn: &'a Turn,
    sheets: BTreeMap<u32, Sheet>,
    places: BTreeMap<IpAddr, Option<u32>>,
    /// Those that rest no longer, and how many of them each object told of.
    rested: BTreeSet<Rest>,
    lightened: BTreeMap<u32, usize>,
    /// Those that rest from now on.
    resting: BTreeSet<Rest>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(layout: &'a Layout, turn: &'a Turn) -> Self {
        let rested = layout.rested(turn.now);
        let mut lightened = BTreeMap::new();
        for (_, _, number) in &rested {
            *lightened.entry(*number).or_default() += 1;
        }
        let (sheets, places, resting) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { layout, turn, sheets, places, rested, lightened, resting }
    }

    /// An object as it is by now.
    fn part(&self, number: u32) -> Part {
        let mut part = self.layout.parts.get(&number).cloned().unwrap_or_default();
        part.rests = part.rests.saturating_sub(self.lightened.get(&number).copied().unwrap_or_default());
        part
    }

    fn sheet(&mut self, number: u32) -> &mut Sheet {
        let part = if self.sheets.contains_key(&number) { Part::default() } else { self.part(number) };
        self.sheets.entry(number).or_insert_with(|| Sheet { part, ..Sheet::default() })
    }

    /// The networks of this cluster.
    pub(super) fn own(&mut self) {
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
    pub(super) fn agreements(&mut self) {
        let (before, after) = (&self.turn.before.peers, &self.turn.after.peers);
        let is_first = !self.layout.parts.contains_key(&0);
        let changed = before.keys().chain(after.keys()).collect::<BTreeSet<_>>().into_iter();
        let changed: Vec<&String> =
            changed.filter(|peer| is_first || before.get(*peer) != after.get(*peer)).collect();
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
        }
        self.names(is_first);
    }

    /// What peers call their networks, and called those that rest.
    fn names(&mut self, is_first: bool) {
        let turn = self.turn;
        let [before, after] =
            [&turn.before, &turn.after].map(|ipam| ipam.names().collect::<BTreeMap<IpNet, Record>>());
        let networks: BTreeSet<&IpNet> = before.keys().chain(after.keys()).collect();
        for network in networks {
            if is_first || before.get(network) != after.get(network) {
                let record = after.get(network).map_or(Value::Null, |record| json!(record.bytes()));
                self.sheet(0).set("prefixes", network.to_string(), record);
            }
        }
    }

    /// Changes a mapping where it is; tells whether it must go into another object.
    pub(super) fn has_to_go_elsewhere(&mut self, endpoint: IpAddr) -> bool {
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
        let grown = (sheet.part.mapped + new).saturating_sub(old);
        if new > old && grown > MOST {
            sheet.is_last = true;
            self.remove(number, endpoint);
            return true;
        }
        sheet.part.mapped = grown;
        sheet.set("endpointMappings", endpoint.to_string(), difference(before, after));
        false
    }

    pub(super) fn remove(&mut self, number: u32, endpoint: IpAddr) {
        let lost = self.turn.before.mapping(&endpoint).map_or(0, weight);
        let is_place = self.layout.places.get(&endpoint) == Some(&number);
        let sheet = self.sheet(number);
        sheet.part.mappings = sheet.part.mappings.saturating_sub(1);
        sheet.part.mapped = sheet.part.mapped.saturating_sub(lost);
        sheet.set("endpointMappings", endpoint.to_string(), Value::Null);
        if is_place {
            self.places.insert(endpoint, None);
        }
    }

    /// Notes that an address rests, in the object with the endpoint that had it.
    pub(super) fn rest(&mut self, ip: IpAddr, endpoint: &IpAddr) {
        let Some(since) = self.turn.after.external.resting_since(&ip) else { return };
        let number = self.layout.places.get(endpoint).copied().unwrap_or_else(|| self.room());
        let sheet = self.sheet(number);
        sheet.set("prefixes", IpNet::from(ip).to_string(), json!(Record::rest(since).bytes()));
        sheet.part.rests += 1;
        if let Some(former) = sheet.part.resting.insert(ip, since) {
            self.forget((former, ip, number));
        }
        self.resting.insert((since, ip, number));
    }

    /// An object that is written tells no longer that an address rests.
    fn forget(&mut self, rest: Rest) {
        if self.layout.ages.contains(&rest) && self.rested.insert(rest) {
            let part = &mut self.sheet(rest.2).part;
            part.rests = part.rests.saturating_sub(1);
        }
    }

    /// Puts a new mapping where there is room: into an object that is written anyway, if there is one.
    pub(super) fn add(&mut self, endpoint: IpAddr) {
        let Some(mapping) = self.turn.after.mapping(&endpoint) else { return };
        let (value, weight) = (json!(stored(mapping)), weight(mapping));
        let number = self.room();
        let sheet = self.sheet(number);
        sheet.part.mappings += 1;
        sheet.part.mapped += weight;
        sheet.set("endpointMappings", endpoint.to_string(), value);
        self.places.insert(endpoint, Some(number));
    }

    fn room(&self) -> u32 {
        let written = self.sheets.iter().find(|(_, sheet)| sheet.part.weight() < FULL && !sheet.is_last);
        let is_free = |number: &&u32| !self.sheets.contains_key(*number);
        let open = || {
            let open = self.layout.open.iter().find(is_free);
            let mut lightened = self.lightened.keys().filter(is_free);
            let opened = lightened.find(|number| self.part(**number).weight() < FULL);
            open.into_iter().chain(opened).min().copied()
        };
        let last = self.layout.parts.keys().chain(self.sheets.keys()).max();
        let next = || last.map_or(0, |last| last + 1);
        written.map(|(number, _)| *number).or_else(open).unwrap_or_else(next)
    }

    pub(super) fn finish(mut self) -> Plan {
        self.forget_rested();
        let deleted = self.empty();
        let announced = self.announced(&deleted);
        let network = self.turn.after.external().to_string();
        let record = Record::next(&self.turn.after.external, self.layout.turn + 1);
        let first = Record { parts: Some(announced), ..record.clone() };
        let mut plan = Plan { deleted, announced, ..Plan::default() };
        // The very first one is made without a word: there is nowhere to say it.
        let can_tell = self.layout.parts.contains_key(&0) && !self.sheets.is_empty();
        if can_tell && announced > self.layout.announced {
            let spec = json!({"prefixes": {&network: first.bytes()}});
            plan.writes.push(Write { part: 0, deed: Deed::Patch, spec, wave: Wave::First });
        }
        for (number, mut sheet) in self.sheets {
            let record = if number == 0 { &first } else { &record };
            sheet.set("prefixes", network.clone(), json!(record.bytes()));
            plan.parts.insert(number, sheet.part);
            let is_new = !self.layout.parts.contains_key(&number);
            plan.writes.push(Write {
                part: number,
                deed: if is_new { Deed::Create } else { Deed::Patch },
                spec: Value::Object(sheet.spec),
                wave: if sheet.is_last { Wave::Last } else { Wave::Second },
            });
        }
        let delete =
            |number: &u32| Write { part: *number, deed: Deed::Delete, spec: json!({}), wave: Wave::Last };
        plan.writes.extend(plan.deleted.iter().map(delete));
        Plan { places: self.places, rested: self.rested, resting: self.resting, ..plan }
    }

    /// How many objects there may be after this: as many as before, unless the first one is written anyway.
    fn announced(&self, deleted: &BTreeSet<u32>) -> u32 {
        let present = self.layout.parts.keys().filter(|number| !deleted.contains(*number));
        let needed = present.chain(self.sheets.keys()).max().map_or(0, |last| last + 1);
        let is_lowered = self.sheets.contains_key(&0);
        if is_lowered { needed } else { needed.max(self.layout.announced) }
    }

    /// Takes what has rested out of the objects that are written.
    fn forget_rested(&mut self) {
        let external = &self.turn.after.external;
        let rested = self.sheets.iter().flat_map(|(number, sheet)| {
            let resting = sheet.part.resting.iter();
            let rested = resting.filter(move |(ip, since)| external.resting_since(ip) != Some(**since));
            rested.map(move |(ip, since)| (*since, *ip, *number))
        });
        let rested: Vec<Rest> = rested.collect();
        for rest in rested {
            self.forget(rest);
            let sheet = self.sheet(rest.2);
            sheet.part.resting.remove(&rest.1);
            sheet.set("prefixes", IpNet::from(rest.1).to_string(), Value::Null);
        }
    }

    /// Objects with nothing in them that is needed. They go along with other writes, which say where to look for the
    /// next address: what they say of it may be the latest.
    fn empty(&self) -> BTreeSet<u32> {
        if self.sheets.is_empty() {
            return BTreeSet::new();
        }
        let candidates = self.layout.empty.iter().chain(self.lightened.keys());
        let empty = candidates.filter(|number| {
            **number != 0 && !self.sheets.contains_key(*number) && self.part(**number).is_empty()
        });
        empty.copied().take(DELETED).collect()
    }
}

/// What a merge patch must say about a mapping.
fn difference(before: Option<&Mapping>, after: &Mapping) -> Value {
    let none = BTreeSet::new();
    let peers = members(before.map_or(&none, |before| &before.peers), &after.peers);
    let reflected = members(before.map_or(&none, |before| &before.reflected_to), &after.reflected_to);
    let mut all = json!({"ip": after.ip, "clusterMappings": peers});
    if !reflected.is_empty() {
        all["reflectedTo"] = reflected.into();
    }
    if before.is_some_and(|before| before.to_all != after.to_all) {
        all["allClusters"] = if after.to_all { json!(true) } else { Value::Null };
    }
    if before.is_some_and(|before| before.guest_of != after.guest_of) {
        all["guestOf"] = json!(after.guest_of);
    }
    all
}

/// What a merge patch must say about a set that is written as a map.
fn members(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Map<String, Value> {
    let added = after.difference(before).map(|peer| (peer.clone(), json!({})));
    let gone = before.difference(after).map(|peer| (peer.clone(), Value::Null));
    added.chain(gone).collect()
}
