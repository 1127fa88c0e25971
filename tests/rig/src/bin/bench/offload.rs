//! Figures of offloaded namespaces, by the method of the thesis on tenancy (8.1), beside the algorithm that it measured.
//!
//! Both work on one API server, first the one and then the other, since each has work with what the other one does. The
//! audit log tells their requests apart, by the names of their users. What one namespace after the other costs is measured
//! from rest to rest: what was left to do before does not count, and what is held back meanwhile does.

mod ours;
mod seed;
mod stage;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use ferro_runtime::shutdown::Tasks;
use rig::audit::Asked;
use serde_json::json;

use self::stage::{Map, Stage};

const OURS: &str = "bench-ours";
const SEED: &str = "bench-seed";

/// Numbers of other clusters, each of which is asked for one namespace.
const CLUSTERS: [usize; 10] = [5, 10, 15, 20, 25, 30, 35, 40, 45, 50];
/// How many namespaces one cluster is asked for, one after the other.
const NAMESPACES: usize = 100;
/// How many of them are compared at either end.
const AT_AN_END: usize = 10;
/// So many sorts of requests are listed, beginning with the most frequent one.
const SORTS: usize = 10;
/// How many namespaces the seed's algorithm checks at a time.
const WORKERS: [usize; 2] = [1, 5];
/// Numbers of virtual nodes, all of which one namespace is offloaded to.
const NODES: [usize; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// The last namespaces may cost so much of the first ones.
const FLAT: f64 = 1.2;
/// So many times fewer requests than the seed's algorithm makes.
const FEWER: f64 = 10.0;

/// Prints all figures of offloading.
pub async fn run() -> Result<()> {
    let stage = Stage::up().await?;
    let (clusters, calls) = maps_of_seed(&stage).await?;
    let us = maps_of_ours(&stage, &clusters, calls).await?;
    let nodes = nodes_of_seed(&stage).await?;
    nodes_of_ours(&stage, &us, &nodes).await?;
    stage.end().await;
    Ok(())
}

/// What something takes.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    calls: usize,
}

/// What the seed's algorithm takes for each number of clusters (8.1.1), and how many requests it makes for all namespaces
/// of one cluster (8.1.2).
async fn maps_of_seed(stage: &Stage) -> Result<(Vec<Cost>, usize)> {
    let (tasks, mut costs) = (Tasks::default(), Vec::new());
    start_seed(stage, &tasks, SEED, 1).await?;
    for count in CLUSTERS {
        // One reconcile checks all of a map, so that there are new ones each time.
        let mut maps = Vec::new();
        for number in 0..count {
            maps.push(make_seed_map(stage, SEED, &format!("c-{count}-{number}")).await?);
        }
        costs.push(ask_all(stage, SEED, &maps, "round").await?);
    }
    let mut calls = Vec::new();
    for workers in WORKERS {
        let side = format!("{SEED}-{workers}");
        start_seed(stage, &tasks, &side, workers).await?;
        let map = make_seed_map(stage, &side, &format!("w-{workers}")).await?;
        calls.push(one_by_one(stage, &format!("seed.workers{workers}"), &side, &map).await?);
    }
    tasks.end().await;
    // Of the one that makes fewer of them, should they differ.
    Ok((costs, calls.into_iter().min().unwrap_or_default()))
}

/// Asks all these maps for a namespace at once.
async fn ask_all(stage: &Stage, side: &str, maps: &[Map], local: &str) -> Result<Cost> {
    let mark = stage.audit.mark().await?;
    let time = stage.ask_for(maps, local).await?;
    Ok(Cost { time, calls: stage.calls(side, mark).await? })
}

/// The same of ours, beside it; gives the identifier of this cluster.
async fn maps_of_ours(stage: &Stage, clusters: &[Cost], calls: usize) -> Result<String> {
    let tasks = Tasks::default();
    let us = ours::provide(&tasks, stage, stage.client(OURS).await?).await?;
    let mut consumers = Vec::new();
    for number in 0..=CLUSTERS[CLUSTERS.len() - 1] {
        consumers.push(ours::make_consumer(stage, &us, number).await?);
    }
    ours::await_tenants(stage, &consumers).await?;
    for (count, seed) in CLUSTERS.into_iter().zip(clusters) {
        let ours = ask_all(stage, OURS, &consumers[..count], &format!("round-{count}")).await?;
        println!("offload.clusters.{count}.seed {:.0} ms ({} calls)", millis(seed.time), seed.calls);
        println!("offload.clusters.{count}.ours {:.0} ms ({} calls)", millis(ours.time), ours.calls);
        println!("offload.clusters.{count}.ratio {:.2} of the seed's", ours.time.div_duration_f64(seed.time));
    }
    let fewer = ratio(calls, one_by_one(stage, "ours", OURS, &consumers[consumers.len() - 1]).await?);
    println!("offload.namespaces.calls.fewer {fewer:.1} times fewer than the seed's (goal {FEWER})");
    tasks.end().await;
    Ok(us)
}

/// Asks one map for one namespace after the other; gives how many requests that took.
async fn one_by_one(stage: &Stage, name: &str, side: &str, map: &Map) -> Result<usize> {
    stage.until_quiet(side).await?;
    let mark = stage.audit.mark().await?;
    let mut course = Vec::new();
    for number in 1..=NAMESPACES {
        course.push(stage.ask_for(std::slice::from_ref(map), &format!("one-{number}")).await?);
    }
    stage.until_quiet(side).await?;
    let asked = stage.asked(side, mark).await?;
    let (name, calls) = (format!("offload.namespaces.{name}"), asked.len());
    print_course(&name, &course, side == OURS);
    print_served(&name, &asked);
    let each = ratio(calls, NAMESPACES);
    println!("{name}.calls {calls} for {NAMESPACES} namespaces ({each:.1} each)");
    print_sorts(&name, &asked);
    Ok(calls)
}

/// What requests are for, by verb and resource.
fn print_sorts(name: &str, asked: &[Asked]) {
    let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
    for Asked { verb, resource, subresource, .. } in asked {
        let part = subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
        *sorts.entry(format!("{verb}.{resource}{part}")).or_default() += 1;
    }
    let mut sorts: Vec<(String, usize)> = sorts.into_iter().collect();
    sorts.sort_by_key(|(_, count)| Reverse(*count));
    for (sort, count) in sorts.iter().take(SORTS) {
        println!("{name}.calls.{sort} {count} of them");
    }
}

/// How long it took in all for each ten more, and whether the last ones took longer than the first ones.
fn print_course(name: &str, course: &[Duration], has_goal: bool) {
    for count in (AT_AN_END..=course.len()).step_by(AT_AN_END) {
        let total: Duration = course.iter().take(count).sum();
        println!("{name}.{count} {:.2} s in all", total.as_secs_f64());
    }
    let first: Duration = course[..AT_AN_END].iter().sum();
    let last: Duration = course[course.len() - AT_AN_END..].iter().sum();
    println!("{name}.first {:.0} ms for {AT_AN_END}", millis(first));
    println!("{name}.last {:.0} ms for {AT_AN_END}", millis(last));
    let goal = if has_goal { format!(" (goal {FLAT})") } else { String::new() };
    println!("{name}.flat {:.2} times the first{goal}", last.div_duration_f64(first));
}

/// How much of that is the API server's own time for the requests of the side. With the status of its map each namespace
/// is done; that write carries all namespaces, whoever makes it.
fn print_served(name: &str, asked: &[Asked]) {
    let is_status = |asked: &&Asked| asked.resource == "namespacemaps" && asked.subresource.is_some();
    let all: Vec<&[Asked]> = asked.split_inclusive(|asked| is_status(&asked)).take(NAMESPACES).collect();
    let ends = [("first", &all[..AT_AN_END]), ("last", &all[all.len() - AT_AN_END..])];
    for (end, requests) in ends {
        let (mut status, mut rest) = (Duration::ZERO, Duration::ZERO);
        for asked in requests.iter().copied().flatten() {
            *(if is_status(&asked) { &mut status } else { &mut rest }) += asked.took;
        }
        let (status, rest) = (millis(status), millis(rest));
        println!("{name}.served.{end} {status:.0} ms for the status of the map, {rest:.0} ms for all else");
    }
}

/// What the seed's algorithm takes to fill the maps of all virtual nodes, for each number of them (8.1.3).
async fn nodes_of_seed(stage: &Stage) -> Result<Vec<Duration>> {
    const SIDE: &str = "bench-seed-nodes";
    let (tasks, mut maps, mut times) = (Tasks::default(), Vec::new(), Vec::new());
    stage.make_namespace(SIDE).await?;
    let client = stage.client(SIDE).await?;
    tasks.spawn("seed", seed::namespace_offloadings(tasks.clone(), client, SIDE.to_owned()));
    for count in NODES {
        while maps.len() < count {
            let map = make_seed_map(stage, SIDE, &format!("node-{}", maps.len())).await?;
            stage.make_node(&map.name, &map.name).await?;
            maps.push(map);
        }
        times.push(fill(stage, "seed", SIDE, &maps).await?);
    }
    tasks.end().await;
    stage.remove_nodes().await?;
    Ok(times)
}

/// The same of ours, beside it.
async fn nodes_of_ours(stage: &Stage, us: &str, seed: &[Duration]) -> Result<()> {
    let (tasks, mut maps) = (Tasks::default(), Vec::new());
    ours::consume(&tasks, stage.client(OURS).await?);
    // So that every node has its map before it is measured how fast that is filled.
    stage.make_namespace("warm").await?;
    stage.offload("warm").await?;
    for (count, seed) in NODES.into_iter().zip(seed) {
        while maps.len() < count {
            maps.push(ours::make_peer(stage, us, maps.len()).await?);
        }
        stage.until_asked(&maps, "warm").await?;
        let took = fill(stage, "ours", OURS, &maps).await?;
        println!("offload.nodes.{count}.ratio {:.2} of the seed's", took.div_duration_f64(*seed));
    }
    tasks.end().await;
    Ok(())
}

/// From a `NamespaceOffloading` until every map has the entry.
async fn fill(stage: &Stage, name: &str, side: &str, maps: &[Map]) -> Result<Duration> {
    let (count, namespace) = (maps.len(), format!("{name}-nodes-{}", maps.len()));
    stage.make_namespace(&namespace).await?;
    let mark = stage.audit.mark().await?;
    let begin = Instant::now();
    stage.offload(&namespace).await?;
    stage.until_asked(maps, &namespace).await?;
    let (took, calls) = (begin.elapsed(), stage.calls(side, mark).await?);
    println!("offload.nodes.{count}.{name} {:.0} ms ({calls} calls)", millis(took));
    stage.unoffload(&namespace).await?;
    Ok(took)
}

/// Starts the seed's algorithm for the maps in a namespace of its own, which has the name of its user.
async fn start_seed(stage: &Stage, tasks: &Tasks, side: &str, workers: usize) -> Result<()> {
    stage.make_namespace(side).await?;
    let client = stage.client(side).await?;
    tasks.spawn("seed", seed::namespace_maps(tasks.clone(), client, side.to_owned(), workers));
    Ok(())
}

async fn make_seed_map(stage: &Stage, side: &str, name: &str) -> Result<Map> {
    let map = Map { namespace: side.to_owned(), name: name.to_owned() };
    stage.make_map(&map, &json!({})).await?;
    Ok(map)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[allow(clippy::cast_precision_loss, reason = "thousands of requests, to one digit")]
fn ratio(of: usize, to: usize) -> f64 {
    of as f64 / to as f64
}
