//! Changes of a pod that runs which are not followed over there.

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use serde_json::json;

use super::{condition, local, remote, running, shown};
use crate::pods::Refusal;
use crate::pods::inward::{Seen, Sight, has_run};
use crate::pods::provider::Complaint;

fn complaint(size: Option<&str>) -> Complaint {
    Complaint { why: Refusal::new("NotAllowed", "it is not allowed"), size: size.map(str::to_owned) }
}

fn seen<'a>(pod: &'a Pod, complaint: Option<&'a Complaint>) -> Sight<'a> {
    Sight::Seen(Seen { pod, recreations: 0, is_current: true, is_last: true, complaint })
}

fn types(pod: &Pod) -> Vec<&str> {
    pod.status.as_ref().unwrap().conditions.iter().flatten().map(|one| one.type_.as_str()).collect()
}

fn debugger(pod: &Pod) -> ContainerState {
    let [debugger] = pod.status.as_ref().unwrap().ephemeral_container_statuses.as_deref().unwrap() else {
        panic!("{:?}", pod.status)
    };
    debugger.state.clone().unwrap()
}

#[test]
fn a_resize_that_is_refused_is_shown_as_kubelets_show_it_until_it_is_taken_back() {
    let (there, complaint) = (remote(&running()), complaint(Some("there is no room")));
    let told = shown(&local(), &seen(&there, Some(&complaint)));
    let status = told.status.as_ref().unwrap();
    let pending = condition(status, "PodResizePending");
    assert_eq!((pending.status.as_str(), pending.reason.as_deref()), ("True", Some("Infeasible")));
    assert_eq!(pending.message.as_deref(), Some("there is no room"));
    let refused = condition(status, "liqo.io/ChangeRefused");
    assert_eq!((refused.status.as_str(), refused.reason.as_deref()), ("True", Some("NotAllowed")));
    let after = shown(&told, &seen(&there, None));
    let left: Vec<&str> = types(&after).into_iter().filter(|one| one.contains("Re")).collect();
    assert_eq!(left, ["ContainersReady", "Ready"], "{:?}", types(&after));
}

#[test]
fn a_container_for_debugging_that_is_refused_ends_with_the_reason_and_may_be_let_in_later() {
    let mut local = local();
    local.spec.as_mut().unwrap().ephemeral_containers =
        serde_json::from_value(json!([{"name": "debugger", "image": "busybox"}])).unwrap();
    let (there, complaint) = (remote(&running()), complaint(None));
    let waits = shown(&local, &seen(&there, None));
    assert!(debugger(&waits).waiting.is_some());
    let told = shown(&waits, &seen(&there, Some(&complaint)));
    let ended = debugger(&told).terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (128, Some("NotAllowed")));
    assert_eq!(ended.message.as_deref(), Some("it is not allowed"));
    assert!(!types(&told).contains(&"PodResizePending"));
    let mut status = running();
    status["ephemeralContainerStatuses"] = json!([{"name": "debugger", "image": "busybox", "imageID": "",
        "containerID": "c://9", "ready": false, "restartCount": 0, "state": {"running": {}}}]);
    let let_in = remote(&status);
    assert!(debugger(&shown(&told, &seen(&let_in, None))).running.is_some());
}

#[test]
fn a_refused_container_for_debugging_does_not_make_a_pod_one_that_has_run() {
    let mut local = local();
    local.spec.as_mut().unwrap().ephemeral_containers =
        serde_json::from_value(json!([{"name": "debugger", "image": "busybox"}])).unwrap();
    let there = remote(&json!({"phase": "Pending"}));
    let complaint = complaint(None);
    assert!(!has_run(&shown(&local, &seen(&there, Some(&complaint)))));
}

#[test]
fn a_container_for_debugging_that_was_let_in_is_waited_for_although_another_was_refused() {
    let mut local = local();
    local.spec.as_mut().unwrap().ephemeral_containers =
        serde_json::from_value(json!([{"name": "debugger", "image": "busybox"}])).unwrap();
    let mut there = remote(&running());
    there.spec =
        serde_json::from_value(json!({"containers": [], "ephemeralContainers": [{"name": "debugger"}]}))
            .unwrap();
    let complaint = complaint(None);
    assert!(debugger(&shown(&local, &seen(&there, Some(&complaint)))).waiting.is_some());
}
