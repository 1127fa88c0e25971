//! The conditions of a virtual node, from the health of the peer and of the network to it.

use ferro_api::discovery::{NetworkState, NetworkStatus};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::keepalive::Signal;

/// The reason of a node that is not ready because its peer is not heard.
pub const PEER_SILENT: &str = "PeerSilent";

const READY: &str = "Ready";

/// How the peer behind a node fares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Health<'a> {
    /// Whether it is heard.
    pub signal: Signal,
    /// Whether its pods can be reached.
    pub network: &'a NetworkStatus,
    /// Whether the peering is being ended.
    pub ending: bool,
}

impl Health<'_> {
    /// The network counts as up also when somebody else provides it.
    fn network_is_up(&self) -> bool {
        match self.network.state {
            NetworkState::Established | NetworkState::External => true,
            NetworkState::None | NetworkState::Pending | NetworkState::Error => false,
        }
    }

    fn network_message(&self) -> String {
        let unsaid = "pods of the two clusters cannot reach each other yet; see the Network condition of the \
                      ForeignCluster";
        self.network.message.clone().unwrap_or_else(|| unsaid.to_owned())
    }

    fn ready(&self) -> Word {
        if self.ending {
            Word::new(READY, "False", "PeeringEnds", "the peering is being ended; pods are moved elsewhere")
        } else if let Signal::Lost { since, drain_at } = self.signal {
            let text = format!("the peer is silent since {since:.0}; its pods stay until {drain_at:.0}");
            Word::new(READY, "False", PEER_SILENT, text)
        } else if let Signal::Drain { since } = self.signal {
            let text = format!("the peer is silent since {since:.0}; its pods are moved elsewhere");
            Word::new(READY, "False", PEER_SILENT, text)
        } else if self.network_is_up() {
            Word::new(READY, "True", "PeerReady", "the peer and the network to it are up")
        } else {
            Word::new(READY, "False", "NetworkNotReady", self.network_message())
        }
    }

    fn network(&self) -> Word {
        const TYPE: &str = "NetworkUnavailable";
        if self.network_is_up() {
            Word::new(TYPE, "False", "NetworkReady", "pods of the two clusters can reach each other")
        } else {
            Word::new(TYPE, "True", "NetworkNotReady", self.network_message())
        }
    }
}

/// Since when a node says that its peer is silent.
pub fn lost_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    let silent = ready.reason.as_deref() == Some(PEER_SILENT);
    ready.last_transition_time.as_ref().filter(|_| silent).map(|since| since.0)
}

/// Puts our conditions in place of earlier ones; those of others stay.
pub(super) fn put_on(conditions: &mut Vec<NodeCondition>, health: &Health<'_>, now: Timestamp) {
    let no_pressure = |type_| Word::new(type_, "False", "LeftToPeer", "the peer sees to it on its own nodes");
    let words = [
        health.ready(),
        health.network(),
        no_pressure("MemoryPressure"),
        no_pressure("DiskPressure"),
        no_pressure("PIDPressure"),
    ];
    for word in words {
        match conditions.iter_mut().find(|condition| condition.type_ == word.type_) {
            Some(present) => word.replace(present, now),
            None => conditions.push(word.condition(now)),
        }
    }
}

/// What a condition says.
struct Word {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Word {
    fn new(
        type_: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason, message: message.into() }
    }

    fn condition(self, now: Timestamp) -> NodeCondition {
        NodeCondition {
            type_: self.type_.into(),
            status: self.status.into(),
            reason: Some(self.reason.into()),
            message: Some(self.message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        }
    }

    /// Leaves a condition that says the same as it is, and keeps the time of the last change of its status.
    fn replace(self, present: &mut NodeCondition, now: Timestamp) {
        let same =
            present.reason.as_deref() == Some(self.reason) && present.message.as_ref() == Some(&self.message);
        let same_status = present.status == self.status;
        if !(same && same_status) {
            let since = present.last_transition_time.clone().filter(|_| same_status);
            *present = self.condition(now);
            present.last_transition_time = since.or(Some(Time(now)));
        }
    }
}
