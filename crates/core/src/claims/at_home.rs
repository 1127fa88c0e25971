//! A claim whose pod runs in this cluster: a stand-in gets a volume of a real class, which is then the claim's own.
//!
//! Real classes have provisioners of their own, which know nothing of our class. So one of them is asked by a claim that
//! it understands. The volume that comes of it changes hands by one write, and is from then on what it would have been
//! had the claim named the real class: nothing of ours is needed to mount, grow or delete it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::read::{bound_to, is_going, selected_node, to_delete};
use super::{Snapshot, Write, made, shown};
use crate::pods::Refusal;

impl Snapshot<'_> {
    /// Nobody waits for the stand-in any more.
    pub(super) fn dismiss(&self) -> Option<Write> {
        let uid = self.stand_in.and_then(|stand_in| to_delete(&stand_in.metadata))?;
        Some(Write::DeleteStandIn { uid })
    }

    /// Gets a volume for the claim on this node.
    pub(super) fn settle_here(&self, claim: &PersistentVolumeClaim, node: &str) -> Vec<Write> {
        let Some(stand_in) = self.stand_in else {
            return match made::can_be_had(claim) {
                Ok(()) => vec![Write::CreateStandIn(Box::new(made::stand_in(self, claim, node)))],
                Err(refusal) => shown::turn_back(&refusal),
            };
        };
        if is_going(&stand_in.metadata) {
            return Vec::new();
        }
        if let Some(refusal) = Self::trouble_of(claim, stand_in) {
            return shown::turn_back(&refusal).into_iter().chain(self.dismiss()).collect();
        }
        match (bound_to(stand_in), self.real) {
            (Some(name), Some(real)) if real.metadata.name.as_deref() == Some(name) => {
                self.hand_over(claim, stand_in, real)
            }
            // A new choice of the scheduler needs a new question.
            (None, _) if selected_node(stand_in) != Some(node) => self.dismiss().into_iter().collect(),
            (Some(_) | None, _) => Vec::new(),
        }
    }

    fn hand_over(
        &self,
        claim: &PersistentVolumeClaim,
        stand_in: &PersistentVolumeClaim,
        real: &PersistentVolume,
    ) -> Vec<Write> {
        let owner = real.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
        if owner.is_some() && owner == stand_in.metadata.uid.as_ref() {
            let volume = real.metadata.name.clone().unwrap_or_default();
            return vec![Write::HandOver { volume, patch: made::handed_over(self, claim, real) }];
        }
        // It has changed hands, or was never the stand-in's.
        self.dismiss().into_iter().collect()
    }

    /// Why the stand-in will never get a volume.
    fn trouble_of(claim: &PersistentVolumeClaim, stand_in: &PersistentVolumeClaim) -> Option<Refusal> {
        if bound_to(stand_in).is_some() {
            return None;
        }
        let class_of = |claim: &PersistentVolumeClaim| claim.spec.as_ref()?.storage_class_name.clone();
        match class_of(stand_in).filter(|class| !class.is_empty()) {
            None => Some(Refusal::new(
                "NoClassHere",
                "the pod shall run in this cluster, which has no default StorageClass; name one in the parameter classHere \
                 of the StorageClass of this claim",
            )),
            Some(class) if class_of(claim) == Some(class.clone()) => Some(Refusal::new(
                "NoClassHere",
                format!(
                    "the pod shall run in this cluster, whose default StorageClass is {class} itself; name another in its \
                     parameter classHere"
                ),
            )),
            Some(class) => selected_node(stand_in).is_none().then(|| {
                Refusal::new(
                    "NoVolumeHere",
                    format!("the StorageClass {class} has no volume for this claim on the chosen node"),
                )
            }),
        }
    }
}
