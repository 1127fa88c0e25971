//! Pods that are bound to a virtual node and must not get any further: those of a DaemonSet, and those that somebody has
//! bound by hand, past scheduler and webhook.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rig::installation::ferro;
use rig::wait::eventually;

use crate::stage::{AWAY, Stage, node_of};
use crate::workloads::shell;

/// A namespace that is not offloaded.
const HOME: &str = "default";
/// One that is, for Services only: its pods stay.
const LOCAL: &str = "settled";
/// For so many seconds the same ones have to wait: whoever makes pods in circles needs fewer.
const LOOKS: usize = 5;

/// A DaemonSet that no taint keeps off any node.
fn everywhere(namespace: &str) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: everywhere, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: everywhere}}}}
  template:
    metadata: {{labels: {{app: everywhere}}}}
    spec:
      tolerations: [{{operator: Exists}}]
      terminationGracePeriodSeconds: 1
      containers:
      - {{name: shell, image: 'rig/busybox:1', args: [-c, 'sleep 1000']}}
"
    )
}

/// A pod that nobody has to find a node for. Without the toleration Kubernetes itself would delete it.
fn pinned(name: &str, namespace: &str, node: &str) -> String {
    let to_node = format!("  nodeName: {node}\n  tolerations: [{{operator: Exists}}]\n  containers:");
    let pod = shell(name, "Always", "sleep 1000").replace("  containers:", &to_node);
    pod.replace(&format!("namespace: {AWAY}"), &format!("namespace: {namespace}"))
}

pub async fn pods_that_must_not_leave_wait_on_the_node_with_a_reason(stage: &Stage) -> Result<()> {
    let (rome, milan) = (stage.rome()?, stage.node_of("milan").await?);
    rome.kubectl(&["create", "namespace", LOCAL]).await?;
    ferro(rome, &["offload", LOCAL, "--pods", "local", "--wait"]).await?;
    let all = [
        everywhere(HOME),
        everywhere(AWAY),
        pinned("stray", HOME, &stage.node),
        pinned("misled", AWAY, &milan),
        pinned("settler", LOCAL, &stage.node),
        pinned("torn", AWAY, &stage.node)
            .replace("  containers:", "  nodeSelector: {colour: none}\n  containers:"),
    ];
    // No pod is made in a namespace without one, and a new namespace gets it a moment later.
    let account = ["get", "serviceaccount", "default"];
    eventually("the namespace has its account", || stage.kubectl(LOCAL, &account)).await?;
    rome.apply(&all.join("---")).await?;
    let before = eventually("each of them says why it waits", || waiting(stage, &milan)).await?;
    for _ in 0..LOOKS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = waiting(stage, &milan).await?;
        ensure!(now == before, "others wait than before: {now:?}, {before:?}");
    }
    let names = "app in (everywhere,stray,misled,settler,torn)";
    let of_them = ["get", "shadowpods,pods", "-A", "-l", names, "-o", "name"];
    for peer in [stage.turin()?, stage.milan()?] {
        let there = peer.kubectl(&of_them).await?;
        ensure!(there.is_empty(), "on {}: {there}", peer.plan.name);
    }
    let delete = ["delete", "--timeout=300s", "daemonset/everywhere"];
    let at_home = [&delete[..], &["pod/stray"]].concat();
    let away = [&delete[..], &["pod/misled", "pod/torn"]].concat();
    let settled = ["delete", "namespace", LOCAL, "--timeout=300s"];
    tokio::try_join!(stage.kubectl(HOME, &at_home), stage.kubectl(AWAY, &away), rome.kubectl(&settled))?;
    eventually("nothing is left of the DaemonSets", || async {
        let left = [stage.here(HOME, "everywhere").await?, stage.here(AWAY, "everywhere").await?].concat();
        ensure!(left.is_empty(), "{} pods are", left.len());
        Ok(())
    })
    .await
}

/// The UIDs of all of them, each of which is bound to its node and waits there with its word.
async fn waiting(stage: &Stage, milan: &str) -> Result<BTreeSet<String>> {
    let turin = stage.node.as_str();
    let expected = [
        (HOME, "everywhere", turin, "DaemonSetPod"),
        (HOME, "everywhere", milan, "DaemonSetPod"),
        (AWAY, "everywhere", turin, "DaemonSetPod"),
        (HOME, "stray", turin, "NamespaceNotOffloaded"),
        (AWAY, "misled", milan, "ClusterNotSelected"),
        (LOCAL, "settler", turin, "LocalOnly"),
        (AWAY, "torn", turin, "NodeAffinity"),
    ];
    let mut found = BTreeSet::new();
    for (namespace, app, node, word) in expected {
        let mut pods = stage.here(namespace, app).await?;
        pods.retain(|pod| node_of(pod) == Some(node));
        let [pod] = pods.as_slice() else {
            bail!("{} pods of {app} in {namespace} are bound to {node}", pods.len());
        };
        let said = waits_for(pod);
        ensure!(said == Some(word), "{app} in {namespace} on {node} says {said:?} in place of {word}");
        found.insert(pod.uid().context("a pod has no UID")?);
    }
    Ok(found)
}

/// What the container of a pod waits for that has not begun.
fn waits_for(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Pending"))?;
    let container = status.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}
