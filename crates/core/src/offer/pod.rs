//! What a pod takes of its node, by the same rules as the scheduler.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::resources::{Amount, CPU, PODS, ResourceMap};

/// What the pod asks for: all that run at the same time, at the moment when that is most, and its overhead.
/// What the pod asks for as a whole counts in place of the sum, where it is given. A pod is also one of
/// `pods`.
pub fn request_of(pod: &Pod) -> ResourceMap {
    let mut request = pod.spec.as_ref().map(of_spec).unwrap_or_default();
    request.set(PODS, Amount::units(1));
    request
}

fn of_spec(spec: &PodSpec) -> ResourceMap {
    let mut running = ResourceMap::default();
    for container in &spec.containers {
        running.add(&of_container(container));
    }
    let (sidecars, starting) = of_init_containers(spec.init_containers.iter().flatten());
    running.add(&sidecars);
    running.raise_to(&starting);

    for (name, quantity) in requests(spec.resources.as_ref()).filter(|(name, _)| is_for_whole_pods(name)) {
        if let Ok(amount) = quantity.0.parse() {
            running.set(name, amount);
        }
    }
    running.add(&ResourceMap::read(spec.overhead.as_ref().unwrap_or(&BTreeMap::new())));
    running
}

/// The sum of those that keep running, and the most that is taken while the others run one after another.
fn of_init_containers<'a>(containers: impl Iterator<Item = &'a Container>) -> (ResourceMap, ResourceMap) {
    let (mut sidecars, mut most) = (ResourceMap::default(), ResourceMap::default());
    for container in containers {
        let mut now = of_container(container);
        now.add(&sidecars);
        most.raise_to(&now);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = now;
        }
    }
    (sidecars, most)
}

fn of_container(container: &Container) -> ResourceMap {
    requests(container.resources.as_ref())
        .filter_map(|(name, quantity)| Some((name, quantity.0.parse().ok()?)))
        .collect()
}

fn requests(of: Option<&ResourceRequirements>) -> impl Iterator<Item = (&String, &Quantity)> {
    of.and_then(|resources| resources.requests.as_ref()).into_iter().flatten()
}

fn is_for_whole_pods(resource: &str) -> bool {
    resource == CPU || resource == "memory" || resource.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::request_of;
    use crate::resources::tests::resources;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        let mut sidecar = container(cpu);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    }

    #[test]
    fn containers_and_overhead_are_summed() {
        let spec = json!({"containers": [container("100m"), container("200m")], "overhead": {"cpu": "5m"}});
        assert_eq!(request_of(&pod(&spec)), resources([("cpu", "305m"), ("pods", "1")]));
    }

    #[test]
    fn an_init_container_counts_only_when_it_takes_more() {
        let spec =
            json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]});
        assert_eq!(request_of(&pod(&spec)).get("cpu"), resources([("cpu", "3")]).get("cpu"));
        let spec = json!({"containers": [container("4")], "initContainers": [container("3")]});
        assert_eq!(request_of(&pod(&spec)).get("cpu"), resources([("cpu", "4")]).get("cpu"));
    }

    #[test]
    fn a_sidecar_counts_beside_the_containers_and_beside_later_init_containers() {
        let init = [container("5"), sidecar("2"), container("4")];
        let spec = json!({"containers": [container("1")], "initContainers": init});
        assert_eq!(request_of(&pod(&spec)).get("cpu"), resources([("cpu", "6")]).get("cpu"));
        let spec = json!({"containers": [container("7")], "initContainers": init});
        assert_eq!(request_of(&pod(&spec)).get("cpu"), resources([("cpu", "9")]).get("cpu"));
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_counts_in_place_of_the_sum() {
        let mut with_disk = container("1");
        with_disk["resources"]["requests"]["ephemeral-storage"] = json!("1Gi");
        let whole = json!({"requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "9Gi"}});
        let spec = json!({"containers": [with_disk], "resources": whole, "overhead": {"memory": "1Mi"}});
        let expected = [("cpu", "2"), ("memory", "1025Mi"), ("ephemeral-storage", "1Gi"), ("pods", "1")];
        assert_eq!(request_of(&pod(&spec)), resources(expected));
    }

    #[test]
    fn a_pod_that_asks_for_nothing_is_still_a_pod() {
        assert_eq!(request_of(&pod(&json!({"containers": []}))), resources([("pods", "1")]));
    }
}
