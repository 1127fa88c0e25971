//! One cluster: how it comes up, step by step, and how it goes away without a trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::process::{Place, Process, signal};
use crate::addons;
use crate::cgroups::Group;
use crate::components::{self, Component, Layout};
use crate::lan;
use crate::node::first_child;
use crate::pki::Pki;
use crate::plan::{ClusterPlan, NodePlan};
use crate::protocol::{ClusterStatus, ProcessStatus};
use crate::run::{run, run_with_input};
use crate::tools::Programs;

/// How long a step may take before the rig gives up on it; a shared machine can be very slow.
const PATIENCE: Duration = Duration::from_mins(4);
const GLANCE: Duration = Duration::from_millis(100);

/// A cluster that comes up, runs or goes away.
pub(super) struct Cluster {
    pub(super) plan: ClusterPlan,
    state: PathBuf,
    group: PathBuf,
    programs: Programs,
    inits: Mutex<Vec<Init>>,
    processes: Mutex<Vec<Process>>,
}

/// The init of a node: dropping it pulls the plug.
struct Init {
    pid: u32,
    wrapper: Child,
}

impl Cluster {
    /// A cluster of which nothing exists yet.
    pub(super) fn new(plan: ClusterPlan, instance: &Path, programs: &Programs) -> Self {
        let state = instance.join(&plan.name);
        let group = Path::new(instance.file_name().unwrap_or_default()).join(&plan.name);
        Self {
            plan,
            state,
            group,
            programs: programs.clone(),
            inits: Mutex::default(),
            processes: Mutex::default(),
        }
    }

    /// Starts everything; says each step when it is done.
    pub(super) async fn bring_up(&self, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        self.prepare()?;
        for node in &self.plan.nodes {
            lan::attach(&self.plan, node)
                .await
                .with_context(|| format!("cannot put node {} on the LAN", node.name))?;
            self.boot(node).await.with_context(|| format!("cannot start node {}", node.name))?;
        }
        self.start_all(components::control_plane(&self.layout()))?;
        let images = self.start_runtimes();
        let client = self.client().await?;
        let api = async {
            self.await_api(&client).await?;
            say("API server answers");
            anyhow::Ok(())
        };
        tokio::try_join!(api, images)?;
        if self.plan.bare {
            return Ok(());
        }
        for node in &self.plan.nodes {
            self.register(&client, node).await?;
            self.start_all(
                components::node(&self.layout(), node).into_iter().filter(|part| part.name != "containerd"),
            )?;
        }
        self.apply_addons().await?;
        self.await_nodes(&client).await?;
        say(&format!("{} Ready", plural(self.plan.nodes.len(), "node")));
        self.await_addons(&client).await?;
        say("DNS, metrics and storage are there");
        Ok(())
    }

    /// Ends every process and removes every trace.
    pub(super) async fn tear_down(&self) -> Result<()> {
        let inits = std::mem::take(&mut *lock(&self.inits));
        for init in &inits {
            signal(init.pid);
        }
        for mut init in inits {
            let _ = init.wrapper.kill().await;
        }
        lock(&self.processes).clear();
        for node in &self.plan.nodes {
            lan::detach(node).await;
        }
        retry(|| Group::new(&self.group).sweep()).await?;
        retry(|| remove_folder(&self.state)).await
    }

    /// What runs of it.
    pub(super) fn status(&self) -> ClusterStatus {
        ClusterStatus {
            plan: self.plan.clone(),
            kubeconfig: Pki::of(&self.state).admin_kubeconfig(),
            processes: lock(&self.processes).iter().map(process_status).collect(),
            inits: lock(&self.inits).iter().map(|init| init.pid).collect(),
        }
    }

    /// Bridge ports of all its nodes, or of the named one.
    pub(super) fn ports(&self, node: Option<&str>) -> Result<Vec<String>> {
        match node {
            Some(node) => Ok(vec![self.plan.node(node)?.name.clone()]),
            None => Ok(self.plan.nodes.iter().map(|node| node.name.clone()).collect()),
        }
    }

    /// Kills a process (and keeps it dead) or brings it back; `name` is `component` or `node/component`.
    pub(super) async fn control(&self, name: &str, restart: bool) -> Result<()> {
        let (node, component) = match name.split_once('/') {
            Some((node, component)) => (Some(self.plan.node(node)?.number), component),
            None => (None, name),
        };
        // Taken out for the time of the call: a process is not controlled by two at once, and no lock is held while waiting.
        let process = {
            let mut processes = lock(&self.processes);
            let found: Vec<usize> = (0..processes.len())
                .filter(|index| processes[*index].component.name == component)
                .filter(|index| node.is_none_or(|node| processes[*index].component.node == node))
                .collect();
            match found.as_slice() {
                [index] => processes.remove(*index),
                [] => bail!(
                    "cluster {} has no process {name}; it has {}",
                    self.plan.name,
                    process_names(&processes)
                ),
                _ => bail!(
                    "cluster {} has several {component}; say {}/<node>/{component}",
                    self.plan.name,
                    self.plan.name
                ),
            }
        };
        if restart {
            process.restart().await;
        } else {
            process.kill().await;
        }
        lock(&self.processes).push(process);
        Ok(())
    }

    /// Loads image archives into all its nodes.
    pub(super) async fn load(&self, archives: &[PathBuf]) -> Result<()> {
        ensure!(!self.plan.bare, "cluster {} is bare: it has no node to load an image into", self.plan.name);
        let nodes = self.plan.nodes.iter().map(|node| self.load_into(node, archives));
        futures::future::try_join_all(nodes).await?;
        Ok(())
    }

    fn layout(&self) -> Layout<'_> {
        Layout { plan: &self.plan, state: &self.state, programs: &self.programs }
    }

    fn node_group(&self, node: &NodePlan) -> Group {
        Group::new(self.group.join(&node.name))
    }

    fn prepare(&self) -> Result<()> {
        for folder in ["log", "tmp", "etcd"] {
            fs::create_dir_all(self.state.join(folder))
                .with_context(|| format!("cannot create {}", self.state.display()))?;
        }
        Pki::of(&self.state).create(&self.plan)?;
        for node in &self.plan.nodes {
            for (name, content) in components::node_files(&self.layout(), node) {
                let path = self.state.join(node.number.to_string()).join(name);
                fs::create_dir_all(path.parent().context("a file has a folder")?)?;
                fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Starts the init of a node and waits until it has made the node's file system.
    async fn boot(&self, node: &NodePlan) -> Result<()> {
        let mut wrapper = Command::new(std::env::current_exe()?)
            .args(["node-init", &self.node_group(node).as_argument(), &node.name])
            .arg(self.state.join(node.number.to_string()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = wrapper.stdout.take().context("the init has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await?;
        let pid = wrapper.id().and_then(first_child);
        match pid {
            Some(pid) if line.trim() == "ready" => lock(&self.inits).push(Init { pid, wrapper }),
            _ => {
                let output = wrapper.wait_with_output().await?;
                bail!("its init ended: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
        }
        Ok(())
    }

    fn start_all(&self, components: impl IntoIterator<Item = Component>) -> Result<()> {
        for component in components {
            let place = self.place(&component)?;
            let process = Process::start(component, place)?;
            lock(&self.processes).push(process);
        }
        Ok(())
    }

    fn place(&self, component: &Component) -> Result<Place> {
        let index = usize::from(component.node - 1);
        let init = lock(&self.inits).get(index).context("the node has no init")?.pid;
        let log = self.state.join("log").join(format!("{}-{}.log", component.name, component.node));
        Ok(Place { group: self.node_group(&self.plan.nodes[index]), init, log })
    }

    /// Starts the container runtime of each node and fills it with the rig's images.
    async fn start_runtimes(&self) -> Result<()> {
        if self.plan.bare {
            return Ok(());
        }
        for node in &self.plan.nodes {
            self.start_all(
                components::node(&self.layout(), node).into_iter().filter(|part| part.name == "containerd"),
            )?;
        }
        self.load(&self.programs.images).await
    }

    async fn load_into(&self, node: &NodePlan, archives: &[PathBuf]) -> Result<()> {
        let init = lock(&self.inits)
            .get(usize::from(node.number - 1))
            .context("the node has no init")?
            .pid
            .to_string();
        let enter = ["--target", &init, "--mount", "--net", "--pid", "--", "ctr", "--namespace", "k8s.io"];
        await_true(&format!("containerd of {}", node.name), || async {
            Ok(run("nsenter", &[enter.as_slice(), &["version"]].concat()).await.is_ok())
        })
        .await?;
        for archive in archives {
            let path = archive.display().to_string();
            let import = ["images", "import", "--digests", &path];
            run("nsenter", &[enter.as_slice(), &import].concat())
                .await
                .with_context(|| format!("cannot load {path} into node {}", node.name))?;
        }
        Ok(())
    }

    async fn client(&self) -> Result<Client> {
        client_for(&Pki::of(&self.state).admin_kubeconfig()).await
    }

    async fn await_api(&self, client: &Client) -> Result<()> {
        await_true(
            &format!("the API server of {} ({})", self.plan.name, self.log_hint("kube-apiserver")),
            || async {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                Ok(client.request_text(request).await.is_ok_and(|text| text == "ok"))
            },
        )
        .await
    }

    /// Announces a node before its kubelet does, so that it owns its slice of the pod network from the start.
    async fn register(&self, client: &Client, node: &NodePlan) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.name},
            "spec": {"podCIDR": node.pod_cidr, "podCIDRs": [node.pod_cidr]},
        });
        Api::<Node>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await
            .with_context(|| format!("cannot register node {}", node.name))?;
        Ok(())
    }

    async fn apply_addons(&self) -> Result<()> {
        let kubeconfig = format!("--kubeconfig={}", Pki::of(&self.state).admin_kubeconfig().display());
        let kubectl = self.programs.path("kubectl").display().to_string();
        run_with_input(
            &kubectl,
            &[&kubeconfig, "apply", "--server-side", "-f", "-"],
            &addons::manifests(&self.plan),
        )
        .await
        .with_context(|| format!("cannot install DNS, metrics and storage in {}", self.plan.name))?;
        Ok(())
    }

    async fn await_nodes(&self, client: &Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        await_true(&format!("the nodes of {} ({})", self.plan.name, self.log_hint("kubelet")), || async {
            let list = nodes.list(&ListParams::default()).await;
            Ok(list.is_ok_and(|list| !list.items.is_empty() && list.items.iter().all(is_ready)))
        })
        .await
    }

    async fn await_addons(&self, client: &Client) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
        await_true(&format!("DNS and metrics of {}", self.plan.name), || async {
            let list = deployments.list(&ListParams::default()).await;
            Ok(list.is_ok_and(|list| list.items.iter().all(is_available)))
        })
        .await
    }

    fn log_hint(&self, component: &str) -> String {
        format!("see {}", self.state.join("log").join(format!("{component}-1.log")).display())
    }
}

/// A client for a kubeconfig file.
pub async fn client_for(kubeconfig: &Path) -> Result<Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_available(deployment: &Deployment) -> bool {
    deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .is_some_and(|replicas| replicas > 0)
}

async fn await_true<F: Future<Output = Result<bool>>>(what: &str, check: impl Fn() -> F) -> Result<()> {
    let wait = async {
        while !check().await? {
            tokio::time::sleep(GLANCE).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .with_context(|| format!("gave up after {} s on {what}", PATIENCE.as_secs()))?
}

/// Repeats what fails only because the kernel has not finished ending the node's processes.
async fn retry(step: impl Fn() -> Result<()>) -> Result<()> {
    let mut last = step();
    for _ in 0..100 {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(GLANCE).await;
        last = step();
    }
    last
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn process_status(process: &Process) -> ProcessStatus {
    ProcessStatus {
        name: process.component.name.into(),
        node: process.component.node,
        resident_kib: process.pid().and_then(resident_kib),
        restarts: process.restarts(),
    }
}

fn process_names(processes: &[Process]) -> String {
    let mut names: Vec<&str> = processes.iter().map(|process| process.component.name).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A panic elsewhere must not keep the rig from cleaning up.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
