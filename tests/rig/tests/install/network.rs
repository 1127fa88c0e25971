//! What the commands about the network show of objects in a real cluster.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use rig::topology::Cluster;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};

use crate::{cluster, ferro_says};

const TURIN: &str = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";

/// All that is known of the network with turin, but for states.
fn objects() -> Value {
    let net = "net.liqo.io/v1alpha1";
    let items = json!([
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rome-1"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rome-2"}},
        {"apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": "turin"},
            "spec": {
                "authUrl": "https://192.0.2.2:30443",
                "clusterIdentity": {"clusterID": TURIN, "clusterName": "turin"},
            }},
        {"apiVersion": net, "kind": "IpamStorage", "metadata": {"name": "ipam"}, "spec": {
            "podCIDR": "10.244.0.0/24", "serviceCIDR": "10.96.0.0/16", "externalCIDR": "192.168.0.0/24"}},
        {"apiVersion": net, "kind": "NatMapping", "metadata": {"name": "natmapping-turin"},
            "spec": {"clusterID": TURIN, "clusterMappings": {"172.18.0.3": "192.168.8.45"}}},
        {"apiVersion": net, "kind": "TunnelEndpoint", "metadata": {"name": "turin", "namespace": "liqo"}, "spec": {
            "clusterID": TURIN, "podCIDR": "10.244.0.0/24", "externalCIDR": "192.168.0.0/24",
            "endpointIP": "192.0.2.2", "backendType": "wireguard", "backend_config": {
                "port": "30020", "publicKey": "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g="}}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ferro-gateway", "namespace": "liqo"},
            "data": {"node": "rome-1", "nodeIP": "172.18.0.2", "endpointIP": "192.0.2.1", "port": "51820"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "namespace": "default"}, "spec": {
            "nodeName": "rome-2", "containers": [{"name": "main", "image": "none"}]}},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

async fn set_status(cluster: &Cluster, object: &[&str], status: &Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    let arguments =
        [&["patch"], object, &["--subresource=status", "--type=merge", "--patch", &patch]].concat();
    cluster.kubectl(&arguments).await.map(drop)
}

async fn set_connection(cluster: &Cluster, connection: &Value) -> Result<()> {
    let status = json!({
        "localPodCIDR": "10.244.0.0/24", "localNATPodCIDR": "10.0.40.0/24", "remoteNATPodCIDR": "10.0.0.0/24",
        "localExternalCIDR": "192.168.0.0/24", "localNATExternalCIDR": "192.168.8.0/24",
        "remoteNATExternalCIDR": "192.168.7.0/24", "connection": connection,
    });
    set_status(cluster, &["tunnelendpoint", "turin", "--namespace=liqo"], &status).await
}

#[test]
fn the_network_is_shown_and_a_packet_is_followed_to_the_first_broken_link() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        ferro_says(cluster, &["install"]).await?;
        let early = ferro_says(cluster, &["network"]).await?;
        ensure!(early.contains("no networks are stored yet"), "{early}");

        let manifests = objects().to_string();
        // The controller-manager may not have made the service account of the pod yet.
        eventually("the objects can be made", || cluster.apply(&manifests)).await?;
        for (name, ip) in [("rome-1", "172.18.0.2"), ("rome-2", "172.18.0.3")] {
            let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": Timestamp::now()});
            let addresses = json!([{"type": "InternalIP", "address": ip}]);
            let status = json!({"conditions": [ready], "addresses": addresses});
            set_status(cluster, &["node", name], &status).await?;
        }
        let running = json!({"phase": "Running", "podIP": "10.244.0.7", "podIPs": [{"ip": "10.244.0.7"}]});
        set_status(cluster, &["pod", "client"], &running).await?;
        let probe = json!({"roundTripMicroseconds": 812, "jitterMicroseconds": 40, "lostPerThousand": 4});
        let throughput = json!({"sentBytesPerSecond": 12_345, "receivedBytesPerSecond": 930});
        set_connection(cluster, &json!({"status": "connected", "probe": probe, "throughput": throughput}))
            .await?;

        let shown = ferro_says(cluster, &["network"]).await?;
        let row: Vec<_> = shown.lines().last().unwrap_or_default().split_whitespace().collect();
        let expected = "turin connected 192.0.2.2:30020 10.0.0.0/24 10.244.0.0/24 10.0.40.0/24 812us 40us 0.4% 12kB/s \
                        930B/s";
        ensure!(row.join(" ") == expected, "{shown}");
        let rules = ferro_says(cluster, &["network", "rules", "turin"]).await?;
        ensure!(rules.starts_with(&format!("Chain LIQO-PRRT-MAP-CLS-{TURIN} (turin)\n")), "{rules}");
        ensure!(rules.contains("    -d 192.168.8.45 -j DNAT --to-destination 172.18.0.3\n"), "{rules}");

        let trace = ["trace", "--from", "client", "--to", "10.0.0.5"];
        let way = ferro_says(cluster, &trace).await?;
        ensure!(way.contains("10.0.40.7 > 10.244.0.5") && !way.contains("Broken"), "{way}");

        set_connection(cluster, &json!({"status": "error", "statusMessage": "no route to 192.0.2.2"}))
            .await?;
        let broken = ferro_says(cluster, &trace).await.err().context("it is broken")?.to_string();
        ensure!(
            broken.contains("broken at the tunnel: the tunnel to turin is in error: no route to 192.0.2.2"),
            "{broken}"
        );
        let status = ferro_says(cluster, &["status"]).await?;
        ensure!(status.contains("- turin: the tunnel is in error: no route to 192.0.2.2; see"), "{status}");

        cluster.kubectl(&["delete", "pod", "client", "--grace-period=0", "--force"]).await?;
        cluster.kubectl(&["delete", "node", "rome-1", "rome-2"]).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--force", "--wait"]).await.map(drop)
    })
}
