//! More namespaces than one connection to an API server carries watches for: what comes last is reflected like the first.

use anyhow::{Result, ensure};
use rig::installation::ferro;
use rig::wait::eventually;

use crate::stage::Stage;

/// Each is watched by several watches at home and on every peer, of which a hundred are on a connection at most.
const MANY: usize = 25;

fn manifest(number: usize) -> String {
    format!(
        r"
apiVersion: v1
kind: Namespace
metadata: {{name: many-{number}}}
---
apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {{name: offloading, namespace: many-{number}}}
spec: {{namespaceMappingStrategy: EnforceSameName, podOffloadingStrategy: Local}}
---
apiVersion: v1
kind: Service
metadata: {{name: door, namespace: many-{number}}}
spec: {{ports: [{{port: 80}}]}}
"
    )
}

pub async fn all_of_many_namespaces_are_reflected(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let manifests: Vec<String> = (0..MANY).map(manifest).collect();
    rome.apply(&manifests.join("---")).await?;
    let doors = ["get", "services", "-A", "--field-selector=metadata.name=door", "-o", "name"];
    for peer in [stage.turin()?, stage.milan()?] {
        eventually("the Services of all namespaces are there", || async {
            let count = peer.kubectl(&doors).await?.lines().count();
            ensure!(count == MANY, "{count} of {MANY}");
            Ok(())
        })
        .await?;
    }
    // Whoever leads answers, writes and is seen to lead as before.
    ferro(rome, &["status"]).await?;
    let names: Vec<String> = (0..MANY).map(|number| format!("many-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rome.kubectl(&[&["delete", "namespaces", "--timeout=300s"][..], &names].concat()).await.map(drop)
}
