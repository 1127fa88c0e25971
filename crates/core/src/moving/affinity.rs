//! The node affinity by which pods belong to a cluster.

use ferro_api::names::{annotations, labels};
use k8s_openapi::api::core::v1::{Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The word for this cluster.
const HOME: &str = "home";

/// Where pods belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belonging {
    /// On nodes of this cluster.
    Home,
    /// On the cluster with this identifier.
    Cluster(String),
}

impl Belonging {
    /// Where it was moved to, as is noted on it.
    pub fn of(moved: &ObjectMeta) -> Option<Self> {
        let noted = annotations::MOVED_TO.of(moved)?;
        Some(if noted == HOME { Self::Home } else { Self::Cluster(noted.to_owned()) })
    }

    /// Notes it.
    pub(super) fn put_on(&self, moved: &mut ObjectMeta) {
        annotations::MOVED_TO.put_on(moved, self.note());
    }

    fn note(&self) -> &str {
        match self {
            Self::Home => HOME,
            Self::Cluster(id) => id,
        }
    }

    fn requirement(&self) -> NodeSelectorRequirement {
        let (key, operator, value) = match self {
            Self::Home => (labels::TYPE_VIRTUAL_NODE.key(), "NotIn", labels::TYPE_VIRTUAL_NODE.value()),
            Self::Cluster(id) => (labels::REMOTE_ID.key(), "In", id.as_str()),
        };
        let values = Some(vec![value.to_owned()]);
        NodeSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values }
    }
}

/// The affinity of pods that belong there, in place of where they belonged by an earlier move.
pub fn steered(present: Option<&Affinity>, former: Option<&Belonging>, to: &Belonging) -> Affinity {
    let mut affinity = present.cloned().unwrap_or_default();
    let node = affinity.node_affinity.get_or_insert_default();
    let required = node.required_during_scheduling_ignored_during_execution.take();
    let mut terms = required.map(|required| required.node_selector_terms).unwrap_or_default();
    if let Some(former) = former.map(Belonging::requirement) {
        for term in &mut terms {
            drop_from(term, &former);
        }
        // One that only said where pods belonged says nothing now, and would select nothing.
        if terms.iter().all(is_empty) {
            terms.clear();
        }
    }
    let wanted = to.requirement();
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
        add_to(&mut terms, &wanted, |_| true);
    } else {
        // A term that is empty selects nothing, and with anything added it would select much.
        add_to(&mut terms, &wanted, |term| !is_empty(term));
    }
    node.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: terms });
    affinity
}

fn add_to(
    terms: &mut [NodeSelectorTerm],
    wanted: &NodeSelectorRequirement,
    which: impl Fn(&NodeSelectorTerm) -> bool,
) {
    for term in terms.iter_mut().filter(|term| which(term)) {
        let expressions = term.match_expressions.get_or_insert_default();
        if !expressions.contains(wanted) {
            expressions.push(wanted.clone());
        }
    }
}

fn drop_from(term: &mut NodeSelectorTerm, requirement: &NodeSelectorRequirement) {
    if let Some(expressions) = &mut term.match_expressions {
        expressions.retain(|present| present != requirement);
    }
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.as_ref().is_none_or(Vec::is_empty)
        && term.match_fields.as_ref().is_none_or(Vec::is_empty)
}

/// The merge patch by which a Deployment with this affinity in its template belongs there; none if it does already.
pub fn patch(present: Option<&Affinity>, former: Option<&Belonging>, to: &Belonging) -> Option<Value> {
    let next = steered(present, former, to);
    if Some(&next) == present && former == Some(to) {
        return None;
    }
    let required =
        next.node_affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution);
    Some(json!({
        "metadata": {"annotations": {(annotations::MOVED_TO.key()): to.note()}},
        "spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
        }}}}},
    }))
}
