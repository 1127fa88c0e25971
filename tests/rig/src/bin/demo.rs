//! `make demo`: the best of what exists, shown as a user would see it, with the commands a user would type.
//!
//! Every step states what it expects and fails loudly when it does not get it: the exit code is 0 only if all worked.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rig::lan::Loss;
use rig::plan::ClusterSpec;
use rig::tools::workspace;
use rig::topology::{Cluster, Topology, built};

/// Tells the story, each line with its time.
struct Story(Instant);

impl Story {
    fn tell(&self, line: &str) {
        println!("{:6.1} s  {line}", self.0.elapsed().as_secs_f32());
    }

    fn show(&self, command: &str, output: &str) {
        self.tell(&format!("$ {command}"));
        for line in output.trim_end().lines() {
            println!("          {line}");
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let story = Story(Instant::now());
    match tour(&story).await {
        Ok(()) => {
            story.tell("all of it worked");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn tour(story: &Story) -> Result<()> {
    let keep = std::env::var_os("KEEP").is_some_and(|value| !value.is_empty());
    story.tell("starting two real Kubernetes clusters with the same pod and service networks");
    let specs = ["rome", "turin"].map(|name| ClusterSpec::named(name).with_same_cidrs());
    let topology = if keep {
        Topology::keep("demo", specs.into()).await?
    } else {
        Topology::up("demo", specs.into()).await?
    };
    for name in ["rome", "turin"] {
        let cluster = topology.cluster(name)?;
        story
            .show(&format!("kubectl --context {name} get nodes"), &cluster.kubectl(&["get", "nodes"]).await?);
        install_kinds(story, cluster).await?;
    }
    let rome = topology.cluster("rome")?;
    show_kinds(story, rome).await?;
    show_refusal(story, rome).await?;
    show_cut(story, &topology).await?;
    farewell(story, &topology, keep)
}

async fn install_kinds(story: &Story, cluster: &Cluster) -> Result<()> {
    let printed = tokio::process::Command::new(built("ferro")?)
        .arg("crds")
        .output()
        .await
        .context("cannot start ferro")?;
    ensure!(printed.status.success(), "ferro crds failed");
    let applied = cluster.apply(&String::from_utf8(printed.stdout)?).await?;
    ensure!(applied.lines().count() == ferro_api::crds().len(), "not all kinds were installed: {applied}");
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    story.tell(&format!(
        "{}: {} kinds of liquid computing installed",
        cluster.plan.name,
        applied.lines().count()
    ));
    Ok(())
}

async fn show_kinds(story: &Story, cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["create", "namespace", "ns-test"]).await?;
    let manifest = std::fs::read_to_string(
        workspace().join("examples/seeds/tenancy-4.3-namespaceoffloading-use-case.yaml"),
    )?;
    cluster.apply(&manifest).await?;
    let listed = cluster.kubectl(&["get", "liqo", "-A"]).await?;
    ensure!(listed.contains("offloading"), "the NamespaceOffloading is not listed: {listed}");
    story.show("kubectl get liqo -A", &listed);
    let explained = cluster.kubectl(&["explain", "namespaceoffloading.spec.podOffloadingStrategy"]).await?;
    story.show("kubectl explain namespaceoffloading.spec.podOffloadingStrategy", &explained);
    Ok(())
}

async fn show_refusal(story: &Story, cluster: &Cluster) -> Result<()> {
    let patch = r#"{"spec": {"podOffloadingStrategy": "Sometimes"}}"#;
    let arguments =
        ["-n", "ns-test", "patch", "namespaceoffloading", "offloading", "--type=merge", "-p", patch];
    let refusal =
        cluster.kubectl(&arguments).await.err().context("a wrong strategy was accepted")?.to_string();
    ensure!(refusal.contains("spec.podOffloadingStrategy"), "{refusal}");
    story.show(
        "kubectl patch namespaceoffloading offloading … Sometimes",
        refusal.lines().next().unwrap_or_default(),
    );
    Ok(())
}

async fn show_cut(story: &Story, topology: &Topology) -> Result<()> {
    let turin = topology.cluster("turin")?.plan.control_plane().to_string();
    let ping = ["busybox", "ping", "-c", "1", "-W", "1", &turin];
    let rome = topology.cluster("rome")?;
    rome.on_node(1, &ping).await.context("the clusters must reach each other")?;
    topology.cut("rome", "turin", Loss::CUT, false).await?;
    ensure!(rome.on_node(1, &ping).await.is_err(), "the cut does not cut");
    topology.heal("rome", "turin").await?;
    rome.on_node(1, &ping).await.context("the cut does not heal")?;
    story.tell("the wire between them was cut, felt, and healed");
    Ok(())
}

fn farewell(story: &Story, topology: &Topology, keep: bool) -> Result<()> {
    if keep {
        for name in ["rome", "turin"] {
            println!("export KUBECONFIG={}    # {name}", topology.cluster(name)?.kubeconfig.display());
        }
        println!("try: kubectl explain foreigncluster.spec; target/debug/rig --rig demo shell rome");
        println!("end: target/debug/rig --rig demo down");
    } else {
        story.tell("clusters end with this program; KEEP=1 leaves them running");
    }
    Ok(())
}
