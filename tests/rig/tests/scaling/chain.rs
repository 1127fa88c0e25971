//! `ferro trace POD`: the chain of a pod that runs, and of one that cannot.

use anyhow::{Context, Result, ensure};
use rig::installation::ferro;
use rig::wait::eventually;

use crate::stage::{AWAY, Stage};

fn pod(name: &str, image: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {AWAY}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: echo, image: '{image}', imagePullPolicy: IfNotPresent, args: [serve]}}
"
    )
}

pub async fn each_link_is_shown_and_the_broken_one_is_named(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&[pod("good", "rig/testbox:1"), pod("bad", "rig.invalid/nobody:1")].join("---")).await?;
    stage.kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/good", "--timeout=300s"]).await?;
    let shown = ferro(rome, &["trace", "good", "-n", AWAY]).await?;
    println!("{shown}");
    for link in [
        "pod",
        "node",
        "peering",
        "API server",
        "namespace",
        "ShadowPod",
        "pod over there",
        "container",
        "tunnel",
        "address",
    ] {
        let line = shown.lines().find(|line| line.starts_with(&format!("{link}  ")));
        let line = line.with_context(|| format!("there is no {link}: {shown}"))?;
        ensure!(line.contains("   good   "), "{line}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&ferro(rome, &["trace", "good", "-n", AWAY, "-o", "json"]).await?)?;
    ensure!(
        json["broken"].is_null() && json["links"].as_array().is_some_and(|links| links.len() == 10),
        "{json}"
    );
    eventually("the container that cannot start is named", || async {
        let Err(error) = ferro(rome, &["trace", "bad", "-n", AWAY]).await else {
            anyhow::bail!("nothing is wrong")
        };
        let error = format!("{error:#}");
        ensure!(error.contains("the chain is broken at the container echo"), "{error}");
        ensure!(error.contains("pod over there"), "{error}");
        Ok(())
    })
    .await?;
    stage.kubectl(AWAY, &["delete", "pod", "good", "bad"]).await.map(drop)
}
