//! The containers of a pod: as its cluster shows them, or where that cannot be seen, as the pod at home last did.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

use super::there::remote;
use super::{Link, Snapshot, State, Step, There, kubectl, said};
use crate::pods::inward::ready;

/// What a container waits for while all goes well.
const PATIENT: [&str; 2] = ["ContainerCreating", "PodInitializing"];

pub(super) fn all(snapshot: &Snapshot) -> Vec<Step> {
    let of = match (remote(snapshot), &snapshot.there) {
        (Some(remote), _) => remote,
        // There are none, and what the pod at home says about them is about itself.
        (None, There::Answers(_)) => return Vec::new(),
        (None, There::Fails(_) | There::Unknown(_)) => &snapshot.pod,
    };
    let Some(status) = &of.status else { return Vec::new() };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all = lists.into_iter().flat_map(|list| list.iter().flatten());
    all.map(|container| one(&snapshot.pod, container)).collect()
}

fn one(pod: &Pod, container: &ContainerStatus) -> Step {
    let name = container.name.as_str();
    let restarts = match container.restart_count {
        0 => String::new(),
        count => format!(", restarts {count}"),
    };
    let ContainerState { running, terminated, waiting } = container.state.clone().unwrap_or_default();
    if running.is_some() {
        let (state, is) =
            if container.ready { (State::Good, "ready") } else { (State::Waiting, "not ready") };
        return Step::new(Link::Container, name, state, format!("running, {is}{restarts}"));
    }
    let (namespace, pod_name) = kubectl(pod);
    let logs = |more: &str| {
        format!("see 'kubectl --namespace {namespace} logs {pod_name} --container {name}{more}'")
    };
    if let Some(ended) = terminated {
        let code = ended.exit_code;
        if code == 0 {
            return Step::new(Link::Container, name, State::Good, format!("ended well{restarts}"));
        }
        let why = said(ended.reason.as_deref(), ended.message.as_deref());
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let fault = format!("it ended with the code {code}{why}; {}", logs(""));
        return Step::broken(Link::Container, name, format!("ended with {code}{restarts}"), fault);
    }
    let waiting = waiting.unwrap_or_default();
    let word = waiting.reason.as_deref().unwrap_or("waiting");
    let shows = format!("{word}{restarts}");
    // A pod that is refused says so of itself, and of its containers the same.
    let is_refusal = ready(pod).is_some_and(|ready| ready.reason.as_deref() == Some(word));
    if waiting.reason.is_none() || PATIENT.contains(&word) || is_refusal {
        return Step::new(Link::Container, name, State::Waiting, shows);
    }
    let why = waiting.message.unwrap_or_else(|| word.to_owned());
    let hint = if container.restart_count > 0 { format!("; {}", logs(" --previous")) } else { String::new() };
    Step::broken(Link::Container, name, shows, format!("{why}{hint}"))
}
