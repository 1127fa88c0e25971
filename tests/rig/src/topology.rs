//! Clusters for tests: ask for a topology, get typed handles, and everything goes when the last of them does.
//!
//! Flow: `Topology::up` starts a rig of its own and holds a lease on it; handles share the lease. Guarantees: when
//! the topology is dropped, or the process dies of whatever cause, the supervisor sees the lease end and removes all.
//! Tests that need the same topology keep it in a `static` and share it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::process::Command;

use crate::client::Rig;
use crate::lan::Loss;
use crate::node::entry;
use crate::plan::{ClusterPlan, ClusterSpec};
use crate::protocol::{ClusterStatus, Request};
use crate::supervisor::client_for;
use crate::tools::{Programs, Tools};
use crate::wait::GENEROUSLY;

/// What kubectl says of an API server that did not greet it, whatever it was about to ask.
const UNASKED: &str = "Unable to connect to the server: net/http: TLS handshake timeout";
/// The topologies that this process has started; of one name there is one at a time.
static STARTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Running clusters that end with this value.
#[derive(Debug)]
pub struct Topology {
    rig: Rig,
    clusters: BTreeMap<String, Cluster>,
    /// Nothing for a topology that outlives this process.
    _lease: Option<UnixStream>,
}

/// Somebody who is told which step of which cluster is done.
pub trait Tell: FnMut(&str, &str) + Send + 'static {}

impl<T: FnMut(&str, &str) + Send + 'static> Tell for T {}

/// A running cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Its names and addresses.
    pub plan: ClusterPlan,
    /// An administrator's client.
    pub client: Client,
    /// An administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// What its API server was asked for, if that is written down; see [`crate::audit`].
    pub audit_log: Option<PathBuf>,
    programs: Arc<Programs>,
    rig: Rig,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cluster").field("name", &self.plan.name).finish_non_exhaustive()
    }
}

impl Topology {
    /// Starts these clusters in a rig of their own, which ends with this value.
    pub async fn up(name: &str, specs: Vec<ClusterSpec>) -> Result<Self> {
        Self::up_telling(name, specs, |cluster, step| println!("rig: {cluster}: {step}")).await
    }

    /// The same, telling somebody else of each step.
    pub async fn up_telling(name: &str, specs: Vec<ClusterSpec>, tell: impl Tell) -> Result<Self> {
        let rig = Rig::new(&own(name), program()?)?;
        let is_another = !STARTED.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let lease = {
            let rig = rig.clone();
            blocking(move || {
                // The one before has ended with its lease, but is not gone at once.
                if is_another {
                    rig.down(&[])?;
                }
                rig.lease()
            })
            .await?
        };
        Self::start(rig, specs, Some(lease), tell).await
    }

    /// Starts these clusters in the rig of that name, which stays until somebody ends it.
    pub async fn keep(name: &str, specs: Vec<ClusterSpec>, tell: impl Tell) -> Result<Self> {
        Self::start(Rig::new(name, program()?)?, specs, None, tell).await
    }

    async fn start(
        rig: Rig,
        specs: Vec<ClusterSpec>,
        lease: Option<UnixStream>,
        tell: impl Tell,
    ) -> Result<Self> {
        let statuses = {
            let rig = rig.clone();
            blocking(move || rig.ask_or_start(&Request::Up(specs), tell)).await?
        };
        let programs = Arc::new(Tools::cache()?.check()?);
        let mut clusters = BTreeMap::new();
        for ClusterStatus { plan, kubeconfig, audit_log, .. } in statuses {
            let client = client_for(&kubeconfig).await?;
            let (programs, rig) = (Arc::clone(&programs), rig.clone());
            let cluster = Cluster { plan, client, kubeconfig, audit_log, programs, rig };
            clusters.insert(cluster.plan.name.clone(), cluster);
        }
        Ok(Self { rig, clusters, _lease: lease })
    }

    /// A cluster by name.
    pub fn cluster(&self, name: &str) -> Result<&Cluster> {
        self.clusters.get(name).with_context(|| format!("the topology has no cluster {name}"))
    }

    /// Puts a fault between two clusters or nodes (`a`, `a/2`).
    pub async fn cut(&self, from: &str, to: &str, loss: Loss, oneway: bool) -> Result<()> {
        self.ask(Request::Cut { from: from.into(), to: to.into(), loss, oneway }).await.map(drop)
    }

    /// Takes all faults between the two away.
    pub async fn heal(&self, from: &str, to: &str) -> Result<()> {
        self.ask(Request::Heal { from: from.into(), to: to.into() }).await.map(drop)
    }

    /// Kills `cluster/component` for good.
    pub async fn kill(&self, target: &str) -> Result<()> {
        self.ask(Request::Kill(target.into())).await.map(drop)
    }

    /// Brings `cluster/component` back.
    pub async fn restart(&self, target: &str) -> Result<()> {
        self.ask(Request::Restart(target.into())).await.map(drop)
    }

    /// Pulls the plug of `cluster/node` and starts it again. It comes up as a node does after a power cut.
    pub async fn reboot(&self, place: &str) -> Result<()> {
        self.ask(Request::Reboot(place.into())).await.map(drop)
    }

    /// What runs now.
    pub async fn status(&self) -> Result<Vec<ClusterStatus>> {
        self.ask(Request::Status).await
    }

    /// Asks the rig for anything else.
    pub async fn ask(&self, request: Request) -> Result<Vec<ClusterStatus>> {
        let rig = self.rig.clone();
        blocking(move || rig.ask(&request, |_, _| {})).await
    }
}

impl Cluster {
    /// Runs kubectl as a user would and gives what it printed.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        until_asked(async || {
            let output = self.kubectl_command().args(arguments).output().await;
            let output = output.context("cannot start kubectl")?;
            let (said, complained) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), complained.trim());
            Ok(said.into_owned())
        })
        .await
    }

    /// kubectl for this cluster, to be given arguments.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.programs.path("kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).kill_on_drop(true);
        command
    }

    /// Where a node finds a program of the rig.
    pub fn program_on_node(&self, name: &str) -> String {
        self.programs.path_on_node(name).display().to_string()
    }

    /// Applies manifests as a user would and gives what kubectl said.
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        let kubectl = self.programs.path("kubectl").display().to_string();
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let words = [kubeconfig.as_str(), "apply", "--server-side", "-f", "-"];
        until_asked(async || crate::run::run_with_input(&kubectl, &words, manifests).await).await
    }

    /// Runs a program on a node, in all its namespaces, and gives what it printed.
    pub async fn on_node(&self, number: u8, argv: &[&str]) -> Result<String> {
        let rig = self.rig.clone();
        let name = self.plan.name.clone();
        let enter = blocking(move || enter_command(&rig, &name, number)).await?;
        let (program, rest) = enter.split_first().context("a command has a program")?;
        let rest: Vec<&str> = rest.iter().map(String::as_str).chain(argv.iter().copied()).collect();
        crate::run::run(program, &rest).await
    }
}

/// Runs kubectl, and again where it did not get so far as to ask: it gives an API server ten seconds to greet it, which on a
/// machine that starts six of them at once may be too few.
async fn until_asked(kubectl: impl AsyncFn() -> Result<String>) -> Result<String> {
    let begin = Instant::now();
    loop {
        match kubectl().await {
            Err(error) if error.to_string().ends_with(UNASKED) && begin.elapsed() < GENEROUSLY => {}
            said => return said,
        }
    }
}

/// The command that enters a node: first the supervisor's namespaces, where the node's init has a number, then the node's.
pub fn enter_command(rig: &Rig, cluster: &str, number: u8) -> Result<Vec<String>> {
    let supervisor = rig.supervisor()?.to_string();
    let statuses = rig.ask(&Request::Status, |_, _| {})?;
    let status = statuses.iter().find(|status| status.plan.name == cluster);
    let status = status.with_context(|| format!("no cluster {cluster} runs; see rig status"))?;
    let init = status.inits.get(&number).context("that node does not run")?;
    let outer = ["nsenter", "--target", &supervisor, "--mount", "--pid", "--", "nsenter"].map(str::to_owned);
    Ok(outer.into_iter().chain(entry(*init)).collect())
}

/// Ends the rig of that name, if it runs, and waits until it is gone.
pub async fn end(rig: &str) -> Result<()> {
    let rig = Rig::new(rig, program()?)?;
    blocking(move || rig.down(&[])).await
}

/// Whether a rig of that name runs.
pub async fn runs(rig: &str) -> Result<bool> {
    let rig = Rig::new(rig, program()?)?;
    blocking(move || Ok(rig.ask(&Request::Status, |_, _| {}).is_ok())).await
}

/// Full name of a rig that only this process uses.
pub fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn program() -> Result<PathBuf> {
    built("rig")
}

/// A program of this workspace: beside the running one, or one folder up from a test's.
pub fn built(name: &str) -> Result<PathBuf> {
    let current = std::env::current_exe()?;
    let mut places = current.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    places.find(|path| Path::is_file(path)).with_context(|| format!("{name} is not built; run make build"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("a call to the rig was cut off")?
}
