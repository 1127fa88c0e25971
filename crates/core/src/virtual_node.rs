//! The Node that stands for a peer: made from an accepted offer, and kept as the offer and the peer's health
//! say, with no write when nothing changes.
//!
//! What a peer says about itself never decides a name or a privilege here. Of the labels that it claims,
//! these are left out, and so are keys and values that no API server would take:
//! - everything under `kubernetes.io` and `k8s.io` and their subdomains (`node-role.kubernetes.io`,
//!   `node.kubernetes.io`, `topology.kubernetes.io`, ...), which schedulers, controllers and cloud providers
//!   act on; except `kubernetes.io/arch`, which is taken when it names a known architecture, because images
//!   are built for one;
//! - everything under subdomains of `liqo.io`, and the labels `liqo.io/type`, `remoteID`, `originID`,
//!   `replication`, `replicated` and `enabled`, which our own controllers act on.
//!
//! What the administrator sets on the `ForeignCluster` comes on top; only what makes the node a virtual one
//! of this peer cannot be changed. The labels that are a peer's claim are listed in an annotation.

mod conditions;
mod labels;
pub mod ports;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ferro_api::discovery::NodeLabels;
use ferro_api::names::{annotations, taints};
use ferro_api::sharing::ResourceOfferSpec;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::names::is_label_key;
use crate::replication::difference;
use crate::resources::ResourceMap;

pub use conditions::{Health, PEER_SILENT, lost_since};

/// The namespace of the Leases of all nodes.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// As long as that of a kubelet.
const LEASE_SECONDS: i32 = 40;
const OPERATING_SYSTEM: &str = "linux";

/// What a virtual node is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualNode<'a> {
    /// The name of the node.
    pub name: &'a str,
    /// The identifier of the peer.
    pub cluster_id: &'a str,
    /// What the peer offers.
    pub offer: &'a ResourceOfferSpec,
    /// Corrections to what the peer claims.
    pub corrections: Option<&'a NodeLabels>,
    /// The version that the node reports.
    pub version: &'a str,
    /// Where API servers find its agent.
    pub agent: Option<SocketAddr>,
}

/// The writes that bring a node up to date: merge patches that apply only to the version they were made for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upkeep {
    /// For the node.
    pub object: Option<Value>,
    /// For its status.
    pub status: Option<Value>,
}

impl VirtualNode<'_> {
    /// The node as it is first registered.
    pub fn register(&self, health: &Health<'_>, now: Timestamp) -> Node {
        self.brought_up_to_date(&Node::default(), health, now)
    }

    /// What must change on a node that exists.
    pub fn upkeep(&self, existing: &Node, health: &Health<'_>, now: Timestamp) -> Upkeep {
        let next = self.brought_up_to_date(existing, health, now);
        let object = |node: &Node| json!({"metadata": node.metadata, "spec": node.spec});
        let status = |node: &Node| json!({"status": node.status});
        let onto_this_version = |mut patch: Value| {
            patch["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
            patch
        };
        Upkeep {
            object: difference(&object(existing), &object(&next)).map(onto_this_version),
            status: difference(&status(existing), &status(&next)).map(onto_this_version),
        }
    }

    /// The node with everything of ours as it should be, and everything of others as it was.
    fn brought_up_to_date(&self, existing: &Node, health: &Health<'_>, now: Timestamp) -> Node {
        let mut node = existing.clone();
        node.metadata.name = Some(self.name.to_owned());
        labels::put_on(&mut node.metadata, self);
        self.put_spec_on(node.spec.get_or_insert_default());
        self.put_status_on(node.status.get_or_insert_default());
        let conditions = &mut node.status.get_or_insert_default().conditions;
        conditions::put_on(conditions.get_or_insert_default(), health, now);
        node
    }

    fn put_spec_on(&self, spec: &mut NodeSpec) {
        let (ours, taints) = (taints::not_allowed(), spec.taints.get_or_insert_default());
        if !taints.iter().any(|taint| taint.key == ours.key && taint.effect == ours.effect) {
            taints.push(ours);
        }
        // A cloud's controller deletes nodes that it does not know, unless they name somebody else's.
        spec.provider_id.get_or_insert_with(|| format!("liqo://{}", self.cluster_id));
    }

    /// The address of the agent is that of the process that leads: logs and commands go there.
    fn put_agent_on(&self, status: &mut NodeStatus) {
        let Some(agent) = self.agent else { return };
        let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
        status.addresses = Some(vec![
            address("InternalIP", agent.ip().to_string()),
            address("Hostname", self.name.to_owned()),
        ]);
        let kubelet_endpoint = Some(DaemonEndpoint { port: agent.port().into() });
        status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint });
    }

    /// What is offered, without names and fractions that no API server would take.
    fn countable(&self) -> ResourceMap {
        let offered = self.offer.resource_quota.as_ref();
        let mut offered = offered.map(|quota| ResourceMap::read(&quota.hard)).unwrap_or_default();
        offered.retain(is_label_key);
        offered.keep_percent(100);
        offered
    }

    fn put_status_on(&self, status: &mut NodeStatus) {
        let offered = self.countable();
        for present in [&mut status.capacity, &mut status.allocatable] {
            if present.as_ref().map(ResourceMap::read).as_ref() != Some(&offered) {
                *present = Some(offered.quantities());
            }
        }
        self.put_agent_on(status);
        status.node_info = Some(NodeSystemInfo {
            operating_system: OPERATING_SYSTEM.to_owned(),
            architecture: labels::architecture(self.offer).to_owned(),
            kubelet_version: self.version.to_owned(),
            ..status.node_info.take().unwrap_or_default()
        });
    }
}

/// The patch by which a node that is about to be deleted belongs to no place any more, if it still does.
///
/// A node that takes no pods counts in the spread constraints of those that wait, and may be what they wait for. But
/// kube-scheduler looks at them when it hears of the end of a node, and forgets the node only then: a pod that is looked at in
/// between waits for five minutes more. Of a change of labels it hears in the right order.
pub fn farewell(node: &Node) -> Option<Value> {
    let gone: BTreeMap<&str, Value> =
        labels::beside_its_own(&node.metadata).map(|key| (key, Value::Null)).collect();
    let is_that_one = json!(node.metadata.uid);
    (!gone.is_empty()).then(|| json!({"metadata": {"uid": is_that_one, "labels": gone}}))
}

/// The keys of the labels that the peer of a node claims for itself.
pub fn claimed_labels(meta: &ObjectMeta) -> Vec<&str> {
    labels::listed(meta, annotations::CLAIMED_LABELS)
}

/// The Lease by which a node shows that its agent is alive. It goes when the node goes.
pub fn lease(node: &Node, now: Timestamp) -> Lease {
    let (name, uid) = (node.metadata.name.clone().unwrap_or_default(), node.metadata.uid.clone());
    let owner = uid.map(|uid| OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.clone(),
        uid,
        ..OwnerReference::default()
    });
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASE_NAMESPACE.into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests;
