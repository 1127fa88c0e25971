//! Copies as both API servers would see them, one by one and under random changes.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::patch::apply;
use super::{Link, MOST_LEFTOVERS, Plan, Problem, Rule, Write, plan, rules};

const LINK: Link<'static> = Link { us: "us", peer: "peer", namespace: "liqo-tenant-us" };

fn offers() -> Rule {
    rules(&[]).into_iter().find(|rule| rule.resource.resource == "resourceoffers").unwrap()
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn original(name: &str, spec: &Value) -> DynamicObject {
    object(json!({
        "apiVersion": "sharing.liqo.io/v1alpha1",
        "kind": "ResourceOffer",
        "metadata": {
            "name": name,
            "namespace": "liqo-tenant-peer",
            "uid": format!("uid-{name}"),
            "generation": 1,
            "labels": {"liqo.io/replication": "true", "liqo.io/remoteID": "peer", "other": "label"},
            "finalizers": ["liqo.io/replication"],
        },
        "spec": spec,
    }))
}

fn copy(name: &str, spec: &Value, status: &Value) -> DynamicObject {
    object(json!({
        "metadata": {
            "name": name,
            "uid": format!("remote-{name}"),
            "labels": {
                "liqo.io/replicated": "true", "liqo.io/originID": "us", "liqo.io/remoteID": "peer",
            },
            "annotations": {"liqo.io/origin-version": format!("uid-{name}/1")},
        },
        "spec": spec,
        "status": status,
    }))
}

fn writes(local: &[DynamicObject], remote: &[DynamicObject]) -> Vec<Write> {
    let Plan { writes, problems } = plan(&LINK, &offers(), local, remote);
    assert_eq!(problems, []);
    writes
}

fn deleted(mut object: DynamicObject) -> DynamicObject {
    object.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
    object
}

#[test]
fn a_copy_has_the_content_and_our_marks_and_nothing_else() {
    let mut original = original("x", &json!({"clusterId": "us"}));
    original.metadata.finalizers = None;
    let writes = writes(&[original], &[]);
    let [Write::Hold(held), Write::CreateRemote(copy)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(held, "x");
    let expected = json!({
        "apiVersion": "sharing.liqo.io/v1alpha1",
        "kind": "ResourceOffer",
        "metadata": {
            "name": "x",
            "namespace": "liqo-tenant-us",
            "labels": {
                "liqo.io/replicated": "true", "liqo.io/originID": "us", "liqo.io/remoteID": "peer",
            },
            "annotations": {"liqo.io/origin-version": "uid-x/1"},
        },
        "spec": {"clusterId": "us"},
    });
    assert_eq!(json!(copy), expected);
}

#[test]
fn what_is_not_marked_or_for_another_peer_is_not_copied() {
    let mut unmarked = original("x", &json!({}));
    unmarked.metadata.labels.as_mut().unwrap().remove("liqo.io/replication");
    unmarked.metadata.finalizers = None;
    let mut other = original("y", &json!({}));
    other.metadata.labels.as_mut().unwrap().insert("liqo.io/remoteID".into(), "other".into());
    other.metadata.finalizers = None;
    let mut from_peer = original("z", &json!({}));
    from_peer.metadata.labels.as_mut().unwrap().insert("liqo.io/replicated".into(), "true".into());
    assert_eq!(writes(&[unmarked, other, from_peer], &[]), []);
}

#[test]
fn only_what_differs_is_written_and_nothing_when_nothing_does() {
    let same = json!({"clusterId": "us", "labels": {"a": "1"}});
    assert_eq!(writes(&[original("x", &same)], &[copy("x", &same, &json!({}))]), []);

    let local = original("x", &json!({"clusterId": "us", "labels": {"a": "2"}}));
    let remote = copy("x", &json!({"clusterId": "us", "labels": {"a": "1", "b": "1"}}), &json!({}));
    let patch = json!({
        "metadata": {"annotations": {"liqo.io/origin-version": "uid-x/1"}},
        "spec": {"labels": {"a": "2", "b": null}},
    });
    assert_eq!(writes(&[local], &[remote]), [Write::PatchRemote("x".into(), patch)]);
}

#[test]
fn a_confirmation_written_to_the_copy_is_left_alone() {
    let local = original("x", &json!({"clusterId": "us"}));
    let remote = copy("x", &json!({"clusterId": "us", "renewTime": "2025-01-01T00:00:00Z"}), &json!({}));
    assert_eq!(writes(&[local], &[remote]), []);
}

#[test]
fn a_field_that_the_other_api_server_adds_is_removed_once_and_then_left_alone() {
    let mut local = original("x", &json!({"clusterId": "us"}));
    let mut remote = copy("x", &json!({"clusterId": "us", "newField": true}), &json!({}));
    assert_eq!(writes(&[local.clone()], &[remote.clone()]), []);
    local.metadata.generation = Some(2);
    let writes_of_new_version = writes(&[local.clone()], &[remote.clone()]);
    assert_eq!(writes_of_new_version.len(), 1);
    remote.metadata.annotations.as_mut().unwrap().insert("liqo.io/origin-version".into(), "uid-x/2".into());
    assert_eq!(writes(&[local], &[remote]), []);
}

#[test]
fn only_the_allowed_fields_of_a_status_come_back() {
    let status = json!({
        "phase": "Accepted",
        "observedGeneration": 7,
        "conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 7}],
        "invented": "x",
    });
    let mut local = original("x", &json!({}));
    local.data["status"] = json!({"phase": "Pending", "virtualKubeletStatus": "Created", "ours": true});
    let patch = json!({"status": {
        "phase": "Accepted",
        "conditions": [{"type": "Accepted", "status": "True"}],
        "virtualKubeletStatus": null,
    }});
    let expected = [Write::PatchLocalStatus("x".into(), patch)];
    assert_eq!(writes(&[local], &[copy("x", &json!({}), &status)]), expected);
}

#[test]
fn without_a_copy_no_earlier_answer_holds() {
    let mut local = original("x", &json!({}));
    local.data["status"] = json!({"phase": "Accepted", "ours": true});
    let writes = writes(&[local], &[]);
    let reset = Write::PatchLocalStatus("x".into(), json!({"status": {"phase": null}}));
    assert!(matches!(writes.as_slice(), [first, Write::CreateRemote(_)] if *first == reset), "{writes:?}");
}

#[test]
fn a_status_without_measure_is_reported_and_not_taken_over() {
    let mut deep = json!(1);
    for _ in 0..20 {
        deep = json!([deep]);
    }
    let bad = [json!({"phase": "x".repeat(20_000)}), json!({"phase": deep}), json!("Accepted")];
    for status in bad {
        let plan = plan(&LINK, &offers(), &[original("x", &json!({}))], &[copy("x", &json!({}), &status)]);
        assert_eq!(plan.writes, []);
        assert!(matches!(plan.problems.as_slice(), [Problem::BadStatus { .. }]), "{:?}", plan.problems);
    }
}

#[test]
fn what_somebody_else_made_is_never_touched() {
    let mut foreign = copy("x", &json!({"clusterId": "them"}), &json!({"phase": "Accepted"}));
    foreign.metadata.labels = None;
    let wanted = plan(&LINK, &offers(), &[original("x", &json!({}))], &[foreign.clone()]);
    assert_eq!((wanted.writes, wanted.problems), (vec![], vec![Problem::NotOurs("x".into())]));
    let going = plan(&LINK, &offers(), &[deleted(original("x", &json!({})))], &[foreign.clone()]);
    assert_eq!((going.writes, going.problems), (vec![Write::Release("x".into())], vec![]));
    assert_eq!(writes(&[], &[foreign]), []);
}

#[test]
fn an_original_goes_only_after_its_copy() {
    let going = deleted(original("x", &json!({})));
    let copy = copy("x", &json!({}), &json!({}));
    let delete = Write::DeleteRemote("x".into(), Some("remote-x".into()));
    assert_eq!(writes(std::slice::from_ref(&going), std::slice::from_ref(&copy)), [delete]);
    assert_eq!(writes(std::slice::from_ref(&going), &[deleted(copy)]), []);
    assert_eq!(writes(&[going], &[]), [Write::Release("x".into())]);
}

#[test]
fn an_object_that_loses_its_mark_loses_its_copy() {
    let mut unmarked = original("x", &json!({}));
    unmarked.metadata.labels = None;
    let delete = Write::DeleteRemote("x".into(), Some("remote-x".into()));
    assert_eq!(writes(&[unmarked.clone()], &[copy("x", &json!({}), &json!({}))]), [delete]);
    assert_eq!(writes(&[unmarked], &[]), [Write::Release("x".into())]);
}

#[test]
fn the_copy_of_an_earlier_object_of_that_name_is_replaced_and_says_nothing() {
    let mut again = original("x", &json!({}));
    again.metadata.uid = Some("another".into());
    let stale = copy("x", &json!({}), &json!({"phase": "Accepted"}));
    assert_eq!(writes(&[again], &[stale]), [Write::DeleteRemote("x".into(), Some("remote-x".into()))]);
}

#[test]
fn leftovers_after_a_long_cut_are_removed_and_a_flood_of_them_little_by_little() {
    let leftover = |n| copy(&format!("x{n}"), &json!({}), &json!({}));
    assert_eq!(writes(&[], &[leftover(1)]), [Write::DeleteRemote("x1".into(), Some("remote-x1".into()))]);
    let flood: Vec<_> = (0..250).map(leftover).collect();
    let plan = plan(&LINK, &offers(), &[], &flood);
    assert_eq!(plan.writes.len(), MOST_LEFTOVERS);
    assert_eq!(plan.problems, [Problem::ManyLeftovers(250)]);
}

/// Both ends, as their API servers keep them.
#[derive(Default)]
struct World {
    local: BTreeMap<String, DynamicObject>,
    remote: BTreeMap<String, DynamicObject>,
    made: u32,
}

impl World {
    fn plan(&self) -> Plan {
        let list = |objects: &BTreeMap<_, DynamicObject>| objects.values().cloned().collect::<Vec<_>>();
        plan(&LINK, &offers(), &list(&self.local), &list(&self.remote))
    }

    fn perform(&mut self, write: Write) {
        match write {
            Write::Hold(name) => {
                let meta = &mut self.local.get_mut(&name).unwrap().metadata;
                meta.finalizers = Some(vec!["liqo.io/replication".into()]);
            }
            Write::Release(name) => {
                let object = self.local.get_mut(&name).unwrap();
                object.metadata.finalizers = None;
                if object.metadata.deletion_timestamp.is_some() {
                    self.local.remove(&name);
                }
            }
            Write::CreateRemote(mut copy) => {
                self.made += 1;
                copy.metadata.uid = Some(format!("remote-{}", self.made));
                let taken = self.remote.insert(copy.metadata.name.clone().unwrap(), *copy);
                assert!(taken.is_none(), "created over {taken:?}");
            }
            Write::PatchRemote(name, patch) => patched(&mut self.remote, &name, &patch),
            Write::DeleteRemote(name, uid) => {
                assert_eq!(self.remote.remove(&name).unwrap().metadata.uid, uid);
            }
            Write::PatchLocalStatus(name, patch) => patched(&mut self.local, &name, &patch),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Set(name, value) => {
                self.made += 1;
                let object = self.local.entry(name.into()).or_insert_with(|| {
                    let mut object = original(name, &json!({}));
                    object.metadata.uid = Some(format!("local-{}", self.made));
                    object.metadata.finalizers = None;
                    object
                });
                if object.metadata.deletion_timestamp.is_none() {
                    object.data["spec"] = json!({"clusterId": "us", "labels": {value: "x"}});
                    object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
                }
            }
            Action::Delete(name) => {
                if let Some(object) = self.local.remove(name)
                    && object.metadata.finalizers.is_some()
                {
                    self.local.insert(name.into(), deleted(object));
                }
            }
            Action::Answer(name, phase) => {
                if let Some(copy) = self.remote.get_mut(name) {
                    copy.data["status"] = json!({"phase": phase});
                }
            }
        }
    }
}

fn patched(objects: &mut BTreeMap<String, DynamicObject>, name: &str, patch: &Value) {
    let object = objects.get_mut(name).unwrap();
    let mut value = json!(object);
    apply(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Set(&'static str, &'static str),
    Delete(&'static str),
    Answer(&'static str, &'static str),
}

fn actions() -> impl Strategy<Value = Action> {
    let name = || proptest::sample::select(vec!["x", "y"]);
    let value = || proptest::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Action::Set(name, value)),
        name().prop_map(Action::Delete),
        (name(), value()).prop_map(|(name, value)| Action::Answer(name, value)),
    ]
}

proptest! {
    /// Whatever happened, and wherever the work was cut off, both ends agree as soon as it is left in peace.
    #[test]
    fn both_ends_agree_in_the_end(steps in proptest::collection::vec((actions(), 0_usize..4), 0..40)) {
        let mut world = World::default();
        for (action, cut) in steps {
            world.act(action);
            for write in world.plan().writes.into_iter().take(cut) {
                world.perform(write);
            }
        }
        for _ in 0..8 {
            world.plan().writes.into_iter().for_each(|write| world.perform(write));
        }
        prop_assert_eq!(world.plan(), Plan::default());
        prop_assert_eq!(world.local.keys().collect::<Vec<_>>(), world.remote.keys().collect::<Vec<_>>());
        for (original, copy) in world.local.values().zip(world.remote.values()) {
            prop_assert_eq!(&original.data["spec"], &copy.data["spec"]);
            let phase = |object: &DynamicObject| object.data.pointer("/status/phase").cloned();
            prop_assert_eq!(phase(original), phase(copy));
        }
    }
}
