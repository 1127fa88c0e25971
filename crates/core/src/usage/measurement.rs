//! What the metrics API of another cluster says of the pods of one namespace, read strictly.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::resources::Amount;

/// The most that is read: text, pods of a namespace, containers of a pod, and letters of a time.
const MOST_TEXT: usize = 8 * 1024 * 1024;
const MOST_PODS: usize = 20_000;
const MOST_CONTAINERS: usize = 64;
const MOST_STAMP: usize = 64;

/// What was measured of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The name of the pod.
    pub pod: String,
    /// When, by the clock over there.
    pub stamp: String,
    /// Its containers by name.
    pub(super) containers: BTreeMap<String, Amounts>,
}

/// What a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Billionths of a processor.
    pub(super) billionths: u128,
    /// Bytes.
    pub(super) memory: u64,
}

/// It is not a list of measurements, or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster answers with what is no list of PodMetrics, or too long a one")]
pub struct Unreadable;

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    timestamp: String,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    cpu: String,
    memory: String,
}

/// Reads a list of `PodMetrics`. Containers of which not all was measured are left out.
pub fn measurements(json: &str) -> Result<Vec<Measurement>, Unreadable> {
    if json.len() > MOST_TEXT {
        return Err(Unreadable);
    }
    let list: List = serde_json::from_str(json).map_err(|_| Unreadable)?;
    let fits = |item: &Item| item.containers.len() <= MOST_CONTAINERS && item.timestamp.len() <= MOST_STAMP;
    if list.items.len() > MOST_PODS || !list.items.iter().all(fits) {
        return Err(Unreadable);
    }
    Ok(list.items.into_iter().map(measurement).collect())
}

fn measurement(item: Item) -> Measurement {
    let known = |container: Container| Some((container.name, amounts(&container.usage)?));
    Measurement {
        pod: item.metadata.name,
        stamp: item.timestamp,
        containers: item.containers.into_iter().filter_map(known).collect(),
    }
}

fn amounts(usage: &Usage) -> Option<Amounts> {
    let (cpu, memory): (Amount, Amount) = (usage.cpu.parse().ok()?, usage.memory.parse().ok()?);
    let bytes = u64::try_from(memory.billionths() / 1_000_000_000).ok()?;
    Some(Amounts { billionths: cpu.billionths(), memory: bytes })
}
