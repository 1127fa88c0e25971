//! What the processes of ferro take of this machine, from /proc.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use anyhow::{Context, Result};

/// The roles of ferro that run in a cluster.
pub const ROLES: [&str; 4] = ["controller", "auth", "node", "gateway"];

/// What one process holds and has used.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub role: String,
    /// The cluster of the rig that it runs in.
    pub cluster: String,
    pub memory: Memory,
    pub cpu: Duration,
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub resident: u64,
    /// The same, with what several processes share counted once among them: the program itself, mostly.
    pub share: u64,
    /// What is in no file: heap and stacks.
    pub anonymous: u64,
}

impl Add for Memory {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            resident: self.resident + other.resident,
            share: self.share + other.share,
            anonymous: self.anonymous + other.anonymous,
        }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// All roles of ferro that run on this machine.
pub fn roles() -> Result<Vec<Usage>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("no /proc")? {
        let folder = entry?.path();
        // A process may end while it is looked at.
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        if let Some(role) = read("cmdline").and_then(|line| role(&line))
            && let (Some(status), Some(stat), Some(groups)) = (read("status"), read("stat"), read("cgroup"))
        {
            let rollup = read("smaps_rollup").unwrap_or_default();
            let memory = Memory {
                resident: field(&status, "VmRSS:"),
                share: field(&rollup, "Pss:"),
                anonymous: field(&status, "RssAnon:"),
            };
            found.push(Usage { role, cluster: cluster(&groups), memory, cpu: cpu(&stat) });
        }
    }
    Ok(found)
}

fn role(line: &str) -> Option<String> {
    let mut words = line.split('\0');
    let is_ferro = words.next()?.ends_with("ferro");
    let role = words.next().filter(|role| ROLES.contains(role))?;
    is_ferro.then(|| role.to_owned())
}

/// The groups of a rig are named after it, its clusters and their nodes.
fn cluster(groups: &str) -> String {
    let below = groups.split_once("/ferro-rig/").map(|(_, below)| below);
    below.and_then(|below| below.split('/').nth(1)).unwrap_or_default().to_owned()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// User and system time, in ticks of 10 ms.
fn cpu(stat: &str) -> Duration {
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
