//! The command line: what each word does, and what a person sees while it is done.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use ipnet::Ipv4Net;
use rig::client::Rig;
use rig::lan::Loss;
use rig::node::{self, Start};
use rig::plan::{ClusterSpec, Cni};
use rig::protocol::{ClusterStatus, Request};
use rig::tools::{Tools, release_image};
use rig::{supervisor, topology};

/// Real Kubernetes clusters on one machine.
#[derive(Parser)]
#[command(name = "rig", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the rig; rigs of different names do not see each other
    #[arg(long, global = true, default_value = "default", env = "RIG_NAME")]
    rig: String,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rig build                          build Kubernetes and the images, once
  rig up a b --same-cidrs            two clusters whose networks overlap
  rig kubeconfig a > a.conf          then: kubectl --kubeconfig a.conf get nodes
  rig cut a b && rig heal a b        break the wire between them, and mend it
  rig kill a/kube-apiserver          it stays dead until: rig restart a/kube-apiserver
  rig reboot a/2                     pull the plug of the second node of a, and start it again
  rig shell a/2                      a shell on the second node of a
  rig down                           nothing is left";

#[derive(Subcommand)]
enum Command {
    /// Build what is missing of Kubernetes and the images
    Build,
    /// Start clusters and wait until they work
    Up(Up),
    /// End clusters; without a name, all of them
    Down {
        /// Clusters to end
        names: Vec<String>,
    },
    /// Show what runs, with memory
    Status {
        /// As JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print the administrator's kubeconfig of a cluster
    Kubeconfig {
        /// The cluster
        name: String,
    },
    /// Load an image archive into every node
    Load {
        /// An OCI or Docker archive
        archive: PathBuf,
        /// Only into the nodes of these clusters
        clusters: Vec<String>,
    },
    /// Cut the wire between two clusters or nodes
    Cut {
        /// A cluster or CLUSTER/NODE
        a: String,
        /// A cluster or CLUSTER/NODE
        b: String,
        /// Only frames from the first to the second
        #[arg(long)]
        oneway: bool,
        /// Lose this share of the frames instead of all, as in 7%
        #[arg(long, value_parser = Loss::parse)]
        loss: Option<Loss>,
    },
    /// Mend the wire between two clusters or nodes
    Heal {
        /// A cluster or CLUSTER/NODE
        a: String,
        /// A cluster or CLUSTER/NODE
        b: String,
    },
    /// Kill a process; it stays dead until restarted
    Kill {
        /// CLUSTER/COMPONENT or CLUSTER/NODE/COMPONENT
        target: String,
    },
    /// Start a process again, ending it first where it runs
    Restart {
        /// CLUSTER/COMPONENT or CLUSTER/NODE/COMPONENT
        target: String,
    },
    /// Pull the plug of a node and start it again
    Reboot {
        /// CLUSTER/NODE
        place: String,
    },
    /// Open a shell on a node, or run a command there
    Shell {
        /// CLUSTER or CLUSTER/NODE
        place: String,
        /// The command; an interactive shell when absent
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Build a program of this workspace and make an image of it alone
    Image {
        /// The package, whose program becomes the image's only file
        package: String,
        /// Name and tag of the image
        #[arg(long)]
        tag: String,
        /// The archive to write
        #[arg(long, short)]
        output: PathBuf,
    },
    #[command(hide = true)]
    Supervise { instance: PathBuf },
    #[command(hide = true)]
    NodeInit(Start),
    #[command(hide = true)]
    NodeNamespaces(Start),
    #[command(hide = true)]
    NodeMain(Start),
    #[command(hide = true)]
    Enter {
        group: String,
        init: u32,
        #[arg(last = true)]
        argv: Vec<String>,
    },
}

#[derive(Args)]
struct Up {
    /// Names of the clusters
    #[arg(required = true)]
    names: Vec<String>,
    /// Nodes in each cluster
    #[arg(long, default_value_t = 1)]
    nodes: u8,
    /// Network of the pods, in every named cluster
    #[arg(long)]
    pod_cidr: Option<Ipv4Net>,
    /// Network of the services, in every named cluster
    #[arg(long)]
    service_cidr: Option<Ipv4Net>,
    /// The same networks for every cluster: the hard case
    #[arg(long, conflicts_with_all = ["pod_cidr", "service_cidr"])]
    same_cidrs: bool,
    /// How the pods of a node are joined
    #[arg(long, value_enum, default_value_t)]
    cni: Cni,
    /// Only etcd, API server and controller-manager: seconds to start
    #[arg(long)]
    bare: bool,
}

impl Up {
    fn specs(self) -> Vec<ClusterSpec> {
        let spec = |name: &String| {
            let spec = ClusterSpec {
                nodes: self.nodes,
                pod_cidr: self.pod_cidr,
                service_cidr: self.service_cidr,
                cni: self.cni,
                bare: self.bare,
                ..ClusterSpec::named(name)
            };
            if self.same_cidrs { spec.with_same_cidrs() } else { spec }
        };
        self.names.iter().map(spec).collect()
    }
}

/// Does what the arguments say.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let rig = Rig::new(&arguments.rig, std::env::current_exe()?)?;
    match arguments.command {
        Command::Build => Tools::cache()?.build(&|step| println!("{step}")),
        Command::Up(up) => bring_up(&rig, up),
        Command::Down { names } => rig.down(&names),
        Command::Status { json } => status(&rig, json),
        Command::Kubeconfig { name } => kubeconfig(&rig, &name),
        Command::Load { archive, clusters } => {
            let archive =
                archive.canonicalize().with_context(|| format!("cannot read {}", archive.display()))?;
            rig.ask(&Request::Load { archive, clusters }, |_, _| {}).map(drop)
        }
        Command::Cut { a, b, oneway, loss } => {
            let loss = loss.unwrap_or(Loss::CUT);
            rig.ask(&Request::Cut { from: a, to: b, loss, oneway }, |_, _| {}).map(drop)
        }
        Command::Heal { a, b } => rig.ask(&Request::Heal { from: a, to: b }, |_, _| {}).map(drop),
        Command::Kill { target } => rig.ask(&Request::Kill(target), |_, _| {}).map(drop),
        Command::Restart { target } => rig.ask(&Request::Restart(target), |_, _| {}).map(drop),
        Command::Reboot { place } => rig.ask(&Request::Reboot(place), |_, _| {}).map(drop),
        Command::Shell { place, command } => shell(&rig, &place, command),
        Command::Image { package, tag, output } => image(&package, &tag, &output),
        Command::Supervise { instance } => runtime()?.block_on(supervisor::serve(&instance)),
        Command::NodeInit(start) => start.join_group(),
        Command::NodeNamespaces(start) => start.make_namespaces(),
        Command::NodeMain(start) => start.serve_as_init(),
        Command::Enter { group, init, argv } => node::enter(&group, init, &argv),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn bring_up(rig: &Rig, up: Up) -> Result<()> {
    let begin = Instant::now();
    let specs = up.specs();
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    println!("starting {}", names.join(", "));
    let clusters = rig.ask_or_start(&Request::Up(specs), |cluster, step| {
        println!("{:6.1} s  {cluster}: {step}", begin.elapsed().as_secs_f32());
    })?;
    for cluster in clusters.iter().filter(|cluster| names.contains(&cluster.plan.name)) {
        println!(
            "{} is up at {}; kubeconfig: {}",
            cluster.plan.name,
            cluster.plan.server(),
            cluster.kubeconfig.display()
        );
    }
    Ok(())
}

fn status(rig: &Rig, json: bool) -> Result<()> {
    let clusters = rig.ask(&Request::Status, |_, _| {})?;
    if json {
        println!("{}", serde_json::to_string_pretty(&clusters)?);
        return Ok(());
    }
    println!("{:<12} {:<6} {:<26} {:>8}  {:>8}  STATE", "CLUSTER", "NODE", "COMPONENT", "MEMORY", "RESTARTS");
    for cluster in &clusters {
        for process in &cluster.processes {
            let (memory, state) = match process.resident_kib {
                Some(kib) => (format!("{} MiB", kib / 1024), "running"),
                None => ("-".into(), "dead"),
            };
            println!(
                "{:<12} {:<6} {:<26} {memory:>8}  {:>8}  {state}",
                cluster.plan.name, process.node, process.name, process.restarts
            );
        }
    }
    println!("{} in all, with pods and helpers", total(&clusters));
    Ok(())
}

fn total(clusters: &[ClusterStatus]) -> String {
    let kib: u64 = clusters.iter().map(|cluster| cluster.resident_kib).sum();
    format!("{} MiB", kib / 1024)
}

fn kubeconfig(rig: &Rig, name: &str) -> Result<()> {
    let clusters = rig.ask(&Request::Status, |_, _| {})?;
    let cluster = clusters.iter().find(|cluster| cluster.plan.name == name);
    let cluster = cluster.with_context(|| format!("no cluster {name} runs; see rig status"))?;
    print!("{}", std::fs::read_to_string(&cluster.kubeconfig)?);
    Ok(())
}

fn shell(rig: &Rig, place: &str, command: Vec<String>) -> Result<()> {
    let (cluster, node) = place.split_once('/').unwrap_or((place, "1"));
    let clusters = rig.ask(&Request::Status, |_, _| {})?;
    let plan = clusters.iter().map(|status| &status.plan).find(|plan| plan.name == cluster);
    let plan = plan.with_context(|| format!("no cluster {cluster} runs; see rig status"))?;
    let enter = topology::enter_command(rig, cluster, plan.node(node)?.number)?;
    let command = if command.is_empty() { vec!["bash".to_owned()] } else { command };
    let (program, rest) = enter.split_first().context("a command has a program")?;
    let error = std::process::Command::new(program).args(rest).args(command).exec();
    bail!("cannot enter {place}: {error}")
}

fn image(package: &str, tag: &str, output: &Path) -> Result<()> {
    release_image(package, tag, &|step| println!("{step}"))?.write(output)?;
    println!("{tag} is in {}", output.display());
    Ok(())
}
