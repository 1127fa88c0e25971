//! Bad input: one clear line, an exit code, and nothing made.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};

fn rig(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
    command.args(["--rig", name]);
    command
}

fn refused(output: &Output, expected: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "it was not refused");
    ensure!(said.contains(expected), "expected {expected:?} in: {said}");
    let usage = said.find("\n\n").unwrap_or(said.len());
    ensure!(said[..usage].trim().lines().count() == 1, "more than one line: {said}");
    Ok(())
}

#[test]
fn names_and_networks_that_cannot_be_are_refused_and_nothing_is_made() -> Result<()> {
    for (arguments, expected) in [
        (vec!["up", "a", "a"], "the name a is given twice"),
        (vec!["up", "Under_score"], "cannot name a cluster"),
        (vec!["up", "a", "--pod-cidr", "10.0.0.0/33"], "invalid value '10.0.0.0/33' for '--pod-cidr"),
        (vec!["up", "a", "--pod-cidr", "10.1.2.3/16"], "did you mean 10.1.0.0/16"),
        (vec!["up", "a", "--pod-cidr", "10.1.0.0/16", "--service-cidr", "10.1.128.0/20"], "overlap"),
        (vec!["up", "a", "--nodes", "0"], "choose 1 to 15"),
        (vec!["up", "a", "--bare", "--nodes", "2"], "a bare cluster has no nodes"),
        (vec!["up", "a", "--same-cidrs", "--pod-cidr", "10.1.0.0/16"], "cannot be used with"),
        (vec!["cut", "a", "b", "--loss", "120%"], "1% to 100%"),
        (vec!["down", "a"], "no rig is running, so there is no cluster a"),
        (vec!["kubeconfig", "a"], "no rig is running; start one with rig up"),
        (vec!["load", "missing.tar"], "cannot read missing.tar"),
    ] {
        refused(&rig("bad-input").args(&arguments).output()?, expected)?;
    }
    ensure!(!Path::new("/var/cache/ferrofluid/rig/bad-input").exists(), "something was made");
    Ok(())
}

#[test]
fn a_name_that_runs_already_is_refused_and_the_running_one_is_undisturbed() -> Result<()> {
    ensure!(rig("twice").args(["up", "a", "--bare"]).output()?.status.success(), "rig up failed");
    let again = rig("twice").args(["up", "b", "a", "--bare"]).output()?;
    let status = rig("twice").args(["status", "--json"]).output()?;
    ensure!(rig("twice").arg("down").status()?.success(), "rig down failed");
    refused(&again, "a cluster a runs already; end it with: rig down a")?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    let names: Vec<_> = status
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cluster| cluster["plan"]["name"].as_str())
        .collect();
    ensure!(names == ["a"], "{names:?}");
    Ok(())
}

#[test]
fn without_root_nothing_is_tried() -> Result<()> {
    // The program is copied to where anybody may run it: the folders of a checkout may be closed to others.
    let copy = std::env::temp_dir().join(format!("rig-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_rig"), &copy)?;
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["up", "a"])
        .output();
    std::fs::remove_file(&copy)?;
    refused(&output?, "needs root: use sudo")
}

#[test]
fn without_go_and_without_room_nothing_is_built() -> Result<()> {
    let cache = std::env::temp_dir().join(format!("rig-cache-{}", std::process::id()));
    std::fs::create_dir_all(&cache)?;
    let build =
        |path: &str| rig("build").arg("build").env("XDG_CACHE_HOME", &cache).env("PATH", path).output();
    let no_go = build("/nowhere")?;
    let full = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=16M none \"$XDG_CACHE_HOME\" && exec \"$0\" build",
            env!("CARGO_BIN_EXE_rig"),
        ])
        .env("XDG_CACHE_HOME", &cache)
        .output()?;
    std::fs::remove_dir_all(&cache)?;
    refused(&no_go, "Go is missing")?;
    refused(&full, "make room first")
}

#[test]
fn a_kernel_without_bridges_is_named_and_nothing_stays() -> Result<()> {
    // A tool that fails as it does on such a kernel, in front of the real one.
    let folder = std::env::temp_dir().join(format!("rig-kernel-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let stand_in = folder.join("ip");
    let script = "#!/bin/sh\ncase \"$*\" in *-batch*) echo 'Error: Unknown device type.' >&2; exit 2;; esac\nexec /sbin/ip \"$@\"\n";
    std::fs::write(&stand_in, script)?;
    Command::new("chmod").arg("755").arg(&stand_in).status()?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let output = rig("no-bridge").args(["up", "a"]).env("PATH", path).output();
    std::fs::remove_dir_all(&folder)?;
    refused(&output?, "does this kernel have bridges?")?;
    ensure!(!Path::new("/var/cache/ferrofluid/rig/no-bridge").exists(), "something was made");
    Ok(())
}

#[test]
fn two_first_starts_at_once_share_one_rig() -> Result<()> {
    let start = |name: &str| rig("both").args(["up", name, "--bare"]).spawn();
    let (mut one, mut two) = (start("a")?, start("b")?);
    let (one, two) = (one.wait()?, two.wait()?);
    let status = rig("both").arg("status").output()?;
    let ended = rig("both").arg("down").status()?;
    ensure!(one.success() && two.success() && ended.success(), "one of them failed");
    let text = String::from_utf8_lossy(&status.stdout);
    ensure!(
        text.lines().any(|line| line.starts_with("a ")) && text.lines().any(|line| line.starts_with("b ")),
        "{text}"
    );
    Ok(())
}

#[test]
fn a_start_that_is_ended_from_elsewhere_says_so_and_leaves_nothing() -> Result<()> {
    let mut up = rig("crossed").args(["up", "a"]).stderr(std::process::Stdio::piped()).spawn()?;
    while !Path::new("/var/cache/ferrofluid/rig/crossed/a/log/kube-apiserver-1.log").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        ensure!(up.try_wait()?.is_none(), "it ended by itself");
    }
    ensure!(rig("crossed").arg("down").status()?.success(), "rig down failed");
    refused(&up.wait_with_output()?, "was ended while it started")?;
    ensure!(!Path::new("/var/cache/ferrofluid/rig/crossed").exists(), "something stays");
    Ok(())
}

#[test]
fn ports_that_are_taken_on_the_machine_do_not_matter() -> Result<()> {
    let _taken: Vec<_> =
        [6443, 2379, 10250].map(|port| std::net::TcpListener::bind(("0.0.0.0", port))).into();
    let up = rig("ports").args(["up", "a", "--bare"]).output()?;
    ensure!(rig("ports").arg("down").status()?.success(), "rig down failed");
    ensure!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    Ok(())
}
