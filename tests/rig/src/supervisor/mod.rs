//! The supervisor: init of the rig's own PID and mount namespace, owner of every cluster, and the only one who acts.
//!
//! Clients ask over a socket. Killing the supervisor ends everything it made, by the kernel's own rules; a client that
//! disappears takes its unfinished wish back; and when nothing runs and nobody asks, the supervisor ends itself.

mod cluster;
mod process;
mod ready;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use rustix::mount::{MountFlags, mount};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Notify, mpsc};

use self::cluster::Cluster;
pub use self::ready::client_for;
use crate::cgroups::Group;
use crate::client::forget;
use crate::lan::{self, Faults};
use crate::plan::{ClusterPlan, ClusterSpec, Lan, MAX_CLUSTERS};
use crate::protocol::{ClusterStatus, Reply, Request};
use crate::tools::{Programs, RUN_GIB, Tools, require_room};

/// How long the supervisor waits for a first or a next client while it has nothing to keep.
const IDLE: Duration = Duration::from_secs(5);
/// How many files a user may have that tell about changes of others. A cluster of two nodes has thirty, and a kubelet that
/// gets none ends again and again; the kernel's own limit is 128.
const WATCHERS: (&str, u32) = ("/proc/sys/fs/inotify/max_user_instances", 1024);

struct Supervisor {
    /// Folder of this rig.
    instance: PathBuf,
    programs: Programs,
    lan: Lan,
    state: Mutex<State>,
    /// A client was served to its end.
    served: Notify,
}

#[derive(Default)]
struct State {
    clusters: BTreeMap<String, Arc<Cluster>>,
    faults: Faults,
    /// Connections that are being served.
    clients: usize,
    /// Connections that keep the rig alive, once there was one.
    leases: Option<usize>,
}

/// Serves until nothing is left to do, then removes every trace of the rig.
pub async fn serve(instance: &Path) -> Result<()> {
    let programs = Tools::cache()?.check()?;
    let_many_watch()?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), Some(c"mode=755"))
        .context("cannot make a private /run")?;
    let lan = lan::create().await?;
    let listener = UnixListener::bind(socket(instance)).context("cannot listen for clients")?;
    let supervisor = Arc::new(Supervisor {
        instance: instance.into(),
        programs,
        lan,
        state: Mutex::default(),
        served: Notify::new(),
    });
    supervisor.accept(&listener).await;
    supervisor.tear_down_all().await;
    lan::destroy(lan).await;
    Group::new(instance.file_name().unwrap_or_default()).sweep()?;
    std::fs::remove_dir_all(instance).with_context(|| format!("cannot remove {}", instance.display()))?;
    forget(instance);
    Ok(())
}

/// Raises a limit of the machine that is too low. It counts for all rigs together, so that none of them takes it back.
fn let_many_watch() -> Result<()> {
    let (limit, enough) = WATCHERS;
    let present = std::fs::read_to_string(limit).with_context(|| format!("cannot read {limit}"))?;
    if present.trim().parse::<u32>().is_ok_and(|present| present < enough) {
        std::fs::write(limit, enough.to_string())
            .with_context(|| format!("cannot write {enough} to {limit}"))?;
    }
    Ok(())
}

/// Where the supervisor of a rig listens.
pub fn socket(instance: &Path) -> PathBuf {
    instance.join("rig.sock")
}

impl Supervisor {
    /// Takes clients until there is nothing left to keep, either after one of them or because none came.
    async fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        self.state.lock().await.clients += 1;
                        tokio::spawn(Arc::clone(self).attend(stream));
                    }
                    Err(error) => eprintln!("cannot accept a client: {error}"),
                },
                () = self.served.notified() => if self.is_over().await { return },
                () = tokio::time::sleep(IDLE) => if self.is_over().await { return },
            }
        }
    }

    async fn is_over(&self) -> bool {
        let state = self.state.lock().await;
        state.clients == 0 && (state.clusters.is_empty() || state.leases == Some(0))
    }

    /// Serves one client: one request, its progress, its answer.
    async fn attend(self: Arc<Self>, stream: UnixStream) {
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        if reader.read_line(&mut line).await.is_ok() && !line.is_empty() {
            match serde_json::from_str(&line) {
                Ok(Request::Lease) => self.hold_lease(reader, writer).await,
                Ok(request) => self.answer(request, reader, writer).await,
                Err(error) => {
                    let mut writer = writer;
                    send(&mut writer, &Reply::Failed(format!("cannot read the request: {error}"))).await;
                }
            }
        }
        self.state.lock().await.clients -= 1;
        self.served.notify_one();
    }

    async fn hold_lease(&self, mut reader: BufReader<OwnedReadHalf>, mut writer: OwnedWriteHalf) {
        *self.state.lock().await.leases.get_or_insert(0) += 1;
        send(&mut writer, &Reply::Done(Vec::new())).await;
        gone(&mut reader).await;
        if let Some(leases) = &mut self.state.lock().await.leases {
            *leases -= 1;
        }
    }

    async fn answer(
        &self,
        request: Request,
        mut reader: BufReader<OwnedReadHalf>,
        mut writer: OwnedWriteHalf,
    ) {
        let (progress, mut steps) = mpsc::unbounded_channel();
        let work = self.perform(request, &progress, gone(&mut reader));
        tokio::pin!(work);
        let reply = loop {
            tokio::select! {
                biased;
                Some(step) = steps.recv() => send(&mut writer, &step).await,
                result = &mut work => break result,
            }
        };
        while let Ok(step) = steps.try_recv() {
            send(&mut writer, &step).await;
        }
        let reply = reply.map_or_else(|error| Reply::Failed(format!("{error:#}")), Reply::Done);
        send(&mut writer, &reply).await;
    }

    async fn perform(
        &self,
        request: Request,
        progress: &mpsc::UnboundedSender<Reply>,
        client_gone: impl Future<Output = ()>,
    ) -> Result<Vec<ClusterStatus>> {
        match request {
            Request::Up(specs) => self.up(&specs, progress, client_gone).await?,
            Request::Down(names) => self.down(&names).await?,
            Request::Status => {}
            Request::Load { archive, clusters } => {
                self.load(&archive, &clusters).await?;
            }
            Request::Cut { from, to, loss, oneway } => {
                self.change_faults(&from, &to, |faults, from, to| faults.add(from, to, loss, oneway)).await?;
            }
            Request::Heal { from, to } => self.change_faults(&from, &to, Faults::heal).await?,
            Request::Kill(target) => self.control(&target, false).await?,
            Request::Restart(target) => self.control(&target, true).await?,
            Request::Reboot(place) => self.reboot(&place).await?,
            Request::Lease => bail!("a lease is not a task"),
        }
        Ok(self.state.lock().await.clusters.values().map(|cluster| cluster.status()).collect())
    }

    /// Starts clusters side by side; if one fails or the client goes, all of them go.
    async fn up(
        &self,
        specs: &[ClusterSpec],
        progress: &mpsc::UnboundedSender<Reply>,
        client_gone: impl Future<Output = ()>,
    ) -> Result<()> {
        let clusters = self.reserve(specs).await?;
        let start = try_join_all(clusters.iter().map(|cluster| async move {
            let name = cluster.plan.name.clone();
            let say = |step: &str| {
                let _ = progress.send(Reply::Progress { cluster: name.clone(), step: step.into() });
            };
            tokio::select! {
                result = cluster.bring_up(&say) => result,
                () = cluster.ending.cancelled() => bail!("cluster {name} was ended while it started"),
            }
        }));
        let result = tokio::select! {
            result = start => result.map(|_| ()),
            () = client_gone => Err(anyhow::anyhow!("the client went away")),
        };
        if result.is_err()
            && let Err(error) = self.remove(&clusters).await
        {
            eprintln!("cannot clean up: {error:#}");
        }
        result
    }

    /// Plans all clusters of a request and takes their names, so that nothing is made when one of them cannot be.
    async fn reserve(&self, specs: &[ClusterSpec]) -> Result<Vec<Arc<Cluster>>> {
        require_room(&self.instance, RUN_GIB)?;
        let mut state = self.state.lock().await;
        let mut reserved: Vec<Arc<Cluster>> = Vec::new();
        for spec in specs {
            let taken = |name: &str| reserved.iter().any(|cluster| cluster.plan.name == name);
            ensure!(!taken(&spec.name), "the name {} is given twice", spec.name);
            ensure!(
                !state.clusters.contains_key(&spec.name),
                "a cluster {0} runs already; end it with: rig down {0}",
                spec.name
            );
            let used: Vec<u8> =
                state.clusters.values().chain(&reserved).map(|cluster| cluster.plan.index).collect();
            let index = (1..=MAX_CLUSTERS).find(|index| !used.contains(index));
            let index = index
                .with_context(|| format!("{MAX_CLUSTERS} clusters run already; end one with rig down"))?;
            let plan = ClusterPlan::new(spec, index, self.lan)?;
            reserved.push(Arc::new(Cluster::new(plan, &self.instance, &self.programs)));
        }
        state
            .clusters
            .extend(reserved.iter().map(|cluster| (cluster.plan.name.clone(), Arc::clone(cluster))));
        Ok(reserved)
    }

    async fn down(&self, names: &[String]) -> Result<()> {
        let clusters = self.chosen(names).await?;
        self.remove(&clusters).await
    }

    /// Takes clusters down and forgets them, whatever of it fails: a name must not stay taken for ever.
    async fn remove(&self, clusters: &[Arc<Cluster>]) -> Result<()> {
        let torn_down = futures::future::join_all(clusters.iter().map(|cluster| cluster.tear_down())).await;
        let mut state = self.state.lock().await;
        for cluster in clusters {
            if state.clusters.get(&cluster.plan.name).is_some_and(|known| Arc::ptr_eq(known, cluster)) {
                state.clusters.remove(&cluster.plan.name);
                state.faults.forget(&cluster.ports(None)?);
            }
        }
        state.faults.apply().await?;
        torn_down.into_iter().collect()
    }

    async fn tear_down_all(&self) {
        if let Err(error) = self.down(&[]).await {
            eprintln!("cannot clean up: {error:#}");
        }
    }

    async fn chosen(&self, names: &[String]) -> Result<Vec<Arc<Cluster>>> {
        let state = self.state.lock().await;
        if names.is_empty() {
            return Ok(state.clusters.values().cloned().collect());
        }
        names.iter().map(|name| find(&state, name).cloned()).collect()
    }

    async fn change_faults(
        &self,
        from: &str,
        to: &str,
        change: impl FnOnce(&mut Faults, &[String], &[String]),
    ) -> Result<()> {
        let mut state = self.state.lock().await;
        let (from, to) = (ports(&state, from)?, ports(&state, to)?);
        ensure!(from != to, "both ends are the same");
        let mut faults = state.faults.clone();
        change(&mut faults, &from, &to);
        faults.apply().await?;
        state.faults = faults;
        Ok(())
    }

    /// Loads an archive; without names, into every cluster that has nodes.
    async fn load(&self, archive: &Path, names: &[String]) -> Result<()> {
        let (bare, housing): (Vec<_>, Vec<_>) =
            self.chosen(names).await?.into_iter().partition(|cluster| cluster.plan.bare);
        if let Some(cluster) = bare.first().filter(|_| !names.is_empty()) {
            bail!("cluster {} is bare: it has no node to load an image into", cluster.plan.name);
        }
        let archives = [archive.to_path_buf()];
        try_join_all(housing.iter().map(|cluster| cluster.load(&archives))).await.map(drop)
    }

    async fn control(&self, target: &str, restart: bool) -> Result<()> {
        let (name, process) =
            target.split_once('/').with_context(|| format!("{target}: say CLUSTER/COMPONENT"))?;
        let cluster = find(&*self.state.lock().await, name)?.clone();
        cluster.control(process, restart).await
    }

    async fn reboot(&self, place: &str) -> Result<()> {
        let (name, node) = place.split_once('/').with_context(|| format!("{place}: say CLUSTER/NODE"))?;
        let cluster = find(&*self.state.lock().await, name)?.clone();
        cluster.reboot(node).await
    }
}

fn find<'a>(state: &'a State, name: &str) -> Result<&'a Arc<Cluster>> {
    state.clusters.get(name).with_context(|| {
        let names: Vec<&str> = state.clusters.keys().map(String::as_str).collect();
        format!(
            "no cluster {name} runs; running: {}",
            if names.is_empty() { "none".into() } else { names.join(", ") }
        )
    })
}

fn ports(state: &State, place: &str) -> Result<Vec<String>> {
    let (name, node) = place.split_once('/').map_or((place, None), |(name, node)| (name, Some(node)));
    find(state, name)?.ports(node)
}

/// Ends when the client closes its side; a client says nothing after its request.
async fn gone(reader: &mut BufReader<OwnedReadHalf>) {
    let mut rest = String::new();
    while reader.read_line(&mut rest).await.is_ok_and(|read| read > 0) {}
}

async fn send(writer: &mut OwnedWriteHalf, reply: &Reply) {
    if let Ok(mut line) = serde_json::to_string(reply) {
        line.push('\n');
        // A client that is gone needs no answer.
        let _ = writer.write_all(line.as_bytes()).await;
    }
}
