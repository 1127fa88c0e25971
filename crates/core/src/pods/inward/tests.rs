mod bounded;
mod refused;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Ending, Seen, Sight, Surroundings, Wait, patch, status};
use crate::replication::apply;

/// Applies a strategic merge patch to the status of a pod, as an API server does.
pub(in crate::pods) fn show(pod: &mut Pod, patch: &Value) {
    let mut whole = json!({"status": pod.status});
    let mut patch = patch.clone();
    let conditions = patch["status"].as_object_mut().unwrap().remove("conditions");
    for field in ["podIPs", "hostIPs"] {
        let is_there = whole["status"].get(field).is_some();
        if let Some(Value::Array(list)) = patch["status"].get_mut(field) {
            let directive = list.iter().position(|one| one.get("$patch").is_some());
            assert_eq!(directive.is_some(), is_there, "what is there is replaced, not merged");
            directive.map(|index| list.remove(index));
        }
    }
    apply(&mut whole, &patch);
    let list = whole["status"].as_object_mut().unwrap().entry("conditions").or_insert(json!([]));
    let list = list.as_array_mut().unwrap();
    for change in conditions.iter().flat_map(|all| all.as_array().unwrap()) {
        let place = list.iter().position(|one| one["type"] == change["type"]);
        match (place, change.get("$patch")) {
            (Some(index), Some(_)) => _ = list.remove(index),
            (Some(index), None) => apply(&mut list[index], change),
            (None, Some(_)) => {}
            (None, None) => list.push(change.clone()),
        }
    }
    pod.status = serde_json::from_value(whole["status"].clone()).unwrap();
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

fn local() -> Pod {
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    pod(json!({
        "metadata": {"name": "web", "uid": "u1", "generation": 2},
        "spec": {"containers": [{"name": "a", "image": "nginx"}, {"name": "b", "image": "side"}]},
        "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [scheduled]},
    }))
}

fn running() -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": name, "imageID": "sha", "containerID": "c://1", "ready": true, "restartCount": 1,
            "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}})
    };
    json!({
        "phase": "Running", "startTime": "2026-01-01T00:00:03Z", "qosClass": "Guaranteed",
        "hostIP": "192.168.9.9", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}],
        "containerStatuses": [container("b"), container("a"), container("injected")],
        "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"},
            {"type": "Initialized", "status": "True"}, {"type": "PodScheduled", "status": "True", "reason": "There"},
        ],
    })
}

fn remote(status: &Value) -> Pod {
    pod(json!({"metadata": {"name": "web"}, "status": status}))
}

/// Pods over there have 10.1/16, which is 10.200/16 at home; nothing else has a name here.
fn view(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) if ip.octets()[1] == 1 => {
            Some(IpAddr::from([10, 200, ip.octets()[2], ip.octets()[3]]))
        }
        _ => None,
    }
}

fn around(tunnel_is_up: bool) -> Surroundings<'static> {
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    Surroundings { tunnel_is_up, view: &view, host_ip: Some([172, 16, 0, 9].into()), now }
}

fn seen(pod: &Pod) -> Sight<'_> {
    Sight::Seen(Seen { pod, recreations: 0, is_current: true, is_last: true, complaint: None })
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status.conditions.as_ref().unwrap().iter().find(|one| one.type_ == type_).unwrap()
}

fn shown(local: &Pod, sight: &Sight<'_>) -> Pod {
    shown_when(local, sight, true)
}

/// What is shown, which must be shown once only.
fn shown_when(local: &Pod, sight: &Sight<'_>, tunnel_is_up: bool) -> Pod {
    let mut local = local.clone();
    for attempt in 0..2 {
        let wanted = status(&local, sight, &around(tunnel_is_up));
        let patch = patch(local.status.as_ref(), &wanted);
        assert!(attempt == 0 || patch.is_none(), "shown twice: {patch:?}");
        if let Some(patch) = patch {
            show(&mut local, &patch);
        }
    }
    local
}

#[test]
fn a_pod_looks_as_if_it_ran_here() {
    let pod = shown(&local(), &seen(&remote(&running())));
    let status = pod.status.unwrap();
    assert_eq!((status.phase.as_deref(), status.qos_class.as_deref()), (Some("Running"), Some("Burstable")));
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(status.start_time.unwrap().0, "2026-01-01T00:00:03Z".parse().unwrap());
    let names: Vec<_> = status.container_statuses.iter().flatten().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "what the pod does not have is not shown");
}

#[test]
fn addresses_are_those_of_home_and_others_are_left_out() {
    let status = shown(&local(), &seen(&remote(&running()))).status.unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.200.0.7"));
    assert_eq!(status.pod_ips.unwrap().len(), 1);
    assert_eq!(status.host_ip.as_deref(), Some("172.16.0.9"));
    let mut unnamed = running();
    (unnamed["podIP"], unnamed["podIPs"]) =
        (json!("192.168.0.1"), json!([{"ip": "192.168.0.1"}, {"ip": "no"}]));
    let before = shown(&local(), &seen(&remote(&running())));
    let status = shown(&before, &seen(&remote(&unnamed))).status.unwrap();
    assert_eq!((status.pod_ip, status.pod_ips), (None, None));
}

#[test]
fn where_a_pod_is_bound_to_is_said_at_home() {
    let pod = shown(&local(), &seen(&remote(&running())));
    assert_eq!(condition(pod.status.as_ref().unwrap(), "PodScheduled").reason, None);
    let mut by_hand = local();
    by_hand.status = None;
    let pod = shown(&by_hand, &Sight::Nothing(Wait::default()));
    assert_eq!(condition(pod.status.as_ref().unwrap(), "PodScheduled").status, "True");
}

#[test]
fn a_pod_that_is_to_start_waits_for_its_containers() {
    let pod = shown(&local(), &Sight::Nothing(Wait::default()));
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    for container in status.container_statuses.as_ref().unwrap() {
        let waiting = container.state.clone().unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("ContainerCreating"));
    }
    assert_eq!(condition(&status, "Ready").reason.as_deref(), Some("ContainersNotReady"));
}

#[test]
fn a_pod_that_finds_no_node_over_there_says_why() {
    let unplaced = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]});
    let status = shown(&local(), &seen(&remote(&unplaced))).status.unwrap();
    let waiting = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("Unschedulable"));
    assert_eq!(waiting.message.as_deref(), Some("0/3 nodes are available"));
    assert_eq!(condition(&status, "PodScheduled").status, "True");
}

#[test]
fn a_pod_behind_a_tunnel_that_is_down_is_not_ready_and_its_containers_are() {
    let up = shown(&local(), &seen(&remote(&running())));
    for sight in [Sight::Unknown, seen(&remote(&running()))] {
        let down = shown_when(&up, &sight, false);
        let status = down.status.as_ref().unwrap();
        let ready = condition(status, "Ready");
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("TunnelDown")));
        assert_eq!(condition(status, "ContainersReady").status, "True");
        assert_eq!(condition(shown(&down, &sight).status.as_ref().unwrap(), "Ready").status, "True");
    }
}

#[test]
fn a_silent_peer_makes_no_pod_ready_that_was_not() {
    let mut unready = running();
    unready["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady"});
    let before = shown(&local(), &seen(&remote(&unready)));
    assert_eq!(shown(&before, &Sight::Unknown), before);
    assert_eq!(shown_when(&before, &Sight::Unknown, false), before);
}

#[test]
fn readiness_gates_are_those_of_home_and_what_opens_them_stays() {
    let mut gated = local();
    gated.spec.as_mut().unwrap().readiness_gates =
        serde_json::from_value(json!([{"conditionType": "example.com/gate"}])).unwrap();
    let mut there = running();
    there["conditions"].as_array_mut().unwrap().push(json!({"type": "example.com/gate", "status": "True"}));
    let there = remote(&there);
    let closed = shown(&gated, &seen(&there));
    let ready = condition(closed.status.as_ref().unwrap(), "Ready").clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("ReadinessGatesNotReady")));

    let mut open = closed;
    let gate =
        PodCondition { type_: "example.com/gate".into(), status: "True".into(), ..PodCondition::default() };
    open.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate.clone());
    let open = shown(&open, &seen(&there));
    assert_eq!(condition(open.status.as_ref().unwrap(), "Ready").status, "True");
    assert_eq!(condition(open.status.as_ref().unwrap(), "example.com/gate"), &gate);
}

#[test]
fn a_condition_that_somebody_else_sets_meanwhile_is_not_overwritten() {
    let wanted = status(&local(), &seen(&remote(&running())), &around(true));
    let patch = patch(local().status.as_ref(), &wanted).unwrap();
    let mut meanwhile = local();
    let gate =
        PodCondition { type_: "example.com/gate".into(), status: "True".into(), ..PodCondition::default() };
    meanwhile.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate.clone());
    show(&mut meanwhile, &patch);
    assert_eq!(condition(meanwhile.status.as_ref().unwrap(), "example.com/gate"), &gate);
}

#[test]
fn a_condition_changes_its_time_only_with_its_status() {
    let first = shown(&local(), &seen(&remote(&running())));
    let since = condition(first.status.as_ref().unwrap(), "Ready").last_transition_time.clone();
    let mut later = around(true);
    later.now = "2026-01-01T05:00:00Z".parse().unwrap();
    let same = status(&first, &seen(&remote(&running())), &later);
    assert_eq!(condition(&same, "Ready").last_transition_time, since);
    later.tunnel_is_up = false;
    let other = status(&first, &seen(&remote(&running())), &later);
    assert_eq!(condition(&other, "Ready").last_transition_time.as_ref().unwrap().0, later.now);
    assert_eq!(condition(&other, "ContainersReady").last_transition_time, since);
}

#[test]
fn a_resize_shows_while_it_goes_on_and_no_longer() {
    let mut resized = running();
    let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Deferred"});
    resized["conditions"].as_array_mut().unwrap().push(pending);
    let during = shown(&local(), &seen(&remote(&resized)));
    let reason = &condition(during.status.as_ref().unwrap(), "PodResizePending").reason;
    assert_eq!(reason.as_deref(), Some("Deferred"));
    let after = shown(&during, &seen(&remote(&running())));
    let types: Vec<_> = after.status.unwrap().conditions.unwrap().into_iter().map(|one| one.type_).collect();
    assert!(!types.contains(&"PodResizePending".to_owned()), "{types:?}");
}

#[test]
fn a_disruption_that_is_told_at_home_or_over_there_is_kept() {
    let mut disrupted = running();
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
    disrupted["conditions"].as_array_mut().unwrap().push(target);
    let told = shown(&local(), &seen(&remote(&disrupted)));
    let later = shown(&told, &seen(&remote(&running())));
    let reason = &condition(later.status.as_ref().unwrap(), "DisruptionTarget").reason;
    assert_eq!(reason.as_deref(), Some("TerminationByKubelet"));
}

#[test]
fn restarts_and_recreations_are_counted_together_and_never_fewer() {
    let there = remote(&running());
    let twice =
        Sight::Seen(Seen { pod: &there, recreations: 2, is_current: true, is_last: true, complaint: None });
    let pod = shown(&local(), &twice);
    let count =
        |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
    assert_eq!(count(&pod), 3);
    assert_eq!(count(&shown(&pod, &seen(&there))), 3);
}

#[test]
fn a_pod_that_is_made_again_goes_on_running_and_is_not_ready() {
    let before = shown(&local(), &seen(&remote(&running())));
    let wait = Wait { word: Some("Recreating"), message: None, since: None };
    for sight in [Sight::Nothing(wait), seen(&remote(&json!({"phase": "Pending"})))] {
        let status = shown(&before, &sight).status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(condition(&status, "Ready").status, "False");
        assert_eq!(status.pod_ip, None, "somebody else may have the address by now");
        assert!(status.container_statuses.unwrap()[0].state.as_ref().unwrap().waiting.is_some());
    }
}

#[test]
fn a_container_that_ended_for_good_is_never_shown_as_running() {
    let mut once = local();
    once.spec.as_mut().unwrap().restart_policy = Some("OnFailure".into());
    let mut partly = running();
    partly["containerStatuses"][1]["state"] = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    let before = shown(&once, &seen(&remote(&partly)));
    let after = shown(&before, &seen(&remote(&running())));
    let states = |pod: &Pod| pod.status.clone().unwrap().container_statuses.unwrap();
    assert_eq!(states(&after)[0], states(&before)[0]);
    assert!(states(&after)[1].state.as_ref().unwrap().running.is_some());
}

#[test]
fn a_pod_that_is_deleted_over_there_and_made_again_has_not_ended() {
    let before = shown(&local(), &seen(&remote(&running())));
    let ended = remote(&json!({"phase": "Failed", "reason": "Evicted"}));
    let status = |is_last| {
        let seen = Seen { pod: &ended, recreations: 0, is_current: true, is_last, complaint: None };
        shown(&before, &Sight::Seen(seen)).status.unwrap()
    };
    assert_eq!((status(false).phase.as_deref(), status(false).reason), (Some("Running"), None));
    assert_eq!(
        (status(true).phase.as_deref(), status(true).reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
}

#[test]
fn a_pod_that_ends_over_there_is_not_ready_unless_it_ends_here_too() {
    let mut ending = remote(&running());
    ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:50Z")).unwrap();
    let before = shown(&local(), &seen(&remote(&running())));
    let status = shown(&before, &seen(&ending)).status.unwrap();
    let ready = condition(&status, "Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("Terminating")));
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    assert_eq!((status.phase.as_deref(), status.pod_ip.as_deref()), (Some("Running"), Some("10.200.0.7")));
    let mut both = before;
    both.metadata.deletion_timestamp.clone_from(&ending.metadata.deletion_timestamp);
    assert_eq!(condition(shown(&both, &seen(&ending)).status.as_ref().unwrap(), "Ready").status, "True");
}

#[test]
fn a_lost_pod_fails_with_the_reason_and_its_containers_were_killed() {
    let before = shown(&local(), &seen(&remote(&running())));
    let why = Wait { word: Some("RemotePodLost"), message: Some("it was lost"), since: None };
    let failed = shown(&before, &Sight::Over(Ending::Failed, why));
    let status = failed.status.as_ref().unwrap();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("RemotePodLost")));
    let killed = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((killed.exit_code, killed.reason.as_deref()), (137, Some("RemotePodLost")));
    assert!(killed.started_at.is_some());
    assert_eq!(shown(&failed, &seen(&remote(&running()))), failed, "and that is final");
}

#[test]
fn the_last_words_of_a_pod_that_has_ended_are_still_shown() {
    let before = shown(&local(), &Sight::Over(Ending::Succeeded, Wait::default()));
    let mut ended = running();
    ended["phase"] = json!("Succeeded");
    ended["containerStatuses"][1]["state"] = json!({"terminated": {"exitCode": 0, "message": "bye"}});
    let status = shown(&before, &seen(&remote(&ended))).status.unwrap();
    let ended = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("bye"));
}

#[test]
fn a_talkative_peer_does_not_make_the_status_grow() {
    let mut long = running();
    long["reason"] = json!("x".repeat(100_000));
    long["message"] = json!("x".repeat(100_000));
    long["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "y".repeat(9999), "message": "z".repeat(9999)}});
    let many = (0..1000).map(|index| json!({"type": format!("example.com/{index}"), "status": "True"}));
    let odd = [json!({"type": "a b", "status": "True"}), json!({"type": "Odd", "status": "Perhaps"})];
    long["conditions"] = odd.into_iter().chain(many).collect();
    let status = shown(&local(), &seen(&remote(&long))).status.unwrap();
    assert!(serde_json::to_vec(&status).unwrap().len() < 30_000);
    assert!(status.conditions.unwrap().iter().all(|one| one.type_ != "a b" && one.type_ != "Odd"));
}

#[test]
fn a_peer_with_other_conditions_at_every_look_does_not_make_the_status_grow() {
    let mut home = local();
    for look in 0..10 {
        let mut there = running();
        let of_kubelets = json!({"type": "Initialized", "status": "True"});
        let others =
            (0..30).map(|index| json!({"type": format!("example.com/{look}-{index}"), "status": "True"}));
        there["conditions"] = others.chain([of_kubelets]).collect();
        home = shown(&home, &seen(&remote(&there)));
    }
    let conditions = home.status.unwrap().conditions.unwrap();
    assert!(conditions.len() <= 40, "{}", conditions.len());
    assert!(conditions.iter().any(|one| one.type_ == "Initialized"));
}

fn statuses() -> impl Strategy<Value = Value> {
    let phases =
        prop_oneof![Just("Pending"), Just("Running"), Just("Succeeded"), Just("Failed"), Just("Odd")];
    let states = prop_oneof![
        Just(json!({"waiting": {"reason": "ImagePull"}})),
        Just(json!({"running": {}})),
        (0..2).prop_map(|code| json!({"terminated": {"exitCode": code}})),
    ];
    let conditions = proptest::collection::btree_map(
        prop_oneof![
            Just("Ready"),
            Just("ContainersReady"),
            Just("Initialized"),
            Just("PodScheduled"),
            Just("x.y/z")
        ],
        any::<bool>(),
        0..5,
    );
    (phases, proptest::collection::vec(states, 0..3), conditions, 0..4_i32).prop_map(
        |(phase, states, conditions, n)| {
            let shown = |(name, state)| {
                json!({"name": name, "image": "i", "imageID": "", "ready": false,
            "restartCount": n, "state": state})
            };
            let containers: Vec<Value> = ["a", "b"].into_iter().zip(states).map(shown).collect();
            let word = |is_true| if is_true { "True" } else { "False" };
            let conditions: Vec<Value> = conditions
                .into_iter()
                .map(|(type_, is_true)| json!({"type": type_, "status": word(is_true)}))
                .collect();
            json!({"phase": phase, "containerStatuses": containers, "conditions": conditions})
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_seen_is_shown_once_and_no_end_is_taken_back(
        seen_ones in proptest::collection::vec((statuses(), any::<bool>(), any::<bool>()), 1..6),
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
    ) {
        let mut pod = local();
        pod.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
        for (there, is_last, tunnel_is_up) in seen_ones {
            let there = remote(&there);
            let sight = Sight::Seen(Seen { pod: &there, recreations: 0, is_current: true, is_last, complaint: None });
            let next = shown_when(&pod, &sight, tunnel_is_up);
            let ending = Ending::of(&pod);
            prop_assert!(ending.is_none() || Ending::of(&next) == ending);
            let is_ready = condition(next.status.as_ref().unwrap(), "Ready").status == "True";
            prop_assert!(!is_ready || tunnel_is_up || ending.is_some());
            pod = next;
        }
    }
}
