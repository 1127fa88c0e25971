//! The books of this cluster: what each node has, and who takes how much of it.
//!
//! Kept up to date by what changes: a pod that comes or goes costs one addition, however many there are. Only
//! a read goes over all nodes.
//!
//! Which nodes count:
//! - A node that stands for a peer never does: what is not ours is not offered.
//! - A node counts fully when it takes new pods: it is Ready, not cordoned, not going, and has no taint of
//!   effect `NoSchedule` or `NoExecute` (pods of peers tolerate none).
//! - Any other node counts with what the consumer's own pods have there already. The consumer subtracts them
//!   from what we offer, so without them it would see too little of the other nodes.
//!
//! Which pods count: those bound to a node that have not ended. One that waits for a node takes nothing yet,
//! and perhaps never will.

use std::collections::BTreeMap;

use ferro_api::names::labels;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::pod::request_of;
use super::reader::ResourceReader;
use crate::resources::ResourceMap;

/// What each node has, and who takes how much of it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nodes: BTreeMap<String, Page>,
    pods: BTreeMap<(String, String), Booking>,
}

/// One node. It may be known by its pods only.
#[derive(Clone, Debug, Default)]
struct Page {
    capacity: Capacity,
    taken: BTreeMap<Owner, ResourceMap>,
}

/// The identifier of the consumer whose pod it is; none for pods of this cluster.
type Owner = Option<String>;

#[derive(Clone, Debug, Default, PartialEq)]
enum Capacity {
    /// Not seen yet, gone, or not ours.
    #[default]
    None,
    /// Takes no new pods.
    Closed,
    /// Takes pods, up to this much.
    Open { allocatable: ResourceMap, architecture: Option<String> },
}

#[derive(Clone, Debug, PartialEq)]
struct Booking {
    node: String,
    owner: Owner,
    request: ResourceMap,
}

impl Ledger {
    /// Books a node as it is now. True when what is free may have changed.
    pub fn set_node(&mut self, node: &Node) -> bool {
        let Some(name) = &node.metadata.name else { return false };
        self.set_capacity(name, capacity_of(node))
    }

    /// Strikes a node. True when what is free may have changed.
    pub fn remove_node(&mut self, name: &str) -> bool {
        self.set_capacity(name, Capacity::None)
    }

    /// Books a pod as it is now, for the consumer that it belongs to. True when what is free may have
    /// changed.
    pub fn set_pod(&mut self, pod: &Pod, owner: Option<&str>) -> bool {
        let key = key_of(pod);
        let booking = booking_of(pod, owner);
        if self.pods.get(&key) == booking.as_ref() {
            return false;
        }
        self.strike(&key);
        if let Some(booking) = booking {
            let page = self.nodes.entry(booking.node.clone()).or_default();
            page.taken.entry(booking.owner.clone()).or_default().add(&booking.request);
            self.pods.insert(key, booking);
        }
        true
    }

    /// Strikes a pod. True when what is free may have changed.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) -> bool {
        self.strike(&(namespace.to_owned(), name.to_owned()))
    }

    /// What a consumer uses or could use of this cluster.
    pub fn free_for(&self, consumer: &str) -> ResourceMap {
        let mut free = ResourceMap::default();
        for page in self.nodes.values() {
            free.add(&page.free_for(consumer));
        }
        free
    }

    /// The processor architecture of the nodes that take pods, when they all have the same.
    pub fn architecture(&self) -> Option<&str> {
        let mut all = self.nodes.values().filter_map(|page| match &page.capacity {
            Capacity::Open { architecture, .. } => Some(architecture.as_deref()),
            Capacity::None | Capacity::Closed => None,
        });
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    fn set_capacity(&mut self, name: &str, capacity: Capacity) -> bool {
        let page = self.nodes.entry(name.to_owned()).or_default();
        let changed = page.capacity != capacity;
        page.capacity = capacity;
        self.drop_if_blank(name);
        changed
    }

    fn strike(&mut self, key: &(String, String)) -> bool {
        let Some(booking) = self.pods.remove(key) else { return false };
        if let Some(page) = self.nodes.get_mut(&booking.node) {
            page.release(&booking);
        }
        self.drop_if_blank(&booking.node);
        true
    }

    fn drop_if_blank(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|page| page.taken.is_empty() && page.capacity == Capacity::None) {
            self.nodes.remove(name);
        }
    }
}

impl ResourceReader for Ledger {
    fn read(&self, originator: &str) -> ResourceMap {
        self.free_for(originator)
    }
}

impl Page {
    fn free_for(&self, consumer: &str) -> ResourceMap {
        let is_own = |owner: &Owner| owner.as_deref() == Some(consumer);
        match &self.capacity {
            Capacity::None => ResourceMap::default(),
            Capacity::Closed => self
                .taken
                .iter()
                .find(|(owner, _)| is_own(owner))
                .map(|(_, own)| own.clone())
                .unwrap_or_default(),
            Capacity::Open { allocatable, .. } => {
                let mut free = allocatable.clone();
                self.taken
                    .iter()
                    .filter(|(owner, _)| !is_own(owner))
                    .for_each(|(_, other)| free.subtract(other));
                free
            }
        }
    }

    /// Every pod is one of `pods`, so that an owner of none has none of anything.
    fn release(&mut self, booking: &Booking) {
        if let Some(taken) = self.taken.get_mut(&booking.owner) {
            taken.subtract(&booking.request);
            if taken.get(crate::resources::PODS).is_zero() {
                self.taken.remove(&booking.owner);
            }
        }
    }
}

fn key_of(pod: &Pod) -> (String, String) {
    let meta = &pod.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn booking_of(pod: &Pod, owner: Option<&str>) -> Option<Booking> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let node = pod.spec.as_ref()?.node_name.clone()?;
    Some(Booking { node, owner: owner.map(str::to_owned), request: request_of(pod) })
}

fn capacity_of(node: &Node) -> Capacity {
    if labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata) {
        Capacity::None
    } else if takes_pods(node) {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let architecture = status.and_then(|status| Some(status.node_info.as_ref()?.architecture.clone()));
        Capacity::Open {
            allocatable: allocatable.map(ResourceMap::read).unwrap_or_default(),
            architecture: architecture.filter(|name| !name.is_empty()),
        }
    } else {
        Capacity::Closed
    }
}

fn takes_pods(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let repels = taints.iter().any(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && !cordoned && !repels && node.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests;
