//! What the other cluster has of a pod: the ShadowPod, and the pod that was made from it.

use ferro_api::names::annotations;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase};
use k8s_openapi::api::core::v1::Pod;

use super::home::shows;
use super::{Link, Objects, Snapshot, State, Step, There, said};
use crate::pods::inward::phase_of;

fn objects(snapshot: &Snapshot) -> Option<&Objects> {
    match &snapshot.there {
        There::Answers(objects) => Some(objects),
        There::Fails(_) | There::Unknown(_) => None,
    }
}

/// The pod over there, if it was made for this one.
pub(super) fn remote(snapshot: &Snapshot) -> Option<&Pod> {
    let objects = objects(snapshot)?;
    let (shadow, pod) = (own_shadow(snapshot)?, objects.pod.as_ref()?);
    (annotations::SHADOW_UID.of(&pod.metadata) == shadow.metadata.uid.as_deref()).then_some(pod)
}

fn own_shadow(snapshot: &Snapshot) -> Option<&ShadowPod> {
    let shadow = objects(snapshot)?.shadow.as_ref()?;
    let uid = snapshot.pod.metadata.uid.as_deref();
    (annotations::ORIGIN_UID.of(&shadow.metadata) == uid).then_some(shadow)
}

/// The name of something over there.
fn name(snapshot: &Snapshot) -> String {
    let namespace = snapshot.mapping.seen().and_then(|mapping| mapping.remote_namespace.as_deref());
    let name = snapshot.pod.metadata.name.as_deref().unwrap_or_default();
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The ShadowPod. Where the cluster does not answer, there is nothing to say.
pub(super) fn shadow(snapshot: &Snapshot) -> Option<Step> {
    let (name, objects) = (name(snapshot), objects(snapshot)?);
    let step = match (&objects.shadow, own_shadow(snapshot)) {
        (None, _) => Step::new(Link::ShadowPod, name, State::Waiting, "there is none"),
        (Some(other), None) if other.metadata.deletion_timestamp.is_some() => {
            Step::new(Link::ShadowPod, name, State::Waiting, "that of an earlier pod is going")
        }
        (Some(_), None) => {
            let fault = "the name is taken by one that was not made for this pod; one of an earlier pod goes by itself, \
                         any other has to be deleted over there";
            Step::broken(Link::ShadowPod, name, "is of another pod", fault)
        }
        (Some(_), Some(own)) => judged(own, name),
    };
    Some(step)
}

fn judged(shadow: &ShadowPod, name: String) -> Step {
    let status = shadow.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let word = word(phase);
    let shows = said(Some(word), status.reason.as_deref()).unwrap_or_default();
    let why = status.message.unwrap_or_else(|| "the cluster does not say why".to_owned());
    match phase {
        ShadowPodPhase::Rejected => {
            let fault = format!("the cluster does not take the pod: {why}");
            Step::broken(Link::ShadowPod, name, shows, fault)
        }
        // How it failed is seen on the pod, if that is still there.
        ShadowPodPhase::Failed if status.reason.is_some() => Step::broken(Link::ShadowPod, name, shows, why),
        ShadowPodPhase::Pending => Step::new(Link::ShadowPod, name, State::Waiting, shows),
        ShadowPodPhase::Failed | ShadowPodPhase::Active | ShadowPodPhase::Succeeded => {
            Step::new(Link::ShadowPod, name, State::Good, shows)
        }
    }
}

fn word(phase: ShadowPodPhase) -> &'static str {
    match phase {
        ShadowPodPhase::Pending => "Pending",
        ShadowPodPhase::Active => "Active",
        ShadowPodPhase::Succeeded => "Succeeded",
        ShadowPodPhase::Failed => "Failed",
        ShadowPodPhase::Rejected => "Rejected",
    }
}

/// The pod that was made from it.
pub(super) fn pod(snapshot: &Snapshot) -> Option<Step> {
    own_shadow(snapshot)?;
    let name = name(snapshot);
    let Some(pod) = remote(snapshot) else {
        return Some(Step::new(Link::RemotePod, name, State::Waiting, "there is none"));
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let on = node.map(|node| format!(", on {node}")).unwrap_or_default();
    let shows = format!("{}{on}", shows(pod));
    let status = pod.status.clone().unwrap_or_default();
    let step = match phase_of(pod) {
        Some("Failed") => {
            let why = said(status.reason.as_deref(), status.message.as_deref());
            let fault = why.unwrap_or_else(|| "a container of it failed".to_owned());
            Step::broken(Link::RemotePod, name, shows, fault)
        }
        Some("Succeeded") => Step::new(Link::RemotePod, name, State::Good, shows),
        _ if pod.metadata.deletion_timestamp.is_some() => {
            Step::new(Link::RemotePod, name, State::Waiting, shows)
        }
        Some("Running") => Step::new(Link::RemotePod, name, State::Good, shows),
        _ => match unscheduled(pod) {
            Some(why) => {
                let fault = format!("the scheduler over there finds no node for it: {why}");
                Step::broken(Link::RemotePod, name, "Pending, on no node", fault)
            }
            None => Step::new(Link::RemotePod, name, State::Waiting, shows),
        },
    };
    Some(step)
}

fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let verdict = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    said(verdict.reason.as_deref(), verdict.message.as_deref())
}
