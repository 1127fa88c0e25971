//! A cgroup of its own for each node, in every hierarchy the machine has, so that sweeping up is removing one folder.
//!
//! A node's processes live in the leaf `system` and its pods beside it: under cgroup v2 only leaves may hold processes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the rig's groups hang in each hierarchy.
const ROOT: &str = "ferro-rig";
/// The leaf that holds a node's own processes.
const LEAF: &str = "system";

/// One mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// `cgroup` (version 1) or `cgroup2`.
    pub kind: String,
    /// The options that choose its controllers; nothing for version 2.
    pub options: String,
}

/// The hierarchies mounted now.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    Ok(parse(&table))
}

/// Reads the mount table: `… mountpoint options … - kind source superoptions`.
fn parse(table: &str) -> Vec<Hierarchy> {
    let line = |line: &str| {
        let (place, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        let kind = filesystem.next().filter(|kind| kind.starts_with("cgroup"))?;
        let options =
            filesystem.nth(1)?.split(',').filter(|option| !matches!(*option, "rw" | "ro" | "nsdelegate"));
        let options = if kind == "cgroup2" { String::new() } else { options.collect::<Vec<_>>().join(",") };
        Some(Hierarchy { mountpoint: place.split(' ').nth(4)?.into(), kind: kind.into(), options })
    };
    table.lines().filter_map(line).collect()
}

/// A group of the rig: `<instance>` or `<instance>/<node>`, in all hierarchies.
#[derive(Clone, Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Names a group; nothing is made yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(Path::new(ROOT).join(path))
    }

    /// The group as an argument for a child process.
    pub fn as_argument(&self) -> String {
        self.0.display().to_string()
    }

    /// The group named by an argument.
    pub fn from_argument(argument: &str) -> Self {
        Self(argument.into())
    }

    /// Makes the group everywhere and moves this process into it.
    pub fn join(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            let group = make(&hierarchy.mountpoint, &self.0)?;
            fs::write(group.join("cgroup.procs"), "0")
                .with_context(|| format!("cannot join {}", group.display()))?;
        }
        Ok(())
    }

    /// Moves this process into the leaf for a node's own processes.
    pub fn join_leaf(&self) -> Result<()> {
        Self(self.0.join(LEAF)).join()
    }

    /// Removes the group and all below it; processes in it must be gone.
    pub fn sweep(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            remove(&hierarchy.mountpoint.join(&self.0))?;
            // The rig's root goes with the last group; while another rig runs it is not empty, and stays.
            let _ = fs::remove_dir(hierarchy.mountpoint.join(ROOT));
        }
        Ok(())
    }
}

/// Inside a new cgroup namespace: leaves its root empty of processes and lends all controllers to what comes below.
pub fn settle_in_namespace() -> Result<()> {
    for hierarchy in hierarchies()? {
        let leaf = make(&hierarchy.mountpoint, Path::new(LEAF))?;
        fs::write(leaf.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot join {}", leaf.display()))?;
        if hierarchy.kind == "cgroup2" {
            lend_controllers(&hierarchy.mountpoint)?;
        }
    }
    Ok(())
}

fn lend_controllers(root: &Path) -> Result<()> {
    let available = fs::read_to_string(root.join("cgroup.controllers"))?;
    let wanted: Vec<String> =
        available.split_whitespace().map(|controller| format!("+{controller}")).collect();
    fs::write(root.join("cgroup.subtree_control"), wanted.join(" "))
        .context("cannot lend cgroup controllers to pods")
}

/// Makes a group; tries again when another rig that ends takes the common root away at just that moment.
fn make(mountpoint: &Path, group: &Path) -> Result<PathBuf> {
    let vanished = |error: &anyhow::Error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
    };
    for _ in 0..10 {
        match make_once(mountpoint, group) {
            Err(error) if vanished(&error) => {}
            done => return done,
        }
    }
    make_once(mountpoint, group)
}

/// Makes a group step by step; a cpuset is unusable until it names CPUs and memory, so each step inherits them.
fn make_once(mountpoint: &Path, group: &Path) -> Result<PathBuf> {
    let mut path = mountpoint.to_path_buf();
    for step in group {
        let parent = path.clone();
        path.push(step);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make the cgroup {}", path.display()));
            }
            _ => inherit_cpuset(&parent, &path)?,
        }
    }
    Ok(path)
}

fn inherit_cpuset(parent: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(present) = fs::read_to_string(group.join(file)) else { continue };
        if present.trim().is_empty() {
            let inherited = fs::read_to_string(parent.join(file))?;
            // Version 2 has the file too, where empty already means "as above".
            let _ = fs::write(group.join(file), inherited.trim());
        }
    }
    Ok(())
}

fn remove(group: &Path) -> Result<()> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", group.display())),
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path())?;
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| {
            format!("cannot remove the cgroup {}; is a process left in it?", group.display())
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_in_a_mount_table() {
        let table = "\
            30 29 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            32 30 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = parse(table);
        let options: Vec<_> = found.iter().map(|one| (one.kind.as_str(), one.options.as_str())).collect();
        assert_eq!(options, [("cgroup", "cpu,cpuacct"), ("cgroup", "name=systemd"), ("cgroup2", "")]);
        assert_eq!(found[0].mountpoint, Path::new("/sys/fs/cgroup/cpu"));
    }
}
