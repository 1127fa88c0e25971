//! Group `virtualkubelet.liqo.io`: what a virtual node needs on the cluster behind it.

mod namespace_map;
mod shadow_pod;

pub use namespace_map::{CurrentMapping, MappingPhase, NamespaceMap, NamespaceMapSpec, NamespaceMapStatus};
pub use shadow_pod::{ShadowPod, ShadowPodPhase, ShadowPodSpec, ShadowPodStatus};
