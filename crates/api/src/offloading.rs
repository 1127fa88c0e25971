//! Group `offloading.liqo.io`: which clusters a namespace uses, and applications spread over them.

mod liqo_deployment;
mod namespace_offloading;

pub use liqo_deployment::{
    CurrentDeployment, DeploymentTemplate, LiqoDeployment, LiqoDeploymentSpec, LiqoDeploymentStatus,
    TemplateMetadata,
};
pub use namespace_offloading::{NamespaceMappingStrategy, PodOffloadingStrategy};
pub use namespace_offloading::{
    NamespaceOffloading, NamespaceOffloadingSpec, NamespaceOffloadingStatus, OffloadingPhase, condition,
};
