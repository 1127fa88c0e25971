//! `ferro trace POD`: the chain of a pod that runs, and of one that cannot.

use anyhow::{Context, Result, ensure};
use rig::installation::ferro;
use rig::topology::Cluster;
use rig::wait::eventually;

use crate::stage::{AWAY, Stage};

/// The links of a chain, as they are shown.
const LINKS: [&str; 10] = [
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
];

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
    // What is known of a link trails behind it, and a busy API server may not answer in time.
    println!("{}", eventually("the chain is whole", || shown_whole(rome)).await?);
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

/// What is shown of the pod that runs: all links, and each of them good.
async fn shown_whole(rome: &Cluster) -> Result<String> {
    let shown = ferro(rome, &["trace", "good", "-n", AWAY]).await?;
    for link in LINKS {
        let line = shown.lines().find(|line| line.starts_with(&format!("{link}  ")));
        let line = line.with_context(|| format!("there is no {link}: {shown}"))?;
        ensure!(line.contains("   good   "), "{line}");
    }
    let json = ferro(rome, &["trace", "good", "-n", AWAY, "-o", "json"]).await?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let is_whole = json["links"].as_array().is_some_and(|links| links.len() == LINKS.len());
    ensure!(json["broken"].is_null() && is_whole, "{json}");
    Ok(shown)
}
