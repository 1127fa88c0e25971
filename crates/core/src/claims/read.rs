//! What claims and volumes say, read in one place.

use ferro_api::names::{annotations, finalizers, labels};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Handle, PROVISIONER, Place};
use crate::resources::Amount;

/// Where the scheduler writes which node it has chosen for the pod.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Where the controllers of Kubernetes write who shall make a volume.
const ASKED: &str = "volume.kubernetes.io/storage-provisioner";
/// The name of what volumes have.
pub(super) const STORAGE: &str = "storage";

/// Whether a volume for this claim is ours to make: Kubernetes has asked us to.
pub fn is_of_ours(claim: &PersistentVolumeClaim) -> bool {
    let asked = claim.metadata.annotations.as_ref().and_then(|all| all.get(ASKED));
    asked.is_some_and(|asked| asked == PROVISIONER) && !labels::STAND_IN.is_on(&claim.metadata)
}

/// The node that the scheduler has chosen for the pod.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).map(String::as_str)
}

/// The volume that a claim is bound to.
pub fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The identifier of the peer that has the claim, or shall have it, or may have something that was made for it.
pub fn peer_of(
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
    place: Option<Place<'_>>,
) -> Option<String> {
    let noted = volume.and_then(Handle::of).map(|handle| handle.peer);
    let held = || claim.and_then(held_for).map(str::to_owned);
    noted.or_else(held).or_else(|| match place {
        Some(Place::There(peer)) => Some(peer.to_owned()),
        Some(Place::Here(_)) | None => None,
    })
}

/// The peer on which something may have been made for a claim that is not noted down in a volume yet.
pub(super) fn held_for(claim: &PersistentVolumeClaim) -> Option<&str> {
    let is_held = claim.metadata.finalizers.iter().flatten().any(|name| name == finalizers::CLAIM);
    annotations::HELD_FOR.of(&claim.metadata).filter(|_| is_held)
}

/// How much a claim asks for.
pub(super) fn asked(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get(STORAGE)
}

/// How much a claim has.
pub(super) fn given(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.status.as_ref()?.capacity.as_ref()?.get(STORAGE)
}

/// How much a volume has.
pub(super) fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get(STORAGE)
}

/// What cannot be read is nothing.
pub(super) fn amount(quantity: Option<&Quantity>) -> Amount {
    quantity.and_then(|quantity| quantity.0.parse().ok()).unwrap_or_default()
}

/// Whether something is being deleted.
pub(super) fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// The UID of what is not being deleted already.
pub(super) fn to_delete(meta: &ObjectMeta) -> Option<String> {
    meta.uid.clone().filter(|_| !is_going(meta))
}
