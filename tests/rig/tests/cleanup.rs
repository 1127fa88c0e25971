//! Whatever way a rig ends, the machine is as it was before.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use rig::wait::{GENEROUSLY, block_on};

/// Where rigs keep their files.
const HOME: &str = "/var/cache/ferrofluid/rig";

/// Everything a rig could leave behind, but for files.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    namespaces: String,
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    rules: String,
    groups: BTreeSet<String>,
    processes: BTreeSet<String>,
}

impl Traces {
    fn take() -> Result<Self> {
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
}

/// All control groups, but for those beside the one that this test is in: whoever started the test makes others as it
/// likes. What a rig makes counts wherever it is.
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

/// Programs that only a rig starts here.
const PROGRAMS: [&str; 6] =
    ["kube-apiserver", "etcd", "containerd", "containerd-shim-runc-v2", "kubelet", "testbox"];
/// What the rig itself is called with.
const ROLES: [&str; 3] = ["rig supervise", "rig node-", "rig enter"];

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

/// Waits until the machine is as it was: the kernel takes a moment to end a namespace.
fn await_traces(before: &Traces, what: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        let now = Traces::take()?;
        if now == *before {
            return Ok(());
        }
        ensure!(begin.elapsed() < GENEROUSLY, "{what}: before {before:#?}, after {now:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A machine on which no other test's rig is still ending.
fn quiet_machine() -> Result<Traces> {
    // Sweeps up what an earlier run that was killed may have left.
    rig(&["down"]).status()?;
    let begin = Instant::now();
    while Path::new(HOME).exists() || !processes()?.is_empty() {
        ensure!(
            begin.elapsed() < GENEROUSLY,
            "another rig is running: {:?}; end it with rig down",
            processes()?
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    Traces::take()
}

fn rig(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
    command.args(["--rig", "cleanup"]).args(arguments).stdout(Stdio::null());
    command
}

/// Ends the rig, whatever is left of it, and finds no file afterwards.
fn down() -> Result<()> {
    ensure!(rig(&["down"]).status()?.success(), "rig down failed");
    ensure!(!Path::new(HOME).exists(), "files are left in {HOME}");
    Ok(())
}

fn kill(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// When to kill, in milliseconds: before the supervisor answers, while nodes are made, control planes start, kubelets
/// join and add-ons come; in a soak, all over the start.
fn moments() -> Vec<u64> {
    if std::env::var_os("SOAK").is_some() {
        // Denser at the beginning, where most things are made.
        (0..50).map(|n| 12_000 * n * n / 2500).collect()
    } else {
        vec![30, 400, 2000, 6000, 11000]
    }
}

/// One test, because each part needs the machine for itself.
#[test]
fn nothing_is_left_after_down_after_any_kill_and_after_a_dropped_topology() -> Result<()> {
    let before = quiet_machine()?;

    ensure!(rig(&["up", "a", "b", "--nodes", "2"]).status()?.success(), "rig up failed");
    ensure!(
        rig(&["down", "b"]).status()?.success() && rig(&["kubeconfig", "a"]).status()?.success(),
        "a must go on"
    );
    down()?;
    ensure!(Traces::take()? == before, "down must wait: {before:#?} {:#?}", Traces::take()?);

    for moment in moments() {
        let mut up = rig(&["up", "a", "b"]).spawn()?;
        std::thread::sleep(Duration::from_millis(moment));
        // A fast machine is done by then, and the clusters rightly stay until they are ended.
        if up.try_wait()?.is_some() {
            down()?;
        }
        kill(&mut up)?;
        // Everything but files goes by itself; those are swept by the next start or `rig down`.
        await_traces(&before, &format!("rig up killed after {moment} ms"))?;
        down()?;
    }

    ensure!(rig(&["up", "a"]).status()?.success(), "rig up failed");
    let supervisor = output("pgrep", &["-f", "rig supervise .*/cleanup"])?;
    for pid in supervisor.lines() {
        Command::new("kill").args(["-9", pid]).status()?;
    }
    down()?;
    await_traces(&before, "supervisor killed")?;

    block_on(async {
        let spec = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
        let topology = Topology::up("dropped", vec![spec]).await?;
        let panicked = tokio::spawn(async move {
            let _owned = topology;
            panic!("a test fails");
        });
        ensure!(panicked.await.is_err(), "the test fails");
        Ok(())
    })?;
    await_traces(&before, "a test panicked")?;
    // A rig that ends by itself takes its files along.
    ensure!(!Path::new(HOME).exists(), "files are left in {HOME}");
    Ok(())
}
