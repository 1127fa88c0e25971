//! One cluster: how it comes up, step by step, and how it goes away without a trace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::process::{Place, Process};
use super::ready::{await_addons, await_api, await_nodes, await_true, client_for, retry};
use crate::addons;
use crate::cgroups::Group;
use crate::client::remove_folder;
use crate::components::{self, Component, Layout};
use crate::lan;
use crate::node::{Start, entry, first_child};
use crate::pki::Pki;
use crate::plan::{ClusterPlan, NodePlan};
use crate::protocol::{ClusterStatus, ProcessStatus};
use crate::run::{kill, run, run_with_file, run_with_input};
use crate::tools::Programs;

/// A cluster that comes up, runs or goes away.
pub(super) struct Cluster {
    pub(super) plan: ClusterPlan,
    /// Said once, when the cluster is to go; what brings it up stops then.
    pub(super) ending: CancellationToken,
    /// Held by what brings the cluster up or takes it down: never both.
    life: tokio::sync::Mutex<()>,
    instance: PathBuf,
    state: PathBuf,
    group: PathBuf,
    programs: Programs,
    /// By the number of the node.
    inits: Mutex<BTreeMap<u8, Init>>,
    processes: Mutex<Vec<Process>>,
}

/// The init of a node: dropping it pulls the plug.
struct Init {
    pid: u32,
    wrapper: Child,
}

impl Init {
    /// Ends it, and returns when the kernel has ended all that was on the node.
    async fn end(mut self) {
        kill(self.pid);
        let _ = self.wrapper.kill().await;
    }
}

impl Cluster {
    /// A cluster of which nothing exists yet.
    pub(super) fn new(plan: ClusterPlan, instance: &Path, programs: &Programs) -> Self {
        Self {
            ending: CancellationToken::new(),
            life: tokio::sync::Mutex::default(),
            instance: instance.into(),
            state: instance.join(&plan.name),
            group: Path::new(instance.file_name().unwrap_or_default()).join(&plan.name),
            programs: programs.clone(),
            inits: Mutex::default(),
            processes: Mutex::default(),
            plan,
        }
    }

    /// Starts everything; says each step when it is done. It may be dropped at any point.
    pub(super) async fn bring_up(&self, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let _life = self.life.lock().await;
        self.prepare()?;
        for node in &self.plan.nodes {
            self.boot(node).await?;
        }
        self.start_all(components::control_plane(&self.layout()))?;
        let client = client_for(&Pki::of(&self.state).admin_kubeconfig()).await?;
        let api = async {
            await_api(&self.about("the API server", "kube-apiserver"), &client).await?;
            say("API server answers");
            anyhow::Ok(())
        };
        tokio::try_join!(api, self.start_runtimes())?;
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
        await_nodes(&self.about("the nodes", "kubelet"), &client).await?;
        let count = self.plan.nodes.len();
        say(&format!("{count} {} Ready", if count == 1 { "node" } else { "nodes" }));
        await_addons(&self.about("DNS and metrics", "kubelet"), &client).await?;
        say("DNS, metrics and storage are there");
        Ok(())
    }

    /// Ends every process and removes every trace; safe to repeat.
    pub(super) async fn tear_down(&self) -> Result<()> {
        self.ending.cancel();
        let _life = self.life.lock().await;
        // First those who would start processes anew, then the processes.
        lock(&self.processes).clear();
        let inits = std::mem::take(&mut *lock(&self.inits));
        futures::future::join_all(inits.into_values().map(Init::end)).await;
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
            audit_log: self.plan.audited.then(|| components::audit_log(&self.state)),
            processes: lock(&self.processes).iter().map(process_status).collect(),
            inits: lock(&self.inits).iter().map(|(number, init)| (*number, init.pid)).collect(),
            resident_kib: Group::new(&self.group).processes().into_iter().filter_map(resident_kib).sum(),
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
        let _life = self.life.lock().await;
        // Taken out for the time of the call, so that no lock on the list is held while waiting.
        let process = self.take_process(name)?;
        let work = async { if restart { process.restart().await } else { process.kill().await } };
        let done = self.ending.run_until_cancelled(work).await;
        lock(&self.processes).push(process);
        done.with_context(|| format!("cluster {} is ending", self.plan.name))
    }

    /// Pulls the plug of a node and starts it again: what was on its disk is there, and nothing of its memory.
    pub(super) async fn reboot(&self, node: &str) -> Result<()> {
        let _life = self.life.lock().await;
        let node = self.plan.node(node)?;
        let done = self.ending.run_until_cancelled(self.reboot_now(node)).await;
        done.with_context(|| format!("cluster {} is ending", self.plan.name))?
    }

    async fn reboot_now(&self, node: &NodePlan) -> Result<()> {
        // First those who would start processes anew, then the processes.
        let ended: Vec<Process> =
            lock(&self.processes).extract_if(.., |process| process.component.node == node.number).collect();
        let components: Vec<Component> = ended.iter().map(|process| process.component.clone()).collect();
        drop(ended);
        let init = lock(&self.inits).remove(&node.number);
        init.with_context(|| format!("node {} does not run", node.name))?.end().await;
        lan::detach(node).await;
        retry(|| self.node_group(node).sweep()).await?;
        self.boot(node).await?;
        self.start_all(components)
    }

    fn take_process(&self, name: &str) -> Result<Process> {
        let (node, component) = match name.split_once('/') {
            Some((node, component)) => (Some(self.plan.node(node)?.number), component),
            None => (None, name),
        };
        let mut processes = lock(&self.processes);
        let wanted = |process: &Process| {
            process.component.name == component && node.is_none_or(|node| process.component.node == node)
        };
        let found: Vec<usize> = (0..processes.len()).filter(|index| wanted(&processes[*index])).collect();
        match found.as_slice() {
            [index] => Ok(processes.remove(*index)),
            [] => bail!(
                "cluster {} has no process {name}; it has {}",
                self.plan.name,
                process_names(&processes)
            ),
            _ => bail!("cluster {0} has several {component}; say {0}/<node>/{component}", self.plan.name),
        }
    }

    /// Loads image archives into all its nodes.
    pub(super) async fn load(&self, archives: &[PathBuf]) -> Result<()> {
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
        fs::set_permissions(self.state.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        Pki::of(&self.state).create(&self.plan)?;
        for (path, content) in components::control_plane_files(&self.layout()) {
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        for node in &self.plan.nodes {
            for (name, content) in components::node_files(&self.layout(), node) {
                let path = self.state.join(node.number.to_string()).join(name);
                fs::create_dir_all(path.parent().context("a file has a folder")?)?;
                fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Puts a node on the LAN and starts its init.
    async fn boot(&self, node: &NodePlan) -> Result<()> {
        lan::attach(&self.plan, node)
            .await
            .with_context(|| format!("cannot put node {} on the LAN", node.name))?;
        self.start_init(node).await.with_context(|| format!("cannot start node {}", node.name))
    }

    /// Starts the init of a node and waits until it has made the node's file system.
    async fn start_init(&self, node: &NodePlan) -> Result<()> {
        let start = Start {
            group: self.node_group(node).as_argument(),
            name: node.name.clone(),
            folder: self.state.join(node.number.to_string()),
            programs: self.programs.folder.clone(),
        };
        let mut wrapper = Command::new(self.instance.join("rig"))
            .args(start.arguments("node-init"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = wrapper.stdout.take().context("the init has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await?;
        match wrapper.id().and_then(first_child) {
            Some(pid) if line.trim() == "ready" => {
                lock(&self.inits).insert(node.number, Init { pid, wrapper });
            }
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
            lock(&self.processes).push(Process::start(component, place));
        }
        Ok(())
    }

    fn place(&self, component: &Component) -> Result<Place> {
        let node = &self.plan.nodes[usize::from(component.node - 1)];
        let log = self.state.join("log").join(format!("{}-{}.log", component.name, component.node));
        Ok(Place {
            group: self.node_group(node),
            init: self.init(node)?,
            log,
            rig: self.instance.join("rig"),
        })
    }

    fn init(&self, node: &NodePlan) -> Result<u32> {
        let inits = lock(&self.inits);
        let init = inits.get(&node.number).with_context(|| format!("node {} does not run", node.name))?;
        Ok(init.pid)
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
        let ctr = |arguments: &[&str]| -> Result<Vec<String>> {
            let words = ["ctr", "--namespace", "k8s.io"].iter().chain(arguments).map(ToString::to_string);
            Ok(entry(self.init(node)?).into_iter().chain(words).collect())
        };
        let version = ctr(&["version"])?;
        await_true(&format!("containerd of {}", node.name), || async {
            Ok(run("nsenter", &version).await.is_ok())
        })
        .await?;
        for archive in archives {
            // By standard input: the archive may lie where a node has something else.
            run_with_file("nsenter", &ctr(&["images", "import", "--digests", "-"])?, archive)
                .await
                .with_context(|| format!("cannot load {} into node {}", archive.display(), node.name))?;
        }
        Ok(())
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

    /// What is waited for, and where to look when it does not come.
    fn about(&self, what: &str, component: &str) -> String {
        let log = self.state.join("log").join(format!("{component}-1.log"));
        format!("{what} of {} (log while it runs: {})", self.plan.name, log.display())
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

/// A panic elsewhere must not keep the rig from cleaning up.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
