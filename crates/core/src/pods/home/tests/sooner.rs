//! Pods that have less time to end than they ask for.

use super::{kinds, running};
use crate::pods::home::model::World;
use crate::pods::home::{Plan, Write};

/// Home is killed after each of its writes, and the provider is always faster; until a kubelet over there hears of it.
fn heard(world: &mut World) -> Option<i64> {
    while world.heard.is_none() && world.work(1) > 0 {
        while world.provide() {}
    }
    world.heard
}

#[test]
fn a_kubelet_over_there_hears_first_of_the_time_that_was_given_at_home() {
    for policy in ["Always", "OnFailure", "Never"] {
        for (grace, given) in [(0, 1), (1, 1), (2, 2), (29, 29), (30, 30), (300, 30)] {
            let mut world = running(policy);
            world.delete(grace);
            assert_eq!(heard(&mut world), Some(given), "{policy}, {grace}");
            world.rest();
            assert!(world.local.is_none());
            assert_eq!(world.made.values().sum::<u32>(), 1, "nothing is made in its place");
        }
    }
}

#[test]
fn a_pod_that_is_deleted_by_force_has_a_second_over_there_also_when_there_is_another_of_its_name() {
    for has_successor in [false, true] {
        let mut world = running("Always");
        world.local = None;
        if has_successor {
            world.create();
        }
        assert_eq!(heard(&mut world), Some(1));
        world.rest();
        assert_eq!((world.local.is_some(), world.remote.is_some()), (has_successor, has_successor));
    }
}

#[test]
fn who_gives_a_pod_less_time_at_home_gives_it_less_over_there_once() {
    for (grace, given) in [(0, 1), (1, 1), (5, 5)] {
        let mut world = running("Always");
        world.delete(grace);
        let plan = world.plan();
        assert_eq!(kinds(&plan), ["mark", "end", "delete"]);
        let uid = world.remote.as_ref().unwrap().metadata.uid.clone().unwrap();
        assert_eq!(plan.writes[1], Write::EndRemote { uid, grace: given });
        world.work(3);
        assert_eq!(world.plan(), Plan::default());
    }
}

#[test]
fn a_shorter_time_is_written_also_when_the_provider_was_faster() {
    let mut world = running("Always");
    world.delete(30);
    world.work(1);
    while world.provide() {}
    assert_eq!(world.plan(), Plan::default());
    world.delete(2);
    assert_eq!(kinds(&world.plan()), ["end"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default(), "once");
}

#[test]
fn a_pod_that_ends_at_once_is_not_made_again_before_its_shadow_goes() {
    let mut world = running("Always");
    world.delete(2);
    world.work(2);
    while world.run() || world.provide() {}
    assert!(world.remote.is_none() && world.shadow.is_some(), "home was killed in between");
    assert_eq!(kinds(&world.plan()), ["delete"]);
    world.rest();
    assert_eq!((world.local.is_none(), world.made.values().sum::<u32>()), (true, 1));
}

#[test]
fn a_pod_that_was_taken_over_there_with_less_time_is_left_alone() {
    let mut world = running("Always");
    world.take();
    world.remote.as_mut().unwrap().metadata.deletion_grace_period_seconds = Some(1);
    world.delete(2);
    assert_eq!(kinds(&world.plan()), ["delete"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_pod_that_has_ended_over_there_needs_no_time() {
    let mut world = running("Never");
    world.end(true);
    world.delete(2);
    assert_eq!(kinds(&world.plan()), ["delete", "show"]);
    world.local = None;
    assert_eq!(kinds(&world.plan()), ["delete"]);
}

#[test]
fn a_peer_that_does_not_answer_is_told_when_it_does() {
    let mut world = running("Always");
    world.is_near = false;
    world.local = None;
    assert_eq!(world.plan(), Plan::default());
    world.is_near = true;
    assert_eq!(kinds(&world.plan()), ["mark", "end", "delete"]);
}
