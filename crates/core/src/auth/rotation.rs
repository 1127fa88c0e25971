//! The user that a certificate makes of a peer, and when that certificate is renewed.
//!
//! A certificate cannot be called back before it expires. Therefore the user's name carries a generation, and
//! rights are bound to that name: to revoke a certificate is to count the generation up and to unbind the
//! old name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{between, later};
use crate::identity::{ClusterId, head, serde_as_text, sha256};

/// The name of the Kubernetes user that a peer is: `<clusterID>:<generation>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UserName {
    /// The peer.
    pub cluster: ClusterId,
    /// How often the peer's certificates have been revoked.
    pub generation: u32,
}

impl UserName {
    /// The service account that the peer is where nobody signs certificates: `<clusterID>.<generation>`.
    pub fn account(&self) -> String {
        format!("{}.{}", self.cluster, self.generation)
    }

    /// The peer that a service account stands for.
    pub fn of_account(name: &str) -> Option<Self> {
        let (cluster, generation) = name.split_once('.')?;
        format!("{cluster}:{generation}").parse().ok()
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.cluster, self.generation)
    }
}

impl FromStr for UserName {
    type Err = NotAUserName;

    fn from_str(text: &str) -> Result<Self, NotAUserName> {
        let (cluster, generation) = text.split_once(':').ok_or(NotAUserName)?;
        let name = Self {
            cluster: cluster.parse().map_err(|_| NotAUserName)?,
            generation: generation.parse().map_err(|_| NotAUserName)?,
        };
        if name.to_string() == text { Ok(name) } else { Err(NotAUserName) }
    }
}

serde_as_text!(UserName);

/// The text is not the user name of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user name of a peer is its clusterID, a colon, and a number")]
pub struct NotAUserName;

/// What to do about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Nothing until then.
    Keep {
        /// When it is to be renewed.
        until: Timestamp,
    },
    /// Get a new one; this one is still good.
    Renew,
    /// Get a new one; this one is of no use any more.
    Expired,
}

/// What to do now about a certificate for this peer.
///
/// It is renewed when two thirds of its life are over, or up to a twentieth of its life sooner: by how much
/// depends on the peer, so that many that began together do not come together.
pub fn rotation(peer: &ClusterId, issued_at: Timestamp, expires_at: Timestamp, now: Timestamp) -> Rotation {
    let life = between(issued_at, expires_at);
    let until = later(issued_at, (life / 3 * 2).saturating_sub(spread(&peer.to_string(), life / 20)));
    if now >= expires_at {
        Rotation::Expired
    } else if now >= until {
        Rotation::Renew
    } else {
        Rotation::Keep { until }
    }
}

/// A part of the range that is always the same for one peer.
pub(super) fn spread(peer: &str, range: Duration) -> Duration {
    let share = u16::from_be_bytes(head(&sha256(peer.as_bytes())));
    range / u32::from(u16::MAX) * u32::from(share)
}

#[cfg(test)]
mod tests {
    use super::{Rotation, UserName, rotation};
    use crate::auth::tests::at;
    use crate::identity::tests::cluster;
    use proptest::prelude::*;

    fn due(number: u8, life: u64) -> u64 {
        let peer = cluster(number).identity().id();
        let Rotation::Keep { until } = rotation(&peer, at(0), at(life), at(0)) else {
            panic!("a new certificate is kept")
        };
        u64::try_from(until.duration_since(at(0)).as_secs()).unwrap()
    }

    #[test]
    fn a_certificate_is_kept_then_renewed_then_expired() {
        let peer = cluster(1).identity().id();
        let due = due(1, 600);
        assert!((370..=400).contains(&due), "{due}");
        assert_eq!(rotation(&peer, at(0), at(600), at(due + 1)), Rotation::Renew);
        assert_eq!(rotation(&peer, at(0), at(600), at(599)), Rotation::Renew);
        assert_eq!(rotation(&peer, at(0), at(600), at(600)), Rotation::Expired);
    }

    #[test]
    fn peers_that_began_together_do_not_come_together() {
        let month = 30 * 24 * 60 * 60;
        let all: std::collections::BTreeSet<_> = (1..=50).map(|number| due(number, month)).collect();
        assert_eq!(all.len(), 50);
        assert_eq!(due(1, month), due(1, month));
    }

    #[test]
    fn a_user_name_is_written_and_read_in_one_form() {
        let name = UserName { cluster: cluster(1).identity().id(), generation: 3 };
        let text = name.to_string();
        assert_eq!(text, "34750f98-bd59-8cfc-946d-a45aaabe933b:3");
        assert_eq!(text.parse(), Ok(name));
        let id = name.cluster;
        for text in [String::new(), id.to_string(), format!("{id}:"), format!("{id}:+3"), format!("{id}:03")]
        {
            assert!(text.parse::<UserName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_service_account_stands_for_one_user() {
        let name = UserName { cluster: cluster(1).identity().id(), generation: 3 };
        assert_eq!(name.account(), "34750f98-bd59-8cfc-946d-a45aaabe933b.3");
        assert_eq!(UserName::of_account(&name.account()), Some(name));
        assert_eq!(UserName::of_account(&name.to_string()), None);
        assert_eq!(UserName::of_account("default"), None);
    }

    proptest! {
        #[test]
        fn a_certificate_that_is_kept_is_renewed_before_it_expires(
            life in 600_u64..40_000_000,
            passed in 0_u64..50_000_000,
            number: u8,
        ) {
            let peer = cluster(number).identity().id();
            match rotation(&peer, at(0), at(life), at(passed)) {
                Rotation::Keep { until } => prop_assert!(at(passed) < until && until < at(life)),
                Rotation::Renew => prop_assert!(passed * 2 > life && passed < life),
                Rotation::Expired => prop_assert!(passed >= life),
            }
        }
    }
}
