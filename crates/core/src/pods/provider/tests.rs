//! Every rule about one ShadowPod and its pod.

mod debugging;

use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::plan::plan_with;
use super::*;
use crate::pods::Refusal;

/// Makes a pod without any terms; its content is its image, and a privileged one is refused.
pub(super) fn make(shadow: &ShadowPod, tenant: &str, _: &TenantSpec) -> Result<Pod, Refusal> {
    let spec = shadow.spec.pod.clone();
    let image = spec.containers.first().and_then(|container| container.image.clone()).unwrap_or_default();
    if image == "evil" {
        return Err(Refusal::new("Privileged", "it may not be privileged"));
    }
    let mut pod = Pod { spec: Some(spec), ..Pod::default() };
    pod.metadata.name.clone_from(&shadow.metadata.name);
    labels::SHADOWED.put_on(&mut pod.metadata);
    labels::ORIGIN_ID.put_on(&mut pod.metadata, tenant);
    annotations::SHADOW_UID.put_on(&mut pod.metadata, shadow.metadata.uid.clone().unwrap_or_default());
    annotations::POD_CONTENT.put_on(&mut pod.metadata, image);
    Ok(pod)
}

pub(super) fn shadow(uid: &str, policy: &str, image: &str) -> ShadowPod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": uid, "generation": 1},
        "spec": {"pod": {"restartPolicy": policy, "containers": [{"name": "c", "image": image}]}},
    }))
    .unwrap()
}

fn pod_of(shadow: &ShadowPod, uid: &str, phase: &str) -> Pod {
    let mut pod = make(shadow, "c1", &TenantSpec::default()).unwrap();
    pod.metadata.uid = Some(uid.to_owned());
    pod.status = serde_json::from_value(json!({"phase": phase})).unwrap();
    pod
}

fn with_status(mut shadow: ShadowPod, status: &Value) -> ShadowPod {
    shadow.status = serde_json::from_value(status.clone()).unwrap();
    shadow
}

fn active(shadow: ShadowPod) -> ShadowPod {
    with_status(shadow, &json!({"phase": "Active", "podUID": "u1", "observedGeneration": 1}))
}

fn step(shadow: Option<&ShadowPod>, pod: Option<&Pod>) -> Step {
    step_at(shadow, pod, 0)
}

fn step_at(shadow: Option<&ShadowPod>, pod: Option<&Pod>, second: i64) -> Step {
    let (terms, now) = (TenantSpec::default(), Timestamp::from_second(second).unwrap());
    plan_with(&Snapshot { shadow, pod, tenant: Some(("c1", &terms)), is_open: true, now }, make)
}

fn shown(step: Step) -> ShadowPodStatus {
    match step {
        Step::Show(status) | Step::Lose(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn going(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    pod
}

#[test]
fn a_new_one_gets_a_pod_which_is_then_noted_down() {
    let wish = shadow("s1", "Always", "i");
    let Step::Create(created) = step(Some(&wish), None) else { panic!() };
    assert_eq!(annotations::SHADOW_UID.of(&created.metadata), Some("s1"));
    let pod = pod_of(&wish, "u1", "Pending");
    let status = shown(step(Some(&wish), Some(&pod)));
    assert_eq!((status.phase, status.pod_uid.as_deref()), (Some(ShadowPodPhase::Active), Some("u1")));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!((status.conditions[0].status.as_str(), status.reason.as_deref()), ("True", None));
    let noted = ShadowPod { status: Some(status), ..wish };
    assert_eq!(step(Some(&noted), Some(&pod)), Step::Rest);
}

#[test]
fn a_pod_that_runs_once_waits_behind_a_gate_and_only_that_one_is_opened() {
    let Step::Create(created) = step(Some(&shadow("s1", "Never", "i")), None) else { panic!() };
    let gates = created.spec.unwrap().scheduling_gates.unwrap();
    assert_eq!(gates.len(), 1);
    let gone = json!([{"name": gates[0].name, "$patch": "delete"}]);
    assert_eq!(opening("u1"), json!({"metadata": {"uid": "u1"}, "spec": {"schedulingGates": gone}}));
}

#[test]
fn nothing_is_done_in_a_namespace_that_goes_or_is_nobodys() {
    let (wish, terms) = (shadow("s1", "Always", "i"), TenantSpec::default());
    let pod = pod_of(&wish, "u1", "Running");
    let now = Timestamp::UNIX_EPOCH;
    for (shadow, pod) in [(Some(&wish), None), (None, Some(&pod)), (Some(&wish), Some(&pod))] {
        let closed = Snapshot { shadow, pod, tenant: Some(("c1", &terms)), is_open: false, now };
        assert_eq!(plan_with(&closed, make), Step::Rest);
    }
}

#[test]
fn without_a_tenant_nothing_is_made_and_what_is_there_goes_with_its_shadow() {
    let wish = shadow("s1", "Always", "i");
    let pod = pod_of(&wish, "u1", "Running");
    let now = Timestamp::UNIX_EPOCH;
    let alone = |shadow, pod| plan_with(&Snapshot { shadow, pod, tenant: None, is_open: true, now }, make);
    assert_eq!(alone(Some(&wish), None), Step::AwaitTenant);
    assert_eq!(alone(None, Some(&pod)), Step::Delete("u1".to_owned()));
}

#[test]
fn a_pod_goes_with_its_shadow_once() {
    let wish = shadow("s1", "Always", "i");
    let pod = pod_of(&wish, "u1", "Running");
    assert_eq!(step(None, Some(&pod)), Step::Delete("u1".to_owned()));
    assert_eq!(step(None, Some(&going(pod.clone()))), Step::Rest);
    let mut leaving = active(wish);
    leaving.metadata.deletion_timestamp = going(pod.clone()).metadata.deletion_timestamp;
    assert_eq!(step(Some(&leaving), Some(&pod)), Step::Delete("u1".to_owned()));
    assert_eq!(step(Some(&leaving), None), Step::Rest);
}

#[test]
fn no_pod_is_made_in_place_of_one_that_its_consumer_ends() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut ending = active(shadow("s1", policy, "i"));
        annotations::ENDING.put_on(&mut ending.metadata, "true");
        let pod = pod_of(&ending, "u1", "Running");
        for pod in [Some(&pod), Some(&going(pod.clone())), None] {
            assert_eq!(step(Some(&ending), pod), Step::Rest);
            let (terms, now) = (TenantSpec::default(), Timestamp::UNIX_EPOCH);
            let tenant = Some(("c1", &terms));
            let snapshot = Snapshot { shadow: Some(&ending), pod, tenant, is_open: true, now };
            assert_eq!(takes_room(&snapshot), pod.is_some(), "with the pod its room is free");
        }
        assert_eq!(step(None, Some(&pod)), Step::Delete("u1".to_owned()));
        let former = pod_of(&shadow("s0", policy, "i"), "u0", "Running");
        assert_eq!(step(Some(&ending), Some(&former)), Step::Delete("u0".to_owned()));
    }
}

#[test]
fn of_two_shadows_of_one_name_the_second_waits_until_the_pod_of_the_first_is_gone() {
    let (first, second) = (shadow("s1", "Always", "i"), shadow("s2", "Always", "i"));
    let pod = pod_of(&first, "u1", "Running");
    assert_eq!(step(Some(&second), Some(&pod)), Step::Delete("u1".to_owned()));
    assert_eq!(step(Some(&second), Some(&going(pod))), Step::Rest);
    assert!(matches!(step(Some(&second), None), Step::Create(_)));
}

#[test]
fn somebody_elses_pod_of_that_name_is_left_alone_and_the_shadow_rejected() {
    let wish = shadow("s1", "Always", "i");
    let mut pod = pod_of(&wish, "u1", "Running");
    labels::SHADOWED.take_off(&mut pod.metadata);
    let status = shown(step(Some(&wish), Some(&pod)));
    assert_eq!((status.phase, status.reason.as_deref()), (Some(ShadowPodPhase::Rejected), Some("NameTaken")));
    let rejected = ShadowPod { status: Some(status), ..wish };
    assert_eq!(step(Some(&rejected), Some(&pod)), Step::Rest);
    assert_eq!(step(None, Some(&pod)), Step::Rest);
}

#[test]
fn a_rejection_holds_until_something_else_is_wished_for() {
    let wish = shadow("s1", "Always", "evil");
    let status = shown(step(Some(&wish), None));
    assert_eq!(
        (status.phase, status.reason.as_deref()),
        (Some(ShadowPodPhase::Rejected), Some("Privileged"))
    );
    let mut rejected = ShadowPod { status: Some(status), ..wish };
    assert_eq!(step(Some(&rejected), None), Step::Rest);
    rejected.metadata.generation = Some(2);
    rejected.spec = shadow("s1", "Always", "i").spec;
    assert!(matches!(step(Some(&rejected), None), Step::Create(_)));
}

#[test]
fn a_lost_pod_is_made_again_where_its_policy_allows_and_the_loss_is_counted_first() {
    for policy in ["Always", "OnFailure"] {
        let wish = active(shadow("s1", policy, "i"));
        let lost = step(Some(&wish), None);
        assert!(matches!(lost, Step::Lose(_)), "it is asked for once more");
        let status = shown(lost);
        assert_eq!((status.phase, status.recreations), (Some(ShadowPodPhase::Pending), Some(1)));
        assert_eq!((status.reason.as_deref(), &status.pod_uid), (Some("RemotePodLost"), &None));
        let counted = ShadowPod { status: Some(status), ..wish };
        assert!(matches!(step(Some(&counted), None), Step::Create(_)));
    }
}

#[test]
fn what_runs_once_is_never_made_again() {
    let wish = active(shadow("s1", "Never", "i"));
    let status = shown(step(Some(&wish), None));
    assert_eq!(
        (status.phase, status.reason.as_deref()),
        (Some(ShadowPodPhase::Failed), Some("RemotePodLost"))
    );
    let failed = ShadowPod { status: Some(status), ..wish };
    assert_eq!(step(Some(&failed), None), Step::Rest);
}

#[test]
fn what_is_lost_again_and_again_is_made_less_and_less_often() {
    let wait = |losses: u32| {
        let status = json!({"phase": "Pending", "recreations": losses, "conditions": [{"type": "Ready",
            "status": "False", "reason": "RemotePodLost", "message": "",
            "lastTransitionTime": "1970-01-01T00:01:40Z"}]});
        match step_at(Some(&with_status(shadow("s1", "Always", "i"), &status)), None, 100) {
            Step::Wait(pause) => pause,
            Step::Create(_) => Duration::ZERO,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([1, 3, 4, 5, 12, u32::MAX].map(|losses| wait(losses).as_secs()), [0, 0, 1, 2, 256, 256]);
}

#[test]
fn what_has_ended_is_shown_and_does_not_begin_again() {
    for (policy, phase, expected) in [
        ("Never", "Succeeded", ShadowPodPhase::Succeeded),
        ("Never", "Failed", ShadowPodPhase::Failed),
        ("Always", "Failed", ShadowPodPhase::Failed),
    ] {
        let wish = active(shadow("s1", policy, "i"));
        let pod = pod_of(&wish, "u1", phase);
        let status = shown(step(Some(&wish), Some(&pod)));
        assert_eq!((status.phase, status.pod_uid.as_deref()), (Some(expected), Some("u1")));
        let ended = ShadowPod { status: Some(status), ..wish };
        assert_eq!(step(Some(&ended), Some(&pod)), Step::Rest);
        assert_eq!(step(Some(&ended), None), Step::Rest, "also once it is swept up");
        let running = pod_of(&ended, "u1", "Running");
        assert_eq!(step(Some(&ended), Some(&running)), Step::Delete("u1".to_owned()));
    }
}

#[test]
fn the_reason_of_a_pod_that_was_evicted_is_passed_on() {
    let wish = active(shadow("s1", "Always", "i"));
    let mut pod = pod_of(&wish, "u1", "Failed");
    let status = json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"});
    pod.status = serde_json::from_value(status).unwrap();
    let status = shown(step(Some(&wish), Some(&pod)));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("the node was low on memory"));
}

#[test]
fn a_pod_that_is_taken_away_stops_without_having_ended_where_it_shall_run_again() {
    for (policy, phase, ends) in [
        ("Always", "Failed", false),
        ("Always", "Succeeded", false),
        ("OnFailure", "Failed", false),
        ("OnFailure", "Succeeded", true),
        ("Never", "Failed", true),
        ("Never", "Succeeded", true),
    ] {
        let wish = active(shadow("s1", policy, "i"));
        let wish = ShadowPod { status: Some(shown_active(&wish)), ..wish };
        let next = step(Some(&wish), Some(&going(pod_of(&wish, "u1", phase))));
        assert_eq!(matches!(next, Step::Show(_)), ends, "{policy} {phase}: {next:?}");
    }
}

/// As it is shown while the pod runs.
fn shown_active(wish: &ShadowPod) -> ShadowPodStatus {
    let unseen = ShadowPod { status: None, ..wish.clone() };
    shown(step(Some(&unseen), Some(&pod_of(wish, "u1", "Running"))))
}

#[test]
fn a_new_wish_changes_the_pod_and_one_that_may_not_run_leaves_it_running() {
    let before = shadow("s1", "Always", "i");
    let pod = pod_of(&before, "u1", "Running");
    let wish =
        |image: &str| ShadowPod { status: Some(shown_active(&before)), ..shadow("s1", "Always", image) };
    let Step::Change(wanted) = step(Some(&wish("j")), Some(&pod)) else { panic!() };
    assert_eq!(annotations::POD_CONTENT.of(&wanted.metadata), Some("j"));
    let refused = shown(step(Some(&wish("evil")), Some(&pod)));
    assert_eq!(
        (refused.phase, refused.conditions[0].reason.as_str()),
        (Some(ShadowPodPhase::Active), "Privileged")
    );
    let refused = ShadowPod { status: Some(refused), ..wish("evil") };
    assert_eq!(step(Some(&refused), Some(&pod)), Step::Rest);
    let back = ShadowPod { status: refused.status, ..wish("i") };
    assert_eq!(shown(step(Some(&back), Some(&pod))).conditions[0].status, "True");
}

#[test]
fn what_could_not_be_changed_stays_said_until_the_next_wish_is_followed() {
    let now = Timestamp::UNIX_EPOCH;
    let wish = shadow("s1", "Always", "i");
    let pod = pod_of(&wish, "u1", "Running");
    let wish = ShadowPod { status: Some(shown_active(&wish)), ..wish };
    assert_eq!(after_change(&wish, &[], now), None);
    let refused =
        |message: &str, is_size| Refused { is_size, message: format!("{message} cannot be changed") };
    let told = after_change(&wish, &[refused("env", false)], now).unwrap();
    assert_eq!(
        (told.conditions[0].reason.as_str(), told.conditions[0].status.as_str()),
        ("CannotChange", "False")
    );
    let told = ShadowPod { status: Some(told), ..wish };
    assert_eq!(step(Some(&told), Some(&pod)), Step::Rest);
    let said = complaint(&told).unwrap();
    assert!(
        said.why.word == "CannotChange" && said.why.message.contains("env cannot be changed"),
        "{said:?}"
    );
    assert_eq!(said.size, None);
    let both = after_change(&told, &[refused("env", false), refused("the size", true)], now).unwrap();
    let told = ShadowPod { status: Some(both), ..told };
    assert_eq!(step(Some(&told), Some(&pod)), Step::Rest, "all of it stays said");
    let size = complaint(&told).unwrap().size.unwrap();
    assert!(size.contains("the size cannot be changed") && !size.contains("env"), "{size}");
    let mut newer = told.clone();
    newer.metadata.generation = newer.metadata.generation.map(|generation| generation + 1);
    assert_eq!(complaint(&newer), None, "it is not about that wish");
    let after = after_change(&told, &[], now).unwrap();
    assert_eq!(after.conditions[0].status, "True");
}

#[test]
fn a_container_for_debugging_that_is_refused_keeps_the_pod_from_nothing_else() {
    let before = shadow("s1", "Always", "i");
    let pod = pod_of(&before, "u1", "Running");
    let wish = |image: &str| {
        let mut wish = ShadowPod { status: Some(shown_active(&before)), ..shadow("s1", "Always", image) };
        wish.spec.pod.ephemeral_containers = serde_json::from_value(json!([{"name": "d"}])).unwrap();
        wish
    };
    let refuse =
        |shadow: &ShadowPod, tenant: &str, terms: &TenantSpec| match &shadow.spec.pod.ephemeral_containers {
            Some(_) => Err(Refusal::new("NotAllowed", "not so")),
            None => make(shadow, tenant, terms),
        };
    let step = |wish: &ShadowPod| {
        let terms = TenantSpec::default();
        let (tenant, now) = (Some(("c1", &terms)), Timestamp::UNIX_EPOCH);
        plan_with(&Snapshot { shadow: Some(wish), pod: Some(&pod), tenant, is_open: true, now }, refuse)
    };
    let Step::Change(wanted) = step(&wish("j")) else { panic!() };
    assert_eq!(annotations::POD_CONTENT.of(&wanted.metadata), Some("j"));
    let told = ShadowPod { status: Some(shown(step(&wish("i")))), ..wish("i") };
    assert_eq!(complaint(&told).unwrap().why.word, "NotAllowed");
    assert_eq!(step(&told), Step::Rest);
}

#[test]
fn containers_for_debugging_are_added_once_the_pod_is_there() {
    let mut wish = shadow("s1", "Always", "i");
    wish.spec.pod.ephemeral_containers = serde_json::from_value(json!([{"name": "d"}])).unwrap();
    let Step::Create(created) = step(Some(&wish), None) else { panic!() };
    assert_eq!(created.spec.clone().unwrap().ephemeral_containers, None);
    let mut pod = *created;
    pod.metadata.uid = Some("u1".to_owned());
    let noted = ShadowPod { status: Some(shown(step(Some(&wish), Some(&pod)))), ..wish };
    assert!(matches!(step(Some(&noted), Some(&pod)), Step::Change(_)));
}

#[test]
fn room_is_taken_from_the_wish_to_the_end() {
    let (terms, now) = (TenantSpec::default(), Timestamp::UNIX_EPOCH);
    let takes =
        |shadow, pod| takes_room(&Snapshot { shadow, pod, tenant: Some(("c1", &terms)), is_open: true, now });
    let wish = shadow("s1", "Always", "i");
    let (running, ended) = (pod_of(&wish, "u1", "Running"), pod_of(&wish, "u1", "Failed"));
    let failed = with_status(wish.clone(), &json!({"phase": "Failed"}));
    assert!(takes(Some(&wish), None) && takes(Some(&wish), Some(&running)) && takes(None, Some(&running)));
    let leaving = going(running.clone());
    assert!(takes(None, Some(&leaving)), "until it is gone");
    assert!(takes(Some(&failed), Some(&running)));
    assert!(!takes(Some(&failed), Some(&ended)) && !takes(Some(&failed), None) && !takes(None, None));
}

#[test]
fn of_what_is_too_large_or_answered_for_good_nothing_is_kept() {
    let mut large = shadow("s1", "Always", "i");
    let labels = (0..20_000).map(|index| (format!("label-{index}"), "value".to_owned()));
    large.metadata.labels = Some(labels.collect());
    assert!(!fits(&large));
    keep_of_shadow(&mut large);
    assert!(fits(&large) && large.metadata.labels.is_none());
    let status = shown(step(Some(&large), None));
    assert_eq!((status.phase, status.reason.as_deref()), (Some(ShadowPodPhase::Rejected), Some("TooLarge")));

    let mut waiting = shadow("s1", "Always", "i");
    keep_of_shadow(&mut waiting);
    assert_eq!(waiting, shadow("s1", "Always", "i"));
    let mut rejected = with_status(waiting, &json!({"phase": "Rejected", "observedGeneration": 1}));
    keep_of_shadow(&mut rejected);
    assert!(rejected.spec.pod.containers.is_empty());
    assert_eq!(step(Some(&rejected), None), Step::Rest);
}

#[test]
fn a_pod_is_planned_and_charged_from_what_is_kept_as_from_the_whole() {
    let mut wish = shadow("s1", "Always", "i");
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    wish.spec.pod.containers[0].resources = serde_json::from_value(resources).unwrap();
    let wish = active(wish);
    let mut pod = pod_of(&wish, "u1", "Running");
    pod.metadata.labels.get_or_insert_default().insert("app".to_owned(), "x".to_owned());
    let (whole, before) = (pod.clone(), step(Some(&wish), Some(&pod)));
    keep_of_pod(&mut pod);
    assert_eq!(step(Some(&wish), Some(&pod)), before);
    assert_eq!(crate::offer::request_of(&pod), crate::offer::request_of(&whole));
    assert!(pod.metadata.labels.is_some_and(|labels| !labels.contains_key("app")));
}
