//! Rome, which uses turin: a namespace whose pods all run there, and another whose pods run on both.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;

/// All pods of this namespace run on turin.
pub const AWAY: &str = "away";
/// Those of this one run wherever there is room.
pub const BOTH: &str = "both";

/// The clusters.
pub struct Stage {
    topology: Topology,
}

impl Stage {
    pub async fn set_up() -> Result<Self> {
        let specs = ["rome", "turin"].map(|name| ClusterSpec::named(name).with_same_cidrs());
        let topology = Topology::up("scaling", specs.into()).await?;
        load(&topology).await?;
        let stage = Self { topology };
        let settings = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        tokio::try_join!(install(stage.rome()?, &settings), install(stage.turin()?, &settings))?;
        let remote = stage.turin()?.kubeconfig.to_string_lossy().into_owned();
        ferro(stage.rome()?, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
        connected(stage.rome()?, stage.turin()?).await?;
        for (namespace, pods) in [(AWAY, "remote"), (BOTH, "local-and-remote")] {
            stage.rome()?.kubectl(&["create", "namespace", namespace]).await?;
            ferro(stage.rome()?, &["offload", namespace, "--pods", pods, "--wait"]).await?;
        }
        Ok(stage)
    }

    pub fn rome(&self) -> Result<&Cluster> {
        self.topology.cluster("rome")
    }

    fn turin(&self) -> Result<&Cluster> {
        self.topology.cluster("turin")
    }

    /// What kubectl says about a namespace of rome.
    pub async fn kubectl(&self, namespace: &str, words: &[&str]) -> Result<String> {
        self.rome()?.kubectl(&[&["-n", namespace], words].concat()).await
    }

    /// The pods of rome with this label.
    pub async fn pods(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.rome()?.client.clone(), namespace);
        Ok(pods.list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
    }
}

pub fn is_away(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| node.starts_with("liqo-turin"))
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
