//! Ferro on clusters with nodes: its image from the present sources, and its commands as a user types them.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::images::Image;
use crate::protocol::Request;
use crate::tools::present_image;
use crate::topology::{Cluster, Topology, built};

/// The name of the image, which the chart expects.
const IMAGE: &str = concat!("ferro:", env!("CARGO_PKG_VERSION"));
/// That of the shop, which its manifests expect.
const SHOP: &str = concat!("shop:", env!("CARGO_PKG_VERSION"));

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

/// Loads the image of ferro, as it was built beside the running program, onto all nodes.
pub async fn load(topology: &Topology) -> Result<()> {
    load_image(topology, &present_image("ferro", IMAGE)?).await
}

/// Loads the image of the example shop, as it was built last, onto all nodes.
pub async fn load_shop(topology: &Topology) -> Result<()> {
    load_program(topology, "shop", SHOP).await
}

/// Loads the image of another program of this workspace, as it was built last, onto all nodes under this name.
pub async fn load_program(topology: &Topology, program: &str, name: &str) -> Result<()> {
    load_image(topology, &present_image(program, name)?).await
}

async fn load_image(topology: &Topology, image: &Image) -> Result<()> {
    let name = image.name.replace(':', "-");
    let archive = Archive(std::env::temp_dir().join(format!("{name}-{}.tar", std::process::id())));
    image.write(&archive.0)?;
    topology.ask(Request::Load { archive: archive.0.clone(), clusters: Vec::new() }).await.map(drop)
}

/// A file that goes with this value, also when loading it is cut short.
struct Archive(PathBuf);

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Installs ferro as a user would, under the name that the rig has for the cluster.
pub async fn install(cluster: &Cluster, settings: &[&str]) -> Result<()> {
    let arguments = ["install", "--cluster-name", &cluster.plan.name, "--wait", "--timeout", "300s"];
    ferro(cluster, &[&arguments[..], settings].concat()).await.map(drop)
}

/// As long as a test waits for anything; a person would not.
fn patience(arguments: &[&str]) -> Option<&'static str> {
    let waits = arguments.contains(&"--wait") && !arguments.contains(&"--timeout");
    waits.then_some("--timeout=300s")
}

/// Runs ferro as a user of this cluster would, and gives what it printed.
pub async fn ferro(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    ferro_with_input(cluster, arguments, "").await
}

/// The same with something on the standard input.
pub async fn ferro_with_input(cluster: &Cluster, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(built("ferro")?)
        .args(arguments)
        .args(patience(arguments))
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
