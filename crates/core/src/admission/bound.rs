//! Whether a pod that is bound to a virtual node may run over there; it may have come past scheduler and webhook.

use std::collections::BTreeMap;

use ferro_api::offloading::{NamespaceOffloading, PodOffloadingStrategy};
use ferro_api::virtualkubelet::CurrentMapping;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::patch::own_selector;
use super::refusal::{Missing, Refusal};
use crate::selector::Selector;

/// The virtual node that a pod is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// Whether a pod may run on a virtual node: its namespace is offloaded there, and policy and pod both want that node.
///
/// `offloading` is of the pod's namespace, and `mapping` what the cluster of the node says about that namespace. Ask when
/// a pod is adopted: as with any node, labels that change later do not matter to pods that run.
pub fn admits(
    pod: &Pod,
    offloading: Option<&NamespaceOffloading>,
    mapping: Option<&CurrentMapping>,
    node: Place<'_>,
) -> Result<(), Refusal> {
    if is_of_a_daemon_set(pod) {
        return Err(Refusal::OfADaemonSet);
    }
    let in_force = offloading.filter(|offloading| offloading.metadata.deletion_timestamp.is_none());
    let policy = &in_force.ok_or(Refusal::NotOffloaded)?.spec;
    if policy.pod_offloading_strategy() == PodOffloadingStrategy::Local {
        return Err(Refusal::Local);
    }
    let selector = Selector::parse(&policy.cluster_selector()).map_err(Refusal::Policy)?;
    if !selector.matches(node.name, node.labels) {
        return Err(Refusal::NotSelected(selector.explain(node.name, node.labels).join(", or ")));
    }
    if let Some(missing) = missing(mapping) {
        return Err(Refusal::NoNamespace(missing));
    }
    pod.spec.as_ref().map_or(Ok(()), |spec| is_wanted(spec, node))
}

fn is_of_a_daemon_set(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| {
        owner.controller == Some(true) && owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
    })
}

fn missing(mapping: Option<&CurrentMapping>) -> Option<Missing> {
    let Some(mapping) = mapping else { return Some(Missing::Unmade) };
    Missing::by(mapping.phase, mapping.message.as_deref())
}

/// Whether the pod itself selects the node, as the scheduler would have seen to.
fn is_wanted(spec: &PodSpec, node: Place<'_>) -> Result<(), Refusal> {
    for (key, value) in spec.node_selector.iter().flatten() {
        if node.labels.get(key) != Some(value) {
            return Err(Refusal::Unwanted(format!("its nodeSelector asks for {key}={value}")));
        }
    }
    let Some(own) = own_selector(spec) else { return Ok(()) };
    let own = Selector::parse(own).map_err(|error| Refusal::Unwanted(error.to_string()))?;
    if own.matches(node.name, node.labels) {
        return Ok(());
    }
    Err(Refusal::Unwanted(own.explain(node.name, node.labels).join(", or ")))
}
