//! What befalls pods, controllers, API servers and the wire between the clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use rig::census::Census;
use rig::lan::Loss;
use rig::topology::Cluster;
use rig::wait::eventually;

use crate::deployments::{FIRST, settled};
use crate::stage::{AWAY, BOTH, Stage, WEB, is_ready, is_soak, names, running, uids};
use crate::workloads::{EACH, deployment, shell, spread};

/// Within so long after a cut nobody is sent to a pod that cannot be reached: probes notice it, long before anything else.
const SECONDS: Duration = Duration::from_secs(12);

fn statuses(pods: &[Pod]) -> impl Iterator<Item = &ContainerStatus> {
    pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_deref()).flatten()
}

fn restarts(pods: &[Pod]) -> i32 {
    statuses(pods).map(|container| container.restart_count).sum()
}

/// Which containers a cluster says that they run.
fn containers(pods: &[Pod]) -> BTreeSet<&str> {
    statuses(pods).filter_map(|container| container.container_id.as_deref()).collect()
}

/// Deletes a pod over there, and waits until another one runs in its place.
async fn lose(stage: &Stage, app: &str) -> Result<()> {
    let before = stage.there(app).await?;
    let victim = before.first().context("nothing runs")?;
    let (name, uid) = (victim.name_any(), victim.uid().unwrap_or_default());
    let turin = stage.turin()?;
    turin.kubectl(&["-n", &stage.there, "delete", "pod", &name, "--wait=false"]).await?;
    eventually("there is another one over there", || async {
        let there = stage.there(app).await?;
        ensure!(names(&there) == names(&before), "{:?}", names(&there));
        ensure!(!uids(&there).contains(&uid), "it is still there");
        ensure!(there.iter().all(is_ready), "not all are ready");
        Ok(())
    })
    .await
}

pub async fn a_lost_pod_is_made_again_where_its_policy_allows(stage: &Stage) -> Result<()> {
    let (census, web) = (Census::of("CLUSTER=web"), stage.await_ready("web", WEB).await?);
    let (here, before) = (uids(&web), restarts(&web));
    stage.rome()?.apply(&shell("once", "Never", "sleep 1000")).await?;
    lose(stage, "web").await?;
    ensure!(uids(&stage.await_ready("web", WEB).await?) == here, "the pods at home are others");
    eventually("home reports it, as one restart", || async {
        let (here, there) = (stage.here(AWAY, "web").await?, stage.there("web").await?);
        let (shown, there) = (containers(&here), containers(&there));
        ensure!(shown == there, "{shown:?} at home, {there:?} over there");
        let now = restarts(&here);
        ensure!(now == before + 1, "{now} restarts, of which {before} were there before");
        Ok(())
    })
    .await?;
    // What must not run twice is not made again.
    stage.kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/once", "--timeout=300s"]).await?;
    let delete = ["-n", &stage.there, "delete", "pod", "once", "--grace-period=0", "--force", "--wait=false"];
    stage.turin()?.kubectl(&delete).await?;
    let reason = "jsonpath={.status.phase}/{.status.reason}";
    stage.says(AWAY, &["get", "pod", "once", "-o", reason], "Failed/RemotePodLost").await?;
    stage.kubectl(AWAY, &["delete", "pod", "once", "--timeout=300s"]).await?;
    stage.await_gone("once").await?;
    census.end()
}

/// To how many pods the Service of `web` sends clients.
async fn is_served(stage: &Stage) -> Result<usize> {
    let slices: Api<EndpointSlice> = Api::namespaced(stage.rome()?.client.clone(), AWAY);
    let slices = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await?;
    let endpoints = slices.items.iter().flat_map(|slice| &slice.endpoints);
    let is_ready =
        |endpoint: &&Endpoint| endpoint.conditions.as_ref().is_some_and(|is| is.ready == Some(true));
    Ok(endpoints.filter(is_ready).count())
}

async fn await_served(stage: &Stage, count: usize) -> Result<()> {
    eventually(&format!("{count} pods are served"), || async {
        let served = is_served(stage).await?;
        ensure!(served == count, "{served} are");
        Ok(())
    })
    .await
}

/// What must not change of a Deployment: its pods at home, and the containers that run for them, wherever they do.
struct Steady {
    namespace: &'static str,
    app: &'static str,
    uids: BTreeSet<String>,
    containers: BTreeMap<u32, String>,
}

impl Steady {
    /// As it is now.
    fn of(namespace: &'static str, app: &'static str, pods: &[Pod]) -> Result<Self> {
        let (uids, containers) = (uids(pods), running(app));
        ensure!(containers.len() == pods.len(), "{} pods of {app} have {containers:?}", pods.len());
        Ok(Self { namespace, app, uids, containers })
    }

    /// An error if anything is other than it was.
    async fn stays(&self, stage: &Stage) -> Result<()> {
        let Self { namespace, app, uids: before, containers } = self;
        let now = running(app);
        ensure!(now == *containers, "others of {app} run than before: {now:?}, {containers:?}");
        ensure!(uids(&stage.here(namespace, app).await?) == *before, "the pods of {app} at home are others");
        Ok(())
    }
}

/// So many pods are to end when the clusters are cut apart: more than are worked on at once.
const CROWD: usize = 24;

/// Cuts the clusters apart, long enough for the node to be lost, and heals them. Just then pods are to end that cannot be
/// reached, so that whoever looks after pods has to wait for answers that do not come.
pub async fn pods_run_on_while_the_clusters_are_cut_apart(stage: &Stage) -> Result<()> {
    let cut = Duration::from_secs(if is_soak() { 600 } else { 30 });
    let census = Census::of("CLUSTER=web");
    stage.rome()?.apply(&spread(BOTH, "wide", EACH)).await?;
    stage.rome()?.apply(&deployment(AWAY, "crowd", CROWD)).await?;
    stage.kubectl(AWAY, &["expose", "deployment", "web", "--port=8080"]).await?;
    await_served(stage, WEB).await?;
    let web = Steady::of(AWAY, "web", &stage.await_ready("web", WEB).await?)?;
    let wide = Steady::of(BOTH, "wide", &settled(stage, "wide", EACH, FIRST).await?)?;
    stage.await_ready("crowd", CROWD).await?;

    stage.topology().cut("rome", "turin", Loss::CUT, false).await?;
    let meanwhile = while_cut(stage, [&web, &wide], cut).await;
    // What follows is not to fail for want of the wire.
    stage.topology().heal("rome", "turin").await?;
    meanwhile?;
    ensure!(uids(&stage.await_ready("web", WEB).await?) == web.uids, "the pods at home are others");
    await_served(stage, WEB).await?;
    ensure!(running("web").len() == WEB, "{:?}", running("web"));
    settled(stage, "wide", EACH, FIRST).await?;
    wide.stays(stage).await?;
    stage.await_gone("crowd").await?;
    stage.kubectl(AWAY, &["delete", "service", "web"]).await?;
    stage.kubectl(BOTH, &["delete", "deployment", "wide", "--timeout=300s"]).await?;
    settled(stage, "wide", 0, FIRST).await?;
    census.end()
}

/// What is seen of a cut that lasts so long.
async fn while_cut(stage: &Stage, steady: [&Steady; 2], cut: Duration) -> Result<()> {
    let (turin, there) = (stage.turin()?, uids(&stage.there("web").await?));
    let begin = Instant::now();
    let others = async {
        stage.kubectl(AWAY, &["delete", "deployment", "crowd", "--wait=false"]).await?;
        await_served(stage, 0).await?;
        println!("no endpoint is ready {:.1?} after the cut", begin.elapsed());
        ensure!(begin.elapsed() < SECONDS, "clients are sent nowhere for {:.1?}", begin.elapsed());
        a_pod_comes_to_milan(stage).await
    };
    let steady = async {
        while begin.elapsed() < cut {
            for steady in steady {
                steady.stays(stage).await?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(others, steady)?;
    ensure!(uids(&stage.there("web").await?) == there, "others run over there");
    // What happens meanwhile is past what an API server that was started again still knows (410 Gone).
    lose(stage, "web").await?;
    stage.topology().kill("turin/kube-apiserver").await?;
    stage.topology().restart("turin/kube-apiserver").await?;
    eventually("it answers", || async { turin.kubectl(&["get", "namespaces"]).await.map(drop) }).await
}

/// A pod is made on the peer that is not cut off, as if the other one were not there.
async fn a_pod_comes_to_milan(stage: &Stage) -> Result<()> {
    let node = stage.node_of("milan").await?;
    let there = format!("  nodeSelector: {{kubernetes.io/hostname: {node}}}\n  containers:");
    let pod = shell("unmoved", "Always", "sleep 1000").replace("  containers:", &there);
    let pod = pod.replace(&format!("namespace: {AWAY}"), &format!("namespace: {BOTH}"));
    let begin = Instant::now();
    stage.rome()?.apply(&pod).await?;
    stage.kubectl(BOTH, &["wait", "--for=condition=Ready", "pod/unmoved", "--timeout=300s"]).await?;
    println!("a pod on milan is ready after {:.1?} while turin is cut off", begin.elapsed());
    let there = stage.at(stage.milan()?, BOTH, "unmoved").await?;
    ensure!(there.len() == 1, "{} pods of it are on milan", there.len());
    stage.kubectl(BOTH, &["delete", "pod", "unmoved", "--timeout=300s"]).await.map(drop)
}

/// Nobody can ask turin anything for longer than its node is waited for.
pub async fn nothing_restarts_while_the_api_server_of_the_provider_is_down(stage: &Stage) -> Result<()> {
    let (here, before) = (uids(&stage.await_ready("web", WEB).await?), running("web"));
    stage.topology().kill("turin/kube-apiserver").await?;
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    eventually("the node is not ready", || async {
        let ready = stage.rome()?.kubectl(&["get", "node", &stage.node, "-o", ready]).await?;
        ensure!(ready != "True", "{ready}");
        Ok(())
    })
    .await?;
    ensure!(running("web") == before, "others run than before: {:?}, {before:?}", running("web"));
    stage.topology().restart("turin/kube-apiserver").await?;
    ensure!(uids(&stage.await_ready("web", WEB).await?) == here, "the pods at home are others");
    ensure!(running("web") == before, "others run than before: {:?}, {before:?}", running("web"));
    Ok(())
}

/// Nobody looks after the pods of a node whose kubelet is dead. They run on, and who asks for a log is told why there is
/// none. A cluster gives up such a node after 50 s; the long form waits for that.
pub async fn a_dead_kubelet_of_the_provider_is_seen_at_home(stage: &Stage) -> Result<()> {
    let pods = stage.await_ready("web", WEB).await?;
    let web = Steady::of(AWAY, "web", &pods)?;
    let log = ["logs", &format!("pod/{}", pods[0].name_any()), "--tail=1"];
    stage.topology().kill("turin/kubelet").await?;
    let seen = async {
        eventually("it is told why there is no log", || async {
            let refused = stage.kubectl(AWAY, &log).await.err().context("there is one")?;
            ensure!(refused.to_string().contains("connection refused"), "{refused:#}");
            Ok(())
        })
        .await?;
        if is_soak() {
            await_unready(stage).await?;
        }
        web.stays(stage).await
    }
    .await;
    stage.topology().restart("turin/kubelet").await?;
    seen?;
    eventually("there is a log again", || stage.kubectl(AWAY, &log)).await?;
    stage.await_ready("web", WEB).await?;
    web.stays(stage).await
}

/// Waits until pods whose node over there is dead are not ready, and say why.
async fn await_unready(stage: &Stage) -> Result<()> {
    eventually("the pods of the dead node are not ready", || async {
        let pods = stage.here(AWAY, "web").await?;
        ensure!(!pods.iter().any(is_ready), "some are");
        let described = stage.kubectl(AWAY, &["describe", "pods", "-l", "app=web"]).await?;
        ensure!(described.contains("NodeNotReady"), "{described}");
        Ok(())
    })
    .await
}

/// The provider needs nobody to keep pods alive.
pub async fn pods_are_kept_alive_while_the_controller_of_home_is_away(stage: &Stage) -> Result<()> {
    let away = Duration::from_secs(if is_soak() { 60 } else { 10 });
    let (census, here) = (Census::of("CLUSTER=web"), uids(&stage.await_ready("web", WEB).await?));
    let scale = |count: usize| format!("--replicas={count}");
    stage.kubectl("liqo", &["scale", "deployment/ferro-controller", &scale(0)]).await?;
    let controllers = ["get", "pods", "-l", "app.kubernetes.io/name=ferro-controller", "-o", "name"];
    stage.says("liqo", &controllers, "").await?;
    let begin = Instant::now();
    lose(stage, "web").await?;
    tokio::time::sleep(away.saturating_sub(begin.elapsed())).await;
    ensure!(running("web").len() == WEB, "{:?}", running("web"));
    stage.kubectl("liqo", &["scale", "deployment/ferro-controller", &scale(2)]).await?;
    ensure!(uids(&stage.await_ready("web", WEB).await?) == here, "the pods at home are others");
    stage.kubectl("liqo", &["rollout", "status", "deployment/ferro-controller", "--timeout=300s"]).await?;
    census.end()
}

/// Ends the controllers of a cluster, as a power cut would.
pub async fn kill_controllers(cluster: &Cluster) -> Result<()> {
    // A node sees its own processes only. One that was killed before may have to start again first: who kills nobody fails.
    let kill = ["pkill", "-KILL", "-f", "^/ferro controller"];
    eventually("a controller is killed", || cluster.on_node(1, &kill)).await.map(drop)
}

/// Pods come and go while controllers of either side are killed in turn, at ever other moments: three times each, at least.
pub async fn kills_of_either_controller_leave_nothing_wrong(stage: &Stage) -> Result<()> {
    let (kills, most) = if is_soak() { (50, 50) } else { (6, 6) };
    let (rome, turin, census) = (stage.rome()?, stage.turin()?, Census::of("CLUSTER=many"));
    rome.apply(&deployment(AWAY, "many", most)).await?;
    for round in 0..kills {
        let (cluster, count) = if round % 2 == 0 { (turin, most / 2) } else { (rome, most) };
        stage.kubectl(AWAY, &["scale", "deployment/many", &format!("--replicas={count}")]).await?;
        tokio::time::sleep(Duration::from_millis(137 * round % 2000)).await;
        kill_controllers(cluster).await?;
        stage.await_ready("many", count).await.with_context(|| format!("after kill {}", round + 1))?;
    }
    let delete = ["delete", "deployment", "many", "--wait=false"];
    tokio::try_join!(stage.kubectl(AWAY, &delete), kill_controllers(rome), kill_controllers(turin))?;
    stage.await_gone("many").await?;
    ensure!(running("many").is_empty(), "containers are left: {:?}", running("many"));
    stage.await_ready("web", WEB).await?;
    census.end()
}
