//! What the processes of ferro take of this machine, from /proc.

use std::time::Duration;

use anyhow::{Context, Result};

/// The roles of ferro that run in a cluster.
pub const ROLES: [&str; 4] = ["controller", "auth", "node", "gateway"];

/// What one process holds and has used.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub role: String,
    pub resident_kib: u64,
    /// The same, with what several processes share counted once among them: the program itself, mostly.
    pub share_kib: u64,
    pub cpu: Duration,
}

/// All roles of ferro that run on this machine.
pub fn roles() -> Result<Vec<Usage>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("no /proc")? {
        let folder = entry?.path();
        // A process may end while it is looked at.
        if let Ok(line) = std::fs::read_to_string(folder.join("cmdline"))
            && let Some(role) = role(&line)
            && let (Ok(status), Ok(stat)) =
                (std::fs::read_to_string(folder.join("status")), std::fs::read_to_string(folder.join("stat")))
        {
            let rollup = std::fs::read_to_string(folder.join("smaps_rollup")).unwrap_or_default();
            let (resident_kib, share_kib) = (field(&status, "VmRSS:"), field(&rollup, "Pss:"));
            found.push(Usage { role, resident_kib, share_kib, cpu: cpu(&stat) });
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
