//! What discovery needs to know of a `ForeignCluster` that exists.

use ferro_api::discovery::{Decision, DiscoveryType, ForeignCluster, PeeringState, PeeringStatus};
use ferro_api::names::annotations;

use super::Address;
use crate::auth::Pin;

/// A `ForeignCluster` that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name of the object.
    pub object: String,
    /// The cluster, once it is known who it is.
    pub cluster_id: Option<String>,
    /// How it was found.
    pub discovery_type: DiscoveryType,
    /// The URL or host name that it has.
    pub auth_url: Option<String>,
    /// The key that must be shown there.
    pub pin: Option<Pin>,
    /// Whether there is a peering, in either direction, or one is wanted, or a person has said something about it.
    pub in_use: bool,
    /// Whether the cluster does not answer at its address.
    pub lost: bool,
}

impl Known {
    /// What the object says; whether the cluster answers is for the caller to say.
    pub fn of(object: &ForeignCluster, lost: bool) -> Self {
        let spec = &object.spec;
        let status = object.status.as_ref();
        let directions = status.map(|status| [&status.outgoing, &status.incoming]);
        Self {
            object: object.metadata.name.clone().unwrap_or_default(),
            cluster_id: spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.clone()),
            discovery_type: spec.discovery_type(),
            auth_url: spec.auth_url.clone(),
            pin: spec.auth_pin.as_deref().and_then(|pin| pin.parse().ok()),
            in_use: spec.join()
                || directions.into_iter().flatten().flatten().any(is_active)
                || has_a_word(object),
            lost,
        }
    }

    /// Whether the address is the one that the object has.
    pub(super) fn is_at(&self, address: &Address) -> bool {
        let url = self.auth_url.as_deref().and_then(|url| url.parse().ok());
        let same_key = self.pin.is_none() || address.pin.is_none() || self.pin == address.pin;
        url.as_ref() == Some(&address.auth_url) && same_key
    }
}

/// Whether a person has decided something about the cluster: that must not be forgotten when it falls silent.
fn has_a_word(object: &ForeignCluster) -> bool {
    let spec = &object.spec;
    spec.incoming() != Decision::Auto
        || spec.offer() != Decision::Auto
        || spec.policy.is_some()
        || spec.node_labels.is_some()
        || annotations::AUTO_JOINED.of(&object.metadata).is_some()
}

fn is_active(direction: &PeeringStatus) -> bool {
    match direction.state {
        PeeringState::None | PeeringState::Refused => false,
        PeeringState::Pending
        | PeeringState::Established
        | PeeringState::Unreachable
        | PeeringState::Disconnecting => true,
    }
}

#[cfg(test)]
mod tests {
    use super::Known;
    use crate::auth::Pin;
    use crate::discovery::Address;
    use ferro_api::discovery::{
        ForeignCluster, ForeignClusterSpec, ForeignClusterStatus, PeeringState, PeeringStatus,
    };

    fn object() -> ForeignCluster {
        let auth_url = Some("https://192.0.2.7:30443/".to_owned());
        let auth_pin = Some(Pin([1; 32]).to_string());
        ForeignCluster::new(
            "peer",
            ForeignClusterSpec { auth_url, auth_pin, ..ForeignClusterSpec::default() },
        )
    }

    #[test]
    fn a_peering_in_either_direction_or_the_wish_for_one_is_use() {
        assert!(!Known::of(&object(), false).in_use);
        let mut wanted = object();
        wanted.spec.join = Some(true);
        assert!(Known::of(&wanted, false).in_use);
        let direction = |state| Some(PeeringStatus { state, ..PeeringStatus::default() });
        for (state, in_use) in [(PeeringState::Unreachable, true), (PeeringState::Refused, false)] {
            let (incoming, outgoing) = (direction(state), direction(PeeringState::None));
            let status = ForeignClusterStatus { incoming, outgoing, ..ForeignClusterStatus::default() };
            let object = ForeignCluster { status: Some(status), ..object() };
            assert_eq!(Known::of(&object, false).in_use, in_use, "{state:?}");
        }
    }

    #[test]
    fn an_address_is_the_same_when_it_means_the_same_place_and_key() {
        let known = Known::of(&object(), false);
        let at = |url: &str, pin| known.is_at(&Address { auth_url: url.parse().unwrap(), pin });
        assert!(at("https://192.0.2.7:30443", Some(Pin([1; 32]))));
        assert!(at("https://192.0.2.7:30443", None));
        assert!(!at("https://192.0.2.7:30443", Some(Pin([2; 32]))));
        assert!(!at("https://192.0.2.8:30443", None));
    }
}
