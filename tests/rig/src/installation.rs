//! Ferro on clusters with nodes: its image from the present sources, and its commands as a user types them.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::images::Image;
use crate::protocol::Request;
use crate::tools::{present_image, release_image};
use crate::topology::{Cluster, Topology, built};

/// The name of the image, which the chart expects.
const IMAGE: &str = concat!("ferro:", env!("CARGO_PKG_VERSION"));

/// Settings of a cluster that neither announces itself nor looks for others.
pub const SILENT: [&str; 4] =
    ["--set", "discovery.config.announce=false", "--set", "discovery.config.search=false"];
/// Settings of a cluster that joins whatever it finds on its LAN.
pub const ON_LAN: [&str; 10] = [
    "--set",
    "discovery.config.announce=true",
    "--set",
    "discovery.config.search=true",
    "--set",
    "advertisement.config.autoJoin.discoveryTypes={LAN}",
    "--set",
    "advertisement.config.autoJoin.trustModes={Untrusted}",
    "--set",
    "auth.config.allowEmptyToken=true",
];

/// Loads the image of ferro as it was built last onto all nodes.
pub async fn load(topology: &Topology) -> Result<()> {
    load_image(topology, &present_image("ferro", IMAGE)?).await
}

/// Builds ferro as users get it and loads its image onto all nodes.
pub async fn load_release(topology: &Topology, say: &dyn Fn(&str)) -> Result<()> {
    load_image(topology, &release_image("ferro", IMAGE, say)?).await
}

async fn load_image(topology: &Topology, image: &Image) -> Result<()> {
    let archive = std::env::temp_dir().join(format!("ferro-{}.tar", std::process::id()));
    image.write(&archive)?;
    let loaded = topology.ask(Request::Load { archive: archive.clone(), clusters: Vec::new() }).await;
    std::fs::remove_file(&archive)?;
    loaded.map(drop)
}

/// Installs ferro as a user would, under the name that the rig has for the cluster.
pub async fn install(cluster: &Cluster, settings: &[&str]) -> Result<()> {
    let arguments = ["install", "--cluster-name", &cluster.plan.name, "--wait", "--timeout", "180s"];
    ferro(cluster, &[&arguments[..], settings].concat()).await.map(drop)
}

/// Runs ferro as a user of this cluster would, and gives what it printed.
pub async fn ferro(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    ferro_with_input(cluster, arguments, "").await
}

/// The same with something on the standard input.
pub async fn ferro_with_input(cluster: &Cluster, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(built("ferro")?)
        .args(arguments)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start ferro")?;
    let mut stdin = child.stdin.take().context("ferro has no standard input")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "ferro {}: {said}{}", arguments.join(" "), complained.trim());
    Ok(said.into_owned())
}
