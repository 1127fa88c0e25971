//! `make bench`: figures as `name value unit`, beside its goal each that has one; never a pass or a fail. `bench ipam` gives
//! those of the address manager only, and so on for each of [`PARTS`].
//!
//! A part that cannot be measured loses no other: the rest is measured all the same, and what failed is told at the end.

mod ipam;
mod offload;
mod pair;
mod peering;
mod pods;
mod processes;
mod reflection;
mod tunnel;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use tokio::runtime::Runtime;

/// All there is, in this order: what needs the most of the machine comes last.
const PARTS: [&str; 7] = ["rig", "peering", "offload", "tunnel", "ipam", "pods", "reflection"];
/// How long what a part has left running may take to end.
const GRACE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<String> = if named.is_empty() { PARTS.map(str::to_owned).into() } else { named };
    let mut failures = Vec::new();
    for part in parts {
        if let Err(error) = measure(&part) {
            eprintln!("bench: {part} failed; see the end");
            failures.push((part, error));
        }
    }
    for (part, error) in &failures {
        eprintln!("bench: {part}: {error:#}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One part, on a runtime of its own: whatever one that failed leaves running ends with it, and does not take the time of the
/// next one.
fn measure(part: &str) -> Result<()> {
    let runtime = Runtime::new().context("cannot start a runtime")?;
    let measured = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(part))));
    runtime.shutdown_timeout(GRACE);
    measured.unwrap_or_else(|_| Err(anyhow!("it panicked, as is told above")))
}

async fn run(part: &str) -> Result<()> {
    match part {
        "rig" => starts().await,
        "peering" => peering::run().await,
        "offload" => offload::run().await,
        "tunnel" => tunnel::run(),
        "ipam" => ipam::run().await,
        "pods" => pods::run().await,
        "reflection" => reflection::run().await,
        _ => bail!("there is no such part; there are {}", PARTS.join(", ")),
    }
}

/// What it takes to start clusters.
async fn starts() -> Result<()> {
    let bare = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
    let (seconds, _) = start("bench-bare", vec![bare]).await?;
    println!("rig.bare.start {seconds:.1} s (goal 8)");
    let (seconds, memory) = start("bench-three", ["a", "b", "c"].map(ClusterSpec::named).into()).await?;
    println!("rig.three.start {seconds:.1} s (goal 60)");
    println!("rig.three.memory {memory} MiB (goal 3500)");
    Ok(())
}

/// Starts a topology and tells how long that took and what memory its processes hold.
async fn start(name: &str, specs: Vec<ClusterSpec>) -> Result<(f64, u64)> {
    let begin = Instant::now();
    let topology = Topology::up(name, specs).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let kib: u64 = topology.status().await?.iter().map(|cluster| cluster.resident_kib).sum();
    Ok((seconds, kib / 1024))
}
