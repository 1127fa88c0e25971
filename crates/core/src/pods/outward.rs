//! What of a pod travels: from a pod at home to the ShadowPod that is wanted for it.

use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::Refusal;

/// The ShadowPod that is wanted for a pod, in this namespace over there; `home` is the identifier of this cluster.
pub fn shadow(pod: &Pod, namespace: &str, home: &str) -> Result<ShadowPod, Refusal> {
    let _ = (pod, namespace, home);
    Err(Refusal::new("Unwritten", ""))
}

/// The merge patch that makes of the ShadowPod that is there the one that is wanted; of the former only the metadata is
/// looked at.
pub fn change(present: &ShadowPod, wanted: &ShadowPod) -> Option<Value> {
    let _ = (present, wanted);
    None
}
