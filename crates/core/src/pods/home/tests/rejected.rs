//! Pods that the provider does not take, or for which it has no room.

use std::time::Duration;

use ferro_api::virtualkubelet::{ShadowPodPhase, ShadowPodStatus};

use super::{kinds, local, phase, waiting};
use crate::pods::home::model::{PAUSE, World};
use crate::pods::home::{Plan, Standing};

fn say(world: &mut World, phase: ShadowPodPhase, reason: &str) {
    let status = ShadowPodStatus {
        phase: Some(phase),
        reason: Some(reason.into()),
        message: Some("so it is".into()),
        observed_generation: Some(1),
        ..ShadowPodStatus::default()
    };
    world.shadow.as_mut().unwrap().status = Some(status);
}

fn waits(pause: Duration) -> Plan {
    Plan { writes: Vec::new(), again: Some(pause) }
}

/// A pod that the provider does not allow, as it is shown at home.
fn forbidden() -> World {
    let mut world = World::new("Always");
    world.is_allowed = false;
    while world.provide() || world.work(9) > 0 {}
    world
}

#[test]
fn a_pod_that_the_provider_does_not_take_waits_with_its_word() {
    let mut world = World::new("Always");
    world.work(9);
    say(&mut world, ShadowPodPhase::Rejected, "Forbidden");
    assert_eq!(kinds(&world.plan()), ["show", "tell"]);
    world.work(2);
    assert_eq!(waiting(&world), ("Forbidden".into(), "so it is".into()));
    assert_eq!(phase(&world), "Pending");
    assert_eq!(world.plan(), waits(Duration::from_mins(5)));
    world.seconds += 299;
    assert_eq!(world.plan(), waits(Duration::from_secs(1)));
    world.seconds += 1;
    assert_eq!(kinds(&world.plan()), ["delete"]);
    world.work(1);
    assert_eq!(kinds(&world.plan()), ["create", "show"], "the provider is asked once more");
    world.rest();
    assert_eq!(phase(&world), "Running");
}

#[test]
fn a_pod_that_is_not_taken_again_waits_as_long_as_before() {
    let mut world = forbidden();
    for _ in 0..3 {
        assert_eq!((phase(&world), waiting(&world).0.as_str()), ("Pending", "NotAllowed"));
        assert_eq!(world.plan(), waits(Duration::from_mins(5)));
        world.seconds += 300;
        while world.provide() || world.work(9) > 0 {}
    }
}

#[test]
fn a_pod_that_was_not_taken_keeps_its_shadow_while_it_could_get_no_other() {
    let mut world = forbidden();
    world.set_standing(Standing::Undecided);
    world.seconds += 1000;
    assert_eq!(world.plan(), Plan::default());
    world.set_standing(Standing::Wanted);
    assert_eq!(kinds(&world.plan()), ["delete"]);
}

#[test]
fn a_pod_without_room_fails_after_a_pause_and_its_shadow_goes() {
    let mut world = World::new("Always");
    world.has_room = false;
    while world.provide() || world.work(9) > 0 {}
    assert_eq!((phase(&world), waiting(&world).0.as_str()), ("Pending", "QuotaExceeded"));
    assert_eq!(world.plan(), waits(PAUSE));
    world.seconds += 19;
    assert_eq!(world.plan(), waits(Duration::from_secs(1)));
    world.seconds += 1;
    assert_eq!(kinds(&world.plan()), ["show", "tell", "delete"]);
    world.work(1);
    let status = local(&world).status.as_ref().unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("QuotaExceeded")));
    let disrupted = status.conditions.iter().flatten().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!((disrupted.status.as_str(), disrupted.reason.as_deref()), ("True", Some("QuotaExceeded")));
    assert_eq!(kinds(&world.plan()), ["delete"], "also when it was cut off");
    world.work(1);
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_clock_over_there_that_is_wrong_changes_no_pause() {
    let mut world = World::new("Always");
    world.work(9);
    say(&mut world, ShadowPodPhase::Rejected, "QuotaExceeded");
    world.work(2);
    world.seconds -= 1000;
    assert_eq!(world.plan().again, Some(PAUSE), "and one at home that is set back makes it no longer");
}
