//! Manifests come back unchanged: read into our types and written again, nothing is lost and nothing is
//! added.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::fs;

use ferro_api::config::ClusterConfig;
use ferro_api::discovery::{ForeignCluster, ResourceRequest, SearchDomain};
use ferro_api::net::{IpamStorage, NatMapping, NetworkConfig, TunnelEndpoint};
use ferro_api::offloading::{LiqoDeployment, NamespaceOffloading};
use ferro_api::sharing::ResourceOffer;
use ferro_api::tenancy::{Tenant, TenantDelegation};
use ferro_api::virtualkubelet::{NamespaceMap, ShadowPod};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/seeds");

/// What becomes of a manifest that is read into the type of its kind and written again.
fn round_trip(manifest: &Value) -> Value {
    fn through<K: DeserializeOwned + Serialize>(manifest: &Value) -> Value {
        let object: K = serde_json::from_value(manifest.clone()).unwrap();
        serde_json::to_value(object).unwrap()
    }
    match manifest["kind"].as_str().unwrap() {
        "ClusterConfig" => through::<ClusterConfig>(manifest),
        "ForeignCluster" => through::<ForeignCluster>(manifest),
        "IpamStorage" => through::<IpamStorage>(manifest),
        "LiqoDeployment" => through::<LiqoDeployment>(manifest),
        "NamespaceMap" => through::<NamespaceMap>(manifest),
        "NamespaceOffloading" => through::<NamespaceOffloading>(manifest),
        "NatMapping" => through::<NatMapping>(manifest),
        "NetworkConfig" => through::<NetworkConfig>(manifest),
        "ResourceOffer" => through::<ResourceOffer>(manifest),
        "ResourceRequest" => through::<ResourceRequest>(manifest),
        "SearchDomain" => through::<SearchDomain>(manifest),
        "ShadowPod" => through::<ShadowPod>(manifest),
        "Tenant" => through::<Tenant>(manifest),
        "TenantDelegation" => through::<TenantDelegation>(manifest),
        "TunnelEndpoint" => through::<TunnelEndpoint>(manifest),
        other => panic!("no such kind: {other}"),
    }
}

/// A null in a manifest means the same as nothing at all.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            set.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn is_ours(manifest: &Value) -> bool {
    manifest["apiVersion"].as_str().is_some_and(|version| version.ends_with(".liqo.io/v1alpha1"))
}

#[test]
fn every_manifest_of_the_seeds_comes_back_unchanged() {
    let mut kinds = Vec::new();
    let files = fs::read_dir(SEEDS).unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let text = fs::read_to_string(&path).unwrap();
        for manifest in
            serde_saphyr::from_multiple::<Value>(&text).unwrap().iter().filter(|value| is_ours(value))
        {
            assert_eq!(round_trip(manifest), without_nulls(manifest), "{}", path.display());
            kinds.push(manifest["kind"].as_str().unwrap().to_owned());
        }
    }
    kinds.sort();
    kinds.dedup();
    let printed = [
        "ClusterConfig",
        "LiqoDeployment",
        "NamespaceMap",
        "NamespaceOffloading",
        "NatMapping",
        "NetworkConfig",
        "ResourceOffer",
        "ResourceRequest",
    ];
    assert_eq!(kinds, printed, "in {SEEDS}");
}

#[test]
fn both_spellings_of_the_endpoint_come_back_unchanged() {
    for spelling in ["endpointIP", "EndpointIP"] {
        let manifest = json!({
            "apiVersion": "net.liqo.io/v1alpha1",
            "kind": "NetworkConfig",
            "metadata": {"name": "networkconfig-1"},
            "spec": {
                "clusterID": "cluster-1",
                "podCIDR": "10.0.0.0/24",
                "externalCIDR": "192.168.0.0/24",
                spelling: "194.116.77.110",
                "backendType": "wireguard",
                "backend_config": {"port": "30020"},
            },
            "status": {"processed": false, "podCIDRNAT": "None", "externalCIDRNAT": "None"},
        });
        assert_eq!(round_trip(&manifest), manifest);
    }
}

#[test]
fn a_tunnel_endpoint_has_the_published_fields() {
    let manifest = json!({
        "apiVersion": "net.liqo.io/v1alpha1",
        "kind": "TunnelEndpoint",
        "metadata": {"name": "cluster-1", "namespace": "liqo-tenant-cluster-1-5c09e1"},
        "spec": {
            "clusterID": "cluster-1",
            "podCIDR": "10.42.0.0/16",
            "externalCIDR": "192.168.0.0/24",
            "endpointIP": "194.116.77.110",
            "backendType": "wireguard",
            "backend_config": {"port": "30020", "publicKey": "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g="},
        },
        "status": {
            "phase": "Ready",
            "localPodCIDR": "10.42.0.0/16",
            "localNATPodCIDR": "10.45.0.0/16",
            "remoteNATPodCIDR": "10.46.0.0/16",
            "localExternalCIDR": "192.168.0.0/24",
            "localNATExternalCIDR": "None",
            "remoteNATExternalCIDR": "None",
            "remoteTunnelPublicIP": "194.116.77.110",
            "localTunnelPublicIP": "194.116.77.111",
            "tunnelIFaceIndex": 7,
            "tunnelIFaceName": "liqo.wg",
            "vethIFaceIndex": 8,
            "vethIFaceName": "liqo.veth",
            "gatewayIP": "172.18.0.3",
            "connection": {
                "status": "connected",
                "statusMessage": "handshake 3 s ago",
                "peerConfiguration": {"port": "30020"},
            },
        },
    });
    assert_eq!(round_trip(&manifest), manifest);
}

#[test]
fn an_ipam_storage_has_the_published_fields() {
    let manifest = json!({
        "apiVersion": "net.liqo.io/v1alpha1",
        "kind": "IpamStorage",
        "metadata": {"name": "ipam"},
        "spec": {
            "prefixes": {"10.0.0.0/8": "AQID"},
            "pools": ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"],
            "clusterSubnets": {
                "cluster-1": {
                    "localNATPodCIDR": "None",
                    "remotePodCIDR": "10.45.0.0/16",
                    "localNATExternalCIDR": "192.168.1.0/24",
                    "remoteExternalCIDR": "192.168.2.0/24",
                },
            },
            "externalCIDR": "192.168.0.0/24",
            "endpointMappings": {"10.3.0.5": {"ip": "192.168.0.45", "clusterMappings": {"cluster-1": {}}}},
            "natMappingsConfigured": {"cluster-1": {}},
            "podCIDR": "10.42.0.0/16",
            "serviceCIDR": "10.43.0.0/16",
        },
    });
    assert_eq!(round_trip(&manifest), manifest);
}

#[test]
fn nothing_is_added_to_a_manifest_that_leaves_out_what_it_can() {
    let kinds = [
        ("config.liqo.io", "ClusterConfig", json!({})),
        (
            "config.liqo.io",
            "ClusterConfig",
            json!({"discoveryConfig": {}, "agentConfig": {"dashboardConfig": {}}}),
        ),
        (
            "config.liqo.io",
            "ClusterConfig",
            json!({"tenancyConfig": {"templates": [{"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "welcome"}, "data": {"a": "b"}}]}}),
        ),
        ("discovery.liqo.io", "ForeignCluster", json!({"authUrl": "https://192.0.2.7:31466"})),
        (
            "discovery.liqo.io",
            "ForeignCluster",
            json!({"clusterIdentity": {"clusterID": "cluster-1"}, "join": false}),
        ),
        ("discovery.liqo.io", "ResourceRequest", json!({})),
        ("discovery.liqo.io", "SearchDomain", json!({"domain": "example.org"})),
        ("sharing.liqo.io", "ResourceOffer", json!({"clusterId": "cluster-1"})),
        ("offloading.liqo.io", "NamespaceOffloading", json!({})),
        ("tenancy.liqo.io", "Tenant", json!({"cluster": {"clusterID": "cluster-1"}})),
        (
            "tenancy.liqo.io",
            "TenantDelegation",
            json!({"subjects": [{"kind": "User", "name": "jane"}], "level": "Viewer"}),
        ),
        ("virtualkubelet.liqo.io", "NamespaceMap", json!({})),
        (
            "virtualkubelet.liqo.io",
            "ShadowPod",
            json!({"pod": {"containers": [{"name": "a", "image": "b"}]}}),
        ),
    ];
    for (group, kind, spec) in kinds {
        let manifest = json!({
            "apiVersion": format!("{group}/v1alpha1"),
            "kind": kind,
            "metadata": {"name": "a"},
            "spec": spec,
        });
        assert_eq!(round_trip(&manifest), manifest);
    }
}
