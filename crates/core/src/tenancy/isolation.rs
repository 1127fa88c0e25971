//! Whom the pods of a Tenant may talk to: each other, the consumer's own pods, DNS, and the public Internet.
//!
//! The consumer is somebody else, and its pods run in the middle of the provider's network. So nothing private is open to
//! them: no pod of others, no node, no machine around the cluster, no other peer, and not the address under which clouds
//! hand out credentials. Policies add up: who wants more open puts another one into every namespace by a template.

use ferro_api::names::labels;
use ferro_api::net::{NOT_REMAPPED, TunnelEndpoint};
use ipnet::IpNet;
use serde_json::{Value, json};

/// What is not the public Internet.
const PRIVATE_V4: [&str; 7] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
];
const PRIVATE_V6: [&str; 3] = ["::1/128", "fc00::/7", "fe80::/10"];
/// Where the DNS of a cluster is, by the labels that all have agreed on; and where a cache of it listens on each node.
const DNS_NAMESPACE: &str = "kube-system";
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");
const DNS_CACHE: &str = "169.254.20.10/32";

/// The networks of a peer, under the names that they have here; nothing until they have names.
pub fn views(tunnel: &TunnelEndpoint) -> Vec<IpNet> {
    let Some(status) = &tunnel.status else { return Vec::new() };
    let named = |name: &Option<String>, own: Option<&String>| match name.as_deref() {
        None => None,
        Some(NOT_REMAPPED) => own.and_then(|own| own.parse().ok()),
        Some(other) => other.parse().ok(),
    };
    let pods = named(&status.remote_nat_pod_cidr, Some(&tunnel.spec.pod_cidr));
    let external = named(&status.remote_nat_external_cidr, tunnel.spec.external_cidr.as_ref());
    [pods, external].into_iter().flatten().collect()
}

/// The spec of the `NetworkPolicy` in every namespace of a Tenant.
pub(super) fn policy(tenant: &str, views: &[IpNet], own: &[IpNet]) -> Value {
    let same_tenant = json!({"namespaceSelector": {"matchLabels": {labels::TENANT.key(): tenant}}});
    let consumer = views.iter().map(|view| json!({"ipBlock": {"cidr": view.to_string()}}));
    let peers: Vec<Value> = [same_tenant].into_iter().chain(consumer).collect();
    let outside = [outside("0.0.0.0/0", &PRIVATE_V4, own), outside("::/0", &PRIVATE_V6, own)];
    json!({
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}, dns(), {"to": outside}],
    })
}

fn dns() -> Value {
    let (key, value) = DNS_LABEL;
    let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": DNS_NAMESPACE}});
    let pods = json!({"matchLabels": {key: value}});
    json!({
        "to": [
            {"namespaceSelector": namespace, "podSelector": pods},
            {"ipBlock": {"cidr": DNS_CACHE}},
        ],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    })
}

/// All of one address family but what is private, and what this cluster has besides.
fn outside(all: &str, private: &[&str], own: &[IpNet]) -> Value {
    let is_v4 = !all.contains(':');
    let private: Vec<IpNet> = private.iter().filter_map(|network| network.parse().ok()).collect();
    let is_new = |network: &&IpNet| {
        matches!(network, IpNet::V4(_)) == is_v4 && !private.iter().any(|known| known.contains(*network))
    };
    let except = private.iter().chain(own.iter().filter(is_new)).map(ToString::to_string);
    json!({"ipBlock": {"cidr": all, "except": except.collect::<Vec<String>>()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_consumer_is_known_by_the_names_that_its_networks_have_here() {
        let tunnel: TunnelEndpoint = serde_json::from_value(json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint", "metadata": {"name": "a"},
            "spec": {"clusterID": "a", "podCIDR": "10.42.0.0/16", "externalCIDR": "10.43.0.0/16",
                "endpointIP": "192.0.2.1", "backendType": "wireguard"},
            "status": {"remoteNATPodCIDR": "10.60.0.0/16", "remoteNATExternalCIDR": "None"},
        }))
        .unwrap();
        assert_eq!(views(&tunnel), networks(&["10.60.0.0/16", "10.43.0.0/16"]));
        assert_eq!(views(&TunnelEndpoint { status: None, ..tunnel }), []);
    }

    #[test]
    fn nothing_private_is_open_but_the_tenant_itself_the_consumer_and_dns() {
        let policy =
            policy("c1", &networks(&["10.60.0.0/16"]), &networks(&["10.200.0.0/16", "198.18.0.0/15"]));
        let from = &policy["ingress"][0]["from"];
        assert_eq!(from[0]["namespaceSelector"]["matchLabels"], json!({"tenancy.liqo.io/tenant": "c1"}));
        assert_eq!(from[1], json!({"ipBlock": {"cidr": "10.60.0.0/16"}}));
        assert_eq!(policy["ingress"].as_array().unwrap().len(), 1);
        let except = policy["egress"][2]["to"][0]["ipBlock"]["except"].as_array().unwrap();
        assert!(except.contains(&json!("10.0.0.0/8")) && except.contains(&json!("198.18.0.0/15")));
        assert!(!except.contains(&json!("10.200.0.0/16")), "it is private anyway");
        let v6 = policy["egress"][2]["to"][1]["ipBlock"]["except"].as_array().unwrap();
        assert!(v6.iter().all(|network| network.as_str().unwrap().contains(':')));
    }
}
