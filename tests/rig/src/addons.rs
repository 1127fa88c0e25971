//! What every real cluster has besides its control plane: DNS, metrics, and a default storage class.

use crate::plan::ClusterPlan;

/// The manifests for one cluster.
pub fn manifests(plan: &ClusterPlan) -> String {
    include_str!("addons.yaml").replace("DNS_SERVICE_ADDRESS", &plan.dns_service().to_string())
}
