//! What people are shown: the status of the `ForeignCluster`, its conditions, and the Events on a change.

use ferro_api::common::ObjectRef;
use ferro_api::discovery::{
    ForeignClusterStatus, NetworkState, PeeringState, PeeringStatus, TenantNamespaces,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::Step;
use super::snapshot::{Snapshot, Standing, Tenant};
use crate::policy::Reason;
use crate::replication::difference;

/// The condition that the other cluster has let this one in.
pub const AUTHENTICATED: &str = "Authenticated";
/// The reason of that condition when a peer turns away what it had granted.
pub const REJECTED_BY_PEER: &str = "RejectedByPeer";
/// The condition that this cluster uses resources of the other.
pub const OUTGOING: &str = "OutgoingPeering";
/// The condition that the other cluster uses resources of this one.
pub const INCOMING: &str = "IncomingPeering";
/// The condition of a `ForeignCluster` that is being deleted: what it waits for.
pub const REMOVED: &str = "Removed";
const NETWORK: &str = "Network";
/// As much as the message of a peering may have.
const MOST_TEXT: usize = 1000;

/// Something worth an Event on the `ForeignCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// What happened, and what to do about it.
    pub note: String,
}

/// The status before, and as it should be.
pub(super) struct Report {
    before: ForeignClusterStatus,
    after: ForeignClusterStatus,
    warnings: Vec<&'static str>,
    now: Timestamp,
}

impl Report {
    pub(super) fn new(snapshot: &Snapshot<'_>) -> Self {
        let before = snapshot.peer.status.clone().unwrap_or_default();
        let mut report = Self { after: before.clone(), before, warnings: Vec::new(), now: snapshot.now };
        report.after.observed_generation = snapshot.peer.metadata.generation;
        report.authentication(snapshot);
        report.network(snapshot);
        report.tenant(snapshot.tenant);
        report
    }

    pub(super) fn outgoing(&mut self, step: &Step, snapshot: &Snapshot<'_>) {
        let facts = &snapshot.outgoing;
        self.after.outgoing = Some(PeeringStatus {
            resource_request: facts.request.map(reference),
            resource_offer: facts.offer.map(reference),
            resource_quota: facts.offer.and_then(|offer| offer.spec.resource_quota.clone()),
            virtual_node: facts.node.map(|node| ObjectRef { namespace: None, name: node.name.to_owned() }),
            ..shown(step)
        });
        self.direction(OUTGOING, step);
    }

    pub(super) fn incoming(&mut self, step: &Step, snapshot: &Snapshot<'_>) {
        let facts = &snapshot.incoming;
        self.after.incoming = Some(PeeringStatus {
            resource_request: facts.request.map(reference),
            resource_offer: facts.offer.map(reference),
            resource_quota: facts.offer.and_then(|offer| offer.spec.resource_quota.clone()),
            ..shown(step)
        });
        self.direction(INCOMING, step);
    }

    pub(super) fn removal(&mut self, reason: Option<&Reason>) {
        if let Some(reason) = reason {
            self.set(REMOVED, false, reason);
        } else {
            self.after.conditions.retain(|condition| condition.type_ != REMOVED);
        }
    }

    /// The merge patch that brings the status up to date.
    pub(super) fn patch(&self) -> Option<Value> {
        difference(&json!({"status": self.before}), &json!({"status": self.after}))
    }

    /// A notice for each condition that is new or has another reason, except for beginnings with nothing to
    /// tell.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let known = |type_: &str| self.before.conditions.iter().find(|condition| condition.type_ == type_);
        let is_news = |condition: &&Condition| match known(&condition.type_) {
            Some(before) => before.reason != condition.reason,
            None => !matches!(condition.reason.as_str(), "NotJoined" | "NotRequested" | "NotConnected"),
        };
        let ours = [AUTHENTICATED, OUTGOING, INCOMING, NETWORK, REMOVED];
        let of_ours =
            self.after.conditions.iter().filter(|condition| ours.contains(&condition.type_.as_str()));
        let notice = |condition: &Condition| Notice {
            warning: self.warnings.contains(&condition.type_.as_str()),
            reason: condition.reason.clone(),
            note: condition.message.clone(),
        };
        of_ours.filter(is_news).map(notice).collect()
    }

    fn direction(&mut self, type_: &'static str, step: &Step) {
        match step.shown {
            PeeringState::Refused | PeeringState::Unreachable => self.warnings.push(type_),
            PeeringState::None
            | PeeringState::Pending
            | PeeringState::Established
            | PeeringState::Disconnecting => {}
        }
        self.set(type_, step.shown == PeeringState::Established, &step.reason);
    }

    fn authentication(&mut self, snapshot: &Snapshot<'_>) {
        let (peer, said) = (snapshot.name(), snapshot.authentication_message());
        let why = |unsaid: &str| said.unwrap_or_else(|| format!("{peer} {unsaid}"));
        let (accepted, reason) = match snapshot.access.standing {
            Standing::Accepted => (true, Reason::new("LetIn", format!("{peer} has let this cluster in"))),
            Standing::Pending => (false, Reason::new("WaitsForPeer", why("has not answered yet"))),
            Standing::Refused => (false, Reason::new("RefusedByPeer", why("does not let this cluster in"))),
            Standing::Rejected => {
                let text =
                    format!("{peer} no longer lets this cluster in; get a new token there: ferro token");
                (false, Reason::new(REJECTED_BY_PEER, text))
            }
        };
        if matches!(snapshot.access.standing, Standing::Refused | Standing::Rejected) {
            self.warnings.push(AUTHENTICATED);
        }
        self.set(AUTHENTICATED, accepted, &reason);
    }

    fn network(&mut self, snapshot: &Snapshot<'_>) {
        let network = snapshot.network;
        let said = |unsaid: &str| network.message.clone().unwrap_or_else(|| unsaid.to_owned());
        let (up, reason) = match network.state {
            NetworkState::None => (false, Reason::new("NotConnected", said("the networks are not joined"))),
            NetworkState::Pending => {
                (false, Reason::new("Connecting", said("the networks are being joined")))
            }
            NetworkState::Established => (true, Reason::new("Connected", said("the networks are joined"))),
            NetworkState::External => {
                (true, Reason::new("External", said("somebody else joins the networks")))
            }
            NetworkState::Error => (false, Reason::new("TunnelFailed", said("the tunnel failed"))),
        };
        if network.state == NetworkState::Error {
            self.warnings.push(NETWORK);
        }
        self.after.network = Some(network.clone());
        self.set(NETWORK, up, &reason);
    }

    fn tenant(&mut self, tenant: Tenant<'_>) {
        let local = match tenant {
            Tenant::Present(name) | Tenant::Going(name) => Some(name.to_owned()),
            Tenant::Absent => None,
        };
        let remote = self.before.tenant_namespaces.as_ref().and_then(|namespaces| namespaces.remote.clone());
        let known = local.is_some() || remote.is_some();
        self.after.tenant_namespaces = known.then_some(TenantNamespaces { local, remote });
    }

    fn set(&mut self, type_: &str, status: bool, reason: &Reason) {
        self.after.conditions = condition(&self.after.conditions, type_, status, reason, self.now);
    }
}

/// The conditions with one of them as it should be; it keeps its time as long as its status is the same.
pub fn condition(
    present: &[Condition],
    type_: &str,
    status: bool,
    reason: &Reason,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if status { "True" } else { "False" };
    let mut conditions = present.to_vec();
    let earlier = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let since = earlier.as_ref().filter(|earlier| earlier.status == status);
    let next = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.word.to_owned(),
        message: clipped(&reason.text),
        last_transition_time: since.map_or(Time(now), |earlier| earlier.last_transition_time.clone()),
        observed_generation: None,
    };
    match earlier {
        Some(earlier) => *earlier = next,
        None => conditions.push(next),
    }
    conditions
}

fn shown(step: &Step) -> PeeringStatus {
    PeeringStatus { state: step.shown, message: Some(clipped(&step.reason.text)), ..PeeringStatus::default() }
}

fn clipped(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

fn reference<K: Resource>(object: &K) -> ObjectRef {
    let meta = object.meta();
    ObjectRef { namespace: meta.namespace.clone(), name: meta.name.clone().unwrap_or_default() }
}
