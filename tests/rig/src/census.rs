//! Which containers of a workload run on this machine, in whatever cluster and on whatever node: nobody who is asked, but
//! the kernel says so.
//!
//! Containers are known by a variable that the workload gives to all of them, and by the name of their pod, which they
//! have as their host name. All nodes of a rig are processes of this machine, so that one look at `/proc` sees them all.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinHandle;

use crate::wireguard::cpu_seconds;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);

/// The containers that run now with this variable: process to pod.
pub fn running(variable: &str) -> BTreeMap<u32, String> {
    look(|pid| pod_of(&fs::read(format!("/proc/{pid}/environ")).ok()?, variable))
}

/// The processes that were started as this program, and how many seconds of a processor each has used so far.
pub fn used(program: &str) -> BTreeMap<u32, f64> {
    look(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_it = command.split(|byte| *byte == 0).next() == Some(program.as_bytes());
        is_it.then(|| cpu_seconds(&format!("/proc/{pid}/stat")).ok())?
    })
}

/// Looks at every process. One may end meanwhile.
fn look<T>(what: impl Fn(u32) -> Option<T>) -> BTreeMap<u32, T> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, what(pid)?))).collect()
}

/// The pod of a process with these variables, if one of them is the one.
fn pod_of(variables: &[u8], wanted: &str) -> Option<String> {
    let mut all = variables.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
    all.clone().find(|one| *one == wanted)?;
    all.find_map(|one| one.strip_prefix("HOSTNAME=")).map(str::to_owned)
}

/// Looks every second, until it is dropped or asked for what it saw.
#[derive(Debug)]
pub struct Census {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    twice: Vec<String>,
}

impl Census {
    /// Begins to look. Each container must be one process.
    pub fn of(variable: &str) -> Self {
        let (seen, variable) = (Arc::<Mutex<Seen>>::default(), variable.to_owned());
        let notes = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut turn = tokio::time::interval(EVERY);
            loop {
                turn.tick().await;
                let now = running(&variable);
                notes.lock().unwrap_or_else(PoisonError::into_inner).note(now);
            }
        });
        Self { seen, task }
    }

    /// An error if any pod was ever seen running twice.
    pub fn end(self) -> Result<()> {
        self.task.abort();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.looks > 0, "nobody has looked");
        ensure!(seen.twice.is_empty(), "ran twice at the same time: {:?}", seen.twice);
        Ok(())
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn note(&mut self, now: BTreeMap<u32, String>) {
        self.looks += 1;
        let mut pods: Vec<String> = now.into_values().collect();
        pods.sort();
        let twice = pods.windows(2).filter(|pair| pair[0] == pair[1]);
        self.twice.extend(twice.map(|pair| pair[0].clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_a_variable_and_its_pod_by_the_host_name() {
        let variables = b"PATH=/bin\0HOSTNAME=web-1\0WORKLOAD=web\0";
        assert_eq!(pod_of(variables, "WORKLOAD=web"), Some("web-1".to_owned()));
        assert_eq!(pod_of(variables, "WORKLOAD=we"), None);
        assert_eq!(pod_of(b"WORKLOAD=web\0", "WORKLOAD=web"), None);
    }

    #[test]
    fn who_runs_twice_at_a_time_is_noticed_and_who_runs_again_is_not() {
        let mut seen = Seen::default();
        let pods = |pods: &[(u32, &str)]| pods.iter().map(|(pid, pod)| (*pid, (*pod).to_owned())).collect();
        seen.note(pods(&[(1, "a"), (2, "b")]));
        seen.note(pods(&[(3, "a"), (2, "b")]));
        assert!(seen.twice.is_empty(), "{seen:?}");
        seen.note(pods(&[(3, "a"), (2, "b"), (4, "a")]));
        assert_eq!(seen.twice, ["a"]);
    }
}
