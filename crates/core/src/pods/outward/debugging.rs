//! Containers for debugging that have ended: they are not part of the wish any more, since in a pod that is made again over
//! there they would run once more, long after somebody has read what they said.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec};

/// Takes away those that have run and ended. From the pod that runs nothing is ever taken away.
pub fn without_ended(spec: &mut PodSpec, pod: &Pod) {
    let known = pod.status.as_ref().and_then(|status| status.ephemeral_container_statuses.as_deref());
    let ended: Vec<&str> = known
        .unwrap_or_default()
        .iter()
        .filter(|status| has_ended(status))
        .map(|status| status.name.as_str())
        .collect();
    if ended.is_empty() {
        return;
    }
    if let Some(all) = &mut spec.ephemeral_containers {
        all.retain(|container| !ended.contains(&container.name.as_str()));
        if all.is_empty() {
            spec.ephemeral_containers = None;
        }
    }
}

/// One that was refused is shown as ended and has never run: it may be let in later.
fn has_ended(status: &ContainerStatus) -> bool {
    let is_terminated = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    is_terminated && status.container_id.is_some()
}
