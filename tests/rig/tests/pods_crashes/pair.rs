//! Rome, whose pods run on turin. No node is there: what a kubelet of turin would say about its pods, a stand-in says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::names::{annotations, labels, taints};
use ferro_api::virtualkubelet::ShadowPod;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rig::fuse::Fuse;
use rig::pods::is_ready;
use rig::site::{Site, ferro, knows_itself};
use rig::topology::Cluster;
use rig::wait::{GENEROUSLY, GLANCE, eventually};
use serde_json::json;
use tokio::task::JoinSet;

const PODS: usize = 10;
/// The namespace whose pods run on turin.
const AWAY: &str = "away";
/// How often the stand-in looks for new pods.
const LOOK: Duration = Duration::from_millis(100);

/// Two sites that are peered, and the pods that come and go.
pub struct Pair {
    rome: Site,
    turin: Site,
    /// The virtual node of turin, and the namespace over there.
    node: String,
    there: String,
    _kubelet: JoinSet<Result<()>>,
}

impl Pair {
    /// Peers the two, and offloads a namespace.
    pub async fn join(a: &Cluster, b: &Cluster) -> Result<Self> {
        // No gateway is here, so that it is said that somebody else joins the networks.
        let settings = ["networkManager.config.mode=external"];
        let (rome, turin) = tokio::try_join!(Site::start(a, &settings), Site::start(b, &settings))?;
        for site in [&rome, &turin] {
            knows_itself(site).await?;
        }
        let remote = turin.cluster.kubeconfig.display().to_string();
        ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
        rome.reaches(&turin, Established, Unpeered).await?;
        // Nobody answers for it here; pods are bound to the node by the test.
        a.kubectl(&["delete", "mutatingwebhookconfiguration", "ferro-webhook"]).await?;
        // A cluster without nodes offers nothing.
        let room =
            json!({"spec": {"resourceQuota": {"hard": {"cpu": "10", "memory": "10Gi", "pods": "50"}}}});
        let id = rome.id().await?;
        let room = room.to_string();
        let patch = ["patch", "tenant", &id, "--type=merge", "--patch", &room];
        eventually("the Tenant has room", || b.kubectl(&patch)).await?;
        a.kubectl(&["create", "namespace", AWAY]).await?;
        ferro(a, &["offload", AWAY, "--pods", "remote", "--wait"]).await?;
        let account = ["get", "serviceaccount", "default", "--namespace", AWAY];
        eventually("the namespace has its account", || a.kubectl(&account)).await?;
        let there = format!("{AWAY}-{id}");
        let mut kubelet = JoinSet::new();
        kubelet.spawn(run_pods(turin.admin.clone(), there.clone()));
        let node = virtual_node(&rome).await?;
        Ok(Self { rome, turin, node, there, _kubelet: kubelet })
    }

    fn sites(&mut self) -> [&mut Site; 2] {
        [&mut self.rome, &mut self.turin]
    }

    fn here(&self) -> Api<Pod> {
        Api::namespaced(self.rome.admin.clone(), AWAY)
    }

    /// Makes the pods, waits until all run, and deletes them; a controller ends when its fuse breaks, and another one
    /// starts.
    pub async fn cycle(&mut self, fuses: &[Fuse; 2]) -> Result<()> {
        for (site, fuse) in self.sites().into_iter().zip(fuses) {
            site.run(fuse.clone()).await?;
        }
        let (here, params) = (self.here(), PostParams::default());
        let pods = (0..PODS).map(|number| self.pod(number)).collect::<Result<Vec<_>>>()?;
        try_join_all(pods.iter().map(|pod| here.create(&params, pod))).await?;
        self.until(fuses, "made", async |pair: &Self| pair.all_run().await).await?;
        here.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        self.until(fuses, "deleted", async |pair: &Self| pair.nothing_is_left().await).await
    }

    /// A pod that the scheduler has bound to the node. The first one must not run twice, for which more is written.
    fn pod(&self, number: usize) -> Result<Pod> {
        let policy = if number == 0 { "Never" } else { "Always" };
        Ok(serde_json::from_value(json!({
            "metadata": {"name": format!("p-{number}")},
            "spec": {
                "nodeName": self.node, "tolerations": [taints::tolerates_not_allowed()],
                "terminationGracePeriodSeconds": 1, "restartPolicy": policy,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
            },
        }))?)
    }

    /// What there is over there: ShadowPods by their UIDs, and from which of these there are pods.
    async fn there(&self) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
        let (admin, all) = (&self.turin.admin, ListParams::default());
        let shadows: Api<ShadowPod> = Api::namespaced(admin.clone(), &self.there);
        let shadows = shadows.list(&all).await?.items.into_iter();
        let shadows = shadows.map(|shadow| (shadow.name_any(), shadow.uid().unwrap_or_default()));
        let pods: Api<Pod> = Api::namespaced(admin.clone(), &self.there);
        let made_from = |pod: &Pod| annotations::SHADOW_UID.of(&pod.metadata).unwrap_or_default().to_owned();
        let pods = pods.list(&all).await?.items.into_iter().map(|pod| (pod.name_any(), made_from(&pod)));
        Ok((shadows.collect(), pods.collect()))
    }

    async fn all_run(&self) -> Result<()> {
        let here = self.here().list(&ListParams::default()).await?.items;
        let running = here.iter().filter(|pod| is_ready(pod)).count();
        ensure!(here.len() == PODS && running == PODS, "{running} of {} run", here.len());
        let (shadows, pods) = self.there().await?;
        ensure!(shadows.len() == PODS && shadows == pods, "{shadows:?} became {pods:?}");
        Ok(())
    }

    async fn nothing_is_left(&self) -> Result<()> {
        let here: Vec<_> =
            self.here().list(&ListParams::default()).await?.items.iter().map(Pod::name_any).collect();
        let (shadows, pods) = self.there().await?;
        ensure!(here.is_empty() && shadows.is_empty() && pods.is_empty(), "{here:?}, {shadows:?}, {pods:?}");
        // They go last, so that a fuse may break with these only.
        let tokens: Api<Secret> = Api::namespaced(self.turin.admin.clone(), &self.there);
        let tokens = tokens.list_metadata(&ListParams::default().labels(&labels::TOKENS.selector())).await?;
        ensure!(tokens.items.is_empty(), "tokens of {} pods", tokens.items.len());
        Ok(())
    }

    /// Waits for a state, and starts again who has ended.
    async fn until(
        &mut self,
        fuses: &[Fuse; 2],
        what: &str,
        reached: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let begin = Instant::now();
        loop {
            for (site, fuse) in self.sites().into_iter().zip(fuses) {
                if fuse.is_broken() && !site.was_restarted() {
                    site.restart().await?;
                }
                site.revive().await?;
            }
            match reached(self).await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > GENEROUSLY => return Err(error.context(what.to_owned())),
                Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
    }
}

async fn virtual_node(site: &Site) -> Result<String> {
    let nodes: Api<Node> = Api::all(site.admin.clone());
    let of_peers = ListParams::default().labels(&labels::TYPE_VIRTUAL_NODE.selector());
    eventually("there is a node for the peer", || async {
        let nodes = nodes.list(&of_peers).await?.items;
        Ok(nodes.first().context("there is none")?.name_any())
    })
    .await
}

/// Says of every pod in a namespace that it runs.
async fn run_pods(admin: Client, namespace: String) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(admin, &namespace);
    loop {
        let present = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for pod in present.iter().filter(|pod| !is_ready(pod) && !is_gated(pod)) {
            // It may be gone by now.
            _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(running())).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether it waits to be let to a node.
fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
}

fn running() -> serde_json::Value {
    let since = "2026-01-01T00:00:00Z";
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions =
        conditions.map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": since}));
    json!({"status": {
        "phase": "Running", "podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}], "startTime": since,
        "conditions": conditions,
        "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "i", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": since}},
        }],
    }})
}
