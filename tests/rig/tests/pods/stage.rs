//! Rome, which uses turin: a namespace whose pods all run there, and another whose pods run on both.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use rig::wait::eventually;

/// All pods of this namespace run on turin.
pub const AWAY: &str = "away";
/// Those of this one run wherever there is room.
pub const BOTH: &str = "both";

/// The clusters.
pub struct Stage {
    topology: Topology,
    /// The namespace of turin that stands for [`AWAY`].
    pub there: String,
}

impl Stage {
    pub async fn set_up() -> Result<Self> {
        let specs = ["rome", "turin"].map(|name| ClusterSpec::named(name).with_same_cidrs());
        let topology = Topology::up("pods", specs.into()).await?;
        load(&topology).await?;
        let stage = Self { topology, there: String::new() };
        // Times are scaled down: what takes a minute for users takes seconds here.
        let settings = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        tokio::try_join!(install(stage.rome()?, &settings), install(stage.turin()?, &settings))?;
        let remote = stage.turin()?.kubeconfig.to_string_lossy().into_owned();
        ferro(stage.rome()?, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
        connected(stage.rome()?, stage.turin()?).await?;
        for (namespace, pods) in [(AWAY, "remote"), (BOTH, "local-and-remote")] {
            stage.rome()?.kubectl(&["create", "namespace", namespace]).await?;
            ferro(stage.rome()?, &["offload", namespace, "--pods", pods, "--wait"]).await?;
        }
        let there = stage.counterpart(AWAY).await?;
        Ok(Self { there, ..stage })
    }

    pub fn rome(&self) -> Result<&Cluster> {
        self.topology.cluster("rome")
    }

    pub fn turin(&self) -> Result<&Cluster> {
        self.topology.cluster("turin")
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The namespace of turin that stands for one of rome.
    async fn counterpart(&self, namespace: &str) -> Result<String> {
        let wanted = ["get", "namespaces", "-l", "tenancy.liqo.io/tenant", "-o", "name"];
        let names = self.turin()?.kubectl(&wanted).await?;
        let found = names.lines().filter_map(|line| line.strip_prefix("namespace/"));
        let found = found.map(str::to_owned).find(|name| name.starts_with(&format!("{namespace}-")));
        found.with_context(|| format!("turin has no namespace for {namespace}: {names}"))
    }

    /// What kubectl says about a namespace of rome.
    pub async fn kubectl(&self, namespace: &str, words: &[&str]) -> Result<String> {
        self.rome()?.kubectl(&[&["-n", namespace], words].concat()).await
    }

    /// The pods with this label, here.
    pub async fn here(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        pods(self.rome()?, namespace, app).await
    }

    /// The pods with this label, where those of [`AWAY`] run.
    pub async fn there(&self, app: &str) -> Result<Vec<Pod>> {
        pods(self.turin()?, &self.there, app).await
    }

    /// Waits until there are so many pods with this label on both sides, and all are ready at home.
    pub async fn await_ready(&self, app: &str, count: usize) -> Result<Vec<Pod>> {
        eventually(&format!("{count} pods of {app} are ready"), || async {
            let (here, there) = (self.here(AWAY, app).await?, self.there(app).await?);
            ensure!(
                here.len() == count && there.len() == count,
                "{} here, {} there",
                here.len(),
                there.len()
            );
            ensure!(here.iter().all(is_ready), "not all are ready");
            Ok(here)
        })
        .await
    }

    /// Waits until nothing of this label is left on either side.
    pub async fn await_gone(&self, app: &str) -> Result<()> {
        let shadows = ["get", "shadowpods", "-o", "name", "-n", &self.there, "-l", &format!("app={app}")];
        eventually(&format!("nothing is left of {app}"), || async {
            let (here, there) = (self.here(AWAY, app).await?, self.there(app).await?);
            ensure!(here.is_empty() && there.is_empty(), "{} here, {} there", here.len(), there.len());
            let left = self.turin()?.kubectl(&shadows).await?;
            ensure!(left.is_empty(), "left: {left}");
            Ok(())
        })
        .await
    }

    /// Ends the peering with pods over there: those that may run at home come home, and nothing is left on turin.
    pub async fn part(self) -> Result<()> {
        let rome = self.rome()?;
        rome.apply(&crate::workloads::deployment(BOTH, "homing", 2)).await?;
        self.kubectl(BOTH, &["rollout", "status", "deployment/homing", "--timeout=180s"]).await?;
        ferro(rome, &["unpeer", "turin", "--wait"]).await?;
        self.kubectl(BOTH, &["rollout", "status", "deployment/homing", "--timeout=180s"]).await?;
        eventually("all pods are at home", || async {
            let pods = self.here(BOTH, "homing").await?;
            let at_home = |pod: &Pod| node_of(pod).is_some_and(|node| !node.starts_with("liqo-"));
            ensure!(
                pods.len() == 2 && pods.iter().all(at_home),
                "{:?}",
                pods.iter().map(node_of).collect::<Vec<_>>()
            );
            Ok(())
        })
        .await?;
        let left = self.turin()?.kubectl(&["get", "namespaces,shadowpods,pods", "-A", "-o", "name"]).await?;
        ensure!(!left.contains("shadowpod") && !left.contains("namespace/away-"), "left on turin: {left}");
        Ok(())
    }
}

async fn pods(cluster: &Cluster, namespace: &str, app: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    Ok(pods.list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
