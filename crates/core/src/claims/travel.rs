//! Whether a pod finds its claims on the cluster that it is bound to.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use super::read::bound_to;
use super::{Handle, PROVISIONER, shown};
use crate::pods::Refusal;

/// The names of the claims that a pod uses, those of its own included, as Kubernetes names them.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        named.or_else(|| volume.ephemeral.as_ref().map(|_| ephemeral_name(&pod.name_any(), &volume.name)))
    })
}

/// The name of the claim that Kubernetes makes for a volume of one pod.
pub fn ephemeral_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// Whether a claim has lost what was in it.
pub fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    shown::find(claim, shown::LOST).is_some()
}

/// Whether the claim of this name lies on this peer; `claim` is what there is of it, and `volume` that of ours which it is
/// bound to.
pub fn travels(
    name: &str,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
    peer: &str,
) -> Result<(), Refusal> {
    let refuse = |word: &str, why: String| Err(Refusal::new(word, format!("the claim {name} {why}")));
    let Some(claim) = claim else {
        return refuse("ClaimMissing", "does not exist; create it, and the pod starts".to_owned());
    };
    if is_lost(claim) {
        let why = "has lost its volume on the cluster of this node, and nothing empty is put in its place; delete \
                   claim and pod to begin anew";
        return refuse("ClaimLost", why.to_owned());
    }
    if bound_to(claim).is_none() {
        return refuse("ClaimUnbound", "has no volume yet; the pod starts when it has".to_owned());
    }
    match volume.and_then(Handle::of) {
        Some(handle) if handle.peer == peer => Ok(()),
        Some(handle) => {
            refuse("ClaimElsewhere", format!("has its volume on another cluster, {}", handle.peer))
        }
        None => {
            let why = format!(
                "has a volume of this cluster; only a claim of a StorageClass whose provisioner is {PROVISIONER}, such as \
                 liqo, gets its volume where its pod runs. Keep the pod in this cluster with the node affinity \
                 liqo.io/type NotIn [virtual-node]"
            );
            refuse("ClaimNotPortable", why)
        }
    }
}
