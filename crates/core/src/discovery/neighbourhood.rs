//! All clusters that are heard of, as long as they are: what was said about each, by whom, until when.
//!
//! Anybody on the local network may say anything about any number of clusters. So clusters that are not known
//! yet are limited in number and in how fast they come, and only they are ever dropped to make room. Those of the local
//! network and those of domains are counted apart: a flood on the one keeps nobody from being found in the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{Address, Known, Sighting, Way};
use crate::auth::{Meter, Pace, later};
use crate::identity::ClusterId;
use crate::names::ClusterName;

const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_mins(10);
const MAX_WAY: usize = 512;

/// How much is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many clusters are remembered that are not known as a `ForeignCluster`: so many of the local network, and so
    /// many of elsewhere.
    pub strangers: usize,
    /// How many may say something about one cluster.
    pub ways: usize,
    /// How fast new clusters may come.
    pub newcomers: Pace,
    /// How long anything counts, whatever is said.
    pub longest: Duration,
    /// How long to listen before what is silent counts as gone.
    pub settle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            strangers: 256,
            ways: 16,
            newcomers: Pace { burst: 64, every: Duration::from_secs(1) },
            longest: Duration::from_hours(24),
            settle: Duration::from_mins(2),
        }
    }
}

/// All clusters that are heard of.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    own: ClusterId,
    bounds: Bounds,
    /// Newcomers of the local network only.
    on_lan: Meter,
    /// Newcomers of elsewhere.
    elsewhere: Meter,
    /// When silence begins to count.
    pub(super) settled_at: Timestamp,
    pub(super) neighbours: BTreeMap<ClusterId, Neighbour>,
}

/// What is said about one cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbour {
    pub(super) said: BTreeMap<Way, Said>,
}

/// What one of them says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) name: ClusterName,
    pub(super) address: Option<Address>,
    pub(super) expires_at: Timestamp,
    failures: u32,
    /// When the address may be tried.
    pub(super) due_at: Timestamp,
}

impl Neighbourhood {
    /// Begins to listen. The own cluster is never found.
    pub fn new(own: ClusterId, bounds: Bounds, now: Timestamp) -> Self {
        let settled_at = later(now, bounds.settle);
        let (on_lan, elsewhere) = (Meter::default(), Meter::default());
        Self { own, bounds, on_lan, elsewhere, settled_at, neighbours: BTreeMap::new() }
    }

    /// Takes in news.
    pub fn hear(&mut self, news: Sighting, known: &[Known], now: Timestamp) -> Result<(), Ignored> {
        if news.cluster_id == self.own {
            return Err(Ignored::Own);
        }
        if news.expires_at <= now || news.way.length() > MAX_WAY {
            return Err(Ignored::Rubbish);
        }
        if !self.neighbours.contains_key(&news.cluster_id) {
            self.let_in(&news, known, now)?;
        }
        let news = Sighting { expires_at: news.expires_at.min(later(now, self.bounds.longest)), ..news };
        let neighbour = self.neighbours.entry(news.cluster_id).or_default();
        neighbour.make_room(&news.way, self.bounds.ways)?;
        neighbour.take_in(news, now);
        Ok(())
    }

    /// Whoever said so says that it is over.
    pub fn goodbye(&mut self, way: &Way) {
        self.forget(|said_by, _| said_by == way);
    }

    /// Forgets what counts no longer.
    pub fn expire(&mut self, now: Timestamp) {
        self.forget(|_, said| said.expires_at <= now);
    }

    /// The cluster did not prove to be at this address. It is tried again after a while, each time longer.
    pub fn unproved(&mut self, cluster: &ClusterId, address: &Address, now: Timestamp) {
        let said = self.neighbours.get_mut(cluster).into_iter().flat_map(|one| one.said.values_mut());
        for said in said.filter(|said| said.address.as_ref() == Some(address)) {
            let wait = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(said.failures)).min(LAST_RETRY);
            said.failures = said.failures.saturating_add(1);
            said.due_at = later(now, wait);
        }
    }

    /// When something changes by itself: news expire, an address is due again, silence begins to count.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let said = self.neighbours.values().flat_map(|neighbour| neighbour.said.values());
        let moments = said.flat_map(|said| [said.expires_at, said.due_at]).chain([self.settled_at]);
        moments.filter(|moment| *moment > now).min()
    }

    fn forget(&mut self, gone: impl Fn(&Way, &Said) -> bool) {
        self.neighbours.retain(|_, neighbour| {
            neighbour.said.retain(|way, said| !gone(way, said));
            !neighbour.said.is_empty()
        });
    }

    /// Makes sure that there is room for a cluster that was not heard of before. A known one needs none.
    fn let_in(&mut self, news: &Sighting, known: &[Known], now: Timestamp) -> Result<(), Ignored> {
        let known: BTreeSet<_> = known.iter().filter_map(|known| known.cluster_id.as_deref()).collect();
        let is_stranger = |id: &ClusterId| !known.contains(id.to_string().as_str());
        if !is_stranger(&news.cluster_id) {
            return Ok(());
        }
        let is_on_lan = news.way.is_lan();
        let newcomers = if is_on_lan { &mut self.on_lan } else { &mut self.elsewhere };
        if newcomers.wait(&self.bounds.newcomers, now) > Duration::ZERO {
            return Err(Ignored::TooFast);
        }
        newcomers.count(&self.bounds.newcomers, now);
        let alike = self.neighbours.iter().filter(|(_, neighbour)| neighbour.is_on_lan_only() == is_on_lan);
        let strangers: Vec<_> = alike.filter(|(id, _)| is_stranger(id)).collect();
        if strangers.len() >= self.bounds.strangers {
            let worst = strangers.into_iter().max_by_key(|(_, neighbour)| neighbour.doubt());
            if let Some(worst) = worst.map(|(id, _)| *id) {
                self.neighbours.remove(&worst);
            }
        }
        Ok(())
    }
}

impl Neighbour {
    /// Makes sure that one more may say something, in place of one who was found wrong if need be.
    fn make_room(&mut self, way: &Way, ways: usize) -> Result<(), Ignored> {
        if self.said.len() < ways || self.said.contains_key(way) {
            return Ok(());
        }
        let wrong = self.said.iter().filter(|(_, said)| said.failures > 0);
        let wrong = wrong.max_by_key(|(_, said)| said.failures).map(|(way, _)| way.clone());
        self.said.remove(&wrong.ok_or(Ignored::Crowded)?);
        Ok(())
    }

    /// Whoever was wrong before waits with a new address, too, but not as long as with the same.
    fn take_in(&mut self, news: Sighting, now: Timestamp) {
        let Sighting { cluster_id: _, name, address, way, expires_at } = news;
        let (failures, due_at) = match self.said.get(&way) {
            Some(before) if before.address == address => (before.failures, before.due_at),
            Some(before) => (before.failures, before.due_at.min(later(now, FIRST_RETRY))),
            None => (0, now),
        };
        self.said.insert(way, Said { name, address, expires_at, failures, due_at });
    }

    fn is_on_lan_only(&self) -> bool {
        self.said.keys().all(Way::is_lan)
    }

    /// How readily it is dropped: for having failed to prove itself, then for being about to expire.
    fn doubt(&self) -> (u32, Reverse<Option<Timestamp>>) {
        let failures = self.said.values().map(|said| said.failures).max().unwrap_or_default();
        (failures, Reverse(self.said.values().map(|said| said.expires_at).max()))
    }
}

/// Why news was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// It is about this cluster.
    #[error("it is about this cluster itself")]
    Own,
    /// It counts no longer, or is overlong.
    #[error("it has expired or is too long")]
    Rubbish,
    /// There is enough about that cluster already.
    #[error("enough has been heard about that cluster")]
    Crowded,
    /// Too many new clusters have come.
    #[error("too many new clusters come at once")]
    TooFast,
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Bounds, Ignored, Neighbourhood};
    use crate::auth::{Pace, later, tests::at};
    use crate::discovery::announcement::tests::announcement;
    use crate::discovery::{Known, Sighting, Way};
    use crate::identity::{Bytes, ClusterId, PublicKey, tests::cluster};
    use ferro_api::discovery::DiscoveryType;
    use k8s_openapi::jiff::Timestamp;
    use std::time::Duration;

    pub(in crate::discovery) fn id(number: u8) -> ClusterId {
        cluster(number).identity().id()
    }

    /// A cluster of this number is heard on the local network for 90 seconds.
    pub(in crate::discovery) fn lan(number: u8, host: u8, second: u64) -> Sighting {
        let announcement = announcement(number, &format!("https://192.0.2.{host}:30443"));
        let instance = format!("{}-{host}", announcement.instance());
        Sighting::of(announcement, Way::Lan { node: "n1".into(), instance }, at(second + 90))
    }

    pub(in crate::discovery) fn listening() -> Neighbourhood {
        Neighbourhood::new(id(0), Bounds::default(), at(0))
    }

    pub(in crate::discovery) fn known(number: u8, discovery_type: DiscoveryType, host: u8) -> Known {
        let announcement = announcement(number, &format!("https://192.0.2.{host}:30443"));
        Known {
            object: announcement.instance(),
            cluster_id: Some(announcement.id.to_string()),
            discovery_type,
            auth_url: Some(announcement.auth_url.to_string()),
            pin: Some(announcement.pin),
            in_use: false,
            lost: false,
        }
    }

    fn stranger(number: u64, now: Timestamp) -> Sighting {
        let mut key = [0xee; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let cluster_id = ClusterId::of(&PublicKey(Bytes(key)));
        let way = Way::Lan { node: "n1".into(), instance: number.to_string() };
        let (name, expires_at) = ("stranger".parse().unwrap(), later(now, Duration::from_secs(90)));
        Sighting { cluster_id, name, address: None, way, expires_at }
    }

    #[test]
    fn the_own_cluster_is_not_found() {
        assert_eq!(listening().hear(lan(0, 1, 0), &[], at(0)), Err(Ignored::Own));
    }

    #[test]
    fn news_is_forgotten_at_goodbye_and_when_it_expires() {
        let mut neighbourhood = listening();
        neighbourhood.hear(lan(1, 1, 0), &[], at(0)).unwrap();
        neighbourhood.hear(lan(1, 2, 10), &[], at(10)).unwrap();
        neighbourhood.goodbye(&lan(1, 1, 0).way);
        neighbourhood.expire(at(99));
        assert_eq!(neighbourhood.neighbours.len(), 1, "another node still announces it");
        neighbourhood.expire(at(100));
        assert!(neighbourhood.neighbours.is_empty());
    }

    #[test]
    fn nobody_is_believed_for_longer_than_a_day() {
        let mut neighbourhood = listening();
        let endless = Sighting { expires_at: Timestamp::MAX, ..lan(1, 1, 0) };
        neighbourhood.hear(endless, &[], at(0)).unwrap();
        neighbourhood.expire(at(24 * 60 * 60));
        assert!(neighbourhood.neighbours.is_empty());
    }

    #[test]
    fn what_is_over_or_overlong_is_not_taken_in() {
        let mut neighbourhood = listening();
        assert_eq!(neighbourhood.hear(lan(1, 1, 0), &[], at(90)), Err(Ignored::Rubbish));
        let way = Way::Wan { domain: "x".repeat(600) };
        let overlong = Sighting { way, ..lan(1, 1, 0) };
        assert_eq!(neighbourhood.hear(overlong, &[], at(0)), Err(Ignored::Rubbish));
    }

    #[test]
    fn a_flood_of_strangers_is_bounded_and_disturbs_nobody_who_is_known() {
        let mut neighbourhood = listening();
        let peer = known(1, DiscoveryType::Lan, 1);
        neighbourhood.hear(lan(1, 1, 0), std::slice::from_ref(&peer), at(0)).unwrap();
        let mut heard = 0;
        for number in 0..10_000 {
            let now = later(at(0), Duration::from_millis(number));
            let result = neighbourhood.hear(stranger(number, now), std::slice::from_ref(&peer), now);
            heard += usize::from(result.is_ok());
        }
        assert!(heard <= 64 + 10, "{heard}");
        for number in 0..1000 {
            let now = at(10 + number);
            _ = neighbourhood.hear(stranger(20_000 + number, now), std::slice::from_ref(&peer), now);
            assert!(neighbourhood.neighbours.len() <= 257);
        }
        assert!(neighbourhood.neighbours.contains_key(&id(1)));
    }

    #[test]
    fn a_known_cluster_is_heard_even_in_a_flood() {
        let mut neighbourhood = listening();
        for number in 0..1000 {
            _ = neighbourhood.hear(stranger(number, at(0)), &[], at(0));
        }
        assert_eq!(neighbourhood.hear(lan(2, 1, 0), &[], at(0)), Err(Ignored::TooFast));
        assert_eq!(neighbourhood.hear(lan(2, 1, 0), &[known(2, DiscoveryType::Wan, 9)], at(0)), Ok(()));
    }

    #[test]
    fn a_flood_on_the_local_network_keeps_nobody_from_being_found_in_a_domain() {
        let mut neighbourhood = listening();
        let in_domain =
            |second: u64| Sighting { way: Way::Wan { domain: "example.org".into() }, ..lan(2, 1, second) };
        for number in 0..1000 {
            _ = neighbourhood.hear(stranger(number, at(0)), &[], at(0));
        }
        assert_eq!(neighbourhood.hear(in_domain(0), &[], at(0)), Ok(()));
        for second in 0..1000 {
            _ = neighbourhood.hear(stranger(20_000 + second, at(second)), &[], at(second));
        }
        assert!(neighbourhood.neighbours.contains_key(&id(2)), "it was not dropped for one of the flood");
    }

    #[test]
    fn whoever_failed_to_prove_itself_makes_room_first() {
        let newcomers = Pace { burst: 1000, every: Duration::from_millis(1) };
        let bounds = Bounds { strangers: 3, newcomers, ..Bounds::default() };
        let mut neighbourhood = Neighbourhood::new(id(0), bounds, at(0));
        for number in 1..=3 {
            neighbourhood.hear(lan(number, number, u64::from(number)), &[], at(5)).unwrap();
        }
        neighbourhood.unproved(&id(2), lan(2, 2, 0).address.as_ref().unwrap(), at(5));
        neighbourhood.hear(lan(4, 4, 4), &[], at(5)).unwrap();
        let left: Vec<_> =
            [1, 2, 3, 4].map(|number| neighbourhood.neighbours.contains_key(&id(number))).into();
        assert_eq!(left, [true, false, true, true]);
    }

    #[test]
    fn many_voices_about_one_cluster_are_bounded() {
        let mut neighbourhood = listening();
        for host in 1..=16 {
            neighbourhood.hear(lan(1, host, 0), &[], at(0)).unwrap();
        }
        assert_eq!(neighbourhood.hear(lan(1, 17, 0), &[], at(0)), Err(Ignored::Crowded));
        assert_eq!(neighbourhood.hear(lan(1, 16, 10), &[], at(10)), Ok(()));
        neighbourhood.unproved(&id(1), lan(1, 3, 0).address.as_ref().unwrap(), at(10));
        assert_eq!(neighbourhood.hear(lan(1, 17, 10), &[], at(10)), Ok(()));
        assert!(!neighbourhood.neighbours[&id(1)].said.contains_key(&lan(1, 3, 0).way));
    }
}
