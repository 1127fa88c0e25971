//! `make bench`: figures as `name value unit`, each beside its goal; never a pass or a fail. `bench ipam`, `bench offload`
//! and `bench tunnel` give those of the address manager, of namespaces and of tunnels only.

mod ipam;
mod offload;
mod pair;
mod peering;
mod processes;
mod tunnel;

use std::time::Instant;

use anyhow::Result;
use rig::plan::ClusterSpec;
use rig::topology::Topology;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("ipam") => return ipam::run().await,
        Some("offload") => return offload::run().await,
        Some("tunnel") => return tunnel::run(),
        _ => {}
    }
    let bare = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
    let (seconds, _) = start("bench-bare", vec![bare]).await?;
    println!("rig.bare.start {seconds:.1} s (goal 8)");
    let (seconds, memory) = start("bench-three", ["a", "b", "c"].map(ClusterSpec::named).into()).await?;
    println!("rig.three.start {seconds:.1} s (goal 60)");
    println!("rig.three.memory {memory} MiB (goal 3500)");
    peering::run().await?;
    offload::run().await?;
    tunnel::run()?;
    ipam::run().await
}

/// Starts a topology and tells how long that took and what memory its processes hold.
async fn start(name: &str, specs: Vec<ClusterSpec>) -> Result<(f64, u64)> {
    let begin = Instant::now();
    let topology = Topology::up(name, specs).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let kib: u64 = topology.status().await?.iter().map(|cluster| cluster.resident_kib).sum();
    Ok((seconds, kib / 1024))
}
