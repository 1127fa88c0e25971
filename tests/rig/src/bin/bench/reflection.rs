//! Figures of applications that span two clusters: what a request costs that goes to a peer, beside one that stays and one
//! between the bare nodes, and how soon a change of a Service is over there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use rig::installation::{SILENT, ferro, install, load};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::tunnels::connected;
use rig::wait::eventually;
use serde::Deserialize;
use serde_json::json;

use crate::pods::echo::Echo;
use crate::pods::percentile;

/// As the method that these figures follow has it.
const REQUESTS: &str = "1000";
/// In seconds: one that is slow is a figure, and no failure.
const PATIENT: &str = "30";
const ROUNDS: usize = 3;
const CHANGES: usize = 100;
/// Between a change and the next.
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(1);
const APP: &str = "app";

/// Where somebody is asked: the name of the figure, and who asks whom.
const WAYS: [(&str, &str, &str); 3] =
    [("same", "client", "near"), ("peer", "client", "far"), ("bare", "bare-client", "bare")];

/// What somebody who asks has measured, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Measured {
    requests: f64,
    seconds: f64,
    p50: f64,
    p99: f64,
}

/// Prints all figures of applications that span two clusters.
pub async fn run() -> Result<()> {
    let topology = Topology::up("bench-app", ["rome", "turin"].map(ClusterSpec::named).into()).await?;
    load(&topology).await?;
    let (rome, turin) = (topology.cluster("rome")?, topology.cluster("turin")?);
    tokio::try_join!(install(rome, &SILENT), install(turin, &SILENT))?;
    let remote = turin.kubeconfig.to_string_lossy().into_owned();
    ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--wait"]).await?;
    connected(rome, turin).await?;
    rome.kubectl(&["create", "namespace", APP]).await?;
    let same_name = ["offload", APP, "--strategy", "same-name", "--pods", "local-and-remote", "--wait"];
    ferro(rome, &same_name).await?;
    furnish(rome, turin).await?;
    let asked = requests(rome, turin).await;
    changes(rome, turin).await?;
    asked
}

async fn furnish(rome: &Cluster, turin: &Cluster) -> Result<()> {
    let here = json!({"liqo.io/type": "virtual-node"});
    for (name, is_away) in [("near", false), ("far", true), ("client", false)] {
        let operator = if is_away { "In" } else { "NotIn" };
        let terms = json!([{"matchExpressions": [{"key": "liqo.io/type", "operator": operator, "values": [here["liqo.io/type"]]}]}]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        rome.apply(&pod(APP, name, json!({"affinity": affinity})).to_string()).await?;
    }
    for name in ["near", "far"] {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": APP},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        rome.apply(&service.to_string()).await?;
    }
    let on_node = json!({"hostNetwork": true});
    rome.apply(&pod("default", "bare-client", on_node.clone()).to_string()).await?;
    turin.apply(&pod("default", "bare", on_node).to_string()).await?;
    let ready = ["wait", "--for=condition=Ready", "pod", "--all", "--timeout=240s"];
    for (cluster, namespace) in [(rome, APP), (rome, "default"), (turin, "default")] {
        cluster.kubectl(&[&["-n", namespace], &ready[..]].concat()).await?;
    }
    Ok(())
}

fn pod(namespace: &str, name: &str, mut spec: serde_json::Value) -> serde_json::Value {
    spec["terminationGracePeriodSeconds"] = 1.into();
    let listen = if name.starts_with("bare") { "0.0.0.0:8099" } else { "0.0.0.0:8080" };
    spec["containers"] =
        json!([{"name": "echo", "image": "rig/testbox:1", "args": ["serve", "--listen", listen]}]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
    })
}

/// In turns, so that what the machine does meanwhile is done to all.
async fn requests(rome: &Cluster, turin: &Cluster) -> Result<()> {
    let node = turin.plan.control_plane().to_string();
    let url = |whom: &str| match whom {
        "bare" => format!("http://{node}:8099/"),
        service => format!("http://{service}.{APP}/"),
    };
    for (_, asker, whom) in WAYS {
        // It takes a moment until every node knows a Service.
        let url = url(whom);
        eventually("somebody answers", || ask(rome, asker, &url, ["1", "1"])).await?;
    }
    for (figure, at_once) in [("http", "1"), ("http.8", "8")] {
        let mut all: [Vec<Measured>; WAYS.len()] = Default::default();
        for _ in 0..ROUNDS {
            for ((_, asker, whom), measured) in WAYS.iter().zip(&mut all) {
                measured.push(ask(rome, asker, &url(whom), [REQUESTS, at_once]).await?);
            }
        }
        let mean = |of: &[Measured], what: fn(&Measured) -> f64| {
            of.iter().map(what).sum::<f64>() / crate::pods::float(of.len().max(1))
        };
        let rate = |one: &Measured| one.requests / one.seconds;
        for ((name, ..), measured) in WAYS.iter().zip(&all) {
            let (p50, p99) = (mean(measured, |one| one.p50), mean(measured, |one| one.p99));
            println!("app.{figure}.{name}.p50 {:.2} ms", p50 / 1000.0);
            println!("app.{figure}.{name}.p99 {:.2} ms", p99 / 1000.0);
            println!(
                "app.{figure}.{name}.rate {:.0} requests per second, {at_once} at once",
                mean(measured, rate)
            );
        }
        let [_, peer, bare] = &all;
        let ratio = mean(peer, |one| one.p50) / mean(bare, |one| one.p50);
        println!("app.{figure}.ratio {ratio:.2} times the bare way between the nodes");
    }
    Ok(())
}

/// So many requests, so many at once.
async fn ask(rome: &Cluster, asker: &str, url: &str, [requests, at_once]: [&str; 2]) -> Result<Measured> {
    let namespace = if asker.starts_with("bare") { "default" } else { APP };
    let load = ["-n", namespace, "exec", asker, "--", "/testbox", "load", url, "--requests", requests];
    let said = rome.kubectl(&[&load[..], &["--at-once", at_once, "-T", PATIENT]].concat()).await?;
    serde_json::from_str(said.trim()).with_context(|| format!("{asker} says {said}"))
}

/// From a change of a Service at home until it is seen on the peer, beside a bare write-and-watch at the same time.
async fn changes(rome: &Cluster, turin: &Cluster) -> Result<()> {
    let tasks = Tasks::default();
    let copies = Api::namespaced(turin.client.clone(), APP);
    let copies = Watched::<Service>::start(&tasks, "copies", copies, watcher::Config::default());
    copies.ready().await?;
    let echo = Echo::begin(turin).await?;
    let services: Api<Service> = Api::namespaced(rome.client.clone(), APP);
    let mut took = Vec::new();
    for number in 0..CHANGES {
        let number = number.to_string();
        let change = json!({"metadata": {"annotations": {"number": number}}});
        let begin = Instant::now();
        services.patch("near", &PatchParams::default(), &Patch::Merge(change)).await?;
        let mut seen = copies.clone();
        let is_there = |copies: &Watched<Service>| {
            let copy = copies.get(Some(APP), "near");
            copy.is_some_and(|copy| copy.annotations().get("number") == Some(&number))
        };
        while !is_there(&seen) {
            ensure!(begin.elapsed() < PATIENCE, "a change does not arrive");
            _ = tokio::time::timeout(PATIENCE, seen.changed()).await;
        }
        took.push(begin.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    let echoes = echo.end().await;
    tasks.end().await;
    took.sort();
    for (name, percent) in [("p50", 50), ("p99", 99)] {
        let (change, bare) = (percentile(&took, percent)?, percentile(&echoes, percent)?);
        println!("app.change.{name} {change:.0} ms from a change of a Service until it is on the peer");
        println!("app.change.bare.{name} {bare:.0} ms for a bare write and watch meanwhile");
    }
    Ok(())
}
