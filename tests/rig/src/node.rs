//! A node: an init process of its own PID, mount, host-name, cgroup and network namespace.
//!
//! Killing the init is pulling the plug: the kernel ends every process of the node, its containers included, and
//! takes its mounts along. Inside, all paths are the usual ones (`/var/lib/kubelet`, `/run/containerd`, …), so that
//! a node looks like any other node to whoever opens a shell in it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{WaitOptions, wait};

use crate::cgroups::{self, Group};

/// Kernel settings that a kubelet wants to see and would otherwise change for the whole machine.
const WANTED_SETTINGS: [(&str, &str); 5] = [
    ("vm/overcommit_memory", "1"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// First step, still outside: joins the node's cgroup and becomes the node's init in new namespaces.
pub fn become_init(group: &str, name: &str, folder: &Path) -> Result<()> {
    Group::from_argument(group).join()?;
    let error = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{name}"))
        .args([
            "unshare",
            "--pid",
            "--mount",
            "--uts",
            "--cgroup",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
        ])
        .arg(std::env::current_exe()?)
        .args(["node-main", name])
        .arg(folder)
        .exec();
    bail!("cannot enter the namespaces of node {name}: {error}")
}

/// Second step, inside: makes the node's file system, says so on standard output, and reaps what falls to it for ever.
pub fn serve_as_init(name: &str, folder: &Path) -> Result<()> {
    rustix::system::sethostname(name.as_bytes()).context("cannot set the host name")?;
    remount_cgroups()?;
    cgroups::settle_in_namespace()?;
    mount_places(folder)?;
    mount_settings()?;
    // Pods may ask for mounts that propagate; inside this namespace only.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    println!("ready");
    loop {
        if wait(WaitOptions::empty()).is_err() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Starts a program in a node: joins the leaf of its cgroup, then all its namespaces.
pub fn enter(group: &str, init: u32, argv: &[String]) -> Result<()> {
    Group::from_argument(group).join_leaf()?;
    let error = Command::new("nsenter")
        .args(["--target", &init.to_string(), "--mount", "--uts", "--net", "--pid", "--cgroup", "--"])
        .args(argv)
        .exec();
    bail!("cannot enter the node: {error}")
}

fn remount_cgroups() -> Result<()> {
    let hierarchies = cgroups::hierarchies()?;
    let root = Path::new("/sys/fs/cgroup");
    if hierarchies.iter().all(|one| one.mountpoint != root) {
        tmpfs(root)?;
    }
    for hierarchy in hierarchies {
        fs::create_dir_all(&hierarchy.mountpoint)?;
        let options = std::ffi::CString::new(hierarchy.options)?;
        mount(
            "cgroup",
            &hierarchy.mountpoint,
            hierarchy.kind.as_str(),
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .with_context(|| format!("cannot mount {}", hierarchy.mountpoint.display()))?;
    }
    Ok(())
}

/// Gives the node places of its own: in memory what a reboot clears, from its folder what must be on disk.
fn mount_places(folder: &Path) -> Result<()> {
    for place in ["/run", "/var/lib", "/var/log"] {
        tmpfs(Path::new(place))?;
    }
    for (kept, place) in [("containerd", "/var/lib/containerd"), ("kubelet", "/var/lib/kubelet")] {
        bind(&folder.join(kept), Path::new(place))?;
    }
    // Shared by all nodes of the cluster: volumes that the controller-manager provisions must be on every node.
    let shared = folder.parent().context("a node's folder lies in its cluster's")?.join("tmp");
    bind(&shared, Path::new("/tmp"))?;
    mount_bind(folder.join("resolv.conf"), "/etc/resolv.conf").context("cannot set the node's resolv.conf")
}

fn mount_settings() -> Result<()> {
    for (setting, value) in WANTED_SETTINGS {
        let stand_in = Path::new("/run/sysctl").join(setting.replace('/', "."));
        fs::create_dir_all("/run/sysctl")?;
        fs::write(&stand_in, format!("{value}\n"))?;
        let place = Path::new("/proc/sys").join(setting);
        if rustix::fs::accessat(CWD, &place, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty()).is_ok()
        {
            mount_bind(&stand_in, &place).with_context(|| format!("cannot shield {}", place.display()))?;
        }
    }
    Ok(())
}

fn tmpfs(place: &Path) -> Result<()> {
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID, Some(c"mode=755"))
        .with_context(|| format!("cannot mount {}", place.display()))
}

fn bind(from: &Path, place: &Path) -> Result<()> {
    for folder in [from, place] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    mount_bind(from, place).with_context(|| format!("cannot mount {}", place.display()))
}

/// The first child of a process, as the kernel lists it.
pub fn first_child(pid: u32) -> Option<u32> {
    let list = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    fs::read_to_string(list).ok()?.split_whitespace().next()?.parse().ok()
}
