//! A bare write-and-watch, again and again: what no agent could do without, on the same machine at the same time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use rig::audit::client_named;
use rig::topology::Cluster;
use serde_json::json;
use tokio::sync::mpsc;

/// Whose requests these are.
pub const USER: &str = "bench-echo";
const NAME: &str = "bench-echo";
/// Between one and the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Writes that go on until somebody wants to know how long they took.
pub struct Echo {
    tasks: Tasks,
    took: mpsc::UnboundedReceiver<Duration>,
}

impl Echo {
    pub async fn begin(cluster: &Cluster) -> Result<Self> {
        let client = client_named(cluster, USER).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let (tasks, (tell, took)) = (Tasks::default(), mpsc::unbounded_channel());
        let this = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let watched = Watched::start(&tasks, "echo", maps.clone(), this);
        watched.ready().await?;
        tasks.spawn("echoes", async move {
            for number in 0_u64.. {
                tell.send(write(&maps, &watched, &number.to_string()).await?)?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        });
        Ok(Self { tasks, took })
    }

    /// All that there were, in ascending order.
    pub async fn end(mut self) -> Vec<Duration> {
        self.tasks.end().await;
        let mut all = Vec::new();
        while let Ok(took) = self.took.try_recv() {
            all.push(took);
        }
        all.sort();
        all
    }
}

/// From a write until it is seen.
async fn write(maps: &Api<ConfigMap>, watched: &Watched<ConfigMap>, number: &str) -> Result<Duration> {
    let mut watched = watched.clone();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"number": number}});
    let begin = Instant::now();
    let apply = PatchParams::apply(USER);
    maps.patch(NAME, &apply, &Patch::Apply(map)).await.context("cannot write for comparison")?;
    let is_seen = |map: &ConfigMap| {
        map.data.as_ref().and_then(|data| data.get("number")).is_some_and(|seen| seen == number)
    };
    while !watched.get(Some("default"), NAME).is_some_and(|map| is_seen(&map)) {
        watched.changed().await?;
    }
    Ok(begin.elapsed())
}
