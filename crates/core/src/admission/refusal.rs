//! Why a pod is not admitted: one word for programs, and a sentence that says what to do.

use ferro_api::virtualkubelet::MappingPhase;

use super::terms::MOST;
use crate::selector::SelectorError;

/// Why a pod is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The policy of its namespace makes no sense.
    #[error(
        "the clusterSelector of the NamespaceOffloading cannot be understood: {0}; an administrator has to mend it"
    )]
    Policy(SelectorError),
    /// Its own affinity and the policy are too much together.
    #[error(
        "the node affinity of the pod and the clusterSelector of the NamespaceOffloading give more than {MOST} \
         requirements and values together; shorten one of them"
    )]
    TooLarge,
    /// It belongs to a DaemonSet.
    #[error(
        "pods of a DaemonSet do not run on other clusters; to keep them off virtual nodes, give the DaemonSet the node \
         affinity liqo.io/type NotIn [virtual-node]"
    )]
    OfADaemonSet,
    /// Nobody has extended its namespace.
    #[error("the namespace of the pod is not offloaded; run: ferro offload NAMESPACE")]
    NotOffloaded,
    /// The pods of its namespace stay at home.
    #[error("the NamespaceOffloading keeps pods in this cluster: its podOffloadingStrategy is Local")]
    Local,
    /// Its namespace does not exist over there.
    #[error("the namespace of the pod has no counterpart on the cluster of this node: {0}")]
    NoNamespace(Missing),
    /// The policy of its namespace does not select this node.
    #[error("the clusterSelector of the NamespaceOffloading does not select this node: {0}")]
    NotSelected(String),
    /// Its own node selector or affinity does not select this node.
    #[error("the pod does not select this node: {0}")]
    Unwanted(String),
}

/// Why there is no namespace over there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// It was not asked for, or nothing was heard of it yet.
    #[error("none was made yet")]
    Unmade,
    /// It cannot be created.
    #[error("it could not be created: {0}")]
    Failed(String),
    /// It is going.
    #[error("it is being removed")]
    Going,
}

impl Missing {
    pub(super) fn by(phase: MappingPhase, message: Option<&str>) -> Option<Self> {
        match phase {
            MappingPhase::Accepted => None,
            MappingPhase::CreationLoopBackOff => {
                Some(Self::Failed(message.unwrap_or("the cluster gives no reason").to_owned()))
            }
            MappingPhase::Terminating => Some(Self::Going),
        }
    }
}

impl Refusal {
    /// One word, as in a condition or the reason of a pod's state.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Policy(_) => "BadClusterSelector",
            Self::TooLarge => "AffinityTooLarge",
            Self::OfADaemonSet => "DaemonSetPod",
            Self::NotOffloaded => "NamespaceNotOffloaded",
            Self::Local => "LocalOnly",
            Self::NoNamespace(_) => "NoRemoteNamespace",
            Self::NotSelected(_) => "ClusterNotSelected",
            Self::Unwanted(_) => "NodeAffinity",
        }
    }
}
