//! Who may ask the port of all virtual nodes, and through an API server.

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::ResourceExt as _;
use rig::wait::eventually;

use crate::stage::{AWAY, Stage, WEB};

/// Somebody who may read from nodes, and not run commands on them.
const READER: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: away}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader-of-nodes}
rules:
- {apiGroups: [''], resources: [nodes/proxy], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader-of-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-of-nodes}
subjects:
- {kind: ServiceAccount, name: reader, namespace: away}
";

/// The port of the virtual node answers only to whom the API server would let through.
pub async fn who_has_no_right_is_refused(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let pod = stage.await_ready("web", WEB).await?[0].name_any();
    let (log, run) =
        (format!("/containerLogs/{AWAY}/{pod}/echo"), format!("/exec/{AWAY}/{pod}/echo?output=1&command=id"));
    // The agent of a test before may have just ended.
    let log_at_home = ["logs", &pod, "--tail=1"];
    eventually("whoever may all gets a log", || stage.kubectl(AWAY, &log_at_home)).await?;
    // Neither with a token that nobody gave, nor with something else than a token.
    for credentials in ["--token=made-up", "--username=somebody"] {
        let refused = ask(stage, credentials, &log).await.err().context("whoever is nobody gets a log")?;
        ensure!(refused.to_string().contains("must be logged in"), "{refused:#}");
    }
    let token = token_of(stage, "default").await?;
    for path in [&log, &run] {
        let refused = ask(stage, &token, path).await.err().context("whoever has no right is answered")?;
        ensure!(refused.to_string().contains("orbidden"), "{refused:#}");
    }
    rome.apply(READER).await?;
    let token = token_of(stage, "reader").await?;
    // What the authorizer says is known once its watches have seen the new rights.
    eventually("whoever may read gets a log", || ask(stage, &token, &log)).await?;
    let refused = ask(stage, &token, &run).await.err().context("whoever may read runs commands")?;
    ensure!(refused.to_string().contains("orbidden"), "{refused:#}");
    for kind in ["clusterrolebinding", "clusterrole"] {
        rome.kubectl(&["delete", kind, "reader-of-nodes"]).await?;
    }
    stage.kubectl(AWAY, &["delete", "serviceaccount", "reader"]).await?;

    let request = Request::builder()
        .uri(format!("/api/v1/namespaces/{AWAY}/pods/{pod}/log"))
        .header("Impersonate-User", "somebody")
        .body(Vec::new())?;
    let refused = rome.client.request_text(request).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    Ok(())
}

async fn token_of(stage: &Stage, account: &str) -> Result<String> {
    Ok(format!("--token={}", stage.kubectl(AWAY, &["create", "token", account]).await?.trim()))
}

/// Asks the port itself, past the API server.
async fn ask(stage: &Stage, credentials: &str, path: &str) -> Result<String> {
    let rome = stage.rome()?;
    // Each virtual node has a port of its own.
    let place = "jsonpath={.status.addresses[0].address}:{.status.daemonEndpoints.kubeletEndpoint.Port}";
    let place = rome.kubectl(&["get", "node", &stage.node, "-o", place]).await?;
    let (kubectl, server) = (rome.program_on_node("kubectl"), format!("--server=https://{place}"));
    let to = ["--kubeconfig=/dev/null", &server, "--insecure-skip-tls-verify", credentials];
    rome.on_node(1, &[&[kubectl.as_str()], &to[..], &["get", "--raw", path]].concat()).await
}
