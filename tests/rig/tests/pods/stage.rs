//! Rome, which uses turin and milan: a namespace whose pods all run on turin, and another whose pods run on all three.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::census;
use rig::installation::{SILENT, ferro, install, load, load_program};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::{connected, identifier};
use rig::wait::{block_on, eventually};
use tokio::sync::{Mutex, OnceCell};

use crate::workloads::deployment;

/// All pods of this namespace run on turin.
pub const AWAY: &str = "away";
/// Those of this one run wherever there is room.
pub const BOTH: &str = "both";
/// The second image of the echo server, which does as the first.
pub const SECOND: &str = "rig/testbox:2";
/// How many pods the Deployment `web` has, which every test finds on turin and leaves there.
pub const WEB: usize = 2;

/// One stage for all tests, one test at a time. Where it cannot be set, that is not tried for each of them.
static STAGE: OnceCell<Result<Stage, String>> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// The clusters.
pub struct Stage {
    topology: Topology,
    /// The identifier of rome.
    id: String,
    /// The namespace of turin that stands for [`AWAY`].
    pub there: String,
    /// The node that stands for turin.
    pub node: String,
}

/// Runs a test on the stage.
pub fn on_stage(test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    block_on(async {
        let _turn = TURN.lock().await;
        match STAGE.get_or_init(async || Stage::set_up().await.map_err(|error| format!("{error:#}"))).await {
            Ok(stage) => {
                stage.answers().await?;
                test(stage).await
            }
            Err(error) => bail!("the stage cannot be set: {error}"),
        }
    })
}

/// Whether the long forms are wanted.
pub fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

impl Stage {
    async fn set_up() -> Result<Self> {
        let specs = ["rome", "turin", "milan"].map(|name| ClusterSpec::named(name).with_same_cidrs());
        let topology = Topology::up("pods", specs.into()).await?;
        load(&topology).await?;
        load_program(&topology, "testbox", SECOND).await?;
        // Times are scaled down: what takes a minute for users takes seconds here.
        let settings = [
            &SILENT[..],
            &["--set", "auth.config.allowEmptyToken=true", "--set", "advertisement.keepaliveRetryTime=5"],
        ]
        .concat();
        let several = [&settings[..], &["--set", "controller.replicas=2"]].concat();
        tokio::try_join!(
            install(topology.cluster("rome")?, &several),
            install(topology.cluster("turin")?, &settings),
            install(topology.cluster("milan")?, &settings),
        )?;
        let id = identifier(topology.cluster("rome")?).await?;
        let there = format!("{AWAY}-{id}");
        let mut stage = Self { topology, id, there, node: String::new() };
        try_join_all(["turin", "milan"].map(|name| stage.peer(name))).await?;
        stage.node = stage.node_of("turin").await?;
        stage.offload().await?;
        stage.rome()?.apply(&deployment(AWAY, "web", WEB)).await?;
        stage.await_ready("web", WEB).await?;
        Ok(stage)
    }

    /// Waits until pods can be made, for which a controller must be reached: that of a test before may have just started.
    async fn answers(&self) -> Result<()> {
        let make = ["run", "nobody", "--image=none", "--dry-run=server"];
        eventually("pods can be made", || self.kubectl(AWAY, &make)).await.map(drop)
    }

    /// Peers with a cluster, and waits until packets get there.
    pub async fn peer(&self, name: &str) -> Result<()> {
        let (rome, peer) = (self.rome()?, self.topology.cluster(name)?);
        let remote = peer.kubeconfig.to_string_lossy().into_owned();
        ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
        connected(rome, peer).await.map(drop)
    }

    async fn offload(&self) -> Result<()> {
        let turin = format!("liqo.io/remoteID={}", identifier(self.turin()?).await?);
        let (to_turin, to_all) =
            (["--pods", "remote", "--selector", turin.as_str()], ["--pods", "local-and-remote"]);
        for (namespace, how) in [(AWAY, &to_turin[..]), (BOTH, &to_all[..])] {
            self.rome()?.kubectl(&["create", "namespace", namespace]).await?;
            ferro(self.rome()?, &[&["offload", namespace, "--wait"], how].concat()).await?;
        }
        Ok(())
    }

    pub fn rome(&self) -> Result<&Cluster> {
        self.topology.cluster("rome")
    }

    pub fn turin(&self) -> Result<&Cluster> {
        self.topology.cluster("turin")
    }

    pub fn milan(&self) -> Result<&Cluster> {
        self.topology.cluster("milan")
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The node that stands for a peer.
    pub async fn node_of(&self, name: &str) -> Result<String> {
        let selector = format!("liqo.io/remoteID={}", identifier(self.topology.cluster(name)?).await?);
        let node = self.rome()?.kubectl(&["get", "nodes", "-l", &selector, "-o", "name"]).await?;
        let node = node.trim().strip_prefix("node/").map(str::to_owned);
        node.with_context(|| format!("there is no node for {name}"))
    }

    /// What kubectl says about a namespace of rome.
    pub async fn kubectl(&self, namespace: &str, words: &[&str]) -> Result<String> {
        self.rome()?.kubectl(&[&["-n", namespace], words].concat()).await
    }

    /// Waits until kubectl says this about something in a namespace of rome.
    pub async fn says(&self, namespace: &str, words: &[&str], wanted: &str) -> Result<()> {
        eventually(&format!("kubectl {} says {wanted}", words.join(" ")), || async {
            let said = self.kubectl(namespace, words).await?;
            ensure!(said.trim() == wanted, "{said}");
            Ok(())
        })
        .await
    }

    /// The pods with this label, here.
    pub async fn here(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        pods(self.rome()?, namespace, app).await
    }

    /// The pods with this label, where those of [`AWAY`] run.
    pub async fn there(&self, app: &str) -> Result<Vec<Pod>> {
        pods(self.turin()?, &self.there, app).await
    }

    /// The pods with this label that a peer runs for a namespace of rome.
    pub async fn at(&self, peer: &Cluster, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        pods(peer, &self.counterpart(namespace), app).await
    }

    /// What a namespace of rome is called on its peers.
    pub fn counterpart(&self, namespace: &str) -> String {
        format!("{namespace}-{}", self.id)
    }

    /// Waits until there are so many pods with this label on both sides, and all are ready at home.
    pub async fn await_ready(&self, app: &str, count: usize) -> Result<Vec<Pod>> {
        eventually(&format!("{count} pods of {app} are ready"), || async {
            let (here, there) = (self.here(AWAY, app).await?, self.there(app).await?);
            ensure!(
                here.len() == count && names(&here) == names(&there),
                "{:?} here, {:?} there",
                names(&here),
                names(&there)
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
}

async fn pods(cluster: &Cluster, namespace: &str, app: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    Ok(pods.list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
}

/// The containers of a Deployment that run, wherever they do: process to pod.
pub fn running(app: &str) -> BTreeMap<u32, String> {
    census::running(&format!("CLUSTER={app}"))
}

pub fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(Pod::name_any).collect()
}

pub fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(Pod::uid).collect()
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Ready, and not about to end.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && rig::pods::is_ready(pod)
}
