//! What a client and the supervisor say to each other: one JSON document a line over a Unix socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lan::Loss;
use crate::plan::{ClusterPlan, ClusterSpec};

/// What a client asks for. A client that goes away before the answer takes its wish back.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start clusters.
    Up(Vec<ClusterSpec>),
    /// End these clusters; all of them when none is named.
    Down(Vec<String>),
    /// Everything that runs.
    Status,
    /// Load an image archive into every node, or into those of the named clusters.
    Load {
        /// The archive.
        archive: PathBuf,
        /// Names of clusters; all when empty.
        clusters: Vec<String>,
    },
    /// Put a fault between two places.
    Cut {
        /// A cluster, or `cluster/node`.
        from: String,
        /// A cluster, or `cluster/node`.
        to: String,
        /// How much is lost.
        loss: Loss,
        /// Only frames from the first to the second.
        oneway: bool,
    },
    /// Take the faults between two places away.
    Heal {
        /// A cluster, or `cluster/node`.
        from: String,
        /// A cluster, or `cluster/node`.
        to: String,
    },
    /// Kill a process; it stays dead until restarted.
    Kill(String),
    /// Start a process again, ending it first where it runs.
    Restart(String),
    /// Pull the plug of `cluster/node` and start it again.
    Reboot(String),
    /// Keep the rig only as long as this connection is open; answered at once.
    Lease,
}

/// What the supervisor answers: any number of `Progress`, then one of the others.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// A step is done.
    Progress {
        /// Which cluster.
        cluster: String,
        /// Which step.
        step: String,
    },
    /// All is done.
    Done(Vec<ClusterStatus>),
    /// It was not done, and why.
    Failed(String),
}

/// A running cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its addresses and names.
    pub plan: ClusterPlan,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// What its API server was asked for, if that is written down.
    pub audit_log: Option<PathBuf>,
    /// The init process of each node that runs, numbered as the supervisor sees it, by the number of the node.
    pub inits: BTreeMap<u8, u32>,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
    /// Resident memory in KiB of all that runs in it, pods and helpers included.
    pub resident_kib: u64,
}

/// A process of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its name.
    pub name: String,
    /// Number of its node.
    pub node: u8,
    /// Resident memory in KiB; nothing when it does not run.
    pub resident_kib: Option<u64>,
    /// How often it ended without being told to.
    pub restarts: u32,
}
