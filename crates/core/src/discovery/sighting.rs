//! One piece of news about a cluster: that it is there, where, who says so, and for how long that counts.

use ferro_api::discovery::DiscoveryType;
use k8s_openapi::jiff::Timestamp;

use super::Announcement;
use crate::auth::{HttpsUrl, Pin};
use crate::identity::ClusterId;
use crate::names::ClusterName;

/// Where the auth service of a cluster is, and the key that it shows there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The URL.
    pub auth_url: HttpsUrl,
    /// The pin of the key, if it was said.
    pub pin: Option<Pin>,
}

/// Who says that a cluster is there. What one of them says again takes the place of what it said before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A service instance on the local network, as one of our nodes hears it.
    Lan {
        /// Our node.
        node: String,
        /// The instance.
        instance: String,
    },
    /// A domain in which the cluster is registered.
    Wan {
        /// The domain.
        domain: String,
    },
    /// A person.
    Manual,
    /// The cluster itself, which has come to our auth service and proved who it is.
    Incoming,
}

impl Way {
    /// How a cluster that was found in this way is called.
    pub fn discovery_type(&self) -> DiscoveryType {
        match self {
            Self::Lan { .. } => DiscoveryType::Lan,
            Self::Wan { .. } => DiscoveryType::Wan,
            Self::Manual => DiscoveryType::Manual,
            Self::Incoming => DiscoveryType::IncomingPeering,
        }
    }

    /// Whether anybody on the local network could have said it.
    pub(super) fn is_lan(&self) -> bool {
        matches!(self, Self::Lan { .. })
    }

    /// Whether who the cluster is needs no further proof.
    pub(super) fn is_sure(&self) -> bool {
        matches!(self, Self::Manual | Self::Incoming)
    }

    /// The number of bytes that others have chosen.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Lan { node, instance } => node.len() + instance.len(),
            Self::Wan { domain } => domain.len(),
            Self::Manual | Self::Incoming => 0,
        }
    }
}

/// What counts when a cluster is found in several ways: the greatest.
///
/// A person's word stands. A domain was chosen by a person, and what is registered there stays when the local
/// network changes. Whoever comes by itself is called by that only as long as it was not found otherwise.
pub(super) fn strength(found: DiscoveryType) -> u8 {
    match found {
        DiscoveryType::Manual => 3,
        DiscoveryType::Wan => 2,
        DiscoveryType::Lan => 1,
        DiscoveryType::IncomingPeering => 0,
    }
}

/// News about a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Its name, as it is said.
    pub name: ClusterName,
    /// Where it is, if that is said.
    pub address: Option<Address>,
    /// Who says so.
    pub way: Way,
    /// Until when it counts.
    pub expires_at: Timestamp,
}

impl Sighting {
    /// The news of an announcement.
    pub fn of(announcement: Announcement, way: Way, expires_at: Timestamp) -> Self {
        let Announcement { id, name, auth_url, pin } = announcement;
        let address = Some(Address { auth_url, pin: Some(pin) });
        Self { cluster_id: id, name, address, way, expires_at }
    }
}
