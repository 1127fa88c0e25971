//! What a Tenant demands of every pod: where it runs and how, and that it says what it takes.

use std::collections::BTreeMap;

use ferro_api::tenancy::TenantSpec;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::resources::CPU;

/// What a `ResourceQuota` insists on: a pod that says nothing of it is refused where there is one.
const STATED: [&str; 2] = [CPU, "memory"];

/// Puts a pod of a consumer under what its Tenant says, whatever the pod asks for.
///
/// The node pool is a node selector, which affinity and tolerations can only narrow, and a node that the pod names
/// itself is forgotten, since that would go around the scheduler. Requests that are left out become zero, which they
/// mean anyway.
pub fn confine(tenant: &TenantSpec, pod: &mut PodSpec) {
    pod.node_name = None;
    if !tenant.node_pool.is_empty() {
        pod.node_selector.get_or_insert_default().extend(tenant.node_pool.clone());
    }
    if tenant.runtime_class_name.is_some() {
        pod.runtime_class_name.clone_from(&tenant.runtime_class_name);
    }
    let containers = pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten());
    containers.for_each(state_requests);
}

/// A limit without a request is a request of as much, as API servers have it: what they add later is not asked for here.
fn state_requests(container: &mut Container) {
    let resources = container.resources.get_or_insert_default();
    let limits = resources.limits.clone().unwrap_or_default();
    let requests: &mut BTreeMap<String, Quantity> = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
    for name in STATED {
        requests.entry(name.to_owned()).or_insert_with(|| Quantity("0".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn confined(tenant: &Value, pod: &Value) -> Value {
        let tenant: TenantSpec = serde_json::from_value(tenant.clone()).unwrap();
        let mut pod: PodSpec = serde_json::from_value(pod.clone()).unwrap();
        confine(&tenant, &mut pod);
        serde_json::to_value(pod).unwrap()
    }

    #[test]
    fn a_pod_cannot_leave_the_pool_of_its_tenant() {
        let tenant = json!({"cluster": {"clusterID": "c1"}, "nodePool": {"pool": "guests"},
            "runtimeClassName": "sandbox"});
        let pod = json!({"nodeName": "n1", "nodeSelector": {"pool": "ours", "disk": "ssd"},
            "runtimeClassName": "native", "containers": []});
        let confined = confined(&tenant, &pod);
        assert_eq!(confined["nodeSelector"], json!({"pool": "guests", "disk": "ssd"}));
        assert_eq!(confined["runtimeClassName"], "sandbox");
        assert_eq!(confined["nodeName"], Value::Null);
    }

    #[test]
    fn a_pod_says_what_it_takes_and_otherwise_stays_as_it_is() {
        let pod = json!({"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}}},
            {"name": "b", "resources": {"limits": {"memory": "1Gi", "example.org/gpu": "1"}}},
        ]});
        let confined = confined(&json!({"cluster": {"clusterID": "c1"}}), &pod);
        let requests = |index: usize| confined["containers"][index]["resources"]["requests"].clone();
        assert_eq!(requests(0), json!({"cpu": "1", "memory": "0"}));
        assert_eq!(requests(1), json!({"cpu": "0", "memory": "1Gi", "example.org/gpu": "1"}));
        assert_eq!(confined["nodeSelector"], Value::Null);
    }
}
