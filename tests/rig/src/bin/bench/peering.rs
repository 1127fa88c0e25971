//! Figures of peering: how fast clusters agree, and what it costs to stay in agreement.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{ListParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use rig::installation::{ON_LAN, SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use serde_json::json;

use crate::processes::{self, Usage};

const CYCLES: usize = 20;
const SIMULATED: usize = 50;
const REST: Duration = Duration::from_mins(1);

/// Prints all figures of peering.
pub async fn run() -> Result<()> {
    let bare = ClusterSpec { bare: true, ..ClusterSpec::named("simulated") };
    let specs = vec![ClusterSpec::named("rome"), ClusterSpec::named("turin"), bare];
    let topology = Topology::up("bench-peering", specs).await?;
    load(&topology).await?;
    let (rome, turin) = (topology.cluster("rome")?, topology.cluster("turin")?);
    for cluster in [rome, turin] {
        install(cluster, &SILENT).await?;
    }
    println!("api.write {:.1} ms (for scale: one object, written and read)", write(&rome.client).await?);
    times(rome, turin).await?;
    at_rest(rome).await?;
    growth(rome, topology.cluster("simulated")?).await?;
    for (cluster, other) in [(rome, "turin"), (turin, "rome")] {
        ferro(cluster, &["unpeer", other, "--bidirectional", "--wait"]).await?;
    }
    for (cluster, other) in [(rome, "turin"), (turin, "rome")] {
        ferro(cluster, &["remove", other, "--wait", "--yes"]).await?;
    }
    on_lan(rome, turin).await
}

async fn write(client: &Client) -> Result<f64> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "bench"}}))?;
    let begin = Instant::now();
    maps.create(&PostParams::default(), &map).await?;
    maps.get("bench").await?;
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    maps.delete("bench", &kube::api::DeleteParams::default()).await?;
    Ok(took)
}

/// From the command to the accepted offer: first, and again after unpeering.
async fn times(rome: &Cluster, turin: &Cluster) -> Result<()> {
    let remote = turin.kubeconfig.display().to_string();
    let begin = Instant::now();
    ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
    println!("peering.first {:.2} s (goal 5; best existing system 5.5)", begin.elapsed().as_secs_f64());
    let mut again = Vec::new();
    for _ in 0..CYCLES {
        ferro(rome, &["unpeer", "turin", "--wait"]).await?;
        let begin = Instant::now();
        ferro(rome, &["peer", "turin", "--wait"]).await?;
        again.push(begin.elapsed().as_secs_f64());
    }
    again.sort_by(f64::total_cmp);
    println!("peering.again.p50 {:.2} s (goal 5; best existing system 19 to 30)", again[CYCLES / 2]);
    println!("peering.again.p99 {:.2} s (goal 5)", again[CYCLES - 1]);
    Ok(())
}

/// Memory, processor time and requests with one peer and nothing to do.
async fn at_rest(rome: &Cluster) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (before, requests) = (processes::roles()?, requests(rome).await?);
    tokio::time::sleep(REST).await;
    let after = processes::roles()?;
    let asked: BTreeMap<String, u64> = self::requests(rome).await?;
    for role in processes::ROLES {
        let of_role = after.iter().filter(|usage| usage.role == role);
        let most = of_role.map(|usage| usage.memory.resident).max().unwrap_or_default();
        println!("memory.{role} {:.1} MiB", mib(most));
    }
    println!(
        "memory.cluster {:.1} MiB (goal 30; best existing system 507 for a pair)",
        mib(total(&after)) / 2.0
    );
    let shares: u64 = after.iter().map(|usage| usage.memory.share).sum();
    println!("memory.cluster.shared {:.1} MiB (what the processes share counted once)", mib(shares) / 2.0);
    let cpu = |usages: &[Usage]| usages.iter().map(|usage| usage.cpu).sum::<Duration>();
    let spent = cpu(&after).saturating_sub(cpu(&before)).as_secs_f64();
    println!("cpu.cluster {:.2} % of one core", spent / 2.0 / REST.as_secs_f64() * 100.0);
    let mut calls = 0;
    for (resource, count) in &asked {
        let more = count - requests.get(resource).copied().unwrap_or_default();
        calls += if resource == "leases" { 0 } else { more };
    }
    println!("requests.rest {calls} a minute (goal 4 for each direction; Leases and watches apart)");
    Ok(())
}

fn total(usages: &[Usage]) -> u64 {
    usages.iter().map(|usage| usage.memory.resident).sum()
}

fn mib(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

/// How many requests the controller has made of its own API server, by kind; watches renew themselves and are GETs.
async fn requests(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "liqo");
    let pods = pods.list(&ListParams::default().labels("app.kubernetes.io/name=ferro-controller")).await?;
    let pod = pods.items.first().context("no controller")?.name_any();
    let path = format!("/api/v1/namespaces/liqo/pods/{pod}:9440/proxy/metrics");
    let text = cluster.client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("ferro_api_requests_total{")) {
        let (labels, count) = line.rsplit_once(' ').context("not a metric")?;
        let resource = labels.split("resource=\"").nth(1).and_then(|rest| rest.split('"').next());
        if !labels.contains("method=\"GET\"") {
            *found.entry(resource.unwrap_or_default().to_owned()).or_default() += count.parse::<u64>()?;
        }
    }
    Ok(found)
}

/// Peers that let this cluster in and do nothing else: each has its own link, over which all kinds are watched.
async fn growth(rome: &Cluster, simulated: &Cluster) -> Result<()> {
    let controller = || async {
        let roles = processes::roles()?;
        anyhow::Ok(
            roles.iter().filter(|usage| usage.role == "controller").map(|usage| usage.memory.resident).max(),
        )
    };
    let applied = ferro(rome, &["crds"]).await?;
    simulated.apply(&applied).await?;
    simulated.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    let before = controller().await?.context("no controller")?;
    let grant = credentials(simulated)?;
    for number in 0..SIMULATED {
        simulate(rome, &simulated.client, number, &grant).await?;
    }
    linked(rome).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let after = controller().await?.context("no controller")?;
    let each = after.saturating_sub(before) / SIMULATED as u64;
    println!("memory.peer {each} KiB for each of {SIMULATED} more peers (goal 300)");
    let peers = ["delete", "foreignclusters", "-l", "bench=simulated", "--wait=false"];
    rome.kubectl(&["annotate", "foreignclusters", "-l", "bench=simulated", "liqo.io/force=true"]).await?;
    rome.kubectl(&peers).await.map(drop)
}

/// Waits until the controller has looked at all of them.
async fn linked(rome: &Cluster) -> Result<()> {
    eventually("the simulated peers are linked", || async {
        let shown = [
            "get",
            "foreignclusters",
            "-l",
            "bench=simulated",
            "-o",
            "jsonpath={..status.conditions[?(@.type==\"Authenticated\")].reason}",
        ];
        let shown = rome.kubectl(&shown).await?;
        let count = shown.split_whitespace().filter(|reason| *reason == "LetIn").count();
        ensure!(count == SIMULATED, "{count} of {SIMULATED}");
        Ok(())
    })
    .await
}

/// What an administrator of the simulated cluster shows to its API server.
fn credentials(simulated: &Cluster) -> Result<(String, serde_json::Value)> {
    use base64::Engine as _;
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&simulated.kubeconfig)?)?;
    let (user, cluster) = (&config["users"][0]["user"], &config["clusters"][0]["cluster"]);
    let decode = |value: &serde_json::Value| {
        let text = value.as_str().context("the kubeconfig lacks something")?;
        anyhow::Ok(String::from_utf8(base64::prelude::BASE64_STANDARD.decode(text)?)?)
    };
    let grant = json!({
        "certificate": decode(&user["client-certificate-data"])?,
        "apiServerURL": cluster["server"],
        "apiServerCA": decode(&cluster["certificate-authority-data"])?,
        "expiresAt": "2100-01-01T00:00:00Z",
    });
    Ok((decode(&user["client-key-data"])?, grant))
}

async fn simulate(
    rome: &Cluster,
    simulated: &Client,
    number: usize,
    (key, grant): &(String, serde_json::Value),
) -> Result<()> {
    let (name, id) = (format!("simulated-{number}"), format!("00000000-0000-8000-8000-{number:012}"));
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": &name}}))?;
    Api::<Namespace>::all(simulated.clone()).create(&PostParams::default(), &namespace).await?;
    let mut grant = grant.clone();
    grant["namespace"] = json!(&name);
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": format!("ferro-peer-{name}"), "labels": {"app.kubernetes.io/part-of": "ferrofluid"}},
        "stringData": {"key.pem": key, "grant.json": grant.to_string()},
    }))?;
    Api::<Secret>::namespaced(rome.client.clone(), "liqo").create(&PostParams::default(), &secret).await?;
    let peer: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
        "metadata": {"name": &name, "labels": {"bench": "simulated"}},
        "spec": {"clusterIdentity": {"clusterID": id, "clusterName": &name}},
    }))?;
    let kind = kube::core::ApiResource::erase::<ferro_api::discovery::ForeignCluster>(&());
    Api::<DynamicObject>::all_with(rome.client.clone(), &kind).create(&PostParams::default(), &peer).await?;
    Ok(())
}

/// From the end of the second installation to peerings both ways, with no command in between.
async fn on_lan(rome: &Cluster, turin: &Cluster) -> Result<()> {
    install(rome, &ON_LAN).await?;
    install(turin, &ON_LAN).await?;
    let begin = Instant::now();
    for cluster in [rome, turin] {
        eventually("the clusters have joined each other", || async {
            let shown = ferro(cluster, &["peers"]).await?;
            ensure!(shown.matches("Established").count() >= 2, "{shown}");
            Ok(())
        })
        .await?;
    }
    println!(
        "peering.lan {:.1} s (goal 10; from the end of the second installation)",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}
