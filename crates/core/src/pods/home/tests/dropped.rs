//! Pods whose namespace is dropped from the cluster that they run on.

use super::{kinds, phase, reason, running};
use crate::pods::Refusal;
use crate::pods::home::model::World;
use crate::pods::home::{Plan, Standing};

#[test]
fn a_pod_of_a_namespace_that_is_dropped_is_deleted_and_goes_the_usual_way() {
    let mut world = running("Always");
    assert!(world.lodges());
    world.set_standing(Standing::Dropped);
    assert_eq!(kinds(&world.plan()), ["ask", "tell", "send away"]);
    world.work(3);
    assert_eq!(kinds(&world.plan()), ["delete"], "the ShadowPod goes first");
    assert!(world.lodges(), "it is still there");
    while world.work(1) > 0 || world.provide() || world.run() {}
    assert!(world.local.is_none() && !world.lodges());
}

#[test]
fn a_pod_that_has_not_begun_is_deleted_as_well_once_it_has_got_there() {
    let mut world = World::new("Always");
    world.work(1);
    world.set_standing(Standing::Dropped);
    assert_eq!(kinds(&world.plan()), ["ask", "tell", "send away"]);
}

#[test]
fn a_pod_that_never_got_there_is_left_alone_and_keeps_no_namespace() {
    let mut world = World::new("Always");
    for standing in [Standing::Dropped, Standing::GivenUp] {
        world.set_standing(standing);
        while world.work(1) > 0 {}
        assert!(!world.lodges(), "or whoever makes it for this node would make it for ever");
        assert_eq!((phase(&world), reason(&world)), ("Pending", "ClusterNotSelected"));
    }
}

#[test]
fn a_pod_that_has_ended_stays_and_keeps_no_namespace() {
    let mut world = running("Never");
    world.end(true);
    while world.work(1) > 0 || world.provide() {}
    world.set_standing(Standing::Dropped);
    assert_eq!((phase(&world), world.plan(), world.lodges()), ("Succeeded", Plan::default(), false));
}

#[test]
fn over_a_peer_that_is_silent_only_force_deletes_a_pod() {
    let mut world = running("Always");
    world.is_near = false;
    world.set_standing(Standing::Dropped);
    assert_eq!(world.plan(), Plan::default());
    assert!(world.lodges());
    world.set_standing(Standing::GivenUp);
    assert_eq!(kinds(&world.plan()), ["tell", "send away"]);
}

#[test]
fn in_a_cut_that_nobody_has_noticed_yet_only_force_deletes_a_pod() {
    let mut world = running("Always");
    world.is_cut = true;
    world.set_standing(Standing::Dropped);
    assert_eq!(
        (world.work(usize::MAX), world.lodges()),
        (0, true),
        "it runs on, and could not be told to end"
    );
    world.set_standing(Standing::GivenUp);
    assert_eq!(kinds(&world.plan()), ["tell", "send away"]);
    world.set_standing(Standing::Dropped);
    world.is_cut = false;
    assert_eq!(world.work(usize::MAX), 3);
    assert!(world.local.as_ref().unwrap().metadata.deletion_timestamp.is_some());
}

#[test]
fn whoever_gave_a_peer_up_does_not_wait_for_its_answer_when_a_pod_goes() {
    let mut world = World::new("Always");
    world.delete(30);
    world.is_cut = true;
    assert_eq!((world.work(usize::MAX), world.local.is_some()), (0, true), "it may be there");
    world.set_standing(Standing::GivenUp);
    assert_eq!((world.work(usize::MAX), world.local.is_some()), (1, false));
}

#[test]
fn a_pod_whose_namespace_is_gone_from_the_cluster_that_it_ran_on_does_not_stay() {
    let mut world = running("Always");
    (world.is_near, world.namespace) = (false, None);
    world.set_standing(Standing::Dropped);
    assert_eq!(kinds(&world.plan()), ["tell", "send away"]);
    world.work(2);
    assert_eq!(kinds(&world.plan()), ["finish"]);
}

#[test]
fn of_a_silent_peer_every_pod_may_lodge_there_but_those_of_a_daemon_set() {
    let mut world = World::new("Always");
    world.is_near = false;
    assert!(world.lodges());
    world.admitted = Err(crate::admission::Refusal::OfADaemonSet.into());
    assert!(!world.lodges());
}

#[test]
fn a_pod_that_is_deleted_keeps_its_namespace_to_the_last_though_its_containers_have_ended() {
    let mut world = running("Always");
    world.set_standing(Standing::Dropped);
    while world.work(usize::MAX) > 0 || world.provide() {}
    assert!(world.run(), "its containers end");
    while world.work(usize::MAX) > 0 {}
    assert_eq!(phase(&world), "Failed");
    assert!(world.remote.is_some() && world.lodges(), "the pod is still there");
    assert!(world.run(), "it goes");
    assert!(!world.lodges());
}

#[test]
fn what_is_left_of_a_pod_that_is_gone_from_home_keeps_its_namespace() {
    let mut world = running("Always");
    world.set_standing(Standing::Dropped);
    world.local = None;
    assert!(world.lodges(), "there are a ShadowPod and a pod");
    world.work(usize::MAX);
    assert!(world.shadow.is_none() && world.lodges(), "there is a pod");
    while world.provide() || world.run() {}
    assert!(world.remote.is_none() && !world.lodges());
}

#[test]
fn a_pod_that_is_about_to_begin_says_so() {
    let mut world = World::new("Always");
    assert!(world.plan().begins() && !world.lodges());
    world.work(1);
    assert!(!world.plan().begins() && world.lodges());
}

#[test]
fn nothing_begins_before_it_is_decided_whether_a_dropped_namespace_stays_after_all() {
    let mut world = World::new("Always");
    world.set_standing(Standing::Undecided);
    while world.work(usize::MAX) > 0 {}
    assert_eq!(
        (phase(&world), reason(&world), world.keeps_namespace()),
        ("Pending", "ClusterDropped", false)
    );
    world.rest();
    assert_eq!(phase(&world), "Running");
    world.set_standing(Standing::Undecided);
    assert_eq!(world.plan(), Plan::default(), "nor does anything have to go");
}

#[test]
fn a_pod_that_ended_here_alone_keeps_its_namespace_until_it_has_ended_there() {
    let mut world = running("Always");
    world.local.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".into());
    assert!(world.lodges());
    while world.work(usize::MAX) > 0 || world.provide() || world.run() {}
    assert!(world.remote.is_none() && !world.lodges());
}

#[test]
fn a_pod_whose_namespace_is_gone_is_sent_away_before_it_is_forgotten_that_it_was_dropped() {
    let mut world = running("Always");
    (world.namespace, world.shadow, world.remote) = (None, None, None);
    world.set_standing(Standing::Dropped);
    assert!(world.lodges(), "its owner has yet to make it again");
    world.work(2);
    assert!(!world.lodges(), "nothing of it can be there");
}

#[test]
fn a_pod_that_ran_where_its_namespace_neither_is_nor_is_to_be_does_not_stay() {
    let mut world = running("Always");
    (world.namespace, world.shadow, world.remote) = (None, None, None);
    world.admitted = Err(Refusal::new("NoRemoteNamespace", "it comes back"));
    assert!(!kinds(&world.plan()).contains(&"send away"));
    world.admitted = Err(crate::admission::Refusal::NotSelected(String::new()).into());
    assert_eq!(kinds(&world.plan()), ["tell", "send away"]);
}
