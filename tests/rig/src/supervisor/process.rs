//! One process of a cluster, kept running as a real node's init would: restarted when it dies, unless it was killed.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cgroups::Group;
use crate::components::Component;
use crate::node::first_child;
use crate::run::kill;

/// Pause before a process that died by itself is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(5);

/// Where and how a process runs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Cgroup of the node.
    pub(super) group: Group,
    /// Init of the node.
    pub(super) init: u32,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// The rig's own program, as the supervisor keeps it.
    pub(super) rig: PathBuf,
}

/// A process that is kept running until this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) component: Component,
    wanted: watch::Sender<bool>,
    pid: watch::Receiver<Option<u32>>,
    restarts: Arc<AtomicU32>,
    keeper: JoinHandle<()>,
}

/// What the keeper of a process works with.
struct Keeper {
    component: Component,
    place: Place,
    wanted: watch::Receiver<bool>,
    /// The process itself, not the `nsenter` around it.
    pid: watch::Sender<Option<u32>>,
    restarts: Arc<AtomicU32>,
}

impl Process {
    /// Starts it and keeps it running.
    pub(super) fn start(component: Component, place: Place) -> Self {
        let (wanted, watched) = watch::channel(true);
        let (publish, pid) = watch::channel(None);
        let restarts = Arc::new(AtomicU32::new(0));
        let keeper = Keeper {
            component: component.clone(),
            place,
            wanted: watched,
            pid: publish,
            restarts: Arc::clone(&restarts),
        };
        Self { component, wanted, pid, restarts, keeper: tokio::spawn(keeper.keep()) }
    }

    /// Kills it for good, and returns when it is dead.
    pub(super) async fn kill(&self) {
        self.wanted.send_replace(false);
        let _ = self.pid.clone().wait_for(Option::is_none).await;
    }

    /// Brings it back, killing it first where it runs, and returns when it runs.
    pub(super) async fn restart(&self) {
        self.kill().await;
        self.wanted.send_replace(true);
        let _ = self.pid.clone().wait_for(Option::is_some).await;
    }

    /// The running process, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// How often it died by itself.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }
}

impl Drop for Process {
    /// Nothing may be started any more once the cluster goes.
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Keeper {
    /// The life of a process: run it while it is wanted, and again when it dies meanwhile.
    async fn keep(mut self) {
        while self.wanted.wait_for(|wanted| *wanted).await.is_ok() {
            let ended_itself = match spawn(&self.component, &self.place) {
                Ok(child) => self.watch_over(child).await,
                Err(error) => {
                    eprintln!("{}: {error:#}", self.component.name);
                    true
                }
            };
            self.pid.send_replace(None);
            if ended_itself {
                self.restarts.fetch_add(1, Ordering::Relaxed);
                let _ = tokio::time::timeout(RESTART_PAUSE, self.wanted.wait_for(|wanted| !*wanted)).await;
            }
        }
    }

    /// Waits for the end of a process, or brings it about when it is no longer wanted; says whether it ended itself.
    async fn watch_over(&mut self, mut child: Child) -> bool {
        let wrapper = child.id().unwrap_or_default();
        loop {
            let inner = first_child(wrapper);
            if inner.is_some() && self.pid.borrow().is_none() {
                self.pid.send_replace(inner);
            }
            let pause = if inner.is_some() { RESTART_PAUSE } else { GLANCE };
            tokio::select! {
                _ = child.wait() => return true,
                _ = self.wanted.wait_for(|wanted| !*wanted) => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        while child.try_wait().is_ok_and(|status| status.is_none()) {
            first_child(wrapper).into_iter().for_each(kill);
            tokio::time::sleep(GLANCE).await;
        }
        false
    }
}

fn spawn(component: &Component, place: &Place) -> Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&place.log)
        .with_context(|| format!("cannot open {}", place.log.display()))?;
    Command::new(&place.rig)
        .args(["enter", &place.group.as_argument(), &place.init.to_string(), "--"])
        .args(&component.argv)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        // Memory is plenty here, and processors are not.
        .env("GOGC", "400")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", component.name))
}
