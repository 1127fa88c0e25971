//! Where pods can be: whether the node of a peer takes them, whether they could be at home, and where their data lies.

use ferro_api::names::{labels, taints};
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaim, PodSpec, Taint,
};

use crate::claims::{bound_to, is_of_ours, selected_node, volume_name};

/// What Kubernetes puts on a node that is cordoned.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// Whether the node of a peer takes pods of this kind now, or why not.
pub(super) fn takes(node: &Node, spec: &PodSpec) -> Result<(), String> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ready = conditions.unwrap_or_default().iter().find(|condition| condition.type_ == "Ready");
    if ready.is_none_or(|ready| ready.status != "True") {
        let why = ready.and_then(|ready| ready.message.clone());
        return Err(why.unwrap_or_else(|| "it is not Ready".to_owned()));
    }
    let given = node.spec.clone().unwrap_or_default();
    let (is_cordoned, present) = (given.unschedulable == Some(true), given.taints.unwrap_or_default());
    let (own, draining) = (taints::not_allowed().key, taints::draining().key);
    // A node that is being emptied is cordoned as well, and nobody should take that back.
    if present.iter().any(|taint| taint.key == draining) {
        return Err("it is being emptied, as at the end of a peering".to_owned());
    }
    let cordoned = Taint { key: CORDONED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    if is_cordoned && !tolerates(spec, &cordoned) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("it is cordoned; run 'kubectl uncordon {name}'"));
    }
    let holds =
        |taint: &&Taint| taint.key != own && taint.effect != "PreferNoSchedule" && !tolerates(spec, taint);
    match present.iter().find(holds) {
        Some(taint) => Err(format!("it has the taint {}", taint.key)),
        None => Ok(()),
    }
}

/// Whether the pods put up with a taint, as Kubernetes asks.
fn tolerates(spec: &PodSpec, taint: &Taint) -> bool {
    let is_for = |part: Option<&str>, own: &str| part.is_none_or(|part| part.is_empty() || part == own);
    spec.tolerations.iter().flatten().any(|toleration| {
        is_for(toleration.effect.as_deref(), &taint.effect)
            && is_for(toleration.key.as_deref(), &taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                None | Some("" | "Equal") => {
                    toleration.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default()
                }
                Some(_) => false,
            }
    })
}

/// Why pods can never be at home: they ask for nodes that stand for other clusters. What else they ask for, a node may have
/// that an autoscaler makes.
pub(super) fn only_abroad(spec: &PodSpec) -> Option<String> {
    let key = labels::TYPE_VIRTUAL_NODE.key();
    if let Some(value) = spec.node_selector.as_ref().and_then(|all| all.get(key)) {
        return Some(format!("their nodeSelector asks for {key}={value}"));
    }
    let node = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &node.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let is_for_it =
        |one: &NodeSelectorRequirement| one.key == key && matches!(one.operator.as_str(), "In" | "Exists");
    let is_abroad = |term: &NodeSelectorTerm| term.match_expressions.iter().flatten().any(is_for_it);
    let is_everywhere = !terms.is_empty() && terms.iter().all(is_abroad);
    is_everywhere.then(|| format!("their node affinity asks for {key}"))
}

/// Whether what a claim holds lies on a peer: it was made over there, for a pod that came to that node first. All else lies
/// in this cluster.
pub(super) fn lies_abroad(claim: &PersistentVolumeClaim, nodes: &[Node]) -> bool {
    let is_virtual = |name: &str| {
        let mut virtual_nodes = nodes.iter().filter(|node| labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata));
        virtual_nodes.any(|node| node.metadata.name.as_deref() == Some(name))
    };
    let stands_for_one = || {
        let own = claim.metadata.uid.as_deref().map(volume_name);
        is_of_ours(claim) && own.is_some() && bound_to(claim) == own.as_deref()
    };
    selected_node(claim).is_some_and(is_virtual) || stands_for_one()
}
