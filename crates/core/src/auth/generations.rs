//! How often the certificates of each peer have been revoked, for as long as one of before may still be valid.
//!
//! An entry is the generation and the moment after which no certificate of an older one can be valid: no certificate
//! lives longer than a year. After that moment the entry may go, since 0 means the same as any other generation that
//! nobody holds; but not while the peer is let in, because its rights are bound to the number. So there are never more
//! entries than revocations in a year, and peers.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::later;
use crate::identity::ClusterId;

/// The longest that the configuration lets a certificate live is 365 days; one more for clocks that differ.
const MEMORY: Duration = Duration::from_hours(366 * 24);
/// About half of what one ConfigMap holds.
const MOST: usize = 6000;

/// The generations of all peers, as the data of a ConfigMap: clusterID to `<generation> <moment>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generations(BTreeMap<String, String>);

impl Generations {
    /// The generations as they are stored. An entry is read only when it is asked for: damage to one harms one.
    pub fn stored(data: BTreeMap<String, String>) -> Self {
        Self(data)
    }

    /// The generations as they are to be stored.
    pub fn into_data(self) -> BTreeMap<String, String> {
        self.0
    }

    /// The present generation of a peer.
    pub fn of(&self, peer: &ClusterId) -> Result<u32, DamagedGeneration> {
        match self.0.get(&peer.to_string()) {
            None => Ok(0),
            Some(entry) => read(entry).map(|(generation, _)| generation).ok_or(DamagedGeneration(*peer)),
        }
    }

    /// Counts the generation of a peer up.
    pub fn raise(&mut self, peer: &ClusterId, now: Timestamp) -> Result<u32, DamagedGeneration> {
        let next = self.of(peer)?.checked_add(1).ok_or(DamagedGeneration(*peer))?;
        self.make_room(peer);
        self.0.insert(peer.to_string(), format!("{next} {}", later(now, MEMORY)));
        Ok(next)
    }

    /// Forgets what no longer matters, and says whether there was any.
    pub fn prune(&mut self, is_let_in: impl Fn(&ClusterId) -> bool, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|peer, entry| match (peer.parse(), read(entry)) {
            (Ok(peer), Some((_, until))) => now < until || is_let_in(&peer),
            // Not ours to judge; whoever wrote it may correct it.
            _ => true,
        });
        self.0.len() < before
    }

    /// A revocation must never fail for want of room: the entry that would go first goes now.
    fn make_room(&mut self, peer: &ClusterId) {
        if self.0.len() < MOST || self.0.contains_key(&peer.to_string()) {
            return;
        }
        let until = |entry: &str| read(entry).map(|(_, until)| until);
        let first = self.0.iter().min_by_key(|(_, entry)| until(entry)).map(|(peer, _)| peer.clone());
        if let Some(first) = first {
            self.0.remove(&first);
        }
    }
}

fn read(entry: &str) -> Option<(u32, Timestamp)> {
    let (generation, until) = entry.split_once(' ')?;
    Some((generation.parse().ok()?, until.parse().ok()?))
}

/// The generation of a peer cannot be read, so that nobody can be let in under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the entry of {0} in the ConfigMap ferro-generations is damaged; write a number there that is higher than any \
     before, a space, and a moment a year from now such as 2030-01-01T00:00:00Z"
)]
pub struct DamagedGeneration(ClusterId);

#[cfg(test)]
mod tests {
    use super::{Generations, MOST};
    use crate::auth::tests::at;
    use crate::identity::ClusterId;
    use std::collections::BTreeMap;

    const DAY: u64 = 24 * 3600;

    fn id(number: u16) -> ClusterId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        ClusterId::from_bytes(bytes)
    }

    #[test]
    fn a_generation_is_raised_and_read_back_as_it_was_stored() {
        let mut generations = Generations::default();
        assert_eq!(generations.of(&id(1)), Ok(0));
        assert_eq!(generations.raise(&id(1), at(0)), Ok(1));
        assert_eq!(generations.raise(&id(1), at(1)), Ok(2));
        let stored = Generations::stored(generations.into_data());
        assert_eq!((stored.of(&id(1)), stored.of(&id(2))), (Ok(2), Ok(0)));
    }

    #[test]
    fn an_entry_goes_when_no_older_certificate_can_be_valid_and_nobody_uses_it() {
        let mut generations = Generations::default();
        generations.raise(&id(1), at(0)).unwrap();
        generations.raise(&id(2), at(0)).unwrap();
        assert!(!generations.prune(|_| false, at(365 * DAY)));
        assert!(generations.prune(|peer| *peer == id(2), at(366 * DAY)));
        assert_eq!((generations.of(&id(1)), generations.of(&id(2))), (Ok(0), Ok(1)));
    }

    #[test]
    fn a_damaged_entry_harms_nobody_else_and_is_not_taken_for_zero() {
        for entry in ["", "1", "one 2030-01-01T00:00:00Z", "1 tomorrow", "4294967296 2030-01-01T00:00:00Z"] {
            let mut generations =
                Generations::stored(BTreeMap::from([(id(1).to_string(), entry.to_owned())]));
            assert!(generations.of(&id(1)).is_err(), "{entry}");
            assert!(generations.raise(&id(1), at(0)).is_err());
            assert_eq!(generations.raise(&id(2), at(0)), Ok(1));
            assert!(!generations.prune(|_| true, at(0)));
        }
    }

    #[test]
    fn there_is_always_room_for_one_more_and_the_oldest_makes_it() {
        let mut generations = Generations::default();
        let most = u16::try_from(MOST).unwrap();
        for number in 0..most {
            generations.raise(&id(number), at(number.into())).unwrap();
        }
        generations.raise(&id(0), at(10_000)).unwrap();
        generations.raise(&id(most), at(10_001)).unwrap();
        assert_eq!((generations.of(&id(0)), generations.of(&id(1))), (Ok(2), Ok(0)));
        assert_eq!(generations.of(&id(most)), Ok(1));
        assert_eq!(generations.into_data().len(), MOST);
    }
}
