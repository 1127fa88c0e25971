//! What becomes of a pod in one word, the same that kubectl has in its column of that name.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

/// The reason of a pod whose node is silent while it is to end.
const NODE_LOST: &str = "NodeLost";
/// The reason of a container that ended well.
const COMPLETED: &str = "Completed";

/// What becomes of a pod.
pub(super) fn status(pod: &Pod) -> String {
    let unseen = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&unseen);
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if pod.metadata.deletion_timestamp.is_some() {
        if status.reason.as_deref() == Some(NODE_LOST) {
            return "Unknown".to_owned();
        }
        if !matches!(phase, "Succeeded" | "Failed") {
            return "Terminating".to_owned();
        }
    }
    let beginning = beginning(pod, status);
    let has_begun = beginning.is_none() || is_true(status, "Initialized");
    let containers = if has_begun { of_containers(status) } else { None };
    containers
        .or(beginning)
        .or_else(|| gate(status))
        .or_else(|| given(status.reason.as_ref()))
        .unwrap_or_else(|| phase.to_owned())
}

/// Which of its init containers it is at, or what holds that one up; nothing once all are through.
fn beginning(pod: &Pod, status: &PodStatus) -> Option<String> {
    let all = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let seen = status.init_container_statuses.as_deref().unwrap_or_default();
    let (place, present) = seen.iter().enumerate().find(|(_, container)| !is_through(all, container))?;
    let why = ended(present).or_else(|| waits(present).filter(|why| why != "PodInitializing"));
    Some(why.map_or_else(|| format!("Init:{place}/{}", all.len()), |why| format!("Init:{why}")))
}

/// Whether the init container after this one may begin.
fn is_through(all: &[Container], seen: &ContainerStatus) -> bool {
    let ended = seen.state.as_ref().and_then(|state| state.terminated.as_ref());
    let is_sidecar = |container: &Container| {
        container.name == seen.name && container.restart_policy.as_deref() == Some("Always")
    };
    ended.is_some_and(|ended| ended.exit_code == 0)
        || (seen.started == Some(true) && all.iter().any(is_sidecar))
}

/// What the first container waits for or ended with that does either.
fn of_containers(status: &PodStatus) -> Option<String> {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let word = containers.iter().find_map(|container| waits(container).or_else(|| ended(container)))?;
    let runs = |container: &ContainerStatus| {
        container.ready && container.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    if word == COMPLETED && containers.iter().any(runs) {
        let shown = if is_true(status, "Ready") { "Running" } else { "NotReady" };
        return Some(shown.to_owned());
    }
    Some(word)
}

fn waits(container: &ContainerStatus) -> Option<String> {
    given(container.state.as_ref()?.waiting.as_ref()?.reason.as_ref())
}

fn ended(container: &ContainerStatus) -> Option<String> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    Some(given(ended.reason.as_ref()).unwrap_or_else(|| match ended.signal {
        None | Some(0) => format!("ExitCode:{}", ended.exit_code),
        Some(signal) => format!("Signal:{signal}"),
    }))
}

/// What keeps it from being scheduled by somebody's wish.
fn gate(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled")?;
    scheduled.reason.clone().filter(|reason| reason == "SchedulingGated")
}

fn is_true(status: &PodStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == type_ && condition.status == "True")
}

fn given(reason: Option<&String>) -> Option<String> {
    reason.filter(|reason| !reason.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::status;
    use serde_json::{Value, json};

    /// What is said of a pod with this status, whose first init container is a sidecar.
    fn said(status_of_pod: &Value) -> String {
        let init = json!([{"name": "proxy", "restartPolicy": "Always"}, {"name": "fill"}]);
        let pod = json!({
            "metadata": {"name": "web"}, "spec": {"containers": [], "initContainers": init},
            "status": status_of_pod,
        });
        status(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": state["running"].is_object(), "restartCount": 0,
            "started": state["running"].is_object(), "state": state})
    }

    fn of_containers(states: &[Value]) -> String {
        let containers: Vec<Value> = states.iter().map(|state| container("a", state)).collect();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        said(&json!({"phase": "Running", "containerStatuses": containers, "conditions": ready}))
    }

    fn of_init(states: &[(&str, Value)]) -> String {
        let containers: Vec<Value> = states.iter().map(|(name, state)| container(name, state)).collect();
        let waits = container("a", &json!({"waiting": {"reason": "PodInitializing"}}));
        said(&json!({"phase": "Pending", "initContainerStatuses": containers, "containerStatuses": [waits]}))
    }

    fn ended(reason: &str, code: i32) -> Value {
        json!({"terminated": {"reason": reason, "exitCode": code}})
    }

    #[test]
    fn what_containers_wait_for_or_ended_with_is_said() {
        let runs = json!({"running": {}});
        let waits = json!({"waiting": {"reason": "ImagePullBackOff"}});
        assert_eq!(said(&json!(null)), "Pending");
        assert_eq!(said(&json!({"phase": "Failed", "reason": "Evicted"})), "Evicted");
        assert_eq!(of_containers(std::slice::from_ref(&runs)), "Running");
        assert_eq!(of_containers(&[runs.clone(), waits]), "ImagePullBackOff");
        assert_eq!(of_containers(&[ended("Completed", 0)]), "Completed");
        assert_eq!(of_containers(&[ended("Error", 1), runs.clone()]), "Error");
        assert_eq!(of_containers(&[ended("", 3)]), "ExitCode:3");
        assert_eq!(of_containers(&[ended("Completed", 0), runs]), "Running", "one of them goes on");
    }

    #[test]
    fn it_is_said_how_far_init_containers_are() {
        let runs = json!({"running": {}});
        assert_eq!(of_init(&[("proxy", runs.clone()), ("fill", runs.clone())]), "Init:1/2");
        assert_eq!(of_init(&[("proxy", runs.clone()), ("fill", ended("Error", 1))]), "Init:Error");
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        assert_eq!(of_init(&[("proxy", waits("PodInitializing"))]), "Init:0/2");
        assert_eq!(of_init(&[("proxy", waits("ErrImagePull"))]), "Init:ErrImagePull");
        assert_eq!(of_init(&[("proxy", runs), ("fill", ended("Completed", 0))]), "PodInitializing");
    }

    #[test]
    fn a_pod_that_is_to_end_says_so_until_it_has_ended() {
        let pod = |phase: &str, reason: &str| {
            let pod = json!({
                "metadata": {"name": "web", "deletionTimestamp": "2030-01-01T00:00:00Z"},
                "status": {"phase": phase, "reason": reason},
            });
            status(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(pod("Running", ""), "Terminating");
        assert_eq!(pod("Succeeded", ""), "Succeeded");
        assert_eq!(pod("Running", "NodeLost"), "Unknown");
    }
}
