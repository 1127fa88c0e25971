//! What pods on the peer use, as metrics-server and an autoscaler at home see it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use rig::wait::eventually;

use crate::stage::{AWAY, BOTH, Stage, is_away, name};

/// Burns what it may, until it is told to rest.
const WORK: &str = "while true; do if [ -e /tmp/rest ]; then sleep 1; fi; done";
const MOST: usize = 3;

/// A pod on the peer that never rests.
fn busy() -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: busy, namespace: {AWAY}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: busy, image: 'rig/busybox:1', args: [-c, '{WORK}'], resources: {{limits: {{cpu: 100m}}}}}}
"
    )
}

/// The first at home, and no node with two more than another has.
fn workers() -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: worker, namespace: {BOTH}}}
spec:
  selector: {{matchLabels: {{app: worker}}}}
  template:
    metadata: {{labels: {{app: worker}}}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {{weight: 100, preference: {{matchExpressions: [{{key: liqo.io/type, operator: NotIn, values: [virtual-node]}}]}}}}
      topologySpreadConstraints:
      - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: worker}}}}}}
      containers:
      - name: work
        image: rig/busybox:1
        args: [-c, '{WORK}']
        resources: {{requests: {{cpu: 50m}}, limits: {{cpu: 100m}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: worker, namespace: {BOTH}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: worker}}
  minReplicas: 1
  maxReplicas: {MOST}
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}]
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 0}}}}
"
    )
}

pub async fn what_a_pod_on_the_peer_uses_is_told(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(&busy()).await?;
    stage.kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/busy", "--timeout=300s"]).await?;
    let node =
        stage.rome()?.kubectl(&["get", "nodes", "-l", "liqo.io/type=virtual-node", "-o", "name"]).await?;
    let node = node.trim().trim_start_matches("node/").to_owned();
    counters_only_grow(stage, &node).await?;
    eventually("kubectl shows what the pods and their node use", || async {
        let pods = stage.kubectl(AWAY, &["top", "pods", "--containers", "--no-headers"]).await?;
        ensure!(pods.contains("busy"), "{pods}");
        let nodes = stage.rome()?.kubectl(&["top", "nodes", "--no-headers"]).await?;
        let line = nodes.lines().find(|line| line.starts_with(&node)).context("the node is not there")?;
        ensure!(!line.contains("<unknown>"), "{line}");
        Ok(())
    })
    .await?;
    stage.kubectl(AWAY, &["delete", "pod", "busy"]).await.map(drop)
}

/// One worker at home is too few: others come, and not all of them at home. When none has to work, one is enough.
pub async fn an_autoscaler_grows_a_deployment_onto_the_peer_and_shrinks_it_again(
    stage: &Stage,
) -> Result<()> {
    stage.rome()?.apply(&workers()).await?;
    let status = ["rollout", "status", "deployment/worker", "--timeout=300s"];
    stage.kubectl(BOTH, &status).await?;
    let begun = stage.pods(BOTH, "worker").await?;
    let first = begun.iter().min_by_key(|pod| pod.metadata.creation_timestamp.clone());
    ensure!(first.is_some_and(|pod| is_placed(pod) && !is_away(pod)), "the first is not at home");
    let grown = await_workers(stage, MOST).await?;
    let away = grown.iter().filter(|pod| is_away(pod)).count();
    ensure!((1..MOST).contains(&away), "{away} of {MOST} workers are on turin");
    stage.kubectl(BOTH, &status).await?;
    let resting = Mutex::default();
    eventually("all rest, and one worker is left", || async {
        send_to_rest(stage, &resting).await?;
        counted(stage, 1).await
    })
    .await?;
    stage.kubectl(BOTH, &["delete", "hpa/worker", "deployment/worker"]).await.map(drop)
}

/// Tells all workers that there are to rest, each once. One that the autoscaler takes away meanwhile fails this, which is then
/// tried with those that are left; one that it adds has to be told, too.
async fn send_to_rest(stage: &Stage, resting: &Mutex<BTreeSet<String>>) -> Result<()> {
    let told = || resting.lock().unwrap_or_else(PoisonError::into_inner);
    for pod in living(stage).await? {
        if !told().contains(name(&pod)) {
            stage.kubectl(BOTH, &["exec", name(&pod), "--", "touch", "/tmp/rest"]).await?;
            told().insert(name(&pod).to_owned());
        }
    }
    Ok(())
}

/// Waits until there are so many, each with a node.
async fn await_workers(stage: &Stage, count: usize) -> Result<Vec<Pod>> {
    eventually(&format!("there are {count} workers"), || counted(stage, count)).await
}

/// All workers, if there are so many, each with a node.
async fn counted(stage: &Stage, count: usize) -> Result<Vec<Pod>> {
    let living = living(stage).await?;
    let scaler = stage.kubectl(BOTH, &["get", "hpa", "worker", "--no-headers"]).await?;
    ensure!(living.len() == count, "{} of {count}: {scaler}", living.len());
    ensure!(living.iter().all(is_placed), "not all have a node");
    Ok(living)
}

async fn living(stage: &Stage) -> Result<Vec<Pod>> {
    let mut pods = stage.pods(BOTH, "worker").await?;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

fn is_placed(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// The counter of a container in the page that metrics-server reads, through the API server.
async fn counter(stage: &Stage, node: &str) -> Result<f64> {
    let page = format!("/api/v1/nodes/{node}/proxy/metrics/resource");
    let page = stage.rome()?.kubectl(&["get", "--raw", &page]).await?;
    let series = "container_cpu_usage_seconds_total{container=\"busy\"";
    let line = page.lines().find(|line| line.starts_with(series));
    let line = line.with_context(|| format!("the container is not there yet: {page}"))?;
    Ok(line.split(' ').nth(1).context("a series has no value")?.parse()?)
}

async fn counters_only_grow(stage: &Stage, node: &str) -> Result<()> {
    let mut last = eventually("the node tells what its pods use", || counter(stage, node)).await?;
    for _ in 0..3 {
        let before = last;
        last = eventually("the counter has grown, and has not gone back", || async move {
            let now = counter(stage, node).await?;
            ensure!(now > before, "from {before} to {now}");
            Ok(now)
        })
        .await?;
    }
    Ok(())
}
