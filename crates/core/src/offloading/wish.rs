//! Whether a cluster may be given namespaces: as long as it is peered with, and until its node has been drained.

use ferro_api::discovery::{ForeignCluster, PeeringState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::peering::{NAMESPACES_END, OUTGOING};

/// What is to become of the namespaces on a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// They follow what is offloaded.
    Map,
    /// Those that are there stay, and none is added: pods may still run in them, or the peering is about to be taken up
    /// again.
    Keep,
    /// None is to be left.
    Part,
}

/// What is to become of the namespaces on a peer. What is not known ends nothing: a status can be lost.
pub fn wish(peer: &ForeignCluster) -> Wish {
    let Some(status) = &peer.status else { return Wish::Keep };
    let Some(outgoing) = &status.outgoing else { return Wish::Keep };
    match outgoing.state {
        PeeringState::Established | PeeringState::Unreachable => Wish::Map,
        PeeringState::Disconnecting if !is_drained(&status.conditions) => Wish::Keep,
        PeeringState::Pending => Wish::Keep,
        PeeringState::Disconnecting | PeeringState::None | PeeringState::Refused => Wish::Part,
    }
}

/// Whether nothing runs in the namespaces any more, and the end of the peering waits only for them.
fn is_drained(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| condition.type_ == OUTGOING && condition.reason == NAMESPACES_END)
}

/// Whether a peer is not heard at the moment.
pub(super) fn is_silent(peer: &ForeignCluster) -> bool {
    let outgoing = peer.status.as_ref().and_then(|status| status.outgoing.as_ref());
    outgoing.is_some_and(|outgoing| outgoing.state == PeeringState::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::{Wish, wish};
    use ferro_api::discovery::ForeignCluster;
    use serde_json::json;

    fn peer(state: &str, reason: &str) -> ForeignCluster {
        serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
            "metadata": {"name": "milan"}, "spec": {},
            "status": {"outgoing": {"state": state}, "conditions": [{
                "type": "OutgoingPeering", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn namespaces_outlive_silence_and_draining_but_not_the_peering() {
        for (state, reason, expected) in [
            ("Established", "Established", Wish::Map),
            ("Unreachable", "PeerSilent", Wish::Map),
            ("Pending", "NodeMissing", Wish::Keep),
            ("Disconnecting", "NodeDrains", Wish::Keep),
            ("Disconnecting", "NamespacesEnd", Wish::Part),
            ("None", "NotJoined", Wish::Part),
            ("Refused", "RefusedByPeer", Wish::Part),
        ] {
            assert_eq!(wish(&peer(state, reason)), expected, "{state}");
        }
    }

    #[test]
    fn a_status_that_is_lost_ends_nothing() {
        let mut peer = peer("None", "NotJoined");
        peer.status = None;
        assert_eq!(wish(&peer), Wish::Keep);
    }
}
