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
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{WaitOptions, wait};

use crate::cgroups::{self, Group};

/// Where a node finds the programs that the rig built, wherever the machine keeps them.
pub const PROGRAMS: &str = "/run/rig";

/// Kernel settings that a kubelet wants to see and would otherwise change for the whole machine.
const WANTED_SETTINGS: [(&str, &str); 5] = [
    ("vm/overcommit_memory", "1"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// What the steps of a node's start hand on to each other.
#[derive(Clone, Debug, clap::Args)]
pub struct Start {
    /// Cgroup of the node.
    pub group: String,
    /// Name of the node and of its network namespace.
    pub name: String,
    /// Folder of the node.
    pub folder: PathBuf,
    /// Folder of the programs.
    pub programs: PathBuf,
}

impl Start {
    /// The arguments that name this step.
    pub fn arguments(&self, step: &str) -> Vec<String> {
        let paths = [&self.folder, &self.programs].map(|path| path.display().to_string());
        [step.to_owned(), self.group.clone(), self.name.clone()].into_iter().chain(paths).collect()
    }

    /// First step: joins the node's cgroup and makes it the root of a cgroup namespace.
    pub fn join_group(&self) -> Result<()> {
        Group::from_argument(&self.group).join()?;
        let rig = std::env::current_exe()?;
        let error =
            Command::new("unshare").arg("--cgroup").arg(rig).args(self.arguments("node-namespaces")).exec();
        bail!("cannot make a cgroup namespace for node {}: {error}", self.name)
    }

    /// Second step: leaves the group's root to its children and becomes init of the other namespaces.
    pub fn make_namespaces(&self) -> Result<()> {
        Group::from_argument(&self.group).join_leaf()?;
        let error = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.name))
            .args(["unshare", "--pid", "--mount", "--uts", "--fork", "--kill-child=KILL", "--mount-proc"])
            .arg(std::env::current_exe()?)
            .args(self.arguments("node-main"))
            .exec();
        bail!("cannot make the namespaces of node {}: {error}", self.name)
    }

    /// Last step: makes the node's file system, says so on standard output, and reaps what falls to it for ever.
    pub fn serve_as_init(&self) -> Result<()> {
        rustix::system::sethostname(self.name.as_bytes()).context("cannot set the host name")?;
        remount_cgroups()?;
        self.mount_places()?;
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

    /// Gives the node places of its own: in memory what a reboot clears, from its folder what must be on disk.
    fn mount_places(&self) -> Result<()> {
        // The programs first: their folder may lie below one of the places that are about to be hidden.
        tmpfs(Path::new("/run"))?;
        bind(&self.programs, Path::new(PROGRAMS))?;
        for place in ["/var/lib", "/var/log"] {
            tmpfs(Path::new(place))?;
        }
        for (kept, place) in [("containerd", "/var/lib/containerd"), ("kubelet", "/var/lib/kubelet")] {
            bind(&self.folder.join(kept), Path::new(place))?;
        }
        // Shared by all nodes of the cluster: volumes that the controller-manager provisions must be on every node.
        let shared = self.folder.parent().context("a node's folder lies in its cluster's")?.join("tmp");
        bind(&shared, Path::new("/tmp"))?;
        mount_resolver(&self.folder.join("resolv.conf"))
    }
}

/// Starts a program in a node: joins the leaf of its cgroup, then all its namespaces.
pub fn enter(group: &str, init: u32, argv: &[String]) -> Result<()> {
    Group::from_argument(group).join_leaf()?;
    let error = Command::new("nsenter").args(entry(init)).args(argv).exec();
    bail!("cannot enter the node: {error}")
}

/// The arguments of `nsenter` that lead into a node.
pub fn entry(init: u32) -> Vec<String> {
    let init = init.to_string();
    ["--target", &init, "--mount", "--uts", "--net", "--pid", "--cgroup", "--"].map(str::to_owned).into()
}

/// Mounts every hierarchy anew, as this cgroup namespace sees it.
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
        cgroups::lend_controllers(&hierarchy.mountpoint)?;
    }
    Ok(())
}

/// Puts the node's own resolver in place; on some machines the usual file is a link into `/run`, which is empty now.
fn mount_resolver(own: &Path) -> Result<()> {
    let usual = Path::new("/etc/resolv.conf");
    if let Ok(target) = fs::read_link(usual) {
        let target = Path::new("/etc").join(target);
        fs::create_dir_all(target.parent().unwrap_or(Path::new("/")))?;
        fs::write(&target, "").with_context(|| format!("cannot make {}", target.display()))?;
    }
    if usual.exists() { mount_bind(own, usual).context("cannot set the node's resolv.conf") } else { Ok(()) }
}

fn mount_settings() -> Result<()> {
    fs::create_dir_all("/run/sysctl")?;
    for (setting, value) in WANTED_SETTINGS {
        let stand_in = Path::new("/run/sysctl").join(setting.replace('/', "."));
        fs::write(&stand_in, format!("{value}\n"))?;
        let place = Path::new("/proc/sys").join(setting);
        if place.exists() {
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
