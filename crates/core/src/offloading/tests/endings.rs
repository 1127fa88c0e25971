//! How namespaces go: with the peer, without it, with the peering, and with what somebody deleted.

use ferro_api::offloading::OffloadingPhase;
use serde_json::json;

use super::peered;
use crate::offloading::model::{HOME, Provider};
use crate::offloading::{Subject, Write};

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
