//! The rows of the contract one by one, on the world of the model with everybody at work.

mod endings;

use ferro_api::offloading::OffloadingPhase;
use serde_json::json;

use super::model::{HOME, Provider, World};
use super::{Stage, Write};

fn selector(key: &str, value: &str) -> serde_json::Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]})
}

/// Two clusters in use, of which one has a strict policy.
fn peered() -> World {
    let mut world = World::new();
    world.join("turin", &[("security-policy", "strict")]);
    world.join("milan", &[("security-policy", "lax")]);
    world.settle();
    world
}

#[test]
fn the_use_case_of_the_contract_selects_one_cluster_under_the_same_name() {
    let mut world = peered();
    world.make_namespace("ns-test");
    let spec = json!({
        "namespaceMappingStrategy": "EnforceSameName", "podOffloadingStrategy": "Remote",
        "clusterSelector": selector("security-policy", "strict"),
    });
    world.offload("ns-test", &spec);
    world.settle();
    assert_eq!(world.desired("turin"), json!({"ns-test": "ns-test"}));
    assert_eq!(
        world.current("turin"),
        json!({"ns-test": {"phase": "Accepted", "remoteNamespace": "ns-test"}})
    );
    assert!(!world.maps.contains_key("milan"), "a cluster that is not selected has no map");
    assert_eq!(world.phase("ns-test"), Some(OffloadingPhase::Ready));
    let turin = world.cluster_conditions("ns-test", "turin");
    assert_eq!(turin, [("Ready", "True", "Created"), ("OffloadingRequired", "True", "Selected")]);
}

#[test]
fn a_namespace_more_among_a_hundred_costs_one_entry_in_each_map_that_it_concerns() {
    let mut world = peered();
    for n in 0..100 {
        world.make_namespace(&format!("ns-{n}"));
        world.offload(&format!("ns-{n}"), &json!({"clusterSelector": selector("security-policy", "strict")}));
    }
    world.settle();
    world.make_namespace("one-more");
    world.offload("one-more", &json!({}));
    let writes = world.settle();
    let maps: Vec<_> = writes.iter().filter(|write| write.stage() == Stage::There).collect();
    let [Write::CreateMap(created), Write::PatchMap(patched, patch)] = maps.as_slice() else {
        panic!("{maps:?}")
    };
    assert_eq!(created.spec.desired_mapping.len(), 1);
    assert_eq!(patched, "turin");
    assert_eq!(*patch, json!({"spec": {"desiredMapping": {"one-more": format!("one-more-{HOME}")}}}));
    let about_others = |write: &&Write| write.subject() != super::Subject::Namespace("one-more");
    let others: Vec<_> =
        writes.iter().filter(about_others).filter(|write| write.stage() != Stage::There).collect();
    assert_eq!(others, Vec::<&Write>::new());
}

#[test]
fn a_node_that_is_relabelled_or_joins_changes_its_own_map_by_one_write() {
    let mut world = peered();
    for name in ["a", "b"] {
        world.make_namespace(name);
        world.offload(name, &json!({"clusterSelector": selector("security-policy", "strict")}));
    }
    world.settle();
    world.relabel("milan", &[("security-policy", "strict")]);
    let first: Vec<_> = world.plan().into_iter().filter(|write| write.stage() == Stage::There).collect();
    let [Write::CreateMap(map)] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(map.spec.desired_mapping.len(), 2);
    let mut world = world.after(first);
    world.settle();
    world.relabel("turin", &[]);
    let second: Vec<_> = world.plan().into_iter().filter(|write| write.stage() == Stage::There).collect();
    assert_eq!(
        second,
        [Write::PatchMap("turin".into(), json!({"spec": {"desiredMapping": {"a": null, "b": null}}}))]
    );
}

#[test]
fn what_changes_nothing_yields_nothing() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.touch_everything();
    assert_eq!(world.plan(), []);
}

#[test]
fn the_label_makes_the_default_offloading_and_takes_only_its_own_away() {
    let mut world = peered();
    for name in ["by-label", "by-hand"] {
        world.make_namespace(name);
    }
    let by_hand = json!({"podOffloadingStrategy": "Local"});
    world.offload("by-hand", &by_hand);
    for name in ["by-label", "by-hand"] {
        world.label(name, true);
    }
    world.settle();
    let made = &world.offloadings["by-label"];
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["offloading.liqo.io/created-by-label"], "true");
    let printed = json!({
        "namespaceMappingStrategy": "DefaultName", "podOffloadingStrategy": "LocalAndRemote",
        "clusterSelector": selector("liqo.io/type", "virtual-node"),
    });
    assert_eq!(json!(made.spec), printed);
    assert_eq!(json!(world.offloadings["by-hand"].spec), by_hand);
    for name in ["by-label", "by-hand"] {
        world.label(name, false);
    }
    world.settle();
    assert!(!world.offloadings.contains_key("by-label") && world.offloadings.contains_key("by-hand"));
    assert!(!world.is_admitted("by-label") && world.is_admitted("by-hand"));
}

#[test]
fn a_label_on_a_namespace_with_too_long_a_name_is_answered_once_on_the_namespace() {
    let mut world = peered();
    let long = "a".repeat(27);
    world.make_namespace(&long);
    world.label(&long, true);
    let writes = world.settle();
    let [Write::Refuse(_, _, Some(notice))] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(notice.warning && notice.note.contains("at most 26 characters"), "{}", notice.note);
    assert!(world.offloadings.is_empty());
    world.touch_everything();
    assert_eq!(world.plan(), []);
    world.label(&long, false);
    assert!(matches!(world.settle().as_slice(), [Write::Refuse(_, _, None)]));
}

#[test]
fn names_that_cannot_be_had_fail_with_the_reason_and_nothing_is_asked_for() {
    let mut world = peered();
    let same = json!({"namespaceMappingStrategy": "EnforceSameName"});
    for (name, spec, reason) in [
        ("kube-system", &same, "NameReserved"),
        ("installed-here", &same, "NameReserved"),
        ("a-name-of-twenty-seven-char", &json!({}), "NameTooLong"),
    ] {
        world.make_namespace(name);
        world.offload(name, spec);
        world.settle();
        assert_eq!(world.phase(name), Some(OffloadingPhase::AllFailed));
        assert_eq!(world.ready(name).1, reason);
        assert_eq!(world.cluster_conditions(name, "turin")[0], ("Ready", "False", reason));
        assert!(world.maps.is_empty());
        world.delete(name);
        world.settle();
        assert!(!world.offloadings.contains_key(name));
    }
}

#[test]
fn pods_that_no_webhook_sees_are_not_offloaded_and_their_services_may_be() {
    let mut world = peered();
    for name in ["kube-system", "installed-here"] {
        world.make_namespace(name);
        world.label(name, true);
        let writes = world.settle();
        let [Write::Refuse(_, _, Some(notice))] = writes.as_slice() else { panic!("{writes:?}") };
        assert!(notice.reason == "PodsUnguarded" && notice.note.contains("Local"), "{}", notice.note);
        world.label(name, false);
        world.offload(name, &json!({}));
        world.settle();
        assert_eq!(world.phase(name), Some(OffloadingPhase::AllFailed));
        assert_eq!(world.cluster_conditions(name, "turin")[0], ("Ready", "False", "PodsUnguarded"));
        assert!(!world.is_admitted(name) && world.maps.is_empty());
        world.delete(name);
        world.settle();
    }
    world.offload("kube-system", &json!({"podOffloadingStrategy": "Local"}));
    world.settle();
    assert_eq!(world.phase("kube-system"), Some(OffloadingPhase::Ready));
}

#[test]
fn of_two_that_want_one_name_the_older_has_it_and_the_later_gets_it_when_it_is_free() {
    let mut world = peered();
    let later = format!("a-{HOME}");
    world.make_namespace("a");
    world.make_namespace(&later);
    world.offload("a", &json!({}));
    world.offload(&later, &json!({"namespaceMappingStrategy": "EnforceSameName"}));
    world.settle();
    assert_eq!(world.desired("turin"), json!({"a": later}));
    assert_eq!(world.phase(&later), Some(OffloadingPhase::AllFailed));
    let (_, reason, message) = world.ready(&later);
    assert!(reason == "NameTaken" && message.contains("the namespace a has the name"), "{message}");
    world.delete("a");
    world.settle();
    assert_eq!(world.desired("turin"), json!({&later: later}));
    assert_eq!(world.phase(&later), Some(OffloadingPhase::Ready));
}

#[test]
fn who_has_a_name_is_not_driven_out_by_an_older_one() {
    let mut world = peered();
    let younger = format!("a-{HOME}");
    world.make_namespace("a");
    world.make_namespace(&younger);
    world.offload("a", &json!({"clusterSelector": selector("security-policy", "lax")}));
    world.settle();
    let same = json!({"namespaceMappingStrategy": "EnforceSameName", "clusterSelector": selector("security-policy", "strict")});
    world.offload(&younger, &same);
    world.settle();
    world.reselect("a", &json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}]}));
    world.settle();
    assert_eq!(world.desired("turin"), json!({&younger: younger}));
    assert_eq!(world.desired("milan"), json!({"a": younger}));
    assert_eq!(world.phase("a"), Some(OffloadingPhase::SomeFailed));
}

#[test]
fn what_a_peer_says_is_shown_cut_short_and_harmless() {
    let mut world = peered();
    world.provider("turin", Provider::Refuses(format!("no\u{1b}[2J{}", "!".repeat(900))));
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::SomeFailed));
    let (_, reason, message) = world.ready("a");
    assert!(reason == "CreationFailed" && message.len() < 600 && !message.contains('\u{1b}'), "{message}");
    assert!(message.contains("turin") && message.contains("no [2J!"), "{message}");
}

#[test]
fn a_peer_that_answers_with_another_name_than_it_was_asked_for_is_not_asked_in_circles() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({"clusterSelector": selector("security-policy", "strict")}));
    world.settle();
    let desired = world.desired("turin");
    let status = world.maps.get_mut("turin").unwrap().status.as_mut().unwrap();
    status.current_mapping.get_mut("a").unwrap().remote_namespace = Some("elsewhere".into());
    world.touch_everything();
    assert!(world.plan().iter().all(|write| write.stage() != Stage::There), "{:?}", world.plan());
    assert_eq!(world.desired("turin"), desired);
}

#[test]
fn nothing_is_failed_as_long_as_a_peer_has_not_answered() {
    let mut world = peered();
    world.provider("milan", Provider::Silent);
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    assert_eq!(world.phase("a"), None);
    assert_eq!(world.ready("a").1, "WaitsForPeers");
    world.provider("milan", Provider::Answers);
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::Ready));
}

#[test]
fn no_selection_is_explained() {
    let mut world = World::new();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::NoClusterSelected));
    assert!(world.ready("a").2.contains("ferro explain a"));
    world.join("turin", &[]);
    world.reselect("a", &json!({"nodeSelectorTerms": []}));
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::NoClusterSelected));
    assert!(world.ready("a").2.contains("ferro explain a"));
    let wrong = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Gt", "values": ["y"]}]}]});
    world.reselect("a", &wrong);
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::NoClusterSelected));
    assert_eq!(world.ready("a").1, "SelectorInvalid");
}

#[test]
fn an_event_tells_of_each_change_once_and_of_pods_that_have_to_be_restarted() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    let told = |writes: Vec<Write>| -> Vec<String> {
        let notice = |write: Write| match write {
            Write::Admit(_, notice) | Write::Show(_, _, notice) | Write::Refuse(_, _, notice) => notice,
            _ => None,
        };
        writes.into_iter().filter_map(notice).map(|notice| notice.reason).collect()
    };
    assert_eq!(told(world.settle()), ["RestartPods", "Ready"]);
    world.touch_everything();
    assert_eq!(told(world.settle()), Vec::<String>::new());
    world.make_namespace("b");
    world.offload("b", &json!({"podOffloadingStrategy": "Local"}));
    assert_eq!(told(world.settle()), ["Ready"]);
}

#[test]
fn conditions_keep_the_time_of_their_last_change() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    let since = |world: &World| {
        let status = world.offloadings["a"].status.clone().unwrap();
        (
            status.conditions[0].last_transition_time.clone(),
            status.remote_namespaces_conditions["turin"].clone(),
        )
    };
    let before = since(&world);
    world.wait(100);
    world.reselect("a", &selector("security-policy", "strict"));
    world.settle();
    assert_eq!(since(&world), before);
}
