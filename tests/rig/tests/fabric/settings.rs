//! Changes the settings of a cluster's network as an operator would.

use anyhow::{Context, Result, ensure};
use ferro_api::config::ClusterConfig;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use rig::topology::Cluster;
use rig::wait::eventually;
use serde_json::{Value, json};

/// Changes some of them, and waits until the cluster knows.
pub async fn set(cluster: &Cluster, network: Value) -> Result<()> {
    let configs: Api<ClusterConfig> = Api::all(cluster.client.clone());
    let config = configs.list(&ListParams::default()).await?.items.pop().context("no ClusterConfig")?;
    let change = json!({"spec": {"liqonetConfig": network}});
    let changed = configs.patch(&config.name_any(), &PatchParams::default(), &Patch::Merge(change)).await?;
    eventually(&format!("{} knows its settings", cluster.plan.name), || async {
        let config = configs.get(&config.name_any()).await?;
        let observed = config.status.and_then(|status| status.observed_generation);
        ensure!(observed >= changed.metadata.generation, "it has observed {observed:?}");
        Ok(())
    })
    .await
}
