//! Pods that are taken away: by an eviction at home, or by one over there.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodCondition;
use serde_json::json;

use super::{kinds, local, phase, reason, running};
use crate::pods::home::model::World;
use crate::pods::home::{Plan, Write};
use crate::pods::inward::Ending;

fn disruption() -> PodCondition {
    serde_json::from_value(
        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}),
    )
    .unwrap()
}

fn is_disrupted(world: &World) -> bool {
    let conditions = local(world).status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions.iter().any(|one| one.type_ == "DisruptionTarget")
}

/// A drain of a node over there: the pod is marked, and deleted with its own grace.
fn evict_over_there(world: &mut World) {
    let status = world.remote.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.get_or_insert_default().push(disruption());
    world.take();
}

#[test]
fn a_pod_that_is_evicted_over_there_is_made_again_there_and_home_says_so() {
    let mut world = running("Always");
    evict_over_there(&mut world);
    world.work(9);
    assert!(is_disrupted(&world), "it is told while it goes");
    assert_eq!((phase(&world), reason(&world)), ("Running", "Terminating"), "nobody is sent to it any more");
    while world.run() {}
    world.provide();
    let plan = world.plan();
    assert_eq!(kinds(&plan), ["show", "tell"]);
    let Some(Write::Tell(notice)) = plan.writes.last() else { panic!("{plan:?}") };
    assert_eq!(notice.reason, "Recreating");
    world.work(9);
    assert_eq!((phase(&world), reason(&world), is_disrupted(&world)), ("Running", "Recreating", false));
    world.rest();
    assert_eq!((phase(&world), world.made.values().sum::<u32>()), ("Running", 2));
    assert!(!is_disrupted(&world), "that was the former one");
}

#[test]
fn a_pod_that_runs_once_and_is_evicted_over_there_fails_as_one_that_was_disrupted() {
    let mut world = running("Never");
    evict_over_there(&mut world);
    world.rest();
    assert_eq!((Ending::of(local(&world)), world.made.values().sum::<u32>()), (Some(Ending::Failed), 1));
    assert!(is_disrupted(&world), "its Job may not count that as a failure");
}

#[test]
fn a_pod_that_is_evicted_at_home_goes_the_usual_way_and_keeps_the_mark() {
    let mut world = running("Always");
    let status = world.local.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.as_mut().unwrap().push(disruption());
    world.delete(5);
    assert_eq!(kinds(&world.plan()), ["mark", "end", "delete"]);
    world.work(3);
    while world.provide() || world.run() {}
    assert!(is_disrupted(&world));
    world.rest();
    assert!(world.local.is_none() && world.shadow.is_none() && world.remote.is_none());
}

#[test]
fn a_pod_whose_node_over_there_is_dead_is_deleted_here_once_it_should_be_gone() {
    let mut world = running("Always");
    evict_over_there(&mut world);
    world.work(9);
    let plan = world.plan();
    assert_eq!((plan.writes, plan.again), (vec![], Some(Duration::from_secs(90))));
    world.seconds += 89;
    assert_eq!(world.plan().again, Some(Duration::from_secs(1)));
    world.seconds += 1;
    assert_eq!(kinds(&world.plan()), ["ask", "tell", "send away"]);
}

#[test]
fn a_grace_that_makes_no_sense_does_not_make_the_wait_endless() {
    let margin = Duration::from_mins(1);
    for (grace, most) in [(i64::MAX, Duration::from_hours(24)), (i64::MIN, Duration::ZERO)] {
        let mut world = running("Always");
        evict_over_there(&mut world);
        world.remote.as_mut().unwrap().metadata.deletion_grace_period_seconds = Some(grace);
        world.work(9);
        assert_eq!(world.plan().again, Some(most + margin), "{grace}");
    }
}

#[test]
fn a_pod_that_somebody_deletes_over_there_and_that_ends_in_time_is_not_deleted_here() {
    let mut world = running("Always");
    world.take();
    world.work(9);
    world.seconds += 1000;
    assert_eq!(world.plan(), Plan::default(), "it may have been told to go for any reason");
    let mut world = running("Always");
    evict_over_there(&mut world);
    world.rest();
    assert!(local(&world).metadata.deletion_timestamp.is_none());
}

#[test]
fn a_node_over_there_that_is_not_ready_makes_its_pods_not_ready_here() {
    let mut world = running("Always");
    let status = world.remote.as_mut().unwrap().status.as_mut().unwrap();
    let ready = status.conditions.as_mut().unwrap().iter_mut().find(|one| one.type_ == "Ready").unwrap();
    ready.status = "False".to_owned();
    ready.reason = Some("NodeNotReady".to_owned());
    world.work(9);
    let shown = crate::pods::inward::ready(local(&world)).unwrap();
    assert_eq!((shown.status.as_str(), shown.reason.as_deref()), ("False", Some("NodeNotReady")));
    assert_eq!(phase(&world), "Running");
}
