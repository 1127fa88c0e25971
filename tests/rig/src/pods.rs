//! Pods that call, and pods that answer, one of each on every node.

use std::net::IpAddr;

use crate::topology::Cluster;
use crate::wait::eventually;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

/// Starts a caller and an echo server on every node.
pub async fn start(cluster: &Cluster) -> Result<()> {
    let mut names = Vec::new();
    for (index, node) in cluster.plan.nodes.iter().enumerate() {
        let number = index + 1;
        let (node, name) = (&node.name, &cluster.plan.name);
        cluster
            .apply(&format!(
                r"
apiVersion: v1
kind: Pod
metadata: {{name: echo-{number}, namespace: default}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - name: echo
    image: rig/testbox:1
    args: [serve]
    env:
    - {{name: CLUSTER, value: {name}}}
    - {{name: NODE, value: {node}}}
    readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Pod
metadata: {{name: caller-{number}, namespace: default}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: shell, image: 'rig/busybox:1', args: [-c, 'sleep 1000000']}}
"
            ))
            .await?;
        names.extend([format!("pod/echo-{number}"), format!("pod/caller-{number}")]);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wait = ["wait", "--for=condition=Ready", "--timeout=180s"];
    cluster.kubectl(&[&wait[..], &names].concat()).await.map(drop)
}

/// Ends them.
pub async fn stop(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "-n", "default", "--wait=true"]).await.map(drop)
}

async fn ip(cluster: &Cluster, name: &str) -> Result<IpAddr> {
    let pod: Pod = Api::default_namespaced(cluster.client.clone()).get(name).await?;
    let ip = pod.status.and_then(|status| status.pod_ip).context("a pod has no address")?;
    Ok(ip.parse()?)
}

/// A pod that answers with who it is and who asked.
pub struct Echo {
    /// Its address.
    pub ip: IpAddr,
    /// The node that it is on.
    pub node: String,
}

impl Echo {
    /// The one on the node of that number.
    pub async fn on(cluster: &Cluster, number: usize) -> Result<Self> {
        let node = cluster.plan.nodes[number - 1].name.clone();
        Ok(Self { ip: ip(cluster, &format!("echo-{number}")).await?, node })
    }
}

/// A pod from which to call.
pub struct Caller<'a> {
    cluster: &'a Cluster,
    name: String,
    /// Its address.
    pub ip: IpAddr,
}

impl<'a> Caller<'a> {
    /// The one on the node of that number.
    pub async fn on(cluster: &'a Cluster, number: usize) -> Result<Self> {
        let name = format!("caller-{number}");
        Ok(Self { cluster, ip: ip(cluster, &name).await?, name })
    }

    async fn run(&self, command: &[&str]) -> Result<String> {
        self.cluster.kubectl(&[&["exec", &self.name, "--"], command].concat()).await
    }

    /// What the echo server at that address says.
    pub async fn get(&self, address: IpAddr) -> Result<String> {
        let url = format!("http://{address}:8080/");
        // Routes come when they come.
        eventually(&format!("{} gets {url}", self.name), || async {
            self.run(&["wget", "-qO-", "-T", "5", &url]).await
        })
        .await
    }

    /// Pings with so much payload, and hears every answer.
    pub async fn ping(&self, address: IpAddr, size: usize) -> Result<String> {
        let (size, address) = (size.to_string(), address.to_string());
        let said = self.run(&["ping", "-c", "3", "-W", "5", "-s", &size, &address]).await?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
        Ok(said)
    }
}
