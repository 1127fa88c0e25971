//! The pod that a provider makes of a ShadowPod: within the limits of its Tenant, whatever the consumer wrote.

use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;

use crate::pods::Refusal;

/// The pod for a ShadowPod of this Tenant, or why it may not run here. `tenant` is the name of the Tenant, which is the
/// identifier of the consumer.
pub fn pod(shadow: &ShadowPod, tenant: &str, terms: &TenantSpec) -> Result<Pod, Refusal> {
    let _ = (shadow, tenant, terms);
    Err(Refusal::new("Unwritten", ""))
}
