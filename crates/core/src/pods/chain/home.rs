//! The pod at home and its node: what they show, and whether anything behind them explains it.

use ferro_api::names::labels;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodCondition};

use super::{Found, Link, Snapshot, State, Step, has_ended, kubectl, said};
use crate::pods::inward::{phase_of, ready};

pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub(super) fn is_virtual(node: &Node) -> bool {
    labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata)
}

fn name(pod: &Pod) -> String {
    let (namespace, name) = kubectl(pod);
    format!("{namespace}/{name}")
}

/// What a pod shows: its phase, and whether it is ready.
pub(super) fn shows(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "is being deleted".into();
    }
    let phase = phase_of(pod).unwrap_or("Pending");
    match ready(pod) {
        _ if has_ended(pod) => {
            let word = pod.status.as_ref().and_then(|status| status.reason.as_deref());
            said(Some(phase), word).unwrap_or_default()
        }
        Some(ready) if ready.status == "True" => format!("{phase}, ready"),
        Some(PodCondition { reason: Some(reason), .. }) => format!("{phase}, not ready: {reason}"),
        Some(_) | None => format!("{phase}, not ready"),
    }
}

/// A pod that no node was found for.
pub(super) fn unbound(pod: &Pod) -> Step {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let verdict = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    match verdict {
        Some(verdict) => {
            let (namespace, _) = kubectl(pod);
            let why = said(verdict.reason.as_deref(), verdict.message.as_deref()).unwrap_or_default();
            let fault = format!(
                "the scheduler finds no node: {why}; 'ferro explain {namespace}' tells which clusters its namespace may \
                 use, and why not"
            );
            Step::broken(Link::Pod, name(pod), "Pending, on no node", fault)
        }
        None => Step::new(Link::Pod, name(pod), State::Waiting, "Pending, on no node yet"),
    }
}

/// A pod on a node of this cluster.
pub(super) fn at_home(pod: &Pod, node: &str) -> Step {
    let shows = format!("{}; runs at home, on {node}", shows(pod));
    Step::new(Link::Pod, name(pod), State::Good, shows)
}

/// The pod, its node, and the links behind them.
pub(super) fn pod(pod: &Pod, node: &Step, behind: &[Step]) -> Step {
    let is_ready = ready(pod).is_some_and(|ready| ready.status == "True");
    let is_fine = if has_ended(pod) { phase_of(pod) == Some("Succeeded") } else { is_ready };
    let any = |state| node.is(state) || behind.iter().any(|step| step.is(state));
    if is_fine {
        return Step::new(Link::Pod, name(pod), State::Good, shows(pod));
    }
    if any(State::Broken) || pod.metadata.deletion_timestamp.is_some() {
        return Step::new(Link::Pod, name(pod), State::Waiting, shows(pod));
    }
    match refusal(pod) {
        Some(why) => Step::broken(Link::Pod, name(pod), shows(pod), why),
        None if any(State::Waiting) => Step::new(Link::Pod, name(pod), State::Waiting, shows(pod)),
        None => {
            let (namespace, name_) = kubectl(pod);
            let fault = format!(
                "nothing is wrong behind it, and yet it is not ready; see 'kubectl --namespace {namespace} describe pod \
                 {name_}' and the logs of ferro-controller"
            );
            Step::broken(Link::Pod, name(pod), shows(pod), fault)
        }
    }
}

/// Why it waits or has failed, where it says that itself: what only waits for its containers has nothing to say.
fn refusal(pod: &Pod) -> Option<String> {
    const CONSEQUENCES: [&str; 3] = ["ContainersNotReady", "PodFailed", "PodCompleted"];
    let status = pod.status.as_ref()?;
    if has_ended(pod) {
        return said(status.reason.as_deref(), status.message.as_deref());
    }
    let ready = ready(pod).filter(|ready| ready.message.as_ref().is_some_and(|text| !text.is_empty()))?;
    let reason = ready.reason.as_deref().filter(|reason| !CONSEQUENCES.contains(reason))?;
    said(Some(reason), ready.message.as_deref())
}

/// The node, and the links behind it.
pub(super) fn node(snapshot: &Snapshot, name: &str, behind: &[Step]) -> Step {
    let node = match &snapshot.node {
        Found::Some(node) => node,
        Found::None => {
            let fault = format!(
                "there is no node {name} any more; delete the pod, so that its owner makes another one elsewhere"
            );
            return Step::broken(Link::Node, name, "does not exist", fault);
        }
        Found::Unknown(why) => return Step::new(Link::Node, name, State::Unknown, why),
    };
    let Some(ready) = condition(node) else {
        return Step::new(Link::Node, name, State::Waiting, "has said nothing yet");
    };
    let why = said(ready.reason.as_deref(), ready.message.as_deref()).unwrap_or_default();
    match ready.status.as_str() {
        "True" => Step::new(Link::Node, name, State::Good, "Ready"),
        // Nobody reports for it, so that what is shown behind it may be old as well.
        "Unknown" => {
            let fault = format!("its agent does not report ({why}); see 'ferro status'");
            Step::broken(Link::Node, name, "silent", fault)
        }
        _ if behind.iter().any(|step| step.is(State::Broken)) => {
            Step::new(Link::Node, name, State::Waiting, "not Ready")
        }
        _ => Step::broken(Link::Node, name, "not Ready", format!("it is not Ready: {why}")),
    }
}

fn condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}
