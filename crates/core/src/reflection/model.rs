//! A namespace at home and its counterpart, in which anything may happen between any two writes: it always comes to rest,
//! and at rest every copy is as its original.

use std::collections::BTreeMap;

use ferro_api::config::ReflectionConfig;
use ferro_api::names::{annotations, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Choice, Holder, Kind, Step, Wish, choose, holder, step};
use crate::admission::Place;

const HOME: &str = "rome";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Something that happens to an object of this name.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// It is made at home, or changed.
    Write(u8),
    /// It is deleted at home.
    Delete,
    /// It opts out, or no longer does.
    OptOut(bool),
    /// The copy is changed over there.
    Tamper(u8),
    /// Somebody puts a label on the copy.
    Label,
    /// A controller over there holds the copy.
    Hold,
    /// The copy is deleted over there.
    Lose,
    /// Somebody has one of that name over there.
    Squat,
    /// Who squats leaves.
    Leave,
    /// A step is taken about it, by one who remembers nothing.
    Work,
}

/// Two API servers.
#[derive(Default)]
struct World {
    here: BTreeMap<&'static str, DynamicObject>,
    there: BTreeMap<&'static str, DynamicObject>,
    version: u64,
    writes: usize,
}

fn object(kind: &Kind, name: &str, value: u8) -> DynamicObject {
    let mut object = DynamicObject::new(name, &kind.resource());
    object.metadata.namespace = Some("shop".into());
    object.data = match kind {
        Kind::Service => {
            json!({"spec": {"type": "NodePort", "ports": [{"port": value, "nodePort": 30_000}]}})
        }
        Kind::Ingress => json!({"spec": {"rules": [{"host": format!("{value}.example.org")}]}}),
        _ => json!({"data": {"value": value.to_string()}}),
    };
    object
}

fn owner() -> OwnerReference {
    OwnerReference {
        api_version: "example.org/v1".into(),
        kind: "Balancer".into(),
        name: "front".into(),
        uid: "b1".into(),
        ..OwnerReference::default()
    }
}

impl World {
    /// As an API server stores it.
    fn stored(&mut self, mut object: DynamicObject, before: Option<&DynamicObject>) -> DynamicObject {
        self.version += 1;
        let version = self.version.to_string();
        let uid =
            before.and_then(|before| before.metadata.uid.clone()).unwrap_or_else(|| format!("uid-{version}"));
        object.metadata.uid = Some(uid);
        object.metadata.resource_version = Some(version);
        object
    }

    fn suffer(&mut self, kind: &Kind, name: &'static str, deed: Deed) {
        match deed {
            Deed::Write(value) => {
                let before = self.here.get(name).cloned();
                let stored = self.stored(object(kind, name, value), before.as_ref());
                self.here.insert(name, stored);
            }
            Deed::Delete => _ = self.here.remove(name),
            Deed::OptOut(out) => {
                if let Some(original) = self.here.get_mut(name) {
                    annotations::REFLECT.put_on(&mut original.metadata, if out { "false" } else { "" });
                }
            }
            Deed::Tamper(value) => {
                if let Some(copy) = self.there.get_mut(name).filter(|copy| is_ours(copy)) {
                    copy.data = object(kind, name, value).data;
                }
            }
            Deed::Label => {
                if let Some(copy) = self.there.get_mut(name).filter(|copy| is_ours(copy)) {
                    copy.metadata.labels.get_or_insert_default().insert("theirs".into(), "x".into());
                }
            }
            Deed::Hold => {
                if let Some(copy) = self.there.get_mut(name).filter(|copy| is_ours(copy)) {
                    copy.metadata.finalizers = Some(vec!["theirs.example.org/balancer".into()]);
                    copy.metadata.owner_references = Some(vec![owner()]);
                }
            }
            Deed::Lose => _ = self.there.remove(name),
            Deed::Squat => {
                let stored = self.stored(object(kind, name, 77), None);
                self.there.entry(name).or_insert(stored);
            }
            Deed::Leave => self.there.retain(|present, copy| *present != name || is_ours(copy)),
            Deed::Work => _ = self.work(kind, name),
        }
    }

    fn wish(&self, kind: &Kind, name: &str) -> Option<Wish> {
        let mut original = self.here.get(name)?.clone();
        let whole = original.clone();
        kind.keep_original()(&mut original);
        let node = Place { name: "liqo-turin", labels: &BTreeMap::new() };
        if choose(kind, &original, &ReflectionConfig::default(), true, node) != Choice::Goes {
            return None;
        }
        let mut wish = Wish::of(kind, &original, HOME);
        if !wish.is_complete() {
            assert!(wish.complete(kind, &whole));
        }
        Some(wish)
    }

    /// One look, and the write that comes of it. Whether there was one.
    fn work(&mut self, kind: &Kind, name: &'static str) -> bool {
        let wish = self.wish(kind, name);
        let copy = self.there.get(name).cloned().map(|mut copy| {
            kind.keep_copy()(&mut copy);
            copy
        });
        let before = self.there.get(name).cloned();
        let made = |former| wish.as_ref().map(|wish| wish.object("shop-rome", former)).unwrap();
        match step(HOME, wish.as_ref(), copy.as_ref(), None) {
            Step::Rest | Step::Taken => return false,
            Step::Create => {
                let stored = self.stored(made(None), None);
                assert!(self.there.insert(name, stored).is_none(), "a name that is taken is not written");
            }
            Step::Replace(former) => {
                let (before, put) = (before.unwrap(), made(Some(&former)));
                assert!(is_ours(&before), "what is theirs is not written");
                let (is, was) = (&put.metadata, &before.metadata);
                assert_eq!(is.resource_version, was.resource_version);
                assert_eq!(is.finalizers, was.finalizers, "a consumer may not touch them");
                assert_eq!(is.owner_references, was.owner_references);
                let stored = self.stored(put, Some(&before));
                self.there.insert(name, stored);
            }
            Step::Delete(uid) => {
                let before = before.unwrap();
                assert!(is_ours(&before) && before.metadata.uid == Some(uid));
                self.there.remove(name);
            }
        }
        self.writes += 1;
        true
    }

    fn rest(&mut self, kind: &Kind) {
        for name in NAMES {
            for turn in 0.. {
                assert!(turn < 5, "it never comes to rest");
                if !self.work(kind, name) {
                    break;
                }
            }
        }
    }

    fn assert_at_rest(&self, kind: &Kind) {
        for name in NAMES {
            let copy = self.there.get(name);
            if self.wish(kind, name).is_none() {
                assert!(copy.is_none_or(|copy| !is_ours(copy)), "nobody wants {name}");
                continue;
            }
            let copy = copy.expect("it is wanted");
            if is_ours(copy) {
                assert_eq!(kind.content(copy), kind.content(&self.here[name]));
            } else {
                let made = object(kind, name, 77).data;
                assert_eq!(copy.data, made, "what others made is as they made it");
            }
        }
    }
}

fn is_ours(copy: &DynamicObject) -> bool {
    labels::ORIGIN_ID.of(&copy.metadata) == Some(HOME)
}

fn deeds() -> impl Strategy<Value = Vec<(&'static str, Deed)>> {
    let deed = prop_oneof![
        4 => (0..4_u8).prop_map(Deed::Write),
        2 => Just(Deed::Delete),
        1 => any::<bool>().prop_map(Deed::OptOut),
        1 => (0..4_u8).prop_map(Deed::Tamper),
        1 => Just(Deed::Label),
        1 => Just(Deed::Hold),
        1 => Just(Deed::Lose),
        1 => Just(Deed::Squat),
        1 => Just(Deed::Leave),
        8 => Just(Deed::Work),
    ];
    proptest::collection::vec((proptest::sample::select(&NAMES[..]), deed), 0..60)
}

proptest! {
    #[test]
    fn whatever_happens_in_between_copies_come_to_be_as_their_originals(is_service: bool, deeds in deeds()) {
        let kind = if is_service { Kind::Service } else { Kind::ConfigMap };
        let mut world = World::default();
        for (name, deed) in deeds {
            world.suffer(&kind, name, deed);
        }
        world.rest(&kind);
        world.assert_at_rest(&kind);
        let writes = world.writes;
        world.rest(&kind);
        prop_assert_eq!(world.writes, writes, "at rest nothing is written");
        world.here.clear();
        world.rest(&kind);
        prop_assert!(world.there.values().all(|copy| !is_ours(copy)));
    }
}

#[test]
fn one_object_is_one_write_and_so_is_one_change() {
    let (kind, mut world) = (Kind::Service, World::default());
    for name in NAMES {
        world.suffer(&kind, name, Deed::Write(1));
    }
    world.rest(&kind);
    assert_eq!(world.writes, NAMES.len());
    world.suffer(&kind, "b", Deed::Write(2));
    world.rest(&kind);
    assert_eq!(world.writes, NAMES.len() + 1);
    for deed in [Deed::Label, Deed::Hold] {
        world.suffer(&kind, "b", deed);
        world.rest(&kind);
        assert_eq!(world.writes, NAMES.len() + 1, "what others add does not matter");
    }
}

#[test]
fn what_a_controller_over_there_holds_a_copy_by_outlives_every_change() {
    for kind in [Kind::Service, Kind::Secret, Kind::Ingress] {
        let mut world = World::default();
        for deed in
            [Deed::Write(1), Deed::Work, Deed::Hold, Deed::Write(2), Deed::Work, Deed::Tamper(3), Deed::Work]
        {
            world.suffer(&kind, "a", deed);
        }
        let held = &world.there["a"].metadata;
        assert_eq!(held.finalizers.as_deref(), Some(&["theirs.example.org/balancer".to_owned()][..]));
        assert_eq!(held.owner_references.as_deref(), Some(&[owner()][..]));
        let mut original = world.there["a"].clone();
        kind.keep_original()(&mut original);
        assert_eq!(original.metadata.finalizers, None, "those at home stay there, and are not kept");
    }
}

#[test]
fn an_ingress_keeps_the_class_that_its_cluster_gave_it() {
    let (kind, mut world) = (Kind::Ingress, World::default());
    world.suffer(&kind, "a", Deed::Write(1));
    world.here.get_mut("a").unwrap().data["spec"]["ingressClassName"] = "own".into();
    world.rest(&kind);
    let made = world.there.get_mut("a").unwrap();
    assert_eq!(made.data["spec"].get("ingressClassName"), None, "that of home stays there");
    made.data["spec"]["ingressClassName"] = "public".into();
    world.rest(&kind);
    assert_eq!(world.writes, 1, "to have one is no reason to write");
    world.suffer(&kind, "a", Deed::Write(2));
    world.rest(&kind);
    let spec = json!({"rules": [{"host": "2.example.org"}], "ingressClassName": "public"});
    assert_eq!((world.writes, &world.there["a"].data["spec"]), (2, &spec));
    // One that is no name is not kept here, and not given back.
    world.there.get_mut("a").unwrap().data["spec"]["ingressClassName"] = "x".repeat(254).into();
    world.suffer(&kind, "a", Deed::Write(3));
    world.rest(&kind);
    assert_eq!(world.there["a"].data["spec"], json!({"rules": [{"host": "3.example.org"}]}));
}

#[test]
fn what_a_server_makes_of_a_wish_is_taken_for_it_once_that_is_known() {
    let (kind, mut world) = (Kind::Service, World::default());
    world.suffer(&kind, "a", Deed::Write(1));
    let wish = world.wish(&kind, "a").unwrap();
    let mut answered = wish.object("shop-rome", None);
    (answered.metadata.uid, answered.metadata.resource_version) = (Some("u".into()), Some("7".into()));
    answered.data["spec"].as_object_mut().unwrap().remove("ports");
    let made = wish.otherwise(&kind, answered.clone()).unwrap();
    kind.keep_copy()(&mut answered);
    assert!(matches!(step(HOME, Some(&wish), Some(&answered), None), Step::Replace(_)));
    assert_eq!(step(HOME, Some(&wish), Some(&answered), Some(&made)), Step::Rest);
}

#[test]
fn a_slice_of_ours_says_so_and_keeps_nothing_of_home_but_its_endpoints() {
    let mut slice: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1", "annotations": {"note": "x"}, "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            "liqo.io/originID": "x"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.5"], "nodeName": "rome-1"}],
    }))
    .unwrap();
    Kind::EndpointSlice.keep_original()(&mut slice);
    let told = super::slices::outward(&slice, Some("liqo-turin"), Some).unwrap();
    let copy = Wish::of_slice(&slice, HOME, told).object("shop-rome", None);
    assert_eq!(copy.data, json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.5"]}]}));
    let labels: Value = json!(copy.metadata.labels);
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "reflection.liqo.io");
    assert_eq!(
        (&labels["kubernetes.io/service-name"], &labels["liqo.io/originID"]),
        (&json!("web"), &json!(HOME))
    );
    assert!(!copy.metadata.annotations.unwrap().contains_key("note"));
}

#[test]
fn a_slice_that_the_other_cluster_makes_of_our_service_is_its_own() {
    let mut slice: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": "web-2", "namespace": "shop-rome", "uid": "u2", "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            "liqo.io/originID": HOME, "reflection.liqo.io/reflected": "true"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.5"]}],
    }))
    .unwrap();
    Kind::EndpointSlice.keep_copy()(&mut slice);
    assert_eq!(step(HOME, None, Some(&slice), None), Step::Rest);
}

#[test]
fn a_name_is_taken_by_what_is_not_ours_and_not_by_a_copy_that_shows_late() {
    let (kind, mut world) = (Kind::Service, World::default());
    world.suffer(&kind, "a", Deed::Write(1));
    let wish = world.wish(&kind, "a").unwrap();
    let mut late = wish.object("shop-rome", None).metadata;
    late.uid = Some("u9".into());
    let whose = |kind: &Kind, home: &str, present: &ObjectMeta| holder(kind, home, &wish, present);
    assert_eq!(whose(&kind, HOME, &late), Holder::Ours);
    assert_eq!(whose(&kind, "milan", &late), Holder::Another, "it is a copy of somebody else's");
    assert_eq!(whose(&kind, HOME, &object(&kind, "a", 77).metadata), Holder::Another);
    let stray = Holder::Stray("u9".into());
    assert_eq!(whose(&Kind::EndpointSlice, HOME, &late), stray, "it is not shown by any watch");
    let mut slice = late.clone();
    labels::REFLECTED_SLICE.put_on(&mut slice);
    assert_eq!(whose(&Kind::EndpointSlice, HOME, &slice), Holder::Ours);
    labels::REFLECTED.take_off(&mut late);
    assert_eq!(whose(&kind, HOME, &late), stray);
    annotations::REFLECTED_UID.put_on(&mut late, "of another one");
    assert_eq!(whose(&kind, HOME, &late), Holder::Another);
}
