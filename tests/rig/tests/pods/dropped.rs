//! Namespaces that leave a cluster on which their pods run: these go first, in their own time, and run again elsewhere.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::ListParams;
use rig::installation::ferro;
use rig::topology::Cluster;
use rig::tunnels::identifier;
use rig::wait::{GENEROUSLY, eventually};

use crate::faults::kill_controllers;
use crate::stage::{Stage, is_ready, node_of, running};

const NAMESPACE: &str = "leaving";
const APP: &str = "slow";
/// So many pods: some on each of two clusters.
const PODS: usize = 4;
/// How often it is looked: what is out of order may be so for a moment only.
const EVERY: Duration = Duration::from_millis(50);
/// While pods take their time to end, the controllers of home are killed after so long.
const IN_BETWEEN: Duration = Duration::from_secs(4);

/// A Deployment over two clusters, whose pods do not end before their time is up.
fn slow() -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {APP}, namespace: {NAMESPACE}}}
spec:
  replicas: {PODS}
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      terminationGracePeriodSeconds: 10
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor
        labelSelector: {{matchLabels: {{app: {APP}}}}}
      containers:
      - name: shell
        image: rig/busybox:1
        args: [-c, 'trap "" TERM; sleep 1000']
        env: [{{name: CLUSTER, value: '{APP}'}}]
"#
    )
}

/// A cluster is dropped from the selector, then the offloading is deleted while controllers die, then the namespace at home
/// is deleted: each way no namespace goes before its pods.
pub async fn a_namespace_leaves_a_cluster_after_its_pods(stage: &Stage) -> Result<()> {
    let (rome, turin, milan) = (stage.rome()?, stage.turin()?, stage.milan()?);
    let [to_turin, to_milan] = [selector(turin).await?, selector(milan).await?];
    rome.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let both = format!("{to_turin}; {to_milan}");
    ferro(rome, &["offload", NAMESPACE, "--pods", "remote", "--selector", &both, "--wait"]).await?;
    rome.apply(&slow()).await?;
    await_pods(stage, &[&stage.node, &stage.node_of("milan").await?]).await?;

    leaves(stage, turin, async {
        ferro(rome, &["offload", NAMESPACE, "--selector", &to_milan]).await.map(drop)
    })
    .await?;
    await_pods(stage, &[&stage.node_of("milan").await?]).await?;

    leaves(stage, milan, async {
        stage.kubectl(NAMESPACE, &["delete", "namespaceoffloading", "offloading", "--wait=false"]).await?;
        tokio::time::sleep(IN_BETWEEN).await;
        kill_controllers(rome).await
    })
    .await?;
    await_pods(stage, &[&rome.plan.nodes[0].name]).await?;
    // The namespace over there goes before the offloading, and whoever was killed has to start again for that.
    stage
        .kubectl(NAMESPACE, &["wait", "--for=delete", "namespaceoffloading/offloading", "--timeout=300s"])
        .await?;

    ferro(rome, &["offload", NAMESPACE, "--pods", "remote", "--selector", &to_turin, "--wait"]).await?;
    stage.kubectl(NAMESPACE, &["delete", "pods", "--all", "--wait=false"]).await?;
    await_pods(stage, &[&stage.node]).await?;
    leaves(stage, turin, async {
        rome.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=300s"]).await.map(drop)
    })
    .await?;
    ensure!(running(APP).is_empty(), "containers are left: {:?}", running(APP));
    Ok(())
}

async fn selector(peer: &Cluster) -> Result<String> {
    Ok(format!("liqo.io/remoteID={}", identifier(peer).await?))
}

/// Waits until all pods of the Deployment are ready, on these nodes and no others, and on each of them.
async fn await_pods(stage: &Stage, nodes: &[&str]) -> Result<()> {
    eventually(&format!("{PODS} pods are ready on {nodes:?}"), || async {
        let pods = stage.here(NAMESPACE, APP).await?;
        let on: Vec<Option<&str>> = pods.iter().map(node_of).collect();
        ensure!(pods.len() == PODS && pods.iter().all(is_ready), "not all are ready: {on:?}");
        ensure!(nodes.iter().all(|node| on.contains(&Some(node))), "{on:?}");
        ensure!(on.iter().flatten().all(|node| nodes.contains(node)), "{on:?}");
        Ok(())
    })
    .await
}

/// Looks at a peer all the time while something is done by which the namespace leaves it, until it has.
async fn leaves(stage: &Stage, peer: &Cluster, deed: impl Future<Output = Result<()>>) -> Result<()> {
    let look = Look::at(stage, peer);
    ensure!(!look.pods().await?.is_empty(), "nothing runs on {}", peer.plan.name);
    let ((), ended) = tokio::try_join!(deed, look.until_it_is_gone())?;
    ensure!(ended > 0, "no pod was seen to take its time on {}", peer.plan.name);
    ensure!(look.shadows().await?.is_empty(), "ShadowPods are left on {}", peer.plan.name);
    Ok(())
}

/// A look at the namespace on a peer.
struct Look {
    name: String,
    namespaces: Api<Namespace>,
    pods: Api<Pod>,
    shadows: Api<ShadowPod>,
}

impl Look {
    fn at(stage: &Stage, peer: &Cluster) -> Self {
        let (name, client) = (stage.counterpart(NAMESPACE), peer.client.clone());
        Self {
            namespaces: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), &name),
            shadows: Api::namespaced(client, &name),
            name,
        }
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.pods.list(&ListParams::default()).await?.items)
    }

    async fn shadows(&self) -> Result<Vec<ShadowPod>> {
        Ok(self.shadows.list(&ListParams::default()).await?.items)
    }

    /// At how many looks pods were on their way out. The namespace is looked at first: if that goes while a pod is there,
    /// it has gone before it.
    async fn until_it_is_gone(&self) -> Result<usize> {
        let looks = async {
            let mut ending = 0;
            loop {
                tokio::time::sleep(EVERY).await;
                // A look that fails says nothing.
                let Ok(namespace) = self.namespaces.get_opt(&self.name).await else { continue };
                let Some(namespace) = namespace else { break };
                let (Ok(pods), Ok(shadows)) = (self.pods().await, self.shadows().await) else { continue };
                let goes = namespace.metadata.deletion_timestamp.is_some();
                ensure!(!goes || pods.is_empty(), "it goes before {} pods", pods.len());
                ensure!(!goes || shadows.is_empty(), "it goes before {} ShadowPods", shadows.len());
                let is_ending = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
                ending += usize::from(pods.iter().any(is_ending));
            }
            Ok(ending)
        };
        let looks = tokio::time::timeout(GENEROUSLY, looks).await;
        looks.with_context(|| format!("{} is still there", self.name))?
    }
}
