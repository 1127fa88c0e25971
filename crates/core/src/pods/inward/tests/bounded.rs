//! What a peer may say of a container beside its state, and how often it was started again.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::{Value, json};

use super::{local, remote, running, shown};
use crate::pods::inward::{Seen, Sight, Wait};

fn first(pod: &Pod) -> ContainerStatus {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone()
}

fn seen(pod: &Pod, recreations: u32) -> Sight<'_> {
    Sight::Seen(Seen { pod, recreations, is_current: true, is_last: true, complaint: None })
}

/// A pod that runs over there, of which the container `a` has more to say.
fn saying(more: &Value) -> Pod {
    let mut status = running();
    for (field, value) in more.as_object().unwrap() {
        status["containerStatuses"][1][field] = value.clone();
    }
    remote(&status)
}

#[test]
fn what_a_container_got_and_as_whom_it_runs_is_shown() {
    let size = json!({"limits": {"cpu": "100m", "example.com/gpu": "1"}, "requests": {"memory": "64Mi"}});
    let more = json!({
        "resources": size, "allocatedResources": {"cpu": "100m"}, "stopSignal": "SIGTERM",
        "user": {"linux": {"uid": 1000, "gid": 1000, "supplementalGroups": [1, 2]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true, "recursiveReadOnly": "Enabled"}],
    });
    let container = serde_json::to_value(first(&shown(&local(), &seen(&saying(&more), 0)))).unwrap();
    for (field, value) in more.as_object().unwrap() {
        assert_eq!(container[field], *value);
    }
}

#[test]
fn nothing_that_a_peer_says_of_a_container_makes_the_status_grow() {
    let long = "x".repeat(100_000);
    let amounts = || {
        let many = (0..1000).map(|index| (format!("example.com/{index}"), json!("1")));
        let odd = [(long.clone(), json!("1")), ("cpu".into(), json!(long)), ("memory".into(), json!("much"))];
        many.chain(odd).collect::<serde_json::Map<_, _>>()
    };
    let mount = |path: String| json!({"name": long, "mountPath": path, "recursiveReadOnly": long});
    let paths = (0..1000).map(|index| format!("/{index}"));
    let mounts: Vec<Value> = [long.clone()].into_iter().chain(paths).map(mount).collect();
    let groups: Vec<i64> = (0..100_000).collect();
    let there = saying(&json!({
        "resources": {"limits": amounts(), "requests": amounts(), "claims": [{"name": long}]},
        "allocatedResources": amounts(), "stopSignal": long, "containerID": long,
        "user": {"linux": {"uid": 0, "gid": 0, "supplementalGroups": groups}},
        "volumeMounts": mounts,
    }));
    let container = first(&shown(&local(), &seen(&there, 0)));
    assert!(serde_json::to_vec(&container).unwrap().len() < 30_000);
    let limits = container.resources.unwrap().limits.unwrap();
    assert!(limits.len() == 32 && limits.values().all(|amount| amount.0 == "1"), "{limits:?}");
    assert_eq!(container.volume_mounts.unwrap()[0].mount_path, "/0", "a path that is cut is another one");
}

#[test]
fn a_pod_that_is_made_again_after_many_restarts_counts_as_one_more() {
    let container = |id: &str, restarts: i32| saying(&json!({"containerID": id, "restartCount": restarts}));
    let before = shown(&local(), &seen(&container("c://1", 5), 0));
    assert_eq!(first(&before).restart_count, 5);
    let gone = Wait { word: Some("Recreating"), message: None, since: None };
    let gone = shown(&before, &Sight::Nothing(gone));
    let waits = shown(&gone, &seen(&remote(&json!({"phase": "Pending"})), 1));
    assert_eq!(first(&waits).restart_count, 5, "it has not started yet");
    let again = shown(&waits, &seen(&container("c://2", 0), 1));
    assert_eq!(first(&again).restart_count, 6);
    assert_eq!(shown(&again, &seen(&container("c://2", 0), 1)), again, "it is counted once");
    let later = shown(&again, &seen(&container("c://3", 1), 1));
    assert_eq!(first(&later).restart_count, 7, "its own restarts count as well");
}

/// Kubelets list a container before it has an identifier.
#[test]
fn a_pod_that_never_restarted_and_is_made_again_counts_as_one() {
    let container = |more: Value| saying(&more);
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let before = shown(&local(), &seen(&container(json!({"containerID": "c://1", "restartCount": 0})), 0));
    let to_come = container(json!({"restartCount": 0, "containerID": Value::Null, "state": waiting}));
    let waits = shown(&before, &seen(&to_come, 1));
    assert_eq!(first(&waits).restart_count, 0, "it has not started yet");
    let again = shown(&waits, &seen(&container(json!({"containerID": "c://2", "restartCount": 0})), 1));
    assert_eq!(first(&again).restart_count, 1);
}
