//! Rome, which uses turin, as users install it: a namespace whose pods stay at home, and one whose pods all run on turin.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use rig::audit::Audit;
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::pods::is_ready;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use serde_json::json;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_mins(10);
/// The label that all pods of these figures have, on both sides; its value is the name of the Deployment.
const LABEL: &str = "bench";

/// Where pods run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Local,
    Offloaded,
}

impl Place {
    /// The namespace whose pods run there, and the word for it in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Offloaded => "offloaded",
        }
    }
}

/// A cluster, and what is seen of it.
pub struct Side {
    pub cluster: Cluster,
    pub audit: Audit,
    pub pods: Watched<Pod>,
}

impl Side {
    async fn look(cluster: &Cluster, tasks: &Tasks) -> Result<Self> {
        let marked = watcher::Config::default().labels(LABEL);
        let pods = Watched::start(tasks, "pods", Api::all(cluster.client.clone()), marked);
        pods.ready().await?;
        Ok(Self { cluster: cluster.clone(), audit: Audit::of(cluster)?, pods })
    }

    /// When each pod of a Deployment is first seen ready, once all are.
    pub async fn sightings(&self, app: &str, count: usize) -> Result<HashMap<String, Instant>> {
        let (mut changes, mut seen) = (self.pods.follow(), HashMap::new());
        loop {
            for (reference, pod) in changes.take() {
                if pod.is_some_and(|pod| is_of(&pod, app) && is_ready(&pod)) {
                    seen.entry(reference.name).or_insert_with(Instant::now);
                }
            }
            if seen.len() >= count {
                return Ok(seen);
            }
            let news = tokio::time::timeout(PATIENCE, changes.changed()).await;
            news.with_context(|| format!("{} of {count} pods of {app} are ready", seen.len()))??;
        }
    }

    /// The pods of a Deployment.
    pub fn of(&self, app: &str) -> Vec<std::sync::Arc<Pod>> {
        let mut pods = self.pods.all();
        pods.retain(|pod| is_of(pod, app));
        pods
    }

    /// Waits until none is left of them.
    async fn gone(&self, app: &str) -> Result<()> {
        let (begin, mut pods) = (Instant::now(), self.pods.clone());
        while !self.of(app).is_empty() {
            ensure!(begin.elapsed() < PATIENCE, "{} pods of {app} do not go", self.of(app).len());
            _ = tokio::time::timeout(PATIENCE, pods.changed()).await;
        }
        Ok(())
    }
}

/// The clusters.
pub struct Stage {
    pub rome: Side,
    pub turin: Side,
    tasks: Tasks,
    _topology: Topology,
}

impl Stage {
    pub async fn up() -> Result<Self> {
        let audited = |name| ClusterSpec { audited: true, ..ClusterSpec::named(name) };
        let topology = Topology::up("bench-pods", vec![audited("rome"), audited("turin")]).await?;
        load(&topology).await?;
        let (rome, turin) = (topology.cluster("rome")?, topology.cluster("turin")?);
        // All of turin is offered, so that as many pods find room there as at home.
        let all = ["--set", "advertisement.config.resourceSharingPercentage=100"];
        let settings = [&SILENT[..], &all].concat();
        tokio::try_join!(install(rome, &settings), install(turin, &settings))?;
        let remote = turin.kubeconfig.to_string_lossy().into_owned();
        ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
        connected(rome, turin).await?;
        for place in [Place::Local, Place::Offloaded] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": place.name()}}))?;
            Api::all(rome.client.clone()).create(&PostParams::default(), &namespace).await?;
        }
        ferro(rome, &["offload", Place::Offloaded.name(), "--pods", "remote", "--wait"]).await?;
        let tasks = Tasks::default();
        let (rome, turin) = tokio::try_join!(Side::look(rome, &tasks), Side::look(turin, &tasks))?;
        Ok(Self { rome, turin, tasks, _topology: topology })
    }

    pub async fn end(self) {
        self.tasks.end().await;
    }

    /// Creates a Deployment of pods that sleep.
    pub async fn create(&self, place: Place, app: &str, count: usize) -> Result<()> {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": app},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {LABEL: app}},
                "template": {
                    "metadata": {"labels": {LABEL: app}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "sleep", "image": "rig/busybox:1", "args": ["-c", "sleep 1000000"]}],
                    },
                },
            },
        }))?;
        self.deployments(place).create(&PostParams::default(), &deployment).await?;
        Ok(())
    }

    /// Deletes it, and waits until none of its pods is left on either side.
    pub async fn delete(&self, place: Place, app: &str) -> Result<()> {
        self.deployments(place).delete(app, &DeleteParams::background()).await?;
        self.rome.gone(app).await?;
        self.turin.gone(app).await
    }

    fn deployments(&self, place: Place) -> Api<Deployment> {
        Api::namespaced(self.rome.cluster.client.clone(), place.name())
    }
}

fn is_of(pod: &Pod, app: &str) -> bool {
    pod.labels().get(LABEL).is_some_and(|of| of == app)
}
