//! One process of a cluster, kept running as a real node's init would: restarted when it dies, unless it was killed.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::cgroups::Group;
use crate::components::Component;
use crate::node::first_child;

/// Pause before a process that died by itself is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Where and how a process runs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Cgroup of the node.
    pub(super) group: Group,
    /// Init of the node.
    pub(super) init: u32,
    /// Where its output goes.
    pub(super) log: PathBuf,
}

/// A process that is kept running.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) component: Component,
    wanted: watch::Sender<bool>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The process itself, not the `nsenter` around it; 0 when it does not run.
    pid: AtomicU32,
    restarts: AtomicU32,
}

impl Process {
    /// Starts it and keeps it running until dropped.
    pub(super) fn start(component: Component, place: Place) -> Result<Self> {
        let first = spawn(&component, &place)?;
        let (wanted, watched) = watch::channel(true);
        let shared = Arc::new(Shared::default());
        tokio::spawn(keep(component.clone(), place, first, watched, Arc::clone(&shared)));
        Ok(Self { component, wanted, shared })
    }

    /// Kills it for good.
    pub(super) async fn kill(&self) {
        self.wanted.send_replace(false);
        while let Some(pid) = self.pid() {
            signal(pid);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Brings it back, killing it first where it runs.
    pub(super) async fn restart(&self) {
        self.kill().await;
        self.wanted.send_replace(true);
    }

    /// The running process, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.shared.pid.load(Ordering::Acquire)).filter(|pid| *pid != 0)
    }

    /// How often it died by itself.
    pub(super) fn restarts(&self) -> u32 {
        self.shared.restarts.load(Ordering::Relaxed)
    }
}

/// The life of a process: wait for its end; start it again when it is still, or again, wanted.
async fn keep(
    component: Component,
    place: Place,
    first: Child,
    mut wanted: watch::Receiver<bool>,
    shared: Arc<Shared>,
) {
    let mut child = Some(first);
    loop {
        if let Some(mut running) = child.take() {
            watch_over(&mut running, &shared).await;
            if *wanted.borrow() {
                shared.restarts.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
        if wanted.wait_for(|wanted| *wanted).await.is_err() {
            return;
        }
        match spawn(&component, &place) {
            Ok(started) => child = Some(started),
            Err(error) => {
                eprintln!("{}: {error:#}", component.name);
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }
}

/// Publishes the pid of the process inside `nsenter` as soon as there is one, and takes it back at the end.
async fn watch_over(running: &mut Child, shared: &Shared) {
    let wrapper = running.id().unwrap_or_default();
    loop {
        if let Some(pid) = first_child(wrapper) {
            shared.pid.store(pid, Ordering::Release);
            break;
        }
        if let Ok(Some(_)) = running.try_wait() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = running.wait().await;
    shared.pid.store(0, Ordering::Release);
}

fn spawn(component: &Component, place: &Place) -> Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&place.log)
        .with_context(|| format!("cannot open {}", place.log.display()))?;
    Command::new(std::env::current_exe()?)
        .args(["enter", &place.group.as_argument(), &place.init.to_string(), "--"])
        .args(&component.argv)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", component.name))
}

/// Ends a process at once; one that is gone already is no error.
pub(super) fn signal(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
