//! One cluster with ferro, a node of its own, and two nodes that stand for others; a namespace for each strategy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::names::{labels, taints};
use ferro_offload::webhook::WEBHOOK;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::installation::{self, SILENT};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinSet;

/// The nodes that stand for others, with their regions and disks.
pub const WEST: &str = "liqo-west";
pub const EAST: &str = "liqo-east";
const OTHERS: [(&str, &str, &str); 2] = [(WEST, "us-west-1", "nvme"), (EAST, "us-east-1", "nvme")];
/// The labels of our own node: the region is also that of a cluster that is selected.
const OWN: [&str; 2] = ["liqo.io/region=us-west-1", "disk=ssd"];
/// A namespace that nobody offloads.
pub const PLAIN: &str = "plain";
/// Where the controller runs.
pub const INSTALLATION: &str = "liqo";

static STAGE: OnceCell<Stage> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

pub struct Stage {
    topology: Topology,
    /// Pods that were shown to the webhook before any namespace was offloaded.
    pub calls_at_first: u64,
    /// The same, as the API server counts them.
    pub asked_at_first: u64,
    _kubelets: JoinSet<Result<()>>,
}

/// The stage, for one test at a time.
pub async fn stage() -> Result<(&'static Stage, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().await;
    Ok((STAGE.get_or_try_init(Stage::set).await?, turn))
}

impl Stage {
    async fn set() -> Result<Self> {
        let topology = Topology::up("placement", vec![ClusterSpec::named("a")]).await?;
        installation::load(&topology).await?;
        let cluster = topology.cluster("a")?;
        installation::install(cluster, &SILENT).await?;
        let own = cluster.plan.nodes[0].name.clone();
        cluster.kubectl(&[&["label", "node", &own][..], &OWN].concat()).await?;
        let mut kubelets = JoinSet::new();
        for (name, region, disk) in OTHERS {
            start_node(cluster, name, region, disk, &mut kubelets).await?;
        }
        let mut stage = Self { topology, calls_at_first: 0, asked_at_first: 0, _kubelets: kubelets };
        stage.make(PLAIN).await?;
        for number in 0..3 {
            stage.create(PLAIN, &format!("early-{number}"), &json!({})).await?;
        }
        stage.calls_at_first = stage.calls().await?;
        stage.asked_at_first = stage.asked().await?;
        for strategy in super::table::STRATEGIES {
            stage.offload(&strategy.to_lowercase(), strategy).await?;
        }
        Ok(stage)
    }

    pub fn cluster(&self) -> Result<&Cluster> {
        self.topology.cluster("a")
    }

    /// The name of the cluster's own node.
    pub fn home(&self) -> Result<&str> {
        Ok(&self.cluster()?.plan.nodes[0].name)
    }

    pub fn pods(&self, namespace: &str) -> Result<Api<Pod>> {
        Ok(Api::namespaced(self.cluster()?.client.clone(), namespace))
    }

    /// Makes a namespace in which pods can be created.
    async fn make(&self, namespace: &str) -> Result<()> {
        self.cluster()?.kubectl(&["create", "namespace", namespace]).await?;
        let account = ["get", "serviceaccount", "default", "--namespace", namespace];
        eventually("the namespace has its account", || async { self.cluster()?.kubectl(&account).await })
            .await?;
        Ok(())
    }

    /// Makes a namespace, lets it use the clusters in the west, and waits until that holds for its pods.
    pub async fn offload(&self, namespace: &str, strategy: &str) -> Result<()> {
        self.make(namespace).await?;
        let region = json!({"key": "liqo.io/region", "operator": "In", "values": ["us-west-1"]});
        let offloading = json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": namespace},
            "spec": {
                "podOffloadingStrategy": strategy,
                "clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [region]}]},
            },
        });
        self.cluster()?.apply(&offloading.to_string()).await?;
        // Under every strategy something is added to a pod that tolerates everything.
        let tolerant = pod("probe", &json!({"tolerations": [{"operator": "Exists"}]}))?;
        let try_only = PostParams { dry_run: true, ..PostParams::default() };
        eventually("pods of the namespace get its policy", || async {
            let created = self.pods(namespace)?.create(&try_only, &tolerant).await?;
            ensure!(!terms(&created)?.is_null(), "nothing was added to {}", created.name_any());
            Ok(())
        })
        .await
    }

    /// Creates a pod and gives it as it was admitted.
    pub async fn create(&self, namespace: &str, name: &str, spec: &Value) -> Result<Pod> {
        let created = self.pods(namespace)?.create(&PostParams::default(), &pod(name, spec)?).await;
        created.with_context(|| format!("cannot create {namespace}/{name}"))
    }

    /// How many pods were shown to the webhook, by all replicas that run now.
    pub async fn calls(&self) -> Result<u64> {
        let mut calls = 0;
        for name in self.controllers().await? {
            let path = format!("/api/v1/namespaces/{INSTALLATION}/pods/{name}:9440/proxy/metrics");
            let metrics = self.cluster()?.kubectl(&["get", "--raw", &path]).await?;
            ensure!(metrics.contains("ferro_api_requests_total"), "{metrics}");
            calls += total(&metrics, "ferro_webhook_requests_total{", "")?;
        }
        Ok(calls)
    }

    /// How many pods the API server says it has shown to the webhook, whether that answered or not.
    pub async fn asked(&self) -> Result<u64> {
        let metrics = self.cluster()?.kubectl(&["get", "--raw", "/metrics"]).await?;
        ensure!(metrics.contains("apiserver_request_total{"), "the API server counts nothing");
        total(&metrics, "apiserver_admission_webhook_request_total{", &format!("name=\"{WEBHOOK}\""))
    }

    /// The pods of the controller.
    pub async fn controllers(&self) -> Result<Vec<String>> {
        let of_controller = ListParams::default().labels("app.kubernetes.io/name=ferro-controller");
        let pods = self.pods(INSTALLATION)?.list(&of_controller).await?;
        Ok(pods.iter().map(Pod::name_any).collect())
    }
}

/// The sum of all counters that begin like this and have this label.
fn total(metrics: &str, counter: &str, label: &str) -> Result<u64> {
    let mut total = 0;
    for line in metrics.lines().filter(|line| line.starts_with(counter) && line.contains(label)) {
        let count = line.rsplit(' ').next().context("a figure has a value")?;
        total += count.parse::<u64>().with_context(|| format!("{line} is no count"))?;
    }
    Ok(total)
}

/// A pod that does nothing, with these wishes.
fn pod(name: &str, wishes: &Value) -> Result<Pod> {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "rig/testbox:1", "args": ["pause"]}],
        },
    });
    for (field, wish) in wishes.as_object().into_iter().flatten() {
        pod["spec"][field] = wish.clone();
    }
    Ok(serde_json::from_value(pod)?)
}

/// The required terms of a pod, or null.
pub fn terms(pod: &Pod) -> Result<Value> {
    let pod = serde_json::to_value(pod)?;
    let place =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    Ok(pod.pointer(place).cloned().unwrap_or_default())
}

/// A node that stands for another cluster, as far as the scheduler can tell; a task renews its Lease.
async fn start_node(
    cluster: &Cluster,
    name: &'static str,
    region: &str,
    disk: &str,
    kubelets: &mut JoinSet<Result<()>>,
) -> Result<()> {
    let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "100"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now()});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            labels::TYPE_VIRTUAL_NODE.key(): labels::TYPE_VIRTUAL_NODE.value(),
            labels::REGION.key(): region, "disk": disk, "kubernetes.io/hostname": name,
        }},
        "spec": {"taints": [taints::not_allowed()]},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }))?;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let renewed = || json!({"renewTime": MicroTime(Timestamp::now()), "leaseDurationSeconds": 40});
    let lease = json!({"metadata": {"name": name}, "spec": renewed()});
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.create(&PostParams::default(), &node).await?;
    kubelets.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let patch = Patch::Merge(json!({"spec": renewed()}));
            // One that fails is made up for by the next.
            _ = leases.patch(name, &PatchParams::default(), &patch).await;
        }
    });
    eventually("the node is ready for pods", || async {
        let taints = nodes.get(name).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        ensure!(taints.len() == 1, "{taints:?}");
        Ok(())
    })
    .await
}
