//! How namespaces go: with the peer, without it, with the peering, and with what somebody deleted.

use ferro_api::offloading::OffloadingPhase;
use serde_json::json;

use super::{peered, selector};
use crate::offloading::model::{HOME, Provider};
use crate::offloading::{Stage, Subject, Write};

#[test]
fn an_offloading_that_goes_waits_for_the_peer_and_says_so() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.provider("turin", Provider::Silent);
    world.delete("a");
    world.settle();
    assert_eq!(world.phase("a"), Some(OffloadingPhase::Terminating));
    let (_, reason, message) = world.ready("a");
    assert!(
        reason == "RemoteNamespacesGo" && message.contains("turin") && !message.contains("milan"),
        "{message}"
    );
    assert_eq!(world.desired("turin"), json!({}), "the entry goes at once");
    assert!(!world.is_admitted("a"));
    let left = &world.offloadings["a"].status.as_ref().unwrap().remote_namespaces_conditions;
    assert_eq!(left.keys().collect::<Vec<_>>(), ["turin"]);
    world.hear("turin", "Unreachable");
    world.settle();
    assert_eq!(world.ready("a").1, "PeerUnreachable");
    world.provider("turin", Provider::Answers);
    world.settle();
    assert!(!world.offloadings.contains_key("a"));
}

#[test]
fn force_or_the_end_of_the_peering_releases_an_offloading_that_goes() {
    for unpeer in [false, true] {
        let mut world = peered();
        world.make_namespace("a");
        world.offload("a", &json!({}));
        world.settle();
        world.provider("turin", Provider::Silent);
        world.delete("a");
        world.settle();
        assert!(world.offloadings.contains_key("a"));
        if unpeer {
            world.unpeer("turin", true);
        } else {
            world.force("a");
        }
        world.settle();
        assert!(!world.offloadings.contains_key("a"));
    }
}

#[test]
fn an_entry_that_nobody_could_take_away_is_not_forgotten_with_its_offloading() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.delete("a");
    world.force("a");
    world.fail_at_maps();
    assert!(!world.offloadings.contains_key("a"));
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}));
    world.settle();
    assert_eq!(world.desired("turin"), json!({}));
}

#[test]
fn a_peering_that_ends_empties_its_map_and_then_removes_it() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.unpeer("turin", false);
    let writes = world.settle();
    let about_turin: Vec<_> =
        writes.iter().filter(|write| write.subject() == Subject::Cluster("turin")).collect();
    let emptied = Write::PatchMap("turin".into(), json!({"spec": {"desiredMapping": null}}));
    let [first, Write::DeleteMap(_), Write::LetGoMap(_)] = about_turin.as_slice() else {
        panic!("{about_turin:?}")
    };
    assert_eq!(**first, emptied);
    assert!(!world.maps.contains_key("turin"));
    assert_eq!(world.phase("a"), Some(OffloadingPhase::Ready), "it is on all clusters that are left");
    assert_eq!(world.cluster_conditions("a", "turin"), []);
}

#[test]
fn a_node_that_somebody_deleted_takes_no_namespace_along() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.lose_node("turin");
    world.settle();
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}));
    world.make_namespace("b");
    world.offload("b", &json!({}));
    world.settle();
    assert_eq!(world.desired("turin").as_object().unwrap().len(), 1, "nothing is added without a node");
}

#[test]
fn a_map_that_somebody_deleted_is_made_again_when_its_copy_is_gone() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.delete_map("turin");
    world.settle();
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}));
    assert_eq!(world.phase("a"), Some(OffloadingPhase::Ready));
}

#[test]
fn a_name_that_was_left_behind_goes_before_another_is_asked_for() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.provider("turin", Provider::Silent);
    world.delete("a");
    world.settle();
    world.force("a");
    world.settle();
    world.offload("a", &json!({"namespaceMappingStrategy": "EnforceSameName"}));
    world.settle();
    assert_eq!((world.desired("turin"), world.desired("milan")), (json!({}), json!({"a": "a"})));
    world.provider("turin", Provider::Answers);
    world.settle();
    assert_eq!(world.desired("turin"), json!({"a": "a"}));
}

#[test]
fn the_entry_of_a_dropped_cluster_goes_after_its_pods_and_costs_one_patch() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.run("a", "turin");
    assert_eq!(world.settle(), vec![], "pods that come cost nothing");
    world.reselect("a", &selector("security-policy", "lax"));
    let first = world.plan();
    assert!(matches!(first.as_slice(), [Write::Show(..)]), "{first:?}");
    let mut world = world.after(first);
    let turin = world.cluster_conditions("a", "turin");
    assert_eq!(turin, [("Ready", "False", "PodsGo"), ("OffloadingRequired", "False", "NotSelected")]);
    assert_eq!(world.plan(), vec![], "it waits");
    let writes = world.settle();
    let maps: Vec<_> = writes.iter().filter(|write| write.stage() == Stage::There).collect();
    assert_eq!(maps, [&Write::PatchMap("turin".into(), json!({"spec": {"desiredMapping": {"a": null}}}))]);
    assert_eq!(world.cluster_conditions("a", "turin"), []);
}

#[test]
fn with_pods_on_a_peer_that_is_cut_off_an_offloading_that_goes_waits_unless_it_is_forced() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.run("a", "turin");
    world.provider("turin", Provider::Silent);
    world.delete("a");
    world.settle();
    let (_, reason, message) = world.ready("a");
    assert!(reason == "PodsGo" && message.contains("turin"), "{message}");
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}), "its pods are still there");
    assert_eq!(world.desired("milan"), json!({}));
    world.hear("turin", "Unreachable");
    world.settle();
    assert_eq!(world.ready("a").1, "PeerUnreachable");
    world.force("a");
    world.settle();
    assert!(!world.offloadings.contains_key("a"));
    assert_eq!(world.desired("turin"), json!({}));
}

#[test]
fn until_pods_were_looked_at_nothing_is_dropped() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.delete("a");
    let writes = world.plan_unlooked("turin");
    let dropped = Write::PatchMap("milan".into(), json!({"spec": {"desiredMapping": {"a": null}}}));
    let maps: Vec<_> = writes.iter().filter(|write| write.stage() == Stage::There).collect();
    assert_eq!(maps, [&dropped]);
}

#[test]
fn an_offloading_that_lost_its_finalizer_costs_nobody_a_namespace() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.run("a", "turin");
    world.strip("a");
    let writes = world.settle();
    assert_eq!(writes, [Write::Hold("a".into())], "it is held again, and that is all");
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}));
}

#[test]
fn without_a_finalizer_nothing_more_is_asked_for_and_nothing_taken_back() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({"clusterSelector": selector("security-policy", "strict")}));
    world.settle();
    world.strip("a");
    world.reselect("a", &selector("security-policy", "lax"));
    assert_eq!(world.plan(), [Write::Hold("a".into())]);
}

#[test]
fn while_its_node_is_missing_nobody_knows_what_runs_on_a_cluster() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.lose_node("turin");
    world.delete("a");
    world.settle();
    assert_eq!(world.desired("turin"), json!({"a": format!("a-{HOME}")}), "pods may be left there");
    assert_eq!(world.desired("milan"), json!({}));
    world.renew_nodes();
    world.settle();
    assert!(!world.offloadings.contains_key("a"));
}

#[test]
fn a_namespace_that_is_to_have_another_name_leaves_with_its_pods_first() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    world.run("a", "turin");
    world.strip("a");
    world.delete("a");
    world.offload("a", &json!({"namespaceMappingStrategy": "EnforceSameName"}));
    let mut world = world.after(vec![Write::Hold("a".into())]);
    let maps: Vec<_> = world.plan().into_iter().filter(|write| write.stage() == Stage::There).collect();
    let dropped = Write::PatchMap("milan".into(), json!({"spec": {"desiredMapping": {"a": null}}}));
    assert_eq!(maps, [dropped], "there are pods on the other");
    world.restart();
    world.settle();
    assert_eq!((world.desired("turin"), world.desired("milan")), (json!({"a": "a"}), json!({"a": "a"})));
}

#[test]
fn what_leaves_is_known_until_it_is_gone_or_asked_for_again() {
    let mut world = peered();
    world.make_namespace("a");
    world.offload("a", &json!({}));
    world.settle();
    assert!(!world.leaves("a", "turin"));
    world.reselect("a", &selector("security-policy", "lax"));
    let writes = world.plan();
    let dropped: Vec<_> = writes.iter().flat_map(Write::dropped).collect();
    assert_eq!(dropped, [("turin", "a")]);
    assert!(world.leaves("a", "turin"), "before it is written");
    let mut world = world.after(writes);
    world.plan();
    assert!(world.leaves("a", "turin"), "while it is still there");
    let mut again = world.clone();
    world.settle();
    assert!(!world.leaves("a", "turin"), "nothing is left");
    again.reselect("a", &selector("security-policy", "strict"));
    again.settle();
    assert!(!again.leaves("a", "turin") && again.desired("turin") != json!({}));
}
