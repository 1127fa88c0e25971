//! Moving pods to another cluster, or home: whether they may go, what is changed of them, and how far a Deployment has come.
//!
//! Pods are moved by plain Kubernetes: the node affinity of their template says where they belong, and the rolling update of
//! their Deployment makes new ones there before it ends old ones. The policy of their namespace is asked beforehand, by the
//! same code that would keep them from there.
//!
//! Guarantees: affinity that others wrote stays, and can only be narrowed; what an earlier move added is taken back by the
//! next one. Moving to where pods belong already changes nothing.

mod affinity;
mod places;
mod rollout;

use std::collections::BTreeMap;

use ferro_api::names::labels;
use ferro_api::offloading::{NamespaceOffloading, PodOffloadingStrategy};
use ferro_api::virtualkubelet::CurrentMapping;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::{self, Place, admits};
use crate::claims::selected_node;
use crate::pods::{Refusal, outward};

pub use affinity::{Belonging, patch, steered};
pub use rollout::{Progress, Standing, outage, progress};

/// Where pods are to go.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// To nodes of this cluster.
    Home {
        /// All its nodes, with those that stand for other clusters; none for who may not see them. Then the scheduler has
        /// the only word on whether pods find one.
        nodes: Option<&'a [Node]>,
    },
    /// To another cluster.
    Peer {
        /// The node that stands for it.
        node: &'a Node,
        /// What it says of their namespace.
        mapping: Option<&'a CurrentMapping>,
    },
}

impl Destination<'_> {
    /// What pods that belong there have in common.
    pub fn belonging(&self) -> Belonging {
        match self {
            Self::Home { .. } => Belonging::Home,
            Self::Peer { node, .. } => {
                Belonging::Cluster(labels::REMOTE_ID.of(&node.metadata).unwrap_or_default().to_owned())
            }
        }
    }
}

/// Why pods cannot be moved, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// They have to be elsewhere.
    #[error(
        "the NamespaceOffloading keeps pods on other clusters: its podOffloadingStrategy is Remote; to let them home, run \
         'ferro offload {0} --pods local-and-remote'"
    )]
    RemoteOnly(String),
    /// They may not be there.
    #[error(transparent)]
    NotAdmitted(#[from] admission::Refusal),
    /// They cannot leave.
    #[error("{}", .0.message)]
    CannotTravel(Refusal),
    /// They ask for what home does not have.
    #[error(
        "the pods ask for a node that this cluster does not have: {0}; change their nodeSelector or node affinity first"
    )]
    NoNodeAtHome(String),
    /// Nothing new can start there.
    #[error("the node {0} takes no pods now: {1}")]
    NodeUnfit(String, String),
    /// Their data stays behind.
    #[error(
        "the claim {0} holds data that lies where the pods run now, and data does not move between clusters; copy it into a \
         claim over there, let the pods use that one, and move them then"
    )]
    Claim(String),
}

/// Whether pods of this template may go there; `former` is where they belong by an earlier move, and `claims` are those of
/// their namespace.
pub fn check(
    namespace: &str,
    template: &PodTemplateSpec,
    former: Option<&Belonging>,
    offloading: Option<&NamespaceOffloading>,
    to: &Destination<'_>,
    claims: &[PersistentVolumeClaim],
) -> Result<(), Obstacle> {
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.affinity = Some(steered(spec.affinity.as_ref(), former, &to.belonging()));
    match to {
        Destination::Home { .. } => {
            let strategy = offloading.map(|offloading| offloading.spec.pod_offloading_strategy());
            if strategy == Some(PodOffloadingStrategy::Remote) {
                return Err(Obstacle::RemoteOnly(namespace.to_owned()));
            }
            if let Some(why) = places::only_abroad(&spec) {
                return Err(Obstacle::NoNodeAtHome(why));
            }
        }
        Destination::Peer { node, mapping } => {
            let (none, name) = (BTreeMap::new(), node.metadata.name.as_deref().unwrap_or_default());
            places::takes(node, &spec).map_err(|why| Obstacle::NodeUnfit(name.to_owned(), why))?;
            let pod = pod(namespace, template, &spec);
            let labels = node.metadata.labels.as_ref().unwrap_or(&none);
            admits(&pod, offloading, *mapping, Place { name, labels })?;
            outward::shadow(&pod, namespace, "", &outward::access::Access::Closed)
                .map_err(Obstacle::CannotTravel)?;
        }
    }
    // Who belongs there already is not moved, only waited for, and may have got its volume there.
    match bound_claim(&spec, to, claims) {
        Some(claim) if former != Some(&to.belonging()) => Err(Obstacle::Claim(claim.to_owned())),
        Some(_) | None => Ok(()),
    }
}

/// A pod as it would be made there.
fn pod(namespace: &str, template: &PodTemplateSpec, spec: &PodSpec) -> Pod {
    let given = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta { namespace: Some(namespace.to_owned()), ..given };
    Pod { metadata, spec: Some(spec.clone()), status: None }
}

/// A claim of the pods that has a volume already, and not there. One that waits for its first pod finds a volume where that
/// is.
fn bound_claim<'a>(
    spec: &'a PodSpec,
    to: &Destination<'_>,
    claims: &[PersistentVolumeClaim],
) -> Option<&'a str> {
    let lies_there = |claim: &PersistentVolumeClaim| match to {
        Destination::Home { nodes } => !places::lies_abroad(claim, nodes.unwrap_or_default()),
        Destination::Peer { node, .. } => node.metadata.name.as_deref() == selected_node(claim),
    };
    let is_bound = |name: &&str| {
        claims.iter().any(|claim| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            claim.metadata.name.as_deref() == Some(name) && phase == Some("Bound") && !lies_there(claim)
        })
    };
    let volumes = spec.volumes.iter().flatten();
    let named =
        volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()));
    named.into_iter().find(is_bound)
}

/// The same pod, to be made again there; nothing of where it was.
pub fn again(pod: &Pod, to: &Destination<'_>) -> Pod {
    let given = &pod.metadata;
    let (former, belonging) = (Belonging::of(given), to.belonging());
    let mut spec = pod.spec.clone().unwrap_or_default();
    spec.affinity = Some(steered(spec.affinity.as_ref(), former.as_ref(), &belonging));
    spec.node_name = None;
    let mut metadata = ObjectMeta {
        name: given.name.clone(),
        namespace: given.namespace.clone(),
        labels: given.labels.clone(),
        annotations: given.annotations.clone(),
        ..ObjectMeta::default()
    };
    belonging.put_on(&mut metadata);
    Pod { metadata, spec: Some(spec), status: None }
}

#[cfg(test)]
mod tests;
