//! Rome, which uses turin: a namespace whose pods all run there, and another whose pods run at home.

use anyhow::{Context, Result, ensure};
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use rig::wait::eventually;

/// All pods of this namespace run on turin.
pub const AWAY: &str = "away";
/// All pods of this one run at home.
pub const HOME: &str = "home";

/// The clusters.
pub struct Stage {
    topology: Topology,
    /// The namespace of turin that stands for [`AWAY`].
    pub there: String,
}

impl Stage {
    pub async fn set_up() -> Result<Self> {
        let specs = ["rome", "turin"].map(|name| ClusterSpec::named(name).with_same_cidrs());
        let topology = Topology::up("storage", specs.into()).await?;
        load(&topology).await?;
        let stage = Self { topology, there: String::new() };
        let settings = [&SILENT[..], &["--set", "auth.config.allowEmptyToken=true"]].concat();
        tokio::try_join!(install(stage.rome()?, &settings), install(stage.turin()?, &settings))?;
        let remote = stage.turin()?.kubeconfig.to_string_lossy().into_owned();
        ferro(stage.rome()?, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
        connected(stage.rome()?, stage.turin()?).await?;
        stage.rome()?.kubectl(&["create", "namespace", HOME]).await?;
        stage.rome()?.kubectl(&["create", "namespace", AWAY]).await?;
        ferro(stage.rome()?, &["offload", AWAY, "--pods", "remote", "--wait"]).await?;
        let wanted = ["get", "namespaces", "-l", "tenancy.liqo.io/tenant", "-o", "name"];
        let names = stage.turin()?.kubectl(&wanted).await?;
        let there = names.lines().find_map(|line| line.strip_prefix("namespace/"));
        let there = there.with_context(|| format!("turin has no namespace: {names}"))?.to_owned();
        Ok(Self { there, ..stage })
    }

    pub fn rome(&self) -> Result<&Cluster> {
        self.topology.cluster("rome")
    }

    pub fn turin(&self) -> Result<&Cluster> {
        self.topology.cluster("turin")
    }

    /// What kubectl says about a namespace of rome.
    pub async fn kubectl(&self, namespace: &str, words: &[&str]) -> Result<String> {
        self.rome()?.kubectl(&[&["-n", namespace], words].concat()).await
    }

    /// What kubectl says about the namespace of turin that stands for [`AWAY`].
    pub async fn kubectl_there(&self, words: &[&str]) -> Result<String> {
        self.turin()?.kubectl(&[&["-n", self.there.as_str()], words].concat()).await
    }

    /// Waits until what kubectl describes has all these words.
    pub async fn await_described(&self, namespace: &str, what: &[&str], words: &[&str]) -> Result<()> {
        eventually(&format!("{what:?} says {words:?}"), || async {
            let described = self.kubectl(namespace, &[&["describe"], what].concat()).await?;
            ensure!(words.iter().all(|word| described.contains(word)), "{described}");
            Ok(())
        })
        .await
    }
}
