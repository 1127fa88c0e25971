//! Volumes whose claims Kubernetes makes for one pod: home has made them, and what stands for them lies over there.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodSpec};
use kube::ResourceExt as _;

use crate::claims;

/// Names the claims by the names that home has given them. Over there no further ones are made, which would begin empty.
pub fn translate(spec: &mut PodSpec, pod: &Pod) {
    for volume in spec.volumes.iter_mut().flatten() {
        if volume.ephemeral.take().is_some() {
            let claim_name = claims::ephemeral_name(&pod.name_any(), &volume.name);
            let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
            volume.persistent_volume_claim = Some(source);
        }
    }
}
