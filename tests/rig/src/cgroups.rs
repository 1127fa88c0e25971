//! A cgroup of its own for each node, in every hierarchy the machine has, so that sweeping up is removing one folder.
//!
//! A node's processes live in the leaf `system` and its pods beside it: under cgroup v2 only leaves may hold processes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::kill;

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
        let chooses =
            |option: &&str| !matches!(*option, "rw" | "ro") && !option.starts_with("release_agent=");
        let options: Vec<&str> = filesystem.nth(1)?.split(',').filter(chooses).collect();
        let options = if kind == "cgroup2" { String::new() } else { options.join(",") };
        Some(Hierarchy { mountpoint: place.split(' ').nth(4)?.into(), kind: kind.into(), options })
    };
    table.lines().filter_map(line).collect()
}

/// A group of the rig: `<instance>`, `<instance>/<cluster>` or `<instance>/<cluster>/<node>`, in all hierarchies.
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

    /// The processes of the group and of all below it.
    pub fn processes(&self) -> Vec<u32> {
        let hierarchies = hierarchies().unwrap_or_default();
        let mut groups: Vec<PathBuf> =
            hierarchies.first().map(|first| first.mountpoint.join(&self.0)).into_iter().collect();
        let mut found = Vec::new();
        while let Some(group) = groups.pop() {
            found.extend(members(&group));
            groups.extend(below(&group));
        }
        found
    }

    /// Removes the group and all below it, ending whatever is still in it.
    pub fn sweep(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            remove(&hierarchy.mountpoint.join(&self.0))?;
            // The rig's root goes with the last group; while another rig runs it is not empty, and stays.
            let _ = fs::remove_dir(hierarchy.mountpoint.join(ROOT));
        }
        Ok(())
    }
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

/// Makes a group step by step, each step with what its parent may use: a version 1 cpuset is unusable until it names
/// CPUs and memory, and a version 2 group controls only what the one above lends it.
fn make_once(mountpoint: &Path, group: &Path) -> Result<PathBuf> {
    let mut path = mountpoint.to_path_buf();
    for step in group {
        let parent = path.clone();
        // A node lends only once its own processes are in the leaf: see `lend_controllers` in the node's start.
        if step != LEAF {
            lend_controllers(&parent)?;
        }
        path.push(step);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make the cgroup {}", path.display()));
            }
            _ => inherit_cpuset(&parent, &path),
        }
    }
    Ok(path)
}

/// Version 1 has no such files; a version 2 hierarchy without controllers has nothing to lend.
pub fn lend_controllers(group: &Path) -> Result<()> {
    let available = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let wanted: Vec<String> =
        available.split_whitespace().map(|controller| format!("+{controller}")).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    fs::write(group.join("cgroup.subtree_control"), wanted.join(" "))
        .with_context(|| format!("cannot lend the controllers of {}", group.display()))
}

fn inherit_cpuset(parent: &Path, group: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(present) = fs::read_to_string(group.join(file)) else { continue };
        if present.trim().is_empty() {
            let inherited = fs::read_to_string(parent.join(file)).unwrap_or_default();
            // Version 2 has the file too, where empty already means "as above".
            let _ = fs::write(group.join(file), inherited.trim());
        }
    }
}

fn remove(group: &Path) -> Result<()> {
    for inner in below(group) {
        remove(&inner)?;
    }
    members(group).into_iter().for_each(kill);
    match fs::remove_dir(group) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| {
            format!("cannot remove the cgroup {}; is a process left in it?", group.display())
        }),
        _ => Ok(()),
    }
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn members(group: &Path) -> Vec<u32> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_in_a_mount_table() {
        let table = "\
            30 29 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            32 30 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,release_agent=/x,name=systemd\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = parse(table);
        let options: Vec<_> = found.iter().map(|one| (one.kind.as_str(), one.options.as_str())).collect();
        assert_eq!(options, [("cgroup", "cpu,cpuacct"), ("cgroup", "name=systemd"), ("cgroup2", "")]);
        assert_eq!(found[0].mountpoint, Path::new("/sys/fs/cgroup/cpu"));
    }
}
