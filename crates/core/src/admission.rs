//! Where the pods of an offloaded namespace may run: what is added to a pod when it is created, and whether one that came
//! to a virtual node may stay there.
//!
//! Both ask the same policy, the `NamespaceOffloading` of the pod's namespace, so that a pod which came past the webhook
//! (by `nodeName`, or with a toleration that was added later) gets no further than one that did not.
//!
//! Guarantees:
//! - A pod's own affinity counts and can only narrow: a node that the mutated pod accepts is accepted by the pod as it was
//!   and by the policy, and the other way round.
//! - What was added once is recognised and not added again, however often and by whomever the pod was changed between.
//! - Preferred terms, `nodeSelector` and everything else of the pod stay as they are.

mod bound;
pub mod keys;
mod patch;
mod policy;
mod refusal;
mod review;
mod terms;

use ferro_api::names::taints;
use ferro_api::offloading::NamespaceOffloading;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration};

pub use bound::{Place, admits};
pub use patch::Addition;
pub use refusal::{Missing, Refusal};
pub use review::{BadReview, LARGEST, Review};

use self::policy::Policy;

/// What must be added to a pod that is created in an offloaded namespace; nothing where it is good as it is.
pub fn admit(pod: &Pod, offloading: &NamespaceOffloading) -> Result<Vec<Addition>, Refusal> {
    let Some(spec) = &pod.spec else { return Ok(Vec::new()) };
    // Its owner creates the pod anew once the offloading is gone, and so must find the namespace as any other by then.
    if offloading.metadata.deletion_timestamp.is_some() {
        return Ok(Vec::new());
    }
    let is_tolerant = tolerates_virtual_nodes(spec);
    let policy = Policy::of(&offloading.spec)?;
    // Without a toleration, the taint alone keeps a local pod at home.
    if policy.is_local && !is_tolerant {
        return Ok(Vec::new());
    }
    let terms = terms::narrowed(patch::own_selector(spec), &policy.alternatives)?;
    let affinity = patch::affinity(spec, &terms);
    let toleration = (!policy.is_local && !is_tolerant).then(|| patch::toleration(spec));
    Ok(affinity.into_iter().chain(toleration).collect())
}

/// Whether the taint of virtual nodes does not keep a pod off them.
fn tolerates_virtual_nodes(spec: &PodSpec) -> bool {
    let taint = taints::not_allowed();
    let tolerates = |toleration: &Toleration| {
        let is_for = |part: &Option<String>, own: &str| {
            part.as_deref().is_none_or(|part| part.is_empty() || part == own)
        };
        let has_value =
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        is_for(&toleration.effect, &taint.effect)
            && is_for(&toleration.key, &taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                None | Some("" | "Equal") => has_value(),
                Some(_) => false,
            }
    };
    spec.tolerations.iter().flatten().any(tolerates)
}

#[cfg(test)]
mod tests;
