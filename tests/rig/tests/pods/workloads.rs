//! What people run: Deployments that are scaled and rolled, Jobs, single pods, and what cannot travel.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use rig::wait::eventually;

use crate::stage::{AWAY, Stage, node_of};

/// A Deployment of echo servers.
pub fn deployment(namespace: &str, name: &str, replicas: usize) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        env:
        - {{name: CLUSTER, value: '{name}'}}
        - {{name: NAMESPACE, valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}}}
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
"
    )
}

/// A pod that runs a line of shell.
pub fn shell(name: &str, policy: &str, line: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {AWAY}, labels: {{app: {name}}}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: shell, image: 'rig/busybox:1', args: [-c, '{line}']}}
"
    )
}

pub async fn a_deployment_is_scaled_and_rolled(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&deployment(AWAY, "web", 3)).await?;
    stage.kubectl(AWAY, &["rollout", "status", "deployment/web", "--timeout=180s"]).await?;
    let pods = stage.await_ready("web", 3).await?;
    ensure!(
        pods.iter().all(|pod| node_of(pod).is_some_and(|node| node.starts_with("liqo-turin"))),
        "not on turin"
    );
    for count in [6, 2] {
        stage.kubectl(AWAY, &["scale", "deployment/web", &format!("--replicas={count}")]).await?;
        stage.await_ready("web", count).await?;
    }
    stage.kubectl(AWAY, &["set", "env", "deployment/web", "VERSION=2"]).await?;
    stage.kubectl(AWAY, &["rollout", "status", "deployment/web", "--timeout=180s"]).await?;
    stage.await_ready("web", 2).await?;
    stage.kubectl(AWAY, &["rollout", "undo", "deployment/web"]).await?;
    stage.kubectl(AWAY, &["rollout", "status", "deployment/web", "--timeout=180s"]).await?;
    stage.await_ready("web", 2).await?;
    let described = stage.kubectl(AWAY, &["describe", "pods", "-l", "app=web"]).await?;
    ensure!(
        described.contains("Started container") || described.contains("Started"),
        "no Events came home: {described}"
    );
    Ok(())
}

/// The addresses that pods have at home work from home.
pub async fn whoever_calls_a_pod_by_its_address_gets_it(stage: &Stage) -> Result<()> {
    rig::pods::start(stage.rome()?).await?;
    let caller = rig::pods::Caller::on(stage.rome()?, 1).await?;
    for pod in stage.await_ready("web", 2).await? {
        let status = pod.status.as_ref().context("a pod has no status")?;
        let ip: IpAddr = status.pod_ip.as_deref().context("a pod has no address")?.parse()?;
        let answer = caller.get(ip).await?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        ensure!(answer.contains(name), "{ip} is {name} and answers {answer}");
    }
    rig::pods::stop(stage.rome()?).await
}

pub async fn jobs_and_single_pods_end_as_they_would_at_home(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&shell("good", "Never", "echo done")).await?;
    rome.apply(&shell("bad", "Never", "exit 3")).await?;
    rome.apply(&shell("again", "OnFailure", "exit 3")).await?;
    let job = format!(
        "{}\n",
        r"
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: away}
spec:
  completions: 2
  backoffLimit: 4
  template:
    metadata: {labels: {app: job}}
    spec:
      restartPolicy: Never
      containers:
      - {name: shell, image: 'rig/busybox:1', args: [-c, 'echo worked']}
"
    );
    rome.apply(&job).await?;
    stage
        .kubectl(AWAY, &["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/good", "--timeout=180s"])
        .await?;
    stage
        .kubectl(AWAY, &["wait", "--for=jsonpath={.status.phase}=Failed", "pod/bad", "--timeout=180s"])
        .await?;
    stage.kubectl(AWAY, &["wait", "--for=condition=complete", "job/job", "--timeout=180s"]).await?;
    let code =
        ["get", "pod", "bad", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"];
    ensure!(stage.kubectl(AWAY, &code).await? == "3", "the exit code did not come home");
    eventually("restarts come home", || async {
        let restarts = ["get", "pod", "again", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"];
        let count: u32 = stage.kubectl(AWAY, &restarts).await?.parse().unwrap_or_default();
        ensure!(count >= 2, "{count} restarts");
        Ok(())
    })
    .await?;
    ensure!(stage.kubectl(AWAY, &["logs", "good"]).await?.trim() == "done", "its log is not there");
    stage.kubectl(AWAY, &["delete", "job/job", "pod/good", "pod/bad", "pod/again", "--timeout=180s"]).await?;
    for app in ["good", "bad", "again", "job"] {
        stage.await_gone(app).await?;
    }
    Ok(())
}

pub async fn what_cannot_travel_waits_with_a_reason(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let pod = shell("rooted", "Always", "sleep 1000");
    rome.apply(
        &pod.replace("  containers:", "  volumes: [{name: root, hostPath: {path: /}}]\n  containers:"),
    )
    .await?;
    eventually("it says why it does not run", || async {
        let described = stage.kubectl(AWAY, &["describe", "pod", "rooted"]).await?;
        ensure!(described.contains("hostPath") && described.contains("Pending"), "{described}");
        Ok(())
    })
    .await?;
    ensure!(stage.there("rooted").await?.is_empty(), "it runs");
    stage.kubectl(AWAY, &["delete", "pod", "rooted", "--timeout=180s"]).await?;
    stage.await_gone("rooted").await
}
