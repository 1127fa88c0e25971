//! What is found in the cluster about a pod, its target and the nodes between.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Context as _;
use ferro_api::names::labels;
use ferro_core::network::trace::{Gateway, Node, Service, Snapshot, Source, Target};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, Service as ServiceObject};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::Wanted;
use crate::kube_errors::{Explain as _, found};
use crate::network::Network;

/// By which Kubernetes finds the slices of a Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// Reads all that the way depends on.
pub(super) async fn snapshot(
    client: &Client,
    network: &Network,
    namespace: &str,
    pod: &str,
    wanted: &Wanted,
) -> anyhow::Result<Snapshot> {
    let name = format!("{namespace}/{pod}");
    let pod = self::pod(client, namespace, pod).await?;
    let nodes = Api::<NodeObject>::all(client.clone()).list(&ListParams::default()).await;
    let nodes = nodes.explain(|| "list the nodes".into())?;
    Ok(Snapshot {
        source: source(name, &pod),
        target: target(client, namespace, wanted).await?,
        networks: network.known.clone(),
        external_mode: network.external_mode,
        reach: network.reach,
        gateway: network
            .gateway
            .as_ref()
            .and_then(|gateway| Some(Gateway { node: gateway.node.clone(), node_ip: gateway.node_ip? })),
        nodes: nodes.items.iter().map(|object| (object.name_any(), node(object))).collect(),
        endpoints: network.endpoints.clone(),
        mappings: network.mappings.clone(),
        names: network.names(),
    })
}

/// The pod of that name.
pub(super) async fn pod(client: &Client, namespace: &str, pod: &str) -> anyhow::Result<Pod> {
    let name = format!("{namespace}/{pod}");
    found(Api::<Pod>::namespaced(client.clone(), namespace).get(pod).await)
        .explain(|| format!("read the pod {name}"))?
        .with_context(|| {
            format!("there is no pod {name}; see 'kubectl --namespace {namespace} get pods', or name another with -n")
        })
}

fn source(pod: String, object: &Pod) -> Source {
    let status = object.status.clone().unwrap_or_default();
    Source {
        pod,
        phase: status.phase.unwrap_or_else(|| "not started".into()),
        ips: status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect(),
        node: object.spec.as_ref().and_then(|spec| spec.node_name.clone()),
    }
}

fn node(object: &NodeObject) -> Node {
    let status = object.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    Node {
        ips: status.addresses.iter().flatten().filter_map(|address| address.address.parse().ok()).collect(),
        ready,
        is_virtual: labels::TYPE_VIRTUAL_NODE.is_on(&object.metadata),
    }
}

async fn target(client: &Client, namespace: &str, wanted: &Wanted) -> anyhow::Result<Target> {
    match wanted {
        Wanted::Address(ip) => {
            let services = Api::<ServiceObject>::all(client.clone()).list(&ListParams::default()).await;
            let services = services.explain(|| "list the Services".into())?;
            match services.items.iter().find(|service| own_ips(service).contains(ip)) {
                Some(service) => of_service(client, service, None).await,
                None => Ok(Target::Address(*ip)),
            }
        }
        Wanted::Service { name, namespace: other, port } => {
            let namespace = other.as_deref().unwrap_or(namespace);
            let service = Api::<ServiceObject>::namespaced(client.clone(), namespace).get(name).await;
            let service = found(service).explain(|| format!("read the Service {namespace}/{name}"))?;
            let Some(service) = service else {
                let name = format!("{namespace}/{name}");
                return Ok(Target::Service(Service { name, ..Service::default() }));
            };
            of_service(client, &service, port.clone()).await
        }
    }
}

async fn of_service(client: &Client, object: &ServiceObject, port: Option<String>) -> anyhow::Result<Target> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let slices = ListParams::default().labels(&format!("{OF_SERVICE}={name}"));
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), &namespace).list(&slices).await;
    let slices = slices.explain(|| format!("list the endpoints of the Service {namespace}/{name}"))?;
    Ok(Target::Service(service(object, &slices.items, port)))
}

/// Its own addresses, and those by which it is reached from outside: on a node all of them lead to its endpoints.
fn own_ips(service: &ServiceObject) -> Vec<IpAddr> {
    let spec = service.spec.as_ref();
    let own = spec.and_then(|spec| spec.cluster_ips.as_deref()).unwrap_or_default();
    let external = spec.and_then(|spec| spec.external_ips.as_deref()).unwrap_or_default();
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let outside = ingress.iter().filter_map(|ingress| ingress.ip.as_ref());
    own.iter().chain(external).chain(outside).filter_map(|ip| ip.parse().ok()).collect()
}

fn service(object: &ServiceObject, slices: &[EndpointSlice], port: Option<String>) -> Service {
    let ports = object.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut addresses: BTreeMap<IpAddr, bool> = BTreeMap::new();
    for endpoint in slices.iter().flat_map(|slice| &slice.endpoints) {
        // Kubernetes says: what is not known is to be taken for ready.
        let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
        for address in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
            *addresses.entry(address).or_default() |= ready;
        }
    }
    Service {
        name: format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()),
        exists: true,
        ips: own_ips(object),
        port,
        ports: ports.filter_map(|port| Some((u16::try_from(port.port).ok()?, port.name.clone()))).collect(),
        ready: addresses.iter().filter(|(_, ready)| **ready).map(|(ip, _)| *ip).collect(),
        unready: addresses.values().filter(|ready| !**ready).count(),
        stands_for: object
            .spec
            .as_ref()
            .filter(|spec| spec.type_.as_deref() == Some("ExternalName"))
            .and_then(|spec| spec.external_name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::{node, service, source};
    use serde_json::{from_value, json};
    use std::net::IpAddr;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_service_is_what_its_slices_say() {
        let object = from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80, "name": "http"}]},
        }))
        .unwrap();
        let slice = from_value(json!({"addressType": "IPv4", "metadata": {}, "endpoints": [
            {"addresses": ["10.0.0.5"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.6"], "conditions": {"ready": false}},
            {"addresses": ["10.244.0.9"]},
        ]}))
        .unwrap();
        let found = service(&object, &[slice], Some("http".into()));
        assert_eq!((found.name.as_str(), found.ips.as_slice()), ("shop/web", [ip("10.96.0.9")].as_slice()));
        assert_eq!(found.ready, [ip("10.0.0.5"), ip("10.244.0.9")]);
        assert_eq!((found.unready, found.ports), (1, vec![(80, Some("http".to_owned()))]));
        let balanced = from_value(
            json!({"metadata": {}, "spec": {"clusterIPs": ["10.96.0.9"], "externalIPs": ["192.0.2.1"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "a.example.org"}]}}}),
        )
        .unwrap();
        assert_eq!(service(&balanced, &[], None).ips, ["10.96.0.9", "192.0.2.1", "192.0.2.2"].map(ip));
        let named =
            json!({"metadata": {}, "spec": {"type": "ExternalName", "externalName": "db.example.org"}});
        let named = service(&from_value(named).unwrap(), &[], None);
        assert_eq!(named.stands_for.as_deref(), Some("db.example.org"));
        let headless = from_value(json!({"metadata": {}, "spec": {"clusterIPs": ["None"]}})).unwrap();
        assert!(service(&headless, &[], None).ips.is_empty());
    }

    #[test]
    fn a_pod_and_its_node_are_as_they_say() {
        let pod = from_value(json!({
            "metadata": {}, "spec": {"nodeName": "rome-2", "containers": []},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.244.0.7"}]},
        }))
        .unwrap();
        let found = source("default/client".into(), &pod);
        assert_eq!((found.ips, found.node.as_deref()), (vec![ip("10.244.0.7")], Some("rome-2")));
        let object = from_value(json!({
            "metadata": {"labels": {"liqo.io/type": "virtual-node"}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "172.18.0.3"}, {"type": "Hostname", "address": "x"}],
            },
        }))
        .unwrap();
        let found = node(&object);
        assert_eq!((found.ips, found.ready, found.is_virtual), (vec![ip("172.18.0.3")], true, true));
    }
}
