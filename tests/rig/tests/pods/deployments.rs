//! A Deployment over home and two peers: what people do to it, and what they see of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rig::installation::ferro;
use rig::topology::Cluster;
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{AWAY, BOTH, SECOND, Stage, WEB, is_ready, names, node_of, running};
use crate::workloads::{EACH, shell, spread};

const MANY: usize = 20;
/// At least so many of them are on each of the three nodes at first: their constraint allows no fewer.
const FEWEST: usize = 4;
pub const FIRST: &str = "rig/testbox:1";

pub async fn twenty_pods_run_on_three_clusters_and_follow_their_deployment(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&spread(BOTH, "spread", MANY)).await?;
    rolled_out(stage, "spread").await?;
    let pods = settled(stage, "spread", MANY, FIRST).await?;
    for node in pods.iter().filter_map(node_of) {
        let share = pods.iter().filter(|pod| node_of(pod) == Some(node)).count();
        ensure!(share >= FEWEST, "{share} on {node}");
    }
    for count in [MANY + 6, MANY] {
        stage.kubectl(BOTH, &["scale", "deployment/spread", &format!("--replicas={count}")]).await?;
        rolled_out(stage, "spread").await?;
        settled(stage, "spread", count, FIRST).await?;
    }
    stage.kubectl(BOTH, &["set", "image", "deployment/spread", &format!("echo={SECOND}")]).await?;
    rolled_out(stage, "spread").await?;
    settled(stage, "spread", MANY, SECOND).await?;
    stage.kubectl(BOTH, &["rollout", "undo", "deployment/spread"]).await?;
    rolled_out(stage, "spread").await?;
    let pods = settled(stage, "spread", MANY, FIRST).await?;

    let wait = ["wait", "--timeout=300s"];
    stage.kubectl(BOTH, &[&wait[..], &["--for=condition=Available", "deployment/spread"]].concat()).await?;
    stage
        .kubectl(BOTH, &[&wait[..], &["--for=condition=Ready", "pods", "-l", "app=spread"]].concat())
        .await?;
    // Events come when they come, and a probe may fail once where there is much to do.
    eventually("nothing is odd", || nothing_is_odd(stage, &pods)).await?;
    stage.kubectl(BOTH, &["delete", "deployment", "spread", "--timeout=300s"]).await?;
    settled(stage, "spread", 0, FIRST).await.map(drop)
}

async fn rolled_out(stage: &Stage, name: &str) -> Result<()> {
    let status = ["rollout", "status", &format!("deployment/{name}"), "--timeout=300s"];
    stage.kubectl(BOTH, &status).await.map(drop)
}

/// Waits until there are so many of a Deployment, all are ready and of this image, each peer has just those that are bound to
/// its node, and each node has one at least: how many, nobody promises.
pub async fn settled(stage: &Stage, app: &str, count: usize, image: &str) -> Result<Vec<Pod>> {
    let nodes = [stage.rome()?.plan.nodes[0].name.clone(), stage.node.clone(), stage.node_of("milan").await?];
    eventually(&format!("{count} pods of {app} are ready, of {image}"), || async {
        let here = stage.here(BOTH, app).await?;
        ensure!(here.len() == count && here.iter().all(is_ready), "{} of {count}, not all ready", here.len());
        let on =
            |node: &str| here.iter().filter(|pod| node_of(pod) == Some(node)).cloned().collect::<Vec<_>>();
        let [at_home, on_turin, on_milan] = nodes.each_ref().map(|node| on(node));
        let shares = [&at_home, &on_turin, &on_milan].map(Vec::len);
        ensure!(shares.iter().sum::<usize>() == count, "some are elsewhere: {shares:?}");
        ensure!(count == 0 || shares.iter().all(|share| *share > 0), "{shares:?}");
        for (peer, bound) in [(stage.turin()?, on_turin), (stage.milan()?, on_milan)] {
            let there = stage.at(peer, BOTH, app).await?;
            ensure!(names(&there) == names(&bound), "{:?} run for {:?}", names(&there), names(&bound));
            ensure!(there.iter().all(|pod| image_of(pod) == Some(image)), "others than {image} run");
        }
        ensure!(here.iter().all(|pod| image_of(pod) == Some(image)), "others than {image} are here");
        Ok(here)
    })
    .await
}

fn image_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

/// Nobody can tell by what kubectl shows of them where pods run, but by the name of the node.
async fn nothing_is_odd(stage: &Stage, pods: &[Pod]) -> Result<()> {
    let listed =
        stage.kubectl(BOTH, &["get", "pods", "-l", "app=spread", "-o", "wide", "--no-headers"]).await?;
    let mut addresses = BTreeMap::new();
    for line in listed.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [name, ready, status, restarts, _age, ip, node, "<none>", "<none>"] = columns[..] else {
            anyhow::bail!("this is odd: {line}");
        };
        ensure!(ready == "1/1" && status == "Running" && restarts == "0", "this is odd: {line}");
        ensure!(node != "<none>", "this is odd: {line}");
        addresses.insert(ip.parse::<IpAddr>().with_context(|| line.to_owned())?, name.to_owned());
    }
    ensure!(addresses.len() == pods.len(), "addresses are not told apart: {listed}");
    let described = stage.kubectl(BOTH, &["describe", "pods", "-l", "app=spread"]).await?;
    for word in ["<unknown>", "<invalid>", "<nil>"] {
        ensure!(!described.contains(word), "{word}: {described}");
    }
    for section in described.split("\n\n\n") {
        ensure!(section.contains("Scheduled") && section.contains("Started"), "no Events: {section}");
        // A probe may come before its container listens, a pod before there is room for it, and before a kubelet that is
        // busy has read what it mounts.
        let usual = ["Unhealthy", "FailedScheduling", "failed to sync"];
        let warnings = section.lines().filter(|line| line.trim_start().starts_with("Warning"));
        let odd: Vec<&str> =
            warnings.filter(|line| !usual.iter().any(|usual| line.contains(usual))).collect();
        ensure!(odd.is_empty(), "{odd:?}");
    }
    Ok(())
}

/// The addresses that pods have at home work from home.
pub async fn whoever_calls_a_pod_by_its_address_gets_it(stage: &Stage) -> Result<()> {
    rig::pods::start(stage.rome()?).await?;
    let caller = rig::pods::Caller::on(stage.rome()?, 1).await?;
    for pod in stage.await_ready("web", WEB).await? {
        let status = pod.status.as_ref().context("a pod has no status")?;
        let ip: IpAddr = status.pod_ip.as_deref().context("a pod has no address")?.parse()?;
        let (answer, name) = (caller.get(ip).await?, pod.name_any());
        ensure!(answer.contains(&name), "{ip} is {name} and answers {answer}");
    }
    both_addresses_are_listed(stage, caller.ip).await?;
    rig::pods::stop(stage.rome()?).await
}

/// `ferro pods` tells the address of a pod here and the one that it has over there; a pod at home has but one.
async fn both_addresses_are_listed(stage: &Stage, of_caller: IpAddr) -> Result<()> {
    let (here, there) = (stage.await_ready("web", WEB).await?, stage.there("web").await?);
    for pod in here {
        let name = pod.name_any();
        let run = there.iter().find(|run| run.name_any() == name).context("a pod has no other one")?;
        ensure!(ip_of(&pod) != ip_of(run), "{name} has the same address here and there: {:?}", ip_of(run));
        let wanted = json!({
            "namespace": AWAY, "name": name, "status": "Running", "node": stage.node,
            "cluster": stage.node.strip_prefix("liqo-"),
            "addressHere": ip_of(&pod), "addressThere": ip_of(run),
        });
        // What is shown of a pod, and of the tunnel by which it is named, trails behind it.
        eventually(&format!("{name} is listed with both addresses"), || async {
            let listed = listed(stage, AWAY, &name).await?;
            ensure!(listed == wanted, "{listed} is listed, and true is {wanted}");
            Ok(())
        })
        .await?;
    }
    let listed = listed(stage, "default", "caller-1").await?;
    ensure!(listed["addressHere"] == of_caller.to_string(), "{of_caller} is listed as {listed}");
    ensure!(listed["cluster"].is_null() && listed["addressThere"].is_null(), "{listed}");
    Ok(())
}

/// What `ferro pods` has of a pod.
async fn listed(stage: &Stage, namespace: &str, name: &str) -> Result<Value> {
    let listed = ferro(stage.rome()?, &["pods", "-n", namespace, "-o", "json"]).await?;
    let rows: Vec<Value> = serde_json::from_str(&listed)?;
    let row = rows.into_iter().find(|row| row["name"] == name);
    row.with_context(|| format!("{name} is not listed: {listed}"))
}

fn ip_of(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

/// Ends the peering with pods over there: those that may run at home come home, and nothing is left on turin. Afterwards
/// it begins anew, whatever was seen, since all other tests need it.
pub async fn pods_come_home_when_the_peering_ends(stage: &Stage) -> Result<()> {
    let came_home = come_home(stage).await;
    let delete = ["delete", "deployment", "homing", "--ignore-not-found", "--timeout=300s"];
    let deleted = stage.kubectl(BOTH, &delete).await;
    let back = async {
        stage.peer("turin").await.context("turin is not peered again")?;
        stage.await_ready("web", WEB).await.context("after turin was peered again")
    }
    .await;
    came_home?;
    deleted?;
    back.map(drop)
}

async fn come_home(stage: &Stage) -> Result<()> {
    let (rome, turin) = (stage.rome()?, stage.turin()?);
    rome.apply(&spread(BOTH, "homing", EACH)).await?;
    rolled_out(stage, "homing").await.context("before the peering ends")?;
    eventually("some of them run on turin", || async {
        ensure!(!stage.at(turin, BOTH, "homing").await?.is_empty(), "none of them runs on turin");
        Ok(())
    })
    .await?;
    ferro(rome, &["unpeer", "turin", "--wait"]).await?;
    rolled_out(stage, "homing").await.context("after the peering has ended")?;
    eventually("no pod is bound to the node", || are_at_home(stage)).await?;
    nothing_is_left(turin).await
}

/// All of them run elsewhere, and pods for turin alone wait.
async fn are_at_home(stage: &Stage) -> Result<()> {
    let pods = stage.here(BOTH, "homing").await?;
    let is_elsewhere = |pod: &Pod| is_ready(pod) && node_of(pod) != Some(&stage.node);
    let shown = || pods.iter().map(told).collect::<Vec<_>>();
    ensure!(pods.len() == EACH && pods.iter().all(is_elsewhere), "{:#?}", shown());
    let waiting = stage.here(AWAY, "web").await?;
    ensure!(waiting.iter().all(|pod| node_of(pod).is_none()), "pods for turin are bound");
    Ok(())
}

/// Where a pod is and how it fares, and why it is nowhere.
fn told(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let said: Vec<&str> = conditions.filter_map(|condition| condition.message.as_deref()).collect();
    let phase = status.and_then(|status| status.phase.as_deref());
    format!("{} on {:?}: {phase:?}, {said:?}", pod.name_any(), node_of(pod))
}

/// Who has ended a peering is told so when nothing is left of it.
async fn nothing_is_left(turin: &Cluster) -> Result<()> {
    let all = ["get", "namespaces,shadowpods,pods", "-A", "-o", "name"];
    // A look that fails says nothing.
    let left = eventually("turin tells what it has", || turin.kubectl(&all)).await?;
    for word in ["shadowpod", "namespace/away-", "namespace/both-", "pod/web", "pod/homing"] {
        ensure!(!left.contains(word), "left on turin: {left}");
    }
    let containers = running("web");
    ensure!(containers.is_empty(), "containers are left on turin: {containers:?}");
    Ok(())
}

pub async fn what_cannot_travel_waits_with_a_reason(stage: &Stage) -> Result<()> {
    let pod = shell("rooted", "Always", "sleep 1000");
    let with_root =
        pod.replace("  containers:", "  volumes: [{name: root, hostPath: {path: /}}]\n  containers:");
    stage.rome()?.apply(&with_root).await?;
    eventually("it says why it does not run", || async {
        let described = stage.kubectl(AWAY, &["describe", "pod", "rooted"]).await?;
        ensure!(described.contains("hostPath") && described.contains("Pending"), "{described}");
        Ok(())
    })
    .await?;
    ensure!(stage.there("rooted").await?.is_empty(), "it runs");
    stage.kubectl(AWAY, &["delete", "pod", "rooted", "--timeout=300s"]).await?;
    stage.await_gone("rooted").await
}
