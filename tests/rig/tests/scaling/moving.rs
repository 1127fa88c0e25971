//! `ferro move`: a Deployment goes to the peer and comes home, and so does a pod; what may not go stays.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rig::installation::ferro;

use crate::stage::{AWAY, BOTH, Stage, is_away};

fn deployment(namespace: &str, name: &str, replicas: u8, volumes: &str) -> String {
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
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1, timeoutSeconds: 5}}
      volumes: {volumes}
"
    )
}

pub async fn a_deployment_moves_there_and_home_while_somebody_serves(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&deployment(BOTH, "mobile", 2, "[]")).await?;
    stage.kubectl(BOTH, &["rollout", "status", "deployment/mobile", "--timeout=300s"]).await?;
    for (to, away) in [("turin", true), ("home", false), ("turin", true)] {
        let arguments = ["move", "mobile", "--to", to, "-n", BOTH];
        let moved = AtomicBool::new(false);
        let act = async {
            let said = ferro(rome, &arguments).await;
            moved.store(true, Ordering::Relaxed);
            said
        };
        let (said, fewest) = tokio::join!(act, fewest_available(stage, "mobile", &moved));
        println!("{}", said?);
        ensure!(fewest? >= 1, "nobody served for a while");
        let pods = stage.pods(BOTH, "mobile").await?;
        let living: Vec<_> = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        ensure!(living.len() == 2 && living.iter().all(|pod| is_away(pod) == away), "not all are {to}");
    }
    // Who is there already has nothing to do.
    ferro(rome, &["move", "mobile", "--to", "turin", "-n", BOTH]).await?;
    stage.kubectl(BOTH, &["delete", "deployment", "mobile"]).await.map(drop)
}

/// How many pods were available at the worst moment.
async fn fewest_available(stage: &Stage, name: &str, until: &AtomicBool) -> Result<i32> {
    let api: Api<Deployment> = Api::namespaced(stage.rome()?.client.clone(), BOTH);
    let mut fewest = i32::MAX;
    while !until.load(Ordering::Relaxed) {
        // A look that fails says nothing.
        if let Ok(deployment) = api.get(name).await {
            fewest = fewest.min(deployment.status.and_then(|status| status.available_replicas).unwrap_or(0));
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    ensure!(fewest != i32::MAX, "it was not seen how many were available");
    Ok(fewest)
}

/// A pod that nobody owns.
fn nomad() -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: nomad, namespace: {BOTH}, labels: {{app: nomad}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: echo, image: 'rig/testbox:1', args: [serve]}}]
"
    )
}

async fn only_pod(stage: &Stage, app: &str) -> Result<Pod> {
    let pods = stage.pods(BOTH, app).await?;
    ensure!(pods.len() == 1, "{app} has {} pods", pods.len());
    pods.into_iter().next().with_context(|| format!("{app} has no pod"))
}

/// Where a pod is not.
fn elsewhere(pod: &Pod) -> &'static str {
    if is_away(pod) { "home" } else { "turin" }
}

/// Wherever it was put: it goes to the other cluster, and back. Nobody serves meanwhile, so that somebody has to agree.
pub async fn a_pod_that_nobody_owns_is_ended_and_made_again_there(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&nomad()).await?;
    stage.kubectl(BOTH, &["wait", "--for=condition=Ready", "pod/nomad", "--timeout=300s"]).await?;
    for _ in 0..2 {
        let before = only_pod(stage, "nomad").await?;
        let command = ["move", "pod/nomad", "--to", elsewhere(&before), "-n", BOTH];
        let Err(error) = ferro(rome, &command).await else { anyhow::bail!("nobody was asked") };
        ensure!(format!("{error:#}").contains("--yes"), "{error:#}");
        ensure!(only_pod(stage, "nomad").await?.metadata.uid == before.metadata.uid, "it is another pod");
        println!("{}", ferro(rome, &[&command[..], &["--yes"]].concat()).await?);
        let after = only_pod(stage, "nomad").await?;
        ensure!(after.metadata.uid != before.metadata.uid, "it is the same pod");
        ensure!(is_away(&after) != is_away(&before), "it is where it was");
    }
    stage.kubectl(BOTH, &["delete", "pod", "nomad"]).await.map(drop)
}

/// A claim that gets its volume where the pod that uses it comes to run.
fn claim() -> String {
    format!(
        r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: ledger, namespace: {BOTH}}}
spec:
  storageClassName: liqo
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 10Mi}}}}
"
    )
}

pub async fn what_may_not_move_is_refused_with_the_reason(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let data = "[{name: data, persistentVolumeClaim: {claimName: ledger}}]";
    let all = [
        deployment(AWAY, "fixed", 2, "[]"),
        deployment(BOTH, "rooted", 2, "[{name: root, hostPath: {path: /tmp}}]"),
        claim(),
        deployment(BOTH, "books", 1, data),
        // The last field of its pods is followed by one more.
        deployment(BOTH, "abroad", 1, "[]\n      nodeSelector: {liqo.io/type: virtual-node}"),
    ];
    rome.apply(&all.join("---")).await?;
    for (namespace, workload) in [(AWAY, "deployment/fixed"), (BOTH, "deployment/books")] {
        stage.kubectl(namespace, &["rollout", "status", workload, "--timeout=300s"]).await?;
    }
    let away_from_data = elsewhere(&only_pod(stage, "books").await?);
    for (arguments, reason) in [
        (["move", "fixed", "--to", "home", "-n", AWAY], "podOffloadingStrategy is Remote"),
        (["move", "rooted", "--to", "turin", "-n", BOTH], "cannot run on another cluster"),
        (["move", "rooted", "--to", "turin", "-n", "default"], "there is no Deployment or pod"),
        (["move", "books", "--to", away_from_data, "-n", BOTH], "the claim ledger holds data"),
        (["move", "abroad", "--to", "home", "-n", BOTH], "a node that this cluster does not have"),
    ] {
        let Err(error) = ferro(rome, &arguments).await else { anyhow::bail!("{arguments:?} is not refused") };
        let error = format!("{error:#}");
        ensure!(error.contains(reason), "{error}");
    }
    let of_deployment = stage.pods(AWAY, "fixed").await?;
    let pod = of_deployment.first().and_then(|pod| pod.metadata.name.clone()).unwrap_or_default();
    let Err(error) = ferro(rome, &["move", &pod, "--to", "turin", "-n", AWAY, "--yes"]).await else {
        anyhow::bail!("a pod was taken from its owner")
    };
    ensure!(format!("{error:#}").contains("ferro move deployment/fixed"), "{error:#}");
    stage.kubectl(AWAY, &["delete", "deployment", "fixed"]).await?;
    let deployments = ["deployment/rooted", "deployment/books", "deployment/abroad"];
    let rest = [&["delete"][..], &deployments, &["pvc/ledger", "--wait=false"]].concat();
    stage.kubectl(BOTH, &rest).await.map(drop)
}
