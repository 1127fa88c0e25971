//! What befalls a cluster: its gateway or its controllers are killed, or the node below the gateway loses power.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;

use crate::NAMESPACE;

/// Kills the gateway of a cluster, and waits until another process has taken its place.
pub async fn kill_gateway(cluster: &Cluster) -> Result<()> {
    kill(cluster, gateway_node(cluster).await?, "gateway").await?.are_back().await
}

/// Kills all controllers of a cluster, and with them the address manager.
pub async fn kill_controllers(cluster: &Cluster) -> Result<Vec<Killed<'_>>> {
    let hosts = eventually("a controller is ready", || hosts_of_controllers(cluster)).await?;
    let mut killed = Vec::new();
    for host in hosts {
        killed.push(kill(cluster, host, "controller").await?);
    }
    Ok(killed)
}

/// The nodes with controllers that are ready, of which there is one at least.
async fn hosts_of_controllers(cluster: &Cluster) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for node in &cluster.plan.nodes {
        let host = Host { name: node.name.clone(), number: node.number };
        if !of_role(cluster, &host, "controller").await?.is_empty() {
            hosts.push(host);
        }
    }
    ensure!(!hosts.is_empty(), "there is no controller");
    Ok(hosts)
}

/// Containers that were killed.
pub struct Killed<'a> {
    cluster: &'a Cluster,
    host: Host,
    before: BTreeSet<Container>,
}

impl Killed<'_> {
    /// Waits until others have taken their places.
    pub async fn are_back(self) -> Result<()> {
        await_new(self.cluster, &self.host, self.before).await
    }
}

/// Kills those of a role on a node. A probe may have just failed, so that none is said to be ready.
async fn kill<'a>(cluster: &'a Cluster, host: Host, role: &str) -> Result<Killed<'a>> {
    let before = eventually(&format!("a {role} on {} is ready", host.name), || async {
        let before = of_role(cluster, &host, role).await?;
        ensure!(!before.is_empty(), "none is");
        Ok(before)
    })
    .await?;
    // A node sees its own processes only.
    cluster.on_node(host.number, &["pkill", "-KILL", "-f", &format!("^/ferro {role}")]).await?;
    Ok(Killed { cluster, host, before })
}

/// Reboots the node that the gateway of a cluster is on, and waits until all that ran there runs again.
pub async fn reboot_under_gateway(topology: &Topology, cluster: &Cluster) -> Result<()> {
    let gateway = gateway_node(cluster).await?;
    let before = containers(cluster, &gateway).await?;
    topology.reboot(&format!("{}/{}", cluster.plan.name, gateway.number)).await?;
    await_new(cluster, &gateway, before).await
}

/// A node.
pub struct Host {
    name: String,
    pub number: u8,
}

/// Where the gateway of a cluster says that it is.
pub async fn gateway_node(cluster: &Cluster) -> Result<Host> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let said = maps.get("ferro-gateway").await?.data.unwrap_or_default();
    let name = said.get("node").context("the gateway does not say where it is")?;
    let node = cluster.plan.node(name)?;
    Ok(Host { name: node.name.clone(), number: node.number })
}

/// A container that is ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Container {
    pod: String,
    name: String,
    id: String,
}

impl Container {
    fn of(pod: &Pod, status: ContainerStatus) -> Option<Self> {
        let id = status.container_id.filter(|_| status.ready)?;
        Some(Self { pod: pod.name_any(), name: status.name, id })
    }
}

/// All containers on a node that are ready.
async fn containers(cluster: &Cluster, node: &Host) -> Result<BTreeSet<Container>> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let on_node = ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    let mut found = BTreeSet::new();
    for pod in pods.list(&on_node).await? {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        found.extend(
            statuses.unwrap_or_default().into_iter().filter_map(|status| Container::of(&pod, status)),
        );
    }
    Ok(found)
}

/// Those of a role.
async fn of_role(cluster: &Cluster, node: &Host, role: &str) -> Result<BTreeSet<Container>> {
    let mut found = containers(cluster, node).await?;
    found.retain(|container| container.pod.starts_with(&format!("ferro-{role}")));
    Ok(found)
}

/// What a kubelet says of a pod.
async fn state(cluster: &Cluster, pod: &str) -> Result<String> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let named = pods.list(&ListParams::default().fields(&format!("metadata.name={pod}"))).await?;
    Ok(serde_json::to_string(&named.items.first().map(|pod| &pod.status))?)
}

/// Waits until others of the same names are ready in place of these.
async fn await_new(cluster: &Cluster, node: &Host, before: BTreeSet<Container>) -> Result<()> {
    ensure!(!before.is_empty(), "nothing ran there");
    eventually(&format!("all runs again on {}", node.name), || async {
        let now = containers(cluster, node).await?;
        for old in &before {
            let is_new = |new: &Container| (&new.pod, &new.name) == (&old.pod, &old.name) && new.id != old.id;
            if !now.iter().any(is_new) {
                bail!("{} of {} is not there: {}", old.name, old.pod, state(cluster, &old.pod).await?);
            }
        }
        Ok(())
    })
    .await
}
