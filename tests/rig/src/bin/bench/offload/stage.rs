//! Where both sides work: one API server, a client with a name for each side, and what both of them are asked for.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ferro_api::names::labels::TYPE_VIRTUAL_NODE;
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::{MappingPhase, NamespaceMap};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use rig::addresses::define_kinds;
use rig::audit::{Asked, Audit, Mark, client_named};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use serde_json::{Value, json};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// A side that asks for nothing for so long has nothing left to do: it is longer than anything is held back.
const QUIET: Duration = Duration::from_secs(4);

/// One API server, without anything that runs on it yet.
pub struct Stage {
    pub cluster: Cluster,
    pub admin: Client,
    pub audit: Audit,
    maps: Watched<NamespaceMap>,
    /// Ends with this value, like the cluster.
    tasks: Tasks,
    _topology: Topology,
}

/// One map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub namespace: String,
    pub name: String,
}

impl Stage {
    pub async fn up() -> Result<Self> {
        let spec = ClusterSpec { bare: true, audited: true, ..ClusterSpec::named("a") };
        let topology = Topology::up("bench-offload", vec![spec]).await?;
        let cluster = topology.cluster("a")?.clone();
        define_kinds(&cluster).await?;
        let (admin, tasks) = (cluster.client.clone(), Tasks::default());
        let maps = Watched::start(&tasks, "maps", Api::all(admin.clone()), watcher::Config::default());
        maps.ready().await?;
        let audit = Audit::of(&cluster)?;
        Ok(Self { cluster, admin, audit, maps, tasks, _topology: topology })
    }

    pub async fn end(self) {
        self.tasks.end().await;
    }

    /// A client for one side, by whose name its requests are counted.
    pub async fn client(&self, side: &str) -> Result<Client> {
        client_named(&self.cluster, side).await
    }

    /// What a side has asked for since a mark; watches last, and do not count.
    pub async fn asked(&self, side: &str, mark: Mark) -> Result<Vec<Asked>> {
        let mut asked = self.audit.since(mark).await?;
        asked.retain(|asked| asked.user == side && asked.verb != "watch");
        Ok(asked)
    }

    /// How many requests that were.
    pub async fn calls(&self, side: &str, mark: Mark) -> Result<usize> {
        Ok(self.asked(side, mark).await?.len())
    }

    /// Waits until a side has nothing left to do, so that it is known what its requests are for.
    pub async fn until_quiet(&self, side: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            let mark = self.audit.mark().await?;
            tokio::time::sleep(QUIET).await;
            let asked = self.asked(side, mark).await?;
            let Some(last) = asked.last() else { return Ok(()) };
            let what = format!("{} {} {}", last.verb, last.resource, last.object());
            ensure!(begin.elapsed() < PATIENCE, "{side} still asks after {PATIENCE:?}; at last: {what}");
        }
    }

    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::all(self.admin.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// Makes a map without entries.
    pub async fn make_map(&self, map: &Map, labels: &Value) -> Result<()> {
        let object: NamespaceMap = serde_json::from_value(json!({
            "apiVersion": "virtualkubelet.liqo.io/v1alpha1", "kind": "NamespaceMap",
            "metadata": {"name": map.name, "namespace": map.namespace, "labels": labels}, "spec": {},
        }))?;
        self.maps_in(&map.namespace).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Makes a node that stands for a cluster.
    pub async fn make_node(&self, name: &str, id: &str) -> Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"liqo.io/type": "virtual-node", "liqo.io/remoteID": id}},
        }))?;
        Api::all(self.admin.clone()).create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Takes away all nodes that stand for clusters.
    pub async fn remove_nodes(&self) -> Result<()> {
        let virtual_nodes = ListParams::default().labels(&TYPE_VIRTUAL_NODE.selector());
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes.delete_collection(&DeleteParams::default(), &virtual_nodes).await?;
        Ok(())
    }

    /// Offloads a namespace to all virtual nodes.
    pub async fn offload(&self, namespace: &str) -> Result<()> {
        let object: NamespaceOffloading = serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading"}, "spec": {},
        }))?;
        self.offloadings_in(namespace).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Takes that back, and waits until it is.
    pub async fn unoffload(&self, namespace: &str) -> Result<()> {
        let offloadings = self.offloadings_in(namespace);
        offloadings.delete("offloading", &DeleteParams::default()).await?;
        eventually("the offloading is gone", || async {
            ensure!(offloadings.get_opt("offloading").await?.is_none(), "it is still there");
            Ok(())
        })
        .await
    }

    /// Asks each of these maps for one more namespace, all at once; gives how long it took until all have it.
    pub async fn ask_for(&self, maps: &[Map], local: &str) -> Result<Duration> {
        let begin = Instant::now();
        try_join_all(maps.iter().map(|map| async move {
            let remote = format!("{local}-{}", map.name);
            let entry = json!({"spec": {"desiredMapping": {local: remote}}});
            self.maps_in(&map.namespace).patch(&map.name, &PatchParams::default(), &Patch::Merge(entry)).await
        }))
        .await?;
        self.until(maps, |map| {
            let current = map.status.as_ref().and_then(|status| status.current_mapping.get(local));
            current.is_some_and(|current| current.phase == MappingPhase::Accepted)
        })
        .await?;
        Ok(begin.elapsed())
    }

    /// Waits until all these maps have an entry for a namespace.
    pub async fn until_asked(&self, maps: &[Map], local: &str) -> Result<()> {
        self.until(maps, |map| map.spec.desired_mapping.contains_key(local)).await
    }

    async fn until(&self, maps: &[Map], is_so: impl Fn(&NamespaceMap) -> bool) -> Result<()> {
        let (begin, mut watched) = (Instant::now(), self.maps.clone());
        loop {
            let holds =
                |map: &&Map| watched.get(Some(&map.namespace), &map.name).is_some_and(|map| is_so(&map));
            let done = maps.iter().filter(holds).count();
            if done == maps.len() {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "only {done} of {} maps after {PATIENCE:?}", maps.len());
            _ = tokio::time::timeout(PATIENCE, watched.changed()).await;
        }
    }

    fn offloadings_in(&self, namespace: &str) -> Api<NamespaceOffloading> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    fn maps_in(&self, namespace: &str) -> Api<NamespaceMap> {
        Api::namespaced(self.admin.clone(), namespace)
    }
}
