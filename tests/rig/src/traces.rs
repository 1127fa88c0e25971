//! All that a rig could leave behind on this machine, to be held against what was there before. Whoever does that needs the
//! machine for itself: what others begin and end meanwhile is seen as well.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::client::{HOME, Rig};
use crate::topology::built;
use crate::wait::GENEROUSLY;

const GLANCE: Duration = Duration::from_millis(100);
/// Programs that only a rig starts here.
const PROGRAMS: [&str; 7] =
    ["kube-apiserver", "etcd", "containerd", "containerd-shim-runc-v2", "kubelet", "shop", "testbox"];
/// What the rig itself is called with.
const ROLES: [&str; 3] = ["rig supervise", "rig node-", "rig enter"];

/// Everything a rig could leave behind, but for files.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    namespaces: String,
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    rules: String,
    groups: BTreeSet<String>,
    processes: BTreeSet<String>,
}

impl Traces {
    /// Those of now.
    pub fn take() -> Result<Self> {
        Ok(Self {
            namespaces: output("ip", &["netns", "list"])?,
            mounts: output("cat", &["/proc/mounts"])?.lines().map(str::to_owned).collect(),
            links: output("ip", &["-br", "link"])?
                .lines()
                .filter_map(|line| line.split_whitespace().next())
                .map(str::to_owned)
                .collect(),
            rules: output("nft", &["list", "ruleset"])?,
            groups: groups()?,
            processes: processes()?,
        })
    }

    /// Waits until the machine is as it was when these were taken: the kernel takes a moment to end a namespace.
    pub fn await_same(&self, what: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            let now = Self::take()?;
            if now == *self {
                return Ok(());
            }
            ensure!(begin.elapsed() < GENEROUSLY, "{what}: before {self:#?}, after {now:#?}");
            std::thread::sleep(GLANCE);
        }
    }
}

/// The traces of a machine on which no rig runs: what an earlier run that was killed has left is swept up, and what is still
/// ending is waited for.
pub fn quiet_machine() -> Result<Traces> {
    Rig::new("quiet", built("rig")?)?.down(&[])?;
    let begin = Instant::now();
    while no_file_is_left().is_err() || !processes()?.is_empty() {
        ensure!(
            begin.elapsed() < GENEROUSLY,
            "another rig is running: {:?}; end it with rig down",
            processes()?
        );
        std::thread::sleep(GLANCE);
    }
    Traces::take()
}

/// Whether no file of any rig is left.
pub fn no_file_is_left() -> Result<()> {
    ensure!(!Path::new(HOME).exists(), "files are left in {HOME}");
    Ok(())
}

/// All control groups, but for those beside the one that this process is in: whoever started it makes others as it likes.
/// What a rig makes counts wherever it is.
fn groups() -> Result<BTreeSet<String>> {
    let own = std::fs::read_to_string("/proc/self/cgroup").context("cannot read the own control groups")?;
    let beside: Vec<String> = own
        .lines()
        .filter_map(|line| line.rsplit_once(':')?.1.rsplit_once('/'))
        .filter(|(parent, _)| !parent.is_empty())
        .map(|(parent, _)| format!("{parent}/"))
        .collect();
    let is_foreign = |group: &str| {
        !group.contains("ferro-rig") && beside.iter().any(|parent| group.contains(parent.as_str()))
    };
    let all = output("find", &["/sys/fs/cgroup", "-type", "d"])?;
    Ok(all.lines().filter(|group| !is_foreign(group)).map(str::to_owned).collect())
}

/// The processes of any rig. Others may well speak of its programs: who builds one does.
fn processes() -> Result<BTreeSet<String>> {
    let list = output("ps", &["-eo", "pid,args"])?;
    let is_ours = |line: &&str| {
        let program = line.split_whitespace().nth(1).and_then(|path| path.rsplit('/').next());
        program.is_some_and(|program| PROGRAMS.contains(&program))
            || ROLES.iter().any(|role| line.contains(role))
    };
    Ok(list.lines().filter(is_ours).map(str::to_owned).collect())
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
