//! What is answered about a pod that is known here and is not on its cluster: it has not begun, is made again, or has ended.
//!
//! It is what any kubelet says of a pod that does not run. A 404 would tell that there is no such pod, which is here for
//! all to see.

use hyper::StatusCode;
use k8s_openapi::api::core::v1::{ContainerState, Pod};

use super::super::question::{Ask, What};
use super::super::refusal::Refusal;

/// Until it is said why a container waits.
const CREATING: &str = "ContainerCreating";

/// Why this cannot be had of a pod, by what is shown of it here.
pub(super) fn absent(ask: &Ask, here: &Pod) -> Refusal {
    let container = ask.container.as_deref().unwrap_or_default();
    let Ask { namespace, pod, .. } = ask;
    match ask.what {
        What::Log => {
            let is = condition(state(here, container));
            Refusal::bad(format!("container {container:?} in pod {pod:?} {is}"))
        }
        What::Exec | What::Attach => {
            let message = format!("container not found ({container:?})");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        What::PortForward => {
            let message = format!("pod not found (\"{pod}_{namespace}\")");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        What::Shadow | What::Remote => {
            let message = format!("namespace {namespace:?} has no counterpart on the cluster of pod {pod:?}");
            Refusal::new(StatusCode::NOT_FOUND, message)
        }
    }
}

fn condition(state: Option<&ContainerState>) -> String {
    match state {
        Some(state) if state.terminated.is_some() => {
            "has ended, and its log has gone with its pod on the other cluster".into()
        }
        Some(state) if state.running.is_some() => {
            "is not available: its pod is not on the other cluster at present".into()
        }
        _ => {
            let reason = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
            format!("is waiting to start: {}", reason.unwrap_or(CREATING))
        }
    }
}

fn state<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerState> {
    let status = pod.status.as_ref()?;
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|status| status.name == container)?.state.as_ref()
}

#[cfg(test)]
mod tests {
    use hyper::Method;
    use serde_json::{Value, json};

    use super::super::super::question::Question;
    use super::*;

    fn answer(method: &Method, path: &str, query: &str, here: &Pod) -> (u16, String) {
        let Ok(Question::Pod(ask)) = Question::parse(method, path, query) else {
            panic!("{path} is about no pod")
        };
        let refusal = absent(&ask, here);
        (refusal.status.as_u16(), refusal.message)
    }

    /// A pod with a container of each kind, all of them in this state.
    fn pod(state: &Value) -> Pod {
        let container = |name| {
            json!({
                "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            })
        };
        serde_json::from_value(json!({"status": {
            "initContainerStatuses": [container("first")],
            "containerStatuses": [container("other"), container("app")],
            "ephemeralContainerStatuses": [container("debugger")],
        }}))
        .unwrap()
    }

    #[test]
    fn who_asks_for_the_log_of_a_container_that_waits_is_told_why_it_waits() {
        let log = |container: &str, here: &Pod| {
            answer(&Method::GET, &format!("/containerLogs/shop/web/{container}"), "", here)
        };
        let refused = pod(&json!({"waiting": {"reason": "HostPathVolume"}}));
        for name in ["first", "app", "debugger"] {
            let wanted = format!("container \"{name}\" in pod \"web\" is waiting to start: HostPathVolume");
            assert_eq!(log(name, &refused), (400, wanted));
        }
        let creating = "container \"app\" in pod \"web\" is waiting to start: ContainerCreating";
        for unknown in [Pod::default(), pod(&Value::Null), pod(&json!({"waiting": {}}))] {
            assert_eq!(log("app", &unknown), (400, creating.to_owned()));
        }
        let (status, message) = log("app", &pod(&json!({"terminated": {"exitCode": 0}})));
        assert!(status == 400 && message.contains("has ended"), "{status} {message}");
        let (status, message) = log("app", &pod(&json!({"running": {}})));
        assert!(status == 400 && message.contains("is not available"), "{status} {message}");
    }

    #[test]
    fn who_would_run_a_command_is_told_that_there_is_no_container_yet() {
        let here = Pod::default();
        let command = answer(&Method::POST, "/exec/shop/web/app", "output=1&command=ls", &here);
        assert_eq!(command, (500, "container not found (\"app\")".to_owned()));
        let attach = answer(&Method::POST, "/attach/shop/web/app", "output=1", &here);
        assert_eq!(attach, (500, "container not found (\"app\")".to_owned()));
        let ports = answer(&Method::POST, "/portForward/shop/web", "", &here);
        assert_eq!(ports, (500, "pod not found (\"web_shop\")".to_owned()));
    }
}
