//! Whatever way a rig ends, the machine is as it was before.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use rig::traces::{Traces, no_file_is_left, quiet_machine};
use rig::wait::block_on;

fn rig(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
    command.args(["--rig", "cleanup"]).args(arguments).stdout(Stdio::null());
    command
}

/// Ends the rig, whatever is left of it, and finds no file afterwards.
fn down() -> Result<()> {
    ensure!(rig(&["down"]).status()?.success(), "rig down failed");
    no_file_is_left()
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
        before.await_same(&format!("rig up killed after {moment} ms"))?;
        down()?;
    }

    ensure!(rig(&["up", "a"]).status()?.success(), "rig up failed");
    let supervisor = Command::new("pgrep").args(["-f", "rig supervise .*/cleanup"]).output();
    let supervisor = supervisor.context("cannot start pgrep")?.stdout;
    for pid in String::from_utf8_lossy(&supervisor).lines() {
        Command::new("kill").args(["-9", pid]).status()?;
    }
    down()?;
    before.await_same("supervisor killed")?;

    block_on(async {
        let spec = || vec![ClusterSpec { bare: true, ..ClusterSpec::named("a") }];
        let topology = Topology::up("dropped", spec()).await?;
        let panicked = tokio::spawn(async move {
            let _owned = topology;
            panic!("a test fails");
        });
        ensure!(panicked.await.is_err(), "the test fails");
        // The next test of a suite begins at once, with the same clusters anew.
        Topology::up("dropped", spec()).await.map(drop)
    })?;
    before.await_same("a test panicked")?;
    // A rig that ends by itself takes its files along.
    no_file_is_left()
}
