//! The exchange of networks between real API servers: two clusters with the same networks agree on tunnels that match,
//! follow each other's changes, and part without a trace. What a gateway says of itself is written by hand.

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::discovery::{NetworkState, NetworkStatus};
use ferro_api::net::{IpamStorage, NatMapping, NetworkConfig, TunnelEndpoint};
use ferro_core::network::pulse::{LEASE, LOOK};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use rig::fuse::Fuse;
use rig::objects::{await_same, settled};
use rig::plan::ClusterSpec;
use rig::site::{NAMESPACE, Site, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const KEYS: [&str; 3] = [
    "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
    "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
    "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
];

/// Says in the name of a site's gateway where it is.
async fn say(site: &Site, key: &str, address: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(site.admin.clone(), NAMESPACE);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ferro-gateway"},
        "data": {"publicKey": key, "node": "n1", "nodeIP": "172.18.0.2", "endpointIP": address, "port": "30020"},
    });
    maps.patch("ferro-gateway", &PatchParams::apply("test"), &Patch::Apply(map)).await?;
    Ok(())
}

/// Lives in the name of a cluster's gateway, for ever.
async fn live(admin: Client) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(admin, NAMESPACE);
    loop {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE},
            "spec": {"renewTime": MicroTime(Timestamp::now())},
        });
        leases.patch(LEASE, &PatchParams::apply("test"), &Patch::Apply(lease)).await?;
        tokio::time::sleep(LOOK).await;
    }
}

/// The tunnel of a site, of which there is one.
async fn tunnel(site: &Site) -> Result<TunnelEndpoint> {
    let tunnels = Api::<TunnelEndpoint>::all(site.admin.clone()).list(&ListParams::default()).await?;
    tunnels.items.into_iter().next().with_context(|| format!("{} has no tunnel", site.name))
}

/// Says in the name of a site's gateway how the tunnel fares.
async fn fares(site: &Site, connection: &Value) -> Result<()> {
    let tunnel = tunnel(site).await?;
    let tunnels: Api<TunnelEndpoint> =
        Api::namespaced(site.admin.clone(), &tunnel.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": {"connection": connection}}));
    tunnels.patch_status(&tunnel.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What each says of itself is what the other says of it, in both directions. Gives the views of both.
async fn matching(sites: [&Site; 2]) -> Result<[TunnelEndpoint; 2]> {
    let [rome, turin] = [tunnel(sites[0]).await?, tunnel(sites[1]).await?];
    for (here, there) in [(&rome, &turin), (&turin, &rome)] {
        let mine = here.status.as_ref().context("nothing is shown")?;
        let yours = there.status.as_ref().context("nothing is shown")?;
        let pairs = [
            (mine.local_pod_cidr.as_deref(), Some(there.spec.pod_cidr.as_str())),
            (mine.local_external_cidr.as_deref(), there.spec.external_cidr.as_deref()),
            (Some(mine.local_nat_pod_cidr()), Some(yours.remote_nat_pod_cidr())),
            (Some(mine.local_nat_external_cidr()), Some(yours.remote_nat_external_cidr())),
            (mine.local_endpoint_ip.as_deref(), Some(there.spec.endpoint_ip.as_str())),
            (mine.gateway_ip.as_deref(), Some("172.18.0.2")),
            (mine.tunnel_iface_name.as_deref(), Some("ferro0")),
            (mine.veth_iface_name.as_deref(), Some("ferro.gw")),
        ];
        for (found, expected) in pairs {
            ensure!(found == expected, "{found:?} is not {expected:?}: {mine:?}");
        }
    }
    Ok([rome, turin])
}

async fn network(site: &Site, other: &Site) -> Result<NetworkStatus> {
    Ok(site.peer(other).await?.status.and_then(|status| status.network).unwrap_or_default())
}

/// Waits until a site shows the network to another one in this state, with these words.
async fn shows(site: &Site, other: &Site, state: NetworkState, words: &str) -> Result<()> {
    eventually(&format!("{} shows the network as {state:?}", site.name), || async {
        let network = network(site, other).await?;
        let message = network.message.clone().unwrap_or_default();
        ensure!(network.state == state && message.contains(words), "{network:?}");
        Ok(())
    })
    .await
}

/// Waits until the node for the other cluster is as ready as this.
async fn is_ready(site: &Site, status: &str) -> Result<()> {
    eventually(&format!("Ready of the node of {} is {status}", site.name), || async {
        let nodes: Api<Node> = Api::all(site.admin.clone());
        let nodes = nodes.list(&ListParams::default().labels("liqo.io/type=virtual-node")).await?;
        let node = nodes.items.into_iter().next().context("there is no node")?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").context("not said")?;
        ensure!(ready.status == status, "{ready:?}");
        Ok(())
    })
    .await
}

/// Waits until a site has its address manager.
async fn has_addresses(site: &Site) -> Result<IpamStorage> {
    let storages: Api<IpamStorage> = Api::all(site.admin.clone());
    eventually("the address manager has begun", || async { Ok(storages.get("ipam").await?) }).await
}

/// Whether nothing is left of the network to any peer.
async fn is_parted(site: &Site) -> Result<()> {
    let configs = Api::<NetworkConfig>::all(site.admin.clone()).list(&ListParams::default()).await?.items;
    let tunnels = Api::<TunnelEndpoint>::all(site.admin.clone()).list(&ListParams::default()).await?.items;
    let mappings = Api::<NatMapping>::all(site.admin.clone()).list(&ListParams::default()).await?.items;
    ensure!(configs.is_empty() && tunnels.is_empty(), "{}: {configs:?} {tunnels:?}", site.name);
    ensure!(mappings.is_empty(), "{}: {mappings:?}", site.name);
    let subnets = has_addresses(site).await?.spec.cluster_subnets;
    ensure!(subnets.is_empty(), "{}: {subnets:?}", site.name);
    Ok(())
}

async fn peer(rome: &Site, turin: &Site) -> Result<()> {
    let remote = turin.cluster.kubeconfig.display().to_string();
    ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"]).await?;
    rome.reaches(turin, Established, Established).await?;
    turin.reaches(rome, Established, Established).await
}

async fn set_reach(site: &Site, reach: &str) -> Result<()> {
    let patch = json!({"spec": {"liqonetConfig": {"reach": reach}}}).to_string();
    let arguments = ["patch", "clusterconfig", "liqo-configuration", "--type=merge", "--patch", &patch];
    site.cluster.kubectl(&arguments).await.map(drop)
}

/// Waits until just these endpoints are published.
async fn publishes(site: &Site, endpoints: &[&str]) -> Result<()> {
    eventually(&format!("{} publishes {endpoints:?}", site.name), || async {
        let mappings = Api::<NatMapping>::all(site.admin.clone()).list(&ListParams::default()).await?.items;
        let published = mappings.into_iter().flat_map(|mapping| mapping.spec.cluster_mappings.into_keys());
        let published: Vec<String> = published.collect();
        ensure!(published == endpoints, "{published:?}");
        Ok(())
    })
    .await
}

/// By full reach nodes are published, for as long as it is full and they are there.
async fn full_reach_follows_nodes(site: &Site) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}});
    site.cluster.apply(&node.to_string()).await?;
    let status =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.3"}]}}).to_string();
    let arguments = ["patch", "node", "worker", "--subresource=status", "--type=merge", "--patch", &status];
    site.cluster.kubectl(&arguments).await?;
    publishes(site, &[]).await?;
    set_reach(site, "full").await?;
    publishes(site, &["172.18.0.3"]).await?;
    set_reach(site, "default").await?;
    publishes(site, &[]).await?;
    set_reach(site, "full").await?;
    publishes(site, &["172.18.0.3"]).await?;
    site.cluster.kubectl(&["delete", "node", "worker"]).await?;
    publishes(site, &[]).await?;
    // The DaemonSet's controller does not notice by itself that a node is gone for which a pod still waits.
    let of_node = ["--namespace", NAMESPACE, "--selector", "app.kubernetes.io/name=ferro-node"];
    site.cluster.kubectl(&[&["delete", "pods"][..], &of_node].concat()).await?;
    set_reach(site, "default").await
}

#[test]
fn two_clusters_with_the_same_networks_agree_and_follow_each_other() -> Result<()> {
    block_on(async {
        let spec = |name: &str| ClusterSpec { bare: true, ..ClusterSpec::named(name) }.with_same_cidrs();
        let topology = Topology::up("networks", ["rome", "turin"].map(spec).into()).await?;
        let (a, b) = (topology.cluster("rome")?, topology.cluster("turin")?);
        let pods = ["networkManager.config.podCIDR=10.200.0.0/16"];
        let (rome, mut turin) = (Site::start(a, &pods).await?, Site::start(b, &pods).await?);
        for site in [&rome, &turin] {
            knows_itself(site).await?;
            let stored = has_addresses(site).await?.spec;
            ensure!(stored.service_cidr.as_deref() == Some("10.96.0.0/16"), "{stored:?}");
        }
        let installed = [settled(a).await?, settled(b).await?];
        // However long all this takes: what a gateway says counts as long as it lives.
        let mut gateway = JoinSet::new();
        gateway.spawn(live(rome.admin.clone()));

        peer(&rome, &turin).await?;
        shows(&rome, &turin, NetworkState::Pending, "is ferro-gateway running?").await?;
        say(&rome, KEYS[0], "192.0.2.1").await?;
        shows(&rome, &turin, NetworkState::Pending, "tells its networks").await?;
        say(&turin, KEYS[1], "192.0.2.2").await?;
        let joined = || matching([&rome, &turin]);
        let [before, _] = eventually("the tunnels match", joined).await?;
        let named = before.status.clone().unwrap_or_default();
        ensure!(named.remote_nat_pod_cidr() != "None" && named.local_nat_pod_cidr() != "None", "{named:?}");
        full_reach_follows_nodes(&rome).await?;
        shows(&rome, &turin, NetworkState::Pending, "waits for the gateway").await?;
        is_ready(&rome, "False").await?;
        fares(&rome, &json!({"status": "connected"})).await?;
        shows(&rome, &turin, NetworkState::Established, "").await?;
        is_ready(&rome, "True").await?;

        // Another key and address: the tunnel changes, and the names stay.
        say(&turin, KEYS[2], "192.0.2.3").await?;
        let [after, _] = eventually("the new key has arrived", || async {
            let tunnels = matching([&rome, &turin]).await?;
            let key = tunnels[0].spec.backend_config.get("publicKey").map(String::as_str);
            ensure!(
                key == Some(KEYS[2]) && tunnels[0].spec.endpoint_ip == "192.0.2.3",
                "{:?}",
                tunnels[0].spec
            );
            Ok(tunnels)
        })
        .await?;
        let status = after.status.unwrap_or_default();
        ensure!(status.remote_nat_pod_cidr == named.remote_nat_pod_cidr, "{status:?}");
        ensure!(after.metadata.uid == before.metadata.uid && status.connection.is_some());
        fares(&rome, &json!({"status": "error", "statusMessage": "no answer"})).await?;
        shows(&rome, &turin, NetworkState::Error, "no answer").await?;
        is_ready(&rome, "False").await?;

        // Another network, by the way that the error message says.
        let other = json!({"spec": {"liqonetConfig": {"podCIDR": "10.201.0.0/16"}}}).to_string();
        b.kubectl(&["patch", "clusterconfig", "liqo-configuration", "--type=merge", "--patch", &other])
            .await?;
        eventually("the user is told what to do", || async {
            let told = b.kubectl(&["get", "events", "--all-namespaces"]).await?;
            ensure!(told.contains("delete it to begin anew"), "{told}");
            Ok(())
        })
        .await?;
        b.kubectl(&["delete", "ipamstorage", "--all"]).await?;
        eventually("the new network has arrived", || async {
            let [tunnel, _] = matching([&rome, &turin]).await?;
            let status = tunnel.status.unwrap_or_default();
            ensure!(tunnel.spec.pod_cidr == "10.201.0.0/16", "{:?}", tunnel.spec);
            ensure!(status.remote_nat_pod_cidr() == "None", "{status:?}");
            Ok(())
        })
        .await?;

        // A restart changes nothing.
        turin.run(Fuse::none()).await?;
        eventually("the tunnels match", || matching([&rome, &turin])).await?;

        let over = json!({"spec": {"join": false}});
        rome.change(&turin, over.clone()).await?;
        turin.change(&rome, over).await?;
        rome.reaches(&turin, Unpeered, Unpeered).await?;
        turin.reaches(&rome, Unpeered, Unpeered).await?;
        for site in [&rome, &turin] {
            eventually("nothing is left of the network", || is_parted(site)).await?;
        }

        gateway.shutdown().await;
        Api::<Lease>::namespaced(rome.admin.clone(), NAMESPACE)
            .delete(LEASE, &DeleteParams::default())
            .await?;

        // Removed in the midst of it, on both sides.
        peer(&rome, &turin).await?;
        eventually("the tunnels match", || matching([&rome, &turin])).await?;
        ferro(&rome.cluster, &["remove", "turin", "--wait", "--yes"]).await?;
        ferro(&turin.cluster, &["remove", "rome", "--wait", "--yes"]).await?;
        for (site, before) in [&rome, &turin].into_iter().zip(&installed) {
            eventually("nothing is left of the network", || is_parted(site)).await?;
            let maps: Api<ConfigMap> = Api::namespaced(site.admin.clone(), NAMESPACE);
            maps.delete("ferro-gateway", &DeleteParams::default()).await?;
            await_same(&site.cluster, before).await?;
        }
        Ok(())
    })
}
