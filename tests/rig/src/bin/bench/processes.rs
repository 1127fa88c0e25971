//! What the processes of ferro take of this machine, from /proc.

use std::time::Duration;

use anyhow::{Context, Result};

/// What one process holds and has used.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub role: String,
    pub resident_kib: u64,
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
            found.push(Usage { role, resident_kib: resident(&status), cpu: cpu(&stat) });
        }
    }
    Ok(found)
}

fn role(line: &str) -> Option<String> {
    let mut words = line.split('\0');
    let is_ferro = words.next()?.ends_with("ferro");
    let role = words.next().filter(|role| ["controller", "auth", "node"].contains(role))?;
    is_ferro.then(|| role.to_owned())
}

fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// User and system time, in ticks of 10 ms.
fn cpu(stat: &str) -> Duration {
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
