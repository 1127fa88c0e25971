//! `make demo`: the best of what exists, shown as a user would see it, with the commands a user would type.
//!
//! Every step states what it expects and fails loudly when it does not get it: the exit code is 0 only if all worked.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rig::installation::{SILENT, ferro, install, load};
use rig::lan::Loss;
use rig::plan::ClusterSpec;
use rig::pods::{self, Caller, Echo};
use rig::topology::{Cluster, Topology};
use rig::tunnels::{connected, seen, view};

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
    story.tell("building the image of ferro from these sources, and loading it onto the nodes");
    load(&topology).await?;
    let (rome, turin) = (topology.cluster("rome")?, topology.cluster("turin")?);
    for cluster in [rome, turin] {
        show_install(story, cluster).await?;
    }
    show_peering(story, rome, turin).await?;
    show_network(story, rome, turin).await?;
    show_namespaces(story, rome, turin).await?;
    show_refusal(story, rome).await?;
    show_cut(story, &topology).await?;
    if !keep {
        show_parting(story, rome, turin).await?;
    }
    farewell(story, &topology, keep)
}

async fn show_install(story: &Story, cluster: &Cluster) -> Result<()> {
    // Whoever announces itself on the LAN is found there again after it was removed.
    install(cluster, &SILENT).await?;
    story.tell(&format!("$ ferro install --cluster-name {} {} --wait", cluster.plan.name, SILENT.join(" ")));
    Ok(())
}

/// Two clusters that know nothing of each other become one another's nodes.
async fn show_peering(story: &Story, rome: &Cluster, turin: &Cluster) -> Result<()> {
    let remote = turin.kubeconfig.display().to_string();
    let begin = Instant::now();
    let said = ferro(rome, &["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"]).await?;
    story.show("ferro peer --remote-kubeconfig turin.conf --bidirectional --wait", &said);
    story.tell(&format!("that took {:.1} s", begin.elapsed().as_secs_f32()));
    story.show("ferro peers", &ferro(rome, &["peers"]).await?);
    for cluster in [rome, turin] {
        let nodes = cluster.kubectl(&["get", "nodes", "-L", "liqo.io/type"]).await?;
        ensure!(nodes.contains("virtual-node"), "{} has no virtual node: {nodes}", cluster.plan.name);
        story.show(&format!("kubectl --context {} get nodes -L liqo.io/type", cluster.plan.name), &nodes);
    }
    let offers = rome.kubectl(&["get", "resourceoffers", "-A"]).await?;
    story.show("kubectl get resourceoffers -A", &offers);
    story.show("ferro status", &ferro(rome, &["status"]).await?);
    Ok(())
}

/// A pod here talks to a pod there, although both clusters were born with the same addresses.
async fn show_network(story: &Story, rome: &Cluster, turin: &Cluster) -> Result<()> {
    let tunnel = connected(rome, turin).await?;
    connected(turin, rome).await?;
    story.show("ferro network", &ferro(rome, &["network"]).await?);
    for cluster in [rome, turin] {
        pods::start(cluster).await?;
    }
    let (caller, echo) = (Caller::on(rome, 1).await?, Echo::on(turin, 1).await?);
    let address = seen(echo.ip, view(&tunnel)?)?;
    story.tell(&format!("a pod of turin has the address {}, and in rome it is known as {address}", echo.ip));
    let pinged = caller.ping(address, 56).await?;
    story.show(&format!("kubectl --context rome exec caller-1 -- ping {address}"), &pinged);
    let answer = caller.get(address).await?;
    ensure!(answer.contains("turin"), "somebody else answers: {answer}");
    story.show(&format!("kubectl --context rome exec caller-1 -- wget http://{address}:8080/"), &answer);
    let to = address.to_string();
    let trace = ferro(rome, &["trace", "--from", "caller-1", "--to", &to]).await?;
    story.show(&format!("ferro trace --from caller-1 --to {to}"), &trace);
    Ok(())
}

/// A namespace of one cluster exists on the other, inside of what that gives to it, and comes home without a trace.
async fn show_namespaces(story: &Story, rome: &Cluster, turin: &Cluster) -> Result<()> {
    rome.kubectl(&["create", "namespace", "shop"]).await?;
    let said = ferro(rome, &["offload", "shop", "--wait"]).await?;
    story.show("ferro offload shop --wait", &said);
    story.show("ferro namespaces", &ferro(rome, &["namespaces"]).await?);
    story.show("ferro explain shop", &ferro(rome, &["explain", "shop"]).await?);
    story.show("ferro tenants --context turin", &ferro(turin, &["tenants"]).await?);
    let there = ["get", "namespaces", "--selector", "tenancy.liqo.io/tenant", "-L", "tenancy.liqo.io/tenant"];
    let namespaces = turin.kubectl(&there).await?;
    ensure!(namespaces.contains("shop-"), "turin has no namespace for shop: {namespaces}");
    story.show(&format!("kubectl --context turin {}", there.join(" ")), &namespaces);
    show_pods(story, rome, turin).await?;
    let said = ferro(rome, &["unoffload", "shop", "--wait"]).await?;
    story.show("ferro unoffload shop --wait", &said);
    let left = turin.kubectl(&["get", "namespaces", "-o", "name"]).await?;
    ensure!(!left.contains("shop-"), "something is left on turin: {left}");
    Ok(())
}

/// A Deployment that is too large for one cluster runs on two, and nobody who uses it can tell.
async fn show_pods(story: &Story, rome: &Cluster, turin: &Cluster) -> Result<()> {
    let manifest = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: web}}
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
";
    rome.apply(manifest).await?;
    let wait = ["-n", "shop", "rollout", "status", "deployment/web", "--timeout=180s"];
    let said = rome.kubectl(&wait).await?;
    story.show(
        "kubectl --context rome -n shop rollout status deployment/web",
        said.lines().last().unwrap_or_default(),
    );
    let pods = ferro(rome, &["pods", "-n", "shop"]).await?;
    ensure!(pods.contains("turin") && pods.contains("(home)"), "they do not run on both: {pods}");
    story.show("ferro pods -n shop", &pods);
    let away = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{'\\n'}{end}";
    let placed = rome.kubectl(&["-n", "shop", "get", "pods", "-l", "app=web", "-o", away]).await?;
    let pod = placed.lines().find_map(|line| line.strip_prefix("liqo-")?.split(' ').nth(1));
    let pod = pod.with_context(|| format!("no pod runs on turin: {placed}"))?;
    let said =
        rome.kubectl(&["-n", "shop", "exec", pod, "--", "/testbox", "get", "http://127.0.0.1:8080/"]).await?;
    story.show(
        &format!("kubectl --context rome -n shop exec {pod} -- /testbox get http://127.0.0.1:8080/"),
        &said,
    );
    let there = turin.kubectl(&["get", "pods", "-A", "-l", "virtualkubelet.liqo.io/shadowed"]).await?;
    story.show("kubectl --context turin get pods -A -l virtualkubelet.liqo.io/shadowed", &there);
    rome.kubectl(&["-n", "shop", "delete", "deployment", "web", "--cascade=foreground", "--timeout=180s"])
        .await?;
    Ok(())
}

async fn show_parting(story: &Story, rome: &Cluster, turin: &Cluster) -> Result<()> {
    let said = ferro(rome, &["unpeer", "turin", "--bidirectional", "--wait"]).await?;
    story.show("ferro unpeer turin --bidirectional --wait", &said);
    ferro(rome, &["remove", "turin", "--wait", "--yes"]).await?;
    ferro(turin, &["remove", "rome", "--wait", "--yes"]).await?;
    let left = rome.kubectl(&["get", "nodes,namespaces", "-o", "name"]).await?;
    ensure!(!left.contains("liqo-turin") && !left.contains("liqo-tenant"), "something is left: {left}");
    story.tell("unpeered and removed on both sides: no node, no namespace, no certificate is left");
    Ok(())
}

/// Bad input gets a clear answer.
async fn show_refusal(story: &Story, cluster: &Cluster) -> Result<()> {
    let patch = r#"{"spec": {"incoming": "Sometimes"}}"#;
    let peers = cluster.kubectl(&["get", "foreignclusters", "-o", "name"]).await?;
    let peer = peers.lines().next().context("there is no ForeignCluster")?;
    let refusal = cluster.kubectl(&["patch", peer, "--type=merge", "-p", patch]).await;
    let refusal = refusal.err().context("a wrong word was accepted")?.to_string();
    ensure!(refusal.contains("spec.incoming"), "{refusal}");
    let told = refusal.lines().next().unwrap_or_default();
    story.show(&format!("kubectl patch {peer} … {patch}"), told);
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
        println!(
            "try: target/debug/ferro peers; target/debug/ferro offload default --pods local; target/debug/rig --rig demo shell rome"
        );
        println!("end: target/debug/rig --rig demo down");
    } else {
        story.tell("clusters end with this program; KEEP=1 leaves them running");
    }
    Ok(())
}
