//! Endpoints as another cluster is told of them: those that it does not host itself, under the addresses at which it
//! reaches them.
//!
//! A Service keeps its selector over there, so that pods which run there are found by that cluster itself, also while
//! home is away. All others are told by slices of ours: pods at home, pods on third clusters, processes on nodes, and
//! whatever somebody wrote by hand.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use super::kind::{kept_addresses, kept_content};

const SERVICE: &str = "kubernetes.io/service-name";

/// The Service that a slice belongs to.
pub fn service(slice: &ObjectMeta) -> Option<&str> {
    slice.labels.as_ref()?.get(SERVICE).map(String::as_str)
}

/// The endpoints of a slice that the cluster of this node is told of, by the addresses that they have here.
pub fn addresses(slice: &DynamicObject, node: &str) -> BTreeSet<IpAddr> {
    let content = kept_content(slice).unwrap_or_default();
    let elsewhere = endpoints(&content).filter(|endpoint| !is_on(endpoint, node));
    elsewhere.flat_map(parsed).collect()
}

/// The addresses that a cluster was told before, by the copy of a slice.
pub fn published(copy: &DynamicObject) -> BTreeSet<IpAddr> {
    kept_addresses(copy).filter_map(|address| address.parse().ok()).collect()
}

/// The slice as that cluster is told it, given the addresses at which it reaches endpoints: one without is left out.
/// Nothing, if no endpoint is left.
pub fn outward(slice: &DynamicObject, node: &str, name: impl Fn(IpAddr) -> Option<IpAddr>) -> Option<Value> {
    let content = kept_content(slice)?;
    let elsewhere = endpoints(&content).filter(|endpoint| !is_on(endpoint, node));
    let told: Vec<Value> = elsewhere.filter_map(|endpoint| told(endpoint, &name)).collect();
    if told.is_empty() {
        return None;
    }
    Some(json!({"addressType": content["addressType"], "endpoints": told, "ports": content["ports"]}))
}

fn endpoints(content: &Value) -> impl Iterator<Item = &Value> {
    content["endpoints"].as_array().into_iter().flatten()
}

/// Whether an endpoint is a pod that runs on the cluster of this node.
fn is_on(endpoint: &Value, node: &str) -> bool {
    endpoint["nodeName"].as_str() == Some(node)
}

/// What is no address (an FQDN) cannot be translated.
fn parsed(endpoint: &Value) -> impl Iterator<Item = IpAddr> {
    let addresses = endpoint["addresses"].as_array().into_iter().flatten();
    addresses.filter_map(|address| address.as_str()?.parse().ok())
}

fn told(endpoint: &Value, name: impl Fn(IpAddr) -> Option<IpAddr>) -> Option<Value> {
    let names: Vec<String> = parsed(endpoint).filter_map(name).map(|name| name.to_string()).collect();
    if names.is_empty() {
        return None;
    }
    let mut told = Map::from_iter([("addresses".to_owned(), names.into())]);
    for field in ["conditions", "hostname"] {
        if let Some(value) = endpoint.get(field) {
            told.insert(field.to_owned(), value.clone());
        }
    }
    Some(told.into())
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    fn slice() -> DynamicObject {
        let mut slice = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "labels": {SERVICE: "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.0.0.5"], "conditions": {"ready": true}, "nodeName": "rome-1", "zone": "a",
                 "hostname": "web-0", "targetRef": {"kind": "Pod", "name": "web-0"}},
                {"addresses": ["10.7.0.6"], "conditions": {"ready": true}, "nodeName": "liqo-turin"},
                {"addresses": ["10.8.0.7"], "conditions": {"ready": false}, "nodeName": "liqo-milan"},
                {"addresses": ["192.0.2.9"]},
            ],
        }))
        .unwrap();
        Kind::EndpointSlice.keep_original()(&mut slice);
        slice
    }

    #[test]
    fn a_cluster_is_told_of_all_endpoints_but_its_own_under_names_of_its_own() {
        let here = addresses(&slice(), "liqo-turin");
        let expected = ["10.0.0.5", "10.8.0.7", "192.0.2.9"].map(|ip| ip.parse().unwrap());
        assert_eq!(here, expected.into());
        let name =
            |ip: IpAddr| (ip.to_string() != "192.0.2.9").then(|| format!("fd00::{ip}").parse().unwrap());
        let told = outward(&slice(), "liqo-turin", name).unwrap();
        assert_eq!(
            told,
            json!({
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [
                    {"addresses": ["fd00::a00:5"], "conditions": {"ready": true}, "hostname": "web-0"},
                    {"addresses": ["fd00::a08:7"], "conditions": {"ready": false}},
                ],
            })
        );
        assert_eq!(service(&slice().metadata), Some("web"));
    }

    #[test]
    fn what_was_told_before_is_known_from_the_copy() {
        let mut copy = DynamicObject::new("web-1", &Kind::EndpointSlice.resource());
        copy.data = outward(&slice(), "liqo-turin", Some).unwrap();
        Kind::EndpointSlice.keep_copy()(&mut copy);
        assert_eq!(published(&copy), addresses(&slice(), "liqo-turin"));
    }

    #[test]
    fn nothing_is_told_before_an_address_works() {
        assert_eq!(outward(&slice(), "liqo-turin", |_| None), None);
    }
}
