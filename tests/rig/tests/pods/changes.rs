//! What is done to pods that run: they are moved away from a node, given more, and kept from being ready.

use anyhow::{Result, ensure};
use rig::wait::eventually;
use serde_json::json;

use crate::stage::{AWAY, Stage, WEB, running, uids};
use crate::workloads::shell;

/// A node that is drained is left by its pods, which run again once it may be used.
pub async fn pods_leave_a_node_that_is_drained(stage: &Stage) -> Result<()> {
    let (rome, before) = (stage.rome()?, uids(&stage.await_ready("web", WEB).await?));
    // Who evicts one is told so as for any other pod.
    let pod =
        stage.here(AWAY, "web").await?.first().and_then(|pod| pod.metadata.name.clone()).unwrap_or_default();
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": AWAY}});
    let path = format!("/api/v1/namespaces/{AWAY}/pods/{pod}/eviction");
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request.body(serde_json::to_vec(&eviction)?)?;
    rome.client.request_text(request).await?;
    let after = uids(&stage.await_ready("web", WEB).await?);
    ensure!(after.difference(&before).count() == 1, "{before:?} became {after:?}");

    rome.kubectl(&["drain", &stage.node, "--ignore-daemonsets", "--force", "--timeout=300s"]).await?;
    eventually("none of them is left over there", || async {
        let there = stage.there("web").await?;
        ensure!(there.is_empty() && running("web").is_empty(), "{} are", there.len());
        Ok(())
    })
    .await?;
    rome.kubectl(&["uncordon", &stage.node]).await?;
    let now = uids(&stage.await_ready("web", WEB).await?);
    ensure!(now.is_disjoint(&after), "some never left: {now:?}, {after:?}");
    Ok(())
}

/// A pod is given more of a processor without being started again.
pub async fn a_pod_is_resized_in_place(stage: &Stage) -> Result<()> {
    let pod = shell("grower", "Always", "sleep 1000");
    let small = "{name: shell, resources: {requests: {cpu: 10m}, limits: {cpu: 50m}},";
    stage.rome()?.apply(&pod.replace("{name: shell,", small)).await?;
    stage.kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/grower", "--timeout=300s"]).await?;
    let more = json!({"requests": {"cpu": "20m"}, "limits": {"cpu": "100m"}});
    let patch = json!({"spec": {"containers": [{"name": "shell", "resources": more}]}}).to_string();
    stage.kubectl(AWAY, &["patch", "pod", "grower", "--subresource=resize", "--patch", &patch]).await?;
    // What a runtime tells about resources differs: home shows what there is to be shown.
    let shown = "jsonpath={.spec.containers[0].resources.requests.cpu}/{.status.containerStatuses[0].restartCount}/\
                 {.status.containerStatuses[0].resources}";
    let get = ["get", "pod", "grower", "-o", shown];
    eventually("the pod over there has more, and home shows it", || async {
        let there = stage.turin()?.kubectl(&[&["-n", stage.there.as_str()], &get[..]].concat()).await?;
        ensure!(there.starts_with("20m/0/"), "{there}");
        let here = stage.kubectl(AWAY, &get).await?;
        ensure!(here == there, "{here} is shown of {there}");
        Ok(())
    })
    .await?;
    stage.kubectl(AWAY, &["delete", "pod", "grower", "--timeout=300s"]).await?;
    stage.await_gone("grower").await
}

/// Somebody at home says when a pod is ready whose containers are.
pub async fn a_readiness_gate_counts_at_home(stage: &Stage) -> Result<()> {
    let pod = shell("gated", "Always", "sleep 1000");
    let gate = "  readinessGates: [{conditionType: example.org/open}]\n  containers:";
    stage.rome()?.apply(&pod.replace("  containers:", gate)).await?;
    let conditions = "jsonpath={.status.conditions[?(@.type==\"ContainersReady\")].status}/\
                      {.status.conditions[?(@.type==\"Ready\")].status}";
    let get = ["get", "pod", "gated", "-o", conditions];
    stage.says(AWAY, &get, "True/False").await?;
    for (opened, said) in [("True", "True/True"), ("False", "True/False")] {
        let condition = json!({"type": "example.org/open", "status": opened});
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        stage.kubectl(AWAY, &["patch", "pod", "gated", "--subresource=status", "--patch", &patch]).await?;
        stage.says(AWAY, &get, said).await?;
    }
    stage.kubectl(AWAY, &["delete", "pod", "gated", "--timeout=300s"]).await?;
    stage.await_gone("gated").await
}
