//! Endpoints as another cluster is told of them: those that it does not host itself, under the addresses at which it
//! reaches them.
//!
//! A Service keeps its selector over there, so that pods which run there are found by that cluster itself, also while
//! home is away. All others are told by slices of ours: pods at home, pods on third clusters, processes on nodes, and
//! whatever somebody wrote by hand. Where a Service has no selector nobody finds anything, so all are to be told; but where
//! this cluster joins the networks, another one takes no address of its own from it.

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

/// The node whose pods its cluster finds by itself, by the selector of this Service; none if it has none.
pub fn finder<'a>(service: &DynamicObject, node: &'a str) -> Option<&'a str> {
    let content = kept_content(service)?;
    content["spec"]["selector"].is_object().then_some(node)
}

/// The endpoints of a slice that a cluster is told of, by the addresses that they have here: all but those on the node
/// whose pods it finds by itself.
pub fn addresses(slice: &DynamicObject, finder: Option<&str>) -> BTreeSet<IpAddr> {
    let content = kept_content(slice).unwrap_or_default();
    let elsewhere = endpoints(&content).filter(|endpoint| !is_found(endpoint, finder));
    elsewhere.flat_map(parsed).collect()
}

/// The addresses that a cluster was told before, by the copy of a slice.
pub fn published(copy: &DynamicObject) -> BTreeSet<IpAddr> {
    kept_addresses(copy).filter_map(|address| address.parse().ok()).collect()
}

/// The slice as that cluster is told it, given the addresses at which it reaches endpoints: one without is left out.
/// Nothing, if no endpoint is left.
pub fn outward(
    slice: &DynamicObject,
    finder: Option<&str>,
    name: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Option<Value> {
    let content = kept_content(slice)?;
    let elsewhere = endpoints(&content).filter(|endpoint| !is_found(endpoint, finder));
    let told: Vec<Value> = elsewhere.filter_map(|endpoint| told(endpoint, &name)).collect();
    if told.is_empty() {
        return None;
    }
    Some(json!({"addressType": content["addressType"], "endpoints": told, "ports": content["ports"]}))
}

fn endpoints(content: &Value) -> impl Iterator<Item = &Value> {
    content["endpoints"].as_array().into_iter().flatten()
}

/// Whether an endpoint is a pod on the node whose cluster finds it by itself.
fn is_found(endpoint: &Value, finder: Option<&str>) -> bool {
    finder.is_some() && endpoint["nodeName"].as_str() == finder
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
        let here = addresses(&slice(), Some("liqo-turin"));
        let expected = ["10.0.0.5", "10.8.0.7", "192.0.2.9"].map(|ip| ip.parse().unwrap());
        assert_eq!(here, expected.into());
        let name =
            |ip: IpAddr| (ip.to_string() != "192.0.2.9").then(|| format!("fd00::{ip}").parse().unwrap());
        let told = outward(&slice(), Some("liqo-turin"), name).unwrap();
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
        copy.data = outward(&slice(), Some("liqo-turin"), Some).unwrap();
        Kind::EndpointSlice.keep_copy()(&mut copy);
        assert_eq!(published(&copy), addresses(&slice(), Some("liqo-turin")));
    }

    #[test]
    fn nothing_is_told_before_an_address_works() {
        assert_eq!(outward(&slice(), Some("liqo-turin"), |_| None), None);
    }

    #[test]
    fn of_a_service_without_a_selector_a_cluster_is_told_of_its_own_endpoints_as_well() {
        let service = |spec: Value| {
            let mut service = DynamicObject::new("web", &Kind::Service.resource());
            service.data = json!({"spec": spec});
            Kind::Service.keep_original()(&mut service);
            service
        };
        let selecting = service(json!({"selector": {"app": "web"}}));
        assert_eq!(finder(&selecting, "liqo-turin"), Some("liqo-turin"));
        let own: IpAddr = [10, 7, 0, 6].into();
        for spec in [json!({"ports": [{"port": 80}]}), json!({"selector": {}}), json!({})] {
            let finder = finder(&service(spec), "liqo-turin");
            assert_eq!(finder, None);
            assert_eq!(addresses(&slice(), finder).len(), 4);
            assert!(addresses(&slice(), finder).contains(&own));
            let told = outward(&slice(), finder, Some).unwrap();
            assert_eq!(told["endpoints"].as_array().unwrap().len(), 4);
            let others = outward(&slice(), finder, |ip| (ip != own).then_some(ip)).unwrap();
            assert_eq!(others["endpoints"].as_array().unwrap().len(), 3, "the rest goes without it");
        }
    }
}
