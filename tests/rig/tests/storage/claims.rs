//! Claims whose pods run over there, and at home.

use anyhow::{Result, ensure};
use rig::installation::ferro;
use rig::wait::eventually;

use crate::stage::{AWAY, HOME, Stage};

const DATABASE: &str = r"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: away}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: rig/busybox:1
        args: [-c, 'test -f /data/born || hostname > /data/born; echo again >> /data/born; sleep 100000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      storageClassName: liqo
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 100Mi}}
";

/// A claim, and a pod that uses it.
fn user(namespace: &str, name: &str, class: &str, size: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  storageClassName: {class}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: {size}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]
  containers:
  - name: main
    image: rig/busybox:1
    args: [-c, 'echo here > /data/file; sleep 100000']
    volumeMounts: [{{name: data, mountPath: /data}}]
"
    )
}

pub async fn a_stateful_set_keeps_its_data_through_restarts(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(DATABASE).await?;
    stage.kubectl(AWAY, &["rollout", "status", "statefulset/db", "--timeout=300s"]).await?;
    eventually("the claims over there are bound", || async {
        let phases = ["get", "pvc", "-o", "jsonpath={.items[*].status.phase}"];
        let there = stage.kubectl_there(&phases).await?;
        ensure!(there == "Bound Bound", "the claims over there: {there}");
        Ok(())
    })
    .await?;
    let born = ["exec", "db-1", "--", "cat", "/data/born"];
    for restarts in 1..3 {
        eventually("the pod finds what it has written", || async {
            let text = stage.kubectl(AWAY, &born).await?;
            let again = text.lines().filter(|line| *line == "again").count();
            ensure!(text.starts_with("db-1") && again == restarts, "{text}");
            Ok(())
        })
        .await?;
        stage.kubectl(AWAY, &["delete", "pod", "db-1", "--timeout=300s"]).await?;
        stage.kubectl(AWAY, &["rollout", "status", "statefulset/db", "--timeout=300s"]).await?;
    }
    // A StatefulSet may be said to be complete that has not noticed yet that a pod is gone.
    let node = ["get", "pod", "db-1", "-o", "jsonpath={.spec.nodeName}"];
    let node = eventually("the pod is there again", || async {
        let node = stage.kubectl(AWAY, &node).await?;
        ensure!(!node.is_empty(), "it has no node");
        Ok(node)
    })
    .await?;
    ensure!(node.starts_with("liqo-turin"), "it runs on {node}");
    Ok(())
}

/// The class of the rig cannot grow.
pub async fn a_claim_that_grows_says_why_it_cannot(stage: &Stage) -> Result<()> {
    let more = r#"{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}"#;
    stage.kubectl(AWAY, &["patch", "pvc", "data-db-0", "-p", more]).await?;
    stage.await_described(AWAY, &["pvc", "data-db-0"], &["ResizeRefused", "200Mi: "]).await
}

pub async fn a_claim_beyond_the_quota_says_so(stage: &Stage) -> Result<()> {
    let tenant = stage.turin()?.kubectl(&["get", "tenants", "-o", "name"]).await?;
    let ceiling = r#"{"spec":{"namespaceCeiling":{"hard":{"pods":"50","requests.storage":"1Gi"}}}}"#;
    let patch = ["patch", tenant.trim(), "--type=merge", "-p", ceiling];
    stage.turin()?.kubectl(&patch).await?;
    eventually("the ceiling stands", || async {
        let hard = stage.kubectl_there(&["get", "resourcequotas", "-o", "yaml"]).await?;
        ensure!(hard.contains("requests.storage: 1Gi"), "{hard}");
        Ok(())
    })
    .await?;
    stage.rome()?.apply(&user(AWAY, "large", "liqo", "5Gi")).await?;
    stage.await_described(AWAY, &["pvc", "large"], &["QuotaExceeded", "requests.storage"]).await?;
    stage.kubectl(AWAY, &["delete", "pod/large", "pvc/large", "--timeout=300s"]).await?;
    let none = r#"{"spec":{"namespaceCeiling":null}}"#;
    stage.turin()?.kubectl(&["patch", tenant.trim(), "--type=merge", "-p", none]).await.map(drop)
}

pub async fn a_pod_at_home_has_a_volume_of_home(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(&user(HOME, "files", "liqo", "10Mi")).await?;
    stage.kubectl(HOME, &["wait", "--for=condition=Ready", "pod/files", "--timeout=300s"]).await?;
    let volume = ["get", "pvc", "files", "-o", "jsonpath={.spec.volumeName}"];
    let volume = stage.kubectl(HOME, &volume).await?;
    let class = ["get", "pv", &volume, "-o", "jsonpath={.spec.storageClassName}"];
    let class = stage.rome()?.kubectl(&class).await?;
    ensure!(class == "standard", "its volume is of the class {class}");
    let left = ["get", "pvc", "-A", "-l", "storage.liqo.io/stand-in", "-o", "name"];
    eventually("no stand-in is left", || async {
        let left = stage.rome()?.kubectl(&left).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await?;
    stage.kubectl(HOME, &["delete", "pod/files", "pvc/files", "--timeout=300s"]).await?;
    eventually("its volume is gone", || async {
        let volumes = stage.rome()?.kubectl(&["get", "pv", "-o", "name"]).await?;
        ensure!(!volumes.contains(&volume), "{volumes}");
        Ok(())
    })
    .await
}

pub async fn a_claim_of_another_class_keeps_its_pod_off(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(&user(AWAY, "local", "standard", "10Mi")).await?;
    stage.await_described(AWAY, &["pod", "local"], &["ClaimNotPortable"]).await?;
    stage.kubectl(AWAY, &["delete", "pod/local", "pvc/local", "--timeout=300s"]).await.map(drop)
}

pub async fn what_is_lost_over_there_is_not_replaced(stage: &Stage) -> Result<()> {
    stage.kubectl(AWAY, &["scale", "statefulset/db", "--replicas=1"]).await?;
    stage.kubectl(AWAY, &["wait", "--for=delete", "pod/db-1", "--timeout=300s"]).await?;
    stage.kubectl_there(&["delete", "pvc", "data-db-1", "--timeout=300s"]).await?;
    stage.await_described(AWAY, &["pvc", "data-db-1"], &["DataLost"]).await?;
    stage.kubectl(AWAY, &["scale", "statefulset/db", "--replicas=2"]).await?;
    stage.await_described(AWAY, &["pod", "db-1"], &["ClaimLost"]).await?;
    let there = stage.kubectl_there(&["get", "pvc", "-o", "name"]).await?;
    ensure!(!there.contains("data-db-1"), "it was made again: {there}");
    Ok(())
}

pub async fn who_parts_is_told_what_is_lost(stage: &Stage) -> Result<()> {
    for command in [["unpeer", "turin"], ["unoffload", AWAY], ["remove", "turin"]] {
        let Err(refused) = ferro(stage.rome()?, &command).await else {
            anyhow::bail!("{command:?} was done without a question")
        };
        let said = format!("{refused:#}");
        ensure!(said.contains("away/data-db-0") && said.contains("--yes"), "{said}");
    }
    Ok(())
}

pub async fn nothing_is_left_of_a_claim_that_is_deleted(stage: &Stage) -> Result<()> {
    stage.kubectl(AWAY, &["delete", "statefulset/db", "--timeout=300s"]).await?;
    eventually("its pods are gone", || async {
        let pods = stage.kubectl(AWAY, &["get", "pods", "-l", "app=db", "-o", "name"]).await?;
        ensure!(pods.is_empty(), "{pods}");
        Ok(())
    })
    .await?;
    stage.kubectl(AWAY, &["delete", "pvc", "--all", "--timeout=300s"]).await?;
    eventually("nothing is left", || async {
        let there = stage.kubectl_there(&["get", "pvc", "-o", "name"]).await?;
        let here = stage.rome()?.kubectl(&["get", "pv", "-l", "liqo.io/remoteID", "-o", "name"]).await?;
        ensure!(there.is_empty() && here.is_empty(), "there {there}, here {here}");
        Ok(())
    })
    .await
}
