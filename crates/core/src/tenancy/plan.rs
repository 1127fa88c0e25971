//! From a snapshot to what is made, removed and shown.

use std::collections::BTreeMap;

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::delegation::delegated;
use super::furniture::{self, Furniture, Item, Kind};
use super::life::{is_going, is_held};
use super::mapping::{Mapping, Verdict, name_of, origin_of};
use super::report::Report;
use super::{Map, Plan, Snapshot, Terms, Write};
use crate::replication::difference;

/// So many namespaces are made or changed before it is shown what there is: the first ones need not wait for the last.
const AT_ONCE: usize = 64;
/// The label by which Kubernetes enforces a Pod Security level.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

/// All there are.
const ANY_NETWORK: &str = "0.0.0.0/0,::/0";

/// What to do about a Tenant now.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let (mut writes, may_go_on) = snapshot.keep_tenant();
    if !may_go_on {
        return Plan { writes, ..Plan::default() };
    }
    let unsaid = TenantSpec::default();
    let spec = snapshot.tenant.map_or(&unsaid, |tenant| &tenant.spec);
    let terms = Terms::of(spec, snapshot.config, snapshot.offered);
    let (mapping, delegated) = (Mapping::of(snapshot, &terms), delegated(snapshot));
    let furniture = Furniture::of(snapshot, &terms, &delegated);
    let look = Look { snapshot, furniture, marks: marks(snapshot, &terms), present: present(snapshot) };
    let rooms = look.rooms(&mapping);
    let report = Report { snapshot, terms: &terms, mapping: &mapping, rooms: &rooms, delegated: &delegated };
    let (shown, notices) = report.shown();
    writes.extend(
        rooms.into_values().filter(|room| !room.writes.is_empty()).take(AT_ONCE).flat_map(|room| room.writes),
    );
    writes.extend(look.beside());
    writes.extend(snapshot.release_tenant());
    Plan { writes, shown, notices }
}

/// What there is of each namespace, and beside them all, by kind and name.
type Present<'a> = BTreeMap<Option<&'a str>, BTreeMap<(Kind, &'a str), &'a DynamicObject>>;

fn present<'a>(snapshot: &Snapshot<'a>) -> Present<'a> {
    let mut present = Present::new();
    for (kind, object) in snapshot.furniture {
        let meta = &object.metadata;
        let within = present.entry(meta.namespace.as_deref()).or_default();
        within.insert((*kind, meta.name.as_deref().unwrap_or_default()), *object);
    }
    present
}

/// Everything by which any namespace is known as the Tenant's; where it comes from, each says for itself.
fn marks(snapshot: &Snapshot<'_>, terms: &Terms) -> ObjectMeta {
    let (mut meta, consumer) = (ObjectMeta::default(), &snapshot.consumer.cluster_id);
    labels::PART_OF.put_on(&mut meta);
    labels::TENANT.put_on(&mut meta, consumer);
    labels::ORIGIN_ID.put_on(&mut meta, consumer);
    let level = terms.pod_security.as_str();
    meta.labels.get_or_insert_default().insert(POD_SECURITY.to_owned(), level.to_owned());
    annotations::NETWORKS.put_on(&mut meta, networks(snapshot));
    meta
}

/// Where endpoints of the consumer may lie.
fn networks(snapshot: &Snapshot<'_>) -> String {
    if snapshot.is_joined_elsewhere {
        return ANY_NETWORK.to_owned();
    }
    snapshot.views.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// One namespace of a Tenant.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What is to be done about it.
    pub(super) writes: Vec<Write>,
    /// Whether everything that belongs there is there, as it is wanted now or was before.
    pub(super) is_complete: bool,
}

/// A snapshot, and what follows from it for every namespace: made once, however many there are.
struct Look<'a> {
    snapshot: &'a Snapshot<'a>,
    furniture: Furniture<'a>,
    marks: ObjectMeta,
    present: Present<'a>,
}

impl Look<'_> {
    /// All namespaces that the Tenant has, gets or loses. Nothing is done about one that is in trouble.
    fn rooms(&self, mapping: &Mapping<'_>) -> BTreeMap<String, Room> {
        let asked = mapping.entries.iter().filter_map(|entry| match &entry.verdict {
            Verdict::Keep(namespace) => Some((entry.name, self.keep(entry.origin, namespace))),
            Verdict::Create => Some((entry.name, self.make(entry.origin, entry.name))),
            Verdict::Wait | Verdict::Refuse(_) => None,
        });
        let left = mapping.leftovers.iter().map(|namespace| (name_of(namespace), self.remove(namespace)));
        let mut rooms: BTreeMap<String, Room> =
            asked.chain(left).map(|(name, room)| (name.to_owned(), room)).collect();
        for name in self.snapshot.troubles.keys() {
            if let Some(room) = rooms.get_mut(name) {
                room.writes.clear();
            }
        }
        rooms
    }

    fn keep(&self, origin: &str, namespace: &Namespace) -> Room {
        let name = name_of(namespace);
        let stamp = self.stamp(origin, namespace).map(|patch| Write::StampNamespace(name.to_owned(), patch));
        let wanted = self.furniture.within(name);
        let there = self.present.get(&Some(name));
        let is_there = |item: &&Item| there.is_some_and(|there| there.contains_key(&item.key()));
        let is_complete = wanted.iter().all(is_there);
        Room { writes: stamp.into_iter().chain(self.arrange(&wanted, Some(name))).collect(), is_complete }
    }

    fn make(&self, origin: &str, name: &str) -> Room {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata: self.stamped(metadata, origin), ..Namespace::default() };
        let create = [Write::CreateNamespace(Box::new(namespace))];
        let furnish = self.arrange(&self.furniture.within(name), Some(name));
        let writes = create.into_iter().chain(furnish).collect();
        Room { writes, is_complete: false }
    }

    /// A map that cannot be read is no reason to remove anything, unless the Tenant goes anyway.
    fn remove(&self, namespace: &Namespace) -> Room {
        let is_frozen = matches!(self.snapshot.map, Map::Unusable) && self.snapshot.is_open();
        if is_frozen || is_going(&namespace.metadata) {
            return Room { is_complete: is_frozen, ..Room::default() };
        }
        Room { writes: vec![Write::DeleteNamespace(name_of(namespace).to_owned())], is_complete: false }
    }

    /// With everything by which a namespace is known as the Tenant's.
    fn stamped(&self, mut meta: ObjectMeta, origin: &str) -> ObjectMeta {
        let marks = self.marks.clone();
        meta.labels.get_or_insert_default().extend(marks.labels.into_iter().flatten());
        meta.annotations.get_or_insert_default().extend(marks.annotations.into_iter().flatten());
        annotations::ORIGIN_NAMESPACE.put_on(&mut meta, origin);
        meta
    }

    fn stamp(&self, origin: &str, namespace: &Namespace) -> Option<Value> {
        let meta = &namespace.metadata;
        if origin_of(namespace) == Some(origin) && furniture::carries(meta, &self.marks) {
            return None;
        }
        let shown =
            |meta: &ObjectMeta| json!({"metadata": {"labels": meta.labels, "annotations": meta.annotations}});
        difference(&shown(meta), &shown(&self.stamped(meta.clone(), origin)))
    }

    /// What is beside the namespaces: owners see their Tenant as long as there is anything to see.
    fn beside(&self) -> Vec<Write> {
        let snapshot = self.snapshot;
        let is_ending =
            |tenant| is_held(tenant) && !snapshot.forced && !snapshot.namespaces.of_tenant().is_empty();
        let is_wanted =
            snapshot.is_open() || snapshot.tenant.is_some_and(|tenant| is_ending(&tenant.metadata));
        let arrange = |wanted: Vec<Item>, namespace: Option<&str>| {
            let wanted: Vec<&Item> = wanted.iter().filter(|_| is_wanted).collect();
            self.arrange(&wanted, namespace)
        };
        let control = snapshot.control.filter(|control| !snapshot.troubles.contains_key(*control));
        let at_desk = control.map(|control| arrange(furniture::desk(snapshot), Some(control)));
        [arrange(furniture::window(snapshot), None), at_desk.unwrap_or_default()].concat()
    }

    /// What is missing or different, then what does not belong there any more.
    fn arrange(&self, wanted: &[&Item], namespace: Option<&str>) -> Vec<Write> {
        let nothing = BTreeMap::new();
        let there = self.present.get(&namespace).unwrap_or(&nothing);
        let is_surplus = |key: &&(Kind, &str)| !wanted.iter().any(|item| item.key() == **key);
        let surplus: Vec<Write> = there
            .keys()
            .filter(is_surplus)
            .map(|(kind, name)| Write::Remove(*kind, namespace.map(str::to_owned), (*name).to_owned()))
            .collect();
        let put = wanted.iter().filter_map(|item| match there.get(&item.key()) {
            Some(present) if item.is_met_by(present) => None,
            Some(present) => Some(item.placed(namespace, Some(&present.metadata))),
            None => Some(item.placed(namespace, None)),
        });
        put.map(|item| Write::Put(Box::new(item))).chain(surplus).collect()
    }
}
