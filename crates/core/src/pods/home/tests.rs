mod disrupted;
mod dropped;
mod refused;
mod rejected;
mod sooner;

use ferro_api::names::annotations;
use ferro_api::virtualkubelet::ShadowPodPhase;
use k8s_openapi::api::core::v1::Pod;

use super::model::World;
use super::{Look, Plan, Write};
use crate::pods::Refusal;
use crate::pods::inward::{Ending, ready};

fn kinds(plan: &Plan) -> Vec<&'static str> {
    let kind = |write: &Write| match write {
        Write::CreateShadow(_) => "create",
        Write::ChangeShadow { .. } => "change",
        Write::DeleteShadow { .. } => "delete",
        Write::MarkEnding { .. } => "mark",
        Write::EndRemote { .. } => "end",
        Write::Ask => "ask",
        Write::Tolerate(_) => "tolerate",
        Write::Show(_) => "show",
        Write::Delete { .. } => "send away",
        Write::Finish { .. } => "finish",
        Write::Tell(_) => "tell",
    };
    plan.writes.iter().map(kind).collect()
}

/// A pod that runs over there, as it is shown at home.
fn running(policy: &'static str) -> World {
    let mut world = World::new(policy);
    world.rest();
    assert_eq!(phase(&world), "Running");
    world
}

fn local(world: &World) -> &Pod {
    world.local.as_ref().unwrap()
}

fn phase(world: &World) -> &str {
    local(world).status.as_ref().unwrap().phase.as_deref().unwrap()
}

fn reason(world: &World) -> &str {
    ready(local(world)).and_then(|ready| ready.reason.as_deref()).unwrap_or_default()
}

fn waiting(world: &World) -> (String, String) {
    let status = local(world).status.as_ref().unwrap();
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    let waiting = state.waiting.unwrap();
    (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}

#[test]
fn a_pod_gets_a_shadow_and_stays_through_short_silences() {
    let mut world = World::new("Always");
    assert_eq!(kinds(&world.plan()), ["create", "tolerate"]);
    world.work(2);
    assert_eq!(kinds(&world.plan()), ["show"]);
    world.work(1);
    assert_eq!((phase(&world), waiting(&world).0.as_str()), ("Pending", "ContainerCreating"));
    assert_eq!(world.plan(), Plan::default());
    let tolerations = local(&world).spec.as_ref().unwrap().tolerations.as_ref().unwrap();
    assert!(tolerations.iter().all(|one| one.toleration_seconds == Some(86400)));
}

#[test]
fn a_shadow_that_was_made_before_a_kill_is_taken_up() {
    let mut world = World::new("Always");
    world.work(1);
    assert_eq!(kinds(&world.plan()), ["show", "tolerate"]);
}

#[test]
fn a_changed_wish_goes_to_the_shadow_and_is_observed_once_it_is_followed() {
    let mut world = running("Always");
    let pod = world.local.as_mut().unwrap();
    pod.spec.as_mut().unwrap().containers[0].image = Some("nginx:2".into());
    pod.metadata.generation = Some(3);
    assert_eq!(kinds(&world.plan()), ["change"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default(), "nobody has followed yet");
    world.rest();
    assert_eq!(local(&world).status.as_ref().unwrap().observed_generation, Some(3));
}

#[test]
fn a_refused_pod_waits_and_says_why_once() {
    let mut world = World::new("Always");
    world.admitted = Err(Refusal::new("LocalOnly", "it stays at home"));
    assert_eq!(kinds(&world.plan()), ["show", "tell"]);
    world.work(1);
    assert_eq!(waiting(&world), ("LocalOnly".into(), "it stays at home".into()));
    assert_eq!((phase(&world), world.plan()), ("Pending", Plan::default()));
    world.admitted = Err(Refusal::new("LocalOnly", "it still stays at home"));
    assert_eq!(kinds(&world.plan()), ["show"], "the word is known");
    world.admitted = Ok(());
    world.rest();
    assert_eq!(phase(&world), "Running");
}

#[test]
fn a_pod_that_cannot_travel_waits_and_says_why() {
    let mut world = World::new("Always");
    world.local.as_mut().unwrap().spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(kinds(&world.plan()), ["show", "tell"]);
    world.work(2);
    assert_eq!(phase(&world), "Pending");
    assert!(world.shadow.is_none() && waiting(&world).1.len() > 10, "{:?}", waiting(&world));
}

#[test]
fn a_pod_that_could_not_travel_goes_when_it_is_deleted_whoever_answers() {
    for is_near in [true, false] {
        let mut world = World::new("Always");
        world.local.as_mut().unwrap().spec.as_mut().unwrap().host_network = Some(true);
        world.is_near = is_near;
        world.work(9);
        world.delete(30);
        let plan = world.plan();
        assert!(matches!(plan.writes.as_slice(), [Write::Finish { look: Look::Spared, .. }]), "{plan:?}");
    }
}

#[test]
fn what_is_shown_waits_for_a_pod_that_is_about_to_get_there() {
    let plan = World::new("Always").plan();
    assert_eq!((kinds(&plan).first(), plan.shown()), (Some(&"create"), None));
}

#[test]
fn a_pod_of_a_daemon_set_waits_whatever_it_shows() {
    let mut world = World::new("Always");
    let refusal = crate::admission::Refusal::OfADaemonSet.into();
    world.admitted = Err(refusal);
    let status = world.local.as_mut().unwrap().status.as_mut().unwrap();
    status.phase = Some("Running".into());
    world.work(2);
    assert_eq!(Ending::of(local(&world)), None);
    assert_eq!(waiting(&world).0, "DaemonSetPod");
    world.delete(30);
    assert_eq!(kinds(&world.plan()), ["finish"]);
}

#[test]
fn a_name_that_somebody_else_has_over_there_is_not_touched() {
    let mut world = World::new("Always");
    world.squat();
    assert_eq!(kinds(&world.plan()), ["show", "tell"]);
    world.work(2);
    assert_eq!(waiting(&world).0, "NameTaken");
    world.delete(30);
    assert_eq!(kinds(&world.plan()), ["finish"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default());
    assert!(world.is_squatted());
}

#[test]
fn readiness_follows_the_tunnel_also_when_the_peer_does_not_answer() {
    let mut world = running("Always");
    (world.is_near, world.tunnel_is_up) = (false, false);
    let plan = world.plan();
    assert_eq!((kinds(&plan), plan.shown()), (vec!["show"], plan.writes.first()));
    world.work(1);
    assert_eq!((phase(&world), reason(&world)), ("Running", "TunnelDown"));
    assert_eq!(world.plan(), Plan::default());
    world.tunnel_is_up = true;
    world.work(1);
    assert_eq!(ready(local(&world)).unwrap().status, "True");
}

#[test]
fn a_peer_that_does_not_answer_changes_nothing_else() {
    let mut world = running("Always");
    world.is_near = false;
    assert_eq!(world.plan(), Plan::default());
    world.delete(30);
    assert_eq!(world.plan(), Plan::default(), "nobody knows what still runs");
    world.local = None;
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_new_pod_waits_for_a_peer_that_does_not_answer() {
    let mut world = World::new("Always");
    world.is_near = false;
    assert_eq!(kinds(&world.plan()), ["show"]);
    world.work(1);
    assert_eq!(waiting(&world).0, "ContainerCreating");
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_lost_pod_is_made_again_where_it_may_run_again() {
    let mut world = running("Always");
    world.burn();
    world.work(9);
    assert_eq!((phase(&world), waiting(&world).0.as_str()), ("Running", "Recreating"));
    assert_eq!(reason(&world), "Recreating");
    world.rest();
    let restarts =
        local(&world).status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
    assert_eq!((phase(&world), restarts), ("Running", 1));
}

#[test]
fn a_lost_pod_fails_where_it_may_not_run_again() {
    let mut world = running("Never");
    world.burn();
    world.rest();
    let status = local(&world).status.as_ref().unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("RemotePodLost")));
    let tells = world
        .written
        .iter()
        .filter(|write| matches!(write, Write::Tell(notice) if notice.reason == "RemotePodLost"));
    assert_eq!(tells.count(), 1);
}

#[test]
fn a_lost_shadow_is_made_again_only_where_the_pod_may_run_again() {
    for (policy, end) in [("Always", "Running"), ("OnFailure", "Running"), ("Never", "Failed")] {
        let mut world = running(policy);
        world.lose();
        assert_eq!(world.plan(), Plan::default(), "its pod is still there");
        world.rest();
        assert_eq!(phase(&world), end, "{policy}");
    }
}

#[test]
fn a_pod_whose_namespace_goes_over_there_fails_so_that_another_is_made() {
    let mut world = running("Always");
    (world.shadow, world.remote) = (None, None);
    world.admitted = Err(Refusal::new("NoRemoteNamespace", "it is being removed"));
    assert_eq!(kinds(&world.plan()), ["show", "tell"]);
    world.work(2);
    let status = local(&world).status.as_ref().unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("RemotePodLost")));
}

#[test]
fn a_pod_that_has_ended_is_kept_over_there_for_its_logs() {
    let mut world = running("Never");
    world.end(true);
    world.rest();
    assert_eq!((phase(&world), world.phase_over_there()), ("Succeeded", Some(ShadowPodPhase::Succeeded)));
    assert!(world.remote.is_some());
    world.delete(30);
    world.rest();
    assert!(world.local.is_none() && world.shadow.is_none() && world.remote.is_none());
}

#[test]
fn nothing_runs_on_for_a_pod_that_has_ended_at_home() {
    let mut world = running("Always");
    world.local.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".into());
    assert_eq!(kinds(&world.plan()), ["delete"]);
    world.rest();
    assert!(world.remote.is_none() && world.local.is_some());
}

#[test]
fn a_deleted_pod_goes_when_nothing_is_left() {
    let mut world = running("Always");
    world.delete(30);
    assert_eq!(kinds(&world.plan()), ["delete"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default(), "the provider ends its pod");
    while world.provide() {}
    assert_eq!(world.plan(), Plan::default(), "which takes its time");
    world.run();
    world.work(9);
    assert_eq!(phase(&world), "Failed", "its end is shown");
    world.run();
    assert_eq!(kinds(&world.plan()), ["finish"]);
    world.work(1);
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_pod_that_others_hold_is_shown_as_ended_and_left_to_them() {
    let mut world = World::new("Never");
    world.local.as_mut().unwrap().metadata.finalizers = Some(vec!["batch.kubernetes.io/job-tracking".into()]);
    world.delete(30);
    assert_eq!(kinds(&world.plan()), ["show", "finish"]);
    world.work(2);
    assert_eq!((phase(&world), world.plan()), ("Failed", Plan::default()));
}

#[test]
fn what_a_pod_left_that_was_deleted_by_force_is_cleared_away() {
    let mut world = running("Always");
    world.local = None;
    assert_eq!(kinds(&world.plan()), ["mark", "end", "delete"]);
    world.rest();
    assert!(world.shadow.is_none() && world.remote.is_none());
}

#[test]
fn a_pod_of_the_same_name_waits_until_the_former_is_gone() {
    let mut world = running("Always");
    world.local = None;
    world.create();
    assert_eq!(kinds(&world.plan()), ["mark", "end", "delete", "show"]);
    world.work(4);
    assert_eq!(world.plan(), Plan::default(), "the former still runs");
    assert!(waiting(&world).1.contains("former"));
    world.rest();
    let uid = local(&world).metadata.uid.as_deref();
    assert_eq!(annotations::ORIGIN_UID.of(&world.shadow.as_ref().unwrap().metadata), uid);
    assert_eq!(phase(&world), "Running");
}

#[test]
fn a_pod_over_there_that_was_made_from_another_shadow_does_not_count() {
    let mut world = running("Always");
    annotations::SHADOW_UID.put_on(&mut world.remote.as_mut().unwrap().metadata, "another");
    world.work(9);
    assert_eq!(waiting(&world).0, "Recreating");
}

#[test]
fn a_pod_whose_namespace_is_nowhere_else_says_so_and_can_be_deleted_whoever_answers() {
    for is_near in [true, false] {
        let mut world = World::new("Always");
        (world.namespace, world.is_near) = (None, is_near);
        world.admitted = Err(Refusal::new("NamespaceNotOffloaded", "offload it"));
        assert_eq!(kinds(&world.plan()), ["show", "tell"]);
        world.work(2);
        world.admitted = Err(Refusal::new("LocalOnly", "it stays at home"));
        assert_eq!(kinds(&world.plan()), ["show", "tell"], "also when that is for another reason now");
        world.work(2);
        assert_eq!((waiting(&world).0.as_str(), world.plan()), ("LocalOnly", Plan::default()));
        world.delete(30);
        assert_eq!(kinds(&world.plan()), ["finish"]);
    }
}

#[test]
fn a_pod_that_runs_is_not_given_up_because_its_namespace_is_not_known() {
    let mut world = running("Never");
    (world.namespace, world.shadow, world.remote) = (None, None, None);
    world.admitted = Err(Refusal::new("NoRemoteNamespace", "none was made yet"));
    world.work(2);
    assert_eq!((phase(&world), reason(&world)), ("Running", "NoRemoteNamespace"));
}
