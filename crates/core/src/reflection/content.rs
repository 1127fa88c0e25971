//! What travels of each kind: what the application wrote, and nothing that a cluster has added for itself.
//!
//! The same is asked of an original and of its copy, so that two clusters agree on whether one is as the other.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use kube::core::DynamicObject;

use super::Kind;
use crate::identity::sha256;

const BYTES: usize = 16;
/// What every Service means over there as well. Addresses and ports of nodes are the cluster's own; who is let in from
/// outside is no business of a copy.
const SERVICE: [&str; 7] = [
    "externalName",
    "internalTrafficPolicy",
    "publishNotReadyAddresses",
    "selector",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
];
/// Who serves an Ingress is for the other cluster to say.
const INGRESS: [&str; 3] = ["defaultBackend", "rules", "tls"];
const CLASS: &str = "ingressClassName";
/// Names of nodes are looked at, and go no further.
const ENDPOINT: [&str; 4] = ["addresses", "conditions", "hostname", "nodeName"];

/// What travels of an object.
pub(super) fn content(kind: &Kind, object: &DynamicObject) -> Value {
    let data = &object.data;
    let content = match kind {
        Kind::Service => part("spec", service(&data["spec"])),
        Kind::EndpointSlice => slice(data),
        Kind::ConfigMap => picked(data, &["binaryData", "data", "immutable"]),
        Kind::Secret => picked(data, &["data", "immutable", "type"]),
        Kind::Ingress => part("spec", picked(&data["spec"], &INGRESS)),
        Kind::Custom(_) => {
            let all = data.as_object().cloned().unwrap_or_default();
            all.into_iter().filter(|(key, _)| key != "status").collect()
        }
    };
    Value::Object(content)
}

/// The class that its cluster has given an Ingress.
pub(super) fn class(ingress: &Value) -> Option<&str> {
    ingress["spec"][CLASS].as_str()
}

/// Lets what travels of an Ingress have a class.
pub(super) fn put_class(content: &mut Value, class: &str) {
    if let Some(spec) = content.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(CLASS.to_owned(), class.into());
    }
}

/// A hash of what travels.
pub fn digest(content: &Value) -> String {
    let mut hash = String::new();
    for byte in sha256(content.to_string().as_bytes()).iter().take(BYTES) {
        // Writing to a string cannot fail.
        _ = write!(hash, "{byte:02x}");
    }
    hash
}

fn service(spec: &Value) -> Map<String, Value> {
    let mut service = picked(spec, &SERVICE);
    let is_external = spec["type"] == "ExternalName";
    service.insert("type".into(), if is_external { "ExternalName" } else { "ClusterIP" }.into());
    if spec["clusterIP"] == "None" {
        service.insert("clusterIP".into(), "None".into());
    }
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> = ports.map(|port| without(port, "nodePort")).collect();
    if !ports.is_empty() {
        service.insert("ports".into(), ports.into());
    }
    service
}

fn slice(data: &Value) -> Map<String, Value> {
    let mut slice = picked(data, &["addressType", "ports"]);
    let endpoints = data["endpoints"].as_array().into_iter().flatten();
    let endpoints: Vec<Value> = endpoints.map(|endpoint| picked(endpoint, &ENDPOINT).into()).collect();
    slice.insert("endpoints".into(), endpoints.into());
    slice
}

fn part(name: &str, value: Map<String, Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

/// Those fields that say something: one that is left out, empty or false is the same to an API server.
fn picked(value: &Value, fields: &[&str]) -> Map<String, Value> {
    let says = |value: &&Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    };
    let picked =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), value.get(field).filter(says)?)));
    picked.map(|(field, value)| (field, value.clone())).collect()
}

fn without(value: &Value, field: &str) -> Value {
    let map = value.as_object().cloned().unwrap_or_default();
    Value::Object(map.into_iter().filter(|(key, _)| key != field).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn travels(kind: &Kind, data: Value) -> Value {
        let mut object = DynamicObject::new("x", &kind.resource());
        object.data = data;
        content(kind, &object)
    }

    #[test]
    fn a_service_is_the_same_without_what_its_cluster_gave_it() {
        let balanced = json!({"spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "nodePort": 30080}],
            "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30111,
            "loadBalancerSourceRanges": ["0.0.0.0/0"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "internalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
        }, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        let copy = json!({"spec": {
            "type": "ClusterIP", "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "internalTrafficPolicy": "Cluster",
        }});
        assert_eq!(travels(&Kind::Service, balanced), copy);
        assert_eq!(travels(&Kind::Service, copy.clone()), copy, "a copy is as its original");
    }

    #[test]
    fn headless_and_external_services_stay_so() {
        let headless = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "selector": {"app": "db"}}});
        assert_eq!(travels(&Kind::Service, headless.clone()), headless);
        let external = json!({"spec": {"type": "ExternalName", "externalName": "db.example.org"}});
        assert_eq!(travels(&Kind::Service, external.clone()), external);
        let nodes = json!({"spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}], "publishNotReadyAddresses": false}});
        assert_eq!(
            travels(&Kind::Service, nodes),
            json!({"spec": {"type": "ClusterIP", "ports": [{"port": 1}]}})
        );
    }

    #[test]
    fn configuration_travels_as_a_whole_and_an_ingress_without_its_class() {
        let secret = json!({"type": "Opaque", "data": {"a": "Yg=="}, "immutable": true});
        assert_eq!(travels(&Kind::Secret, secret.clone()), secret);
        let map = json!({"data": {"a": "b"}, "binaryData": {"c": "Yg=="}});
        assert_eq!(travels(&Kind::ConfigMap, map.clone()), map);
        let ingress = json!({"spec": {"ingressClassName": "own", "rules": [{"host": "shop.example.org"}]}, "status": {}});
        assert_eq!(
            travels(&Kind::Ingress, ingress),
            json!({"spec": {"rules": [{"host": "shop.example.org"}]}})
        );
        let widget = Kind::Custom(std::sync::Arc::default());
        assert_eq!(
            travels(&widget, json!({"spec": 1, "status": 2, "more": 3})),
            json!({"spec": 1, "more": 3})
        );
    }

    #[test]
    fn other_content_has_another_digest() {
        let (one, other) = (json!({"data": {"a": "b"}}), json!({"data": {"a": "c"}}));
        assert_ne!(digest(&one), digest(&other));
        assert_eq!(digest(&one), digest(&json!({"data": {"a": "b"}})));
        assert_eq!(digest(&one).len(), 2 * BYTES);
    }
}
