//! A thousand pods on a virtual node. The clusters and all of ferro are real, but for one node of turin: nothing runs on
//! it, and what its pods show is written here, where a kubelet would.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rig::wait::eventually;
use serde_json::{Value, json};

use super::stage::{Place, Stage};

const NODE: &str = "void";
/// So many pods the node takes.
const ROOM: u32 = 2000;
/// How often it says that it lives.
const BEAT: Duration = Duration::from_secs(10);
/// So many pods are written about at once.
const AT_ONCE: usize = 8;

/// The node, and whoever writes for it.
pub struct Crowd<'a> {
    stage: &'a Stage,
    app: &'static str,
    tasks: Tasks,
}

impl<'a> Crowd<'a> {
    /// Runs so many pods on turin.
    pub async fn gather(stage: &'a Stage, count: usize) -> Result<Self> {
        let turin = &stage.turin.cluster;
        let (tasks, app, client) = (Tasks::default(), "crowd", turin.client.clone());
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
        tasks.spawn("heart", beat(client.clone()));
        let addresses = u32::from(turin.plan.pod_cidr.broadcast()) - 2 * ROOM;
        tasks.spawn("kubelet", keep(client, stage.turin.pods.clone(), addresses));
        // The others shall go nowhere else.
        turin.kubectl(&["cordon", &turin.plan.nodes[0].name]).await?;
        has_room(stage, count).await?;
        stage.create(Place::Offloaded, app, count).await?;
        stage.rome.sightings(app, count).await?;
        Ok(Self { stage, app, tasks })
    }

    /// Takes all of it away again.
    pub async fn disperse(self) -> Result<()> {
        self.stage.delete(Place::Offloaded, self.app).await?;
        self.tasks.end().await;
        let turin = &self.stage.turin.cluster;
        turin.kubectl(&["uncordon", &turin.plan.nodes[0].name]).await?;
        turin.kubectl(&["delete", "node", NODE]).await.map(drop)
    }
}

/// Waits until rome knows how much room turin has now.
async fn has_room(stage: &Stage, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(stage.rome.cluster.client.clone());
    let others = ListParams::default().labels("liqo.io/type=virtual-node");
    eventually("the virtual node has room", || async {
        let node = nodes.list(&others).await?.items.pop().context("there is no virtual node")?;
        let room = node.status.and_then(|status| status.allocatable?.remove("pods"));
        let room: usize = room.map(|room| room.0).unwrap_or_default().parse()?;
        ensure!(room >= count, "room for {room}");
        Ok(())
    })
    .await
}

/// Says that the node lives.
async fn beat(client: Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let room =
        json!({"cpu": "1000", "memory": "1000Gi", "ephemeral-storage": "1000Gi", "pods": ROOM.to_string()});
    loop {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Simulated", "lastHeartbeatTime": Timestamp::now(),
        });
        let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}});
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status)).await?;
        tokio::time::sleep(BEAT).await;
    }
}

/// Lets all pods of the node run at once, and end when they are deleted.
async fn keep(client: Client, pods: Watched<Pod>, addresses: u32) -> Result<()> {
    let (mut changes, mut next) = (pods.follow(), addresses);
    loop {
        let of_node = |pod: &std::sync::Arc<Pod>| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(NODE))
        };
        let touched = changes.take().into_iter().filter_map(|(_, pod)| pod.filter(of_node));
        let guests = touched.map(|pod| {
            next += 1;
            Ok::<_, anyhow::Error>((pod, Ipv4Addr::from(next)))
        });
        let guests: Vec<_> = guests.collect();
        stream::iter(guests)
            .try_for_each_concurrent(AT_ONCE, |(pod, ip)| {
                let client = client.clone();
                async move { eventually("a pod is attended to", || attend(&client, &pod, ip)).await }
            })
            .await?;
        changes.changed().await?;
    }
}

async fn attend(client: &Client, pod: &Pod, ip: Ipv4Addr) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let runs = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    let done = if pod.metadata.deletion_timestamp.is_some() {
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.map(drop)
    } else if runs {
        Ok(())
    } else {
        let status = Patch::Strategic(running(pod, ip));
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await.map(drop)
    };
    match done {
        // It is gone already.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.context("cannot write for the kubelet"),
    }
}

/// The status of a pod that runs, as a kubelet writes it.
fn running(pod: &Pod, ip: Ipv4Addr) -> Value {
    let now = Timestamp::now();
    let container = |container: &k8s_openapi::api::core::v1::Container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "sha256:0", "containerID": "void://0",
            "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}},
        })
    };
    let containers: Vec<Value> = pod.spec.iter().flat_map(|spec| &spec.containers).map(container).collect();
    let condition = |type_| json!({"type": type_, "status": "True", "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    json!({"status": {
        "phase": "Running", "startTime": now, "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": conditions.map(condition), "containerStatuses": containers,
    }})
}
