//! The external network of this cluster: each address stands for one endpoint, and rests for a while once it is freed.
//!
//! Whoever still remembers a freed address must not reach another endpoint under it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::{Claims, map_to_network};

/// How long an address rests.
pub const QUARANTINE: Duration = Duration::from_mins(5);
/// The network itself and its first address, which many take for a router's, are kept back.
const FIRST: u128 = 2;

/// No address is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no address of the external network {0} is free; make it larger, or wait until freed ones have rested"
)]
pub struct Exhausted(pub IpNet);

/// That an address rests.
#[derive(Clone, Copy, Debug, Eq)]
struct Rest {
    since: Timestamp,
    /// Who had it: whoever remembers it means this one. It is not stored, so that after a restart nobody knows.
    endpoint: Option<IpAddr>,
}

/// What is stored is the same.
impl PartialEq for Rest {
    fn eq(&self, other: &Self) -> bool {
        self.since == other.since
    }
}

/// The addresses of a network, those in use, and those that rest.
///
/// A clone shares all that it can: there may be many addresses, and one is made for each group of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAddresses {
    network: IpNet,
    /// Where to look first: freed addresses come last.
    next: u128,
    used: RedBlackTreeSetSync<IpAddr>,
    resting: RedBlackTreeMapSync<IpAddr, Rest>,
    /// The same by age, so that those that have rested are found without looking at the others.
    by_age: RedBlackTreeSetSync<(Timestamp, IpAddr)>,
}

impl ExternalAddresses {
    /// All addresses are free.
    pub fn new(network: IpNet) -> Self {
        Self::restored(network, FIRST, BTreeSet::new(), BTreeMap::new())
    }

    /// As they were: where to look first, those in use, and since when others rest.
    pub(super) fn restored(
        network: IpNet,
        next: u128,
        used: BTreeSet<IpAddr>,
        mut resting: BTreeMap<IpAddr, Timestamp>,
    ) -> Self {
        resting.retain(|ip, _| network.contains(ip) && !used.contains(ip));
        Self {
            network: network.trunc(),
            next,
            used: used.into_iter().collect(),
            by_age: resting.iter().map(|(ip, since)| (*since, *ip)).collect(),
            resting: resting.into_iter().map(|(ip, since)| (ip, Rest { since, endpoint: None })).collect(),
        }
    }

    /// The network.
    pub fn network(&self) -> IpNet {
        self.network
    }

    /// Where to look first.
    pub(super) fn next(&self) -> u128 {
        self.next
    }

    /// Since when an address rests.
    pub(super) fn resting_since(&self, ip: &IpAddr) -> Option<Timestamp> {
        self.resting.get(ip).map(|rest| rest.since)
    }

    /// Since when addresses rest.
    pub(super) fn resting(&self) -> impl Iterator<Item = (IpAddr, Timestamp)> {
        self.resting.iter().map(|(ip, rest)| (*ip, rest.since))
    }

    /// Looks first at one of all places.
    pub(super) fn start_at(&mut self, chance: u32) {
        let places = self.last().saturating_sub(FIRST).saturating_add(1);
        self.next = FIRST + u128::from(chance) % places;
    }

    /// Forgets since when addresses rest that have rested.
    pub(super) fn wake(&mut self, now: Timestamp) {
        let quarantine = QUARANTINE.try_into().unwrap_or_default();
        while let Some((since, ip)) = self.by_age.first().copied()
            && now.duration_since(since) >= quarantine
        {
            self.by_age.remove_mut(&(since, ip));
            self.resting.remove_mut(&ip);
        }
    }

    /// Lets all that rest do so in full from now on.
    pub(super) fn rest_anew(&mut self, now: Timestamp) {
        self.by_age = self.resting.keys().map(|ip| (now, *ip)).collect();
        let anew = |(ip, rest): (&IpAddr, &Rest)| (*ip, Rest { since: now, ..*rest });
        self.resting = self.resting.iter().map(anew).collect();
    }

    /// Takes an address that nobody uses, and nobody has used just before.
    pub fn allocate(&mut self, now: Timestamp) -> Result<IpAddr, Exhausted> {
        self.allocate_beside(&Claims::default(), now)
    }

    /// Takes this very address for an endpoint, if nobody uses it, and nobody else has used it just before. Whether it
    /// could be had.
    pub(super) fn take(&mut self, ip: IpAddr, endpoint: IpAddr, now: Timestamp) -> bool {
        self.wake(now);
        let rest = self.resting.get(&ip).copied();
        let is_its_own = rest.is_none_or(|rest| rest.endpoint == Some(endpoint));
        let can_be_had = self.is_host(&ip) && !self.used.contains(&ip) && is_its_own;
        if can_be_had {
            self.used.insert_mut(ip);
            self.resting.remove_mut(&ip);
            rest.map(|rest| self.by_age.remove_mut(&(rest.since, ip)));
        }
        can_be_had
    }

    /// [`Self::allocate`], beside addresses that others use without having asked.
    pub(super) fn allocate_beside(&mut self, claimed: &Claims, now: Timestamp) -> Result<IpAddr, Exhausted> {
        self.wake(now);
        let (last, mut host) = (self.last(), self.next.max(FIRST));
        // One of so many different addresses is free, or none at all is.
        let taken = self.used.size() + self.resting.size() + claimed.len();
        for _ in 0..=taken {
            if host > last {
                host = FIRST;
            }
            let ip = self.at(host).filter(|_| host <= last).ok_or(Exhausted(self.network))?;
            host = host.saturating_add(1);
            if self.is_free(&ip) && !claimed.contains(&ip) {
                self.next = host;
                self.used.insert_mut(ip);
                return Ok(ip);
            }
        }
        Err(Exhausted(self.network))
    }

    /// Whether an address may be given to anybody.
    fn is_free(&self, ip: &IpAddr) -> bool {
        self.is_host(ip) && !self.used.contains(ip) && !self.resting.contains_key(ip)
    }

    /// Whether it is one of those that are ever given out.
    fn is_host(&self, ip: &IpAddr) -> bool {
        let ends = self.at(FIRST).zip(self.at(self.last())).filter(|_| self.last() >= FIRST);
        ends.is_some_and(|(first, last)| (first..=last).contains(ip))
    }

    /// Lets the address of an endpoint rest. One that is not in use stays as it is.
    pub fn free(&mut self, ip: IpAddr, endpoint: IpAddr, now: Timestamp) {
        if self.used.remove_mut(&ip) {
            self.resting.insert_mut(ip, Rest { since: now, endpoint: Some(endpoint) });
            self.by_age.insert_mut((now, ip));
        }
    }

    /// The last host: in IPv4 the one behind it is for broadcasts.
    fn last(&self) -> u128 {
        let bits = u32::from(self.network.max_prefix_len() - self.network.prefix_len());
        let highest = 1_u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
        match self.network {
            IpNet::V4(_) => highest.saturating_sub(1),
            IpNet::V6(_) => highest,
        }
    }

    fn at(&self, host: u128) -> Option<IpAddr> {
        let host = match self.network {
            IpNet::V4(_) => IpAddr::V4(u32::try_from(host).ok()?.into()),
            IpNet::V6(_) => IpAddr::V6(host.into()),
        };
        map_to_network(host, self.network)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(network: &str) -> ExternalAddresses {
        ExternalAddresses::new(network.parse().unwrap())
    }

    fn start() -> Timestamp {
        Timestamp::from_second(1_900_000_000).unwrap()
    }

    fn node(last: u8) -> IpAddr {
        [172, 18, 0, last].into()
    }

    #[test]
    fn the_ends_of_the_network_are_kept_back() {
        let mut small = addresses("192.168.0.0/29");
        let taken: Vec<String> = std::iter::from_fn(|| small.allocate(start()).ok())
            .map(|ip| ip.to_string().split('.').next_back().unwrap().to_owned())
            .collect();
        assert_eq!(taken, ["2", "3", "4", "5", "6"]);
        for none in ["192.168.0.0/32", "192.168.0.0/31", "192.168.0.0/30"] {
            let mut none = addresses(none);
            let count = std::iter::from_fn(|| none.allocate(start()).ok()).count();
            assert_eq!(count, usize::from(none.network().prefix_len() == 30));
        }
        assert_eq!(addresses("fd00::/64").allocate(start()), Ok("fd00::2".parse().unwrap()));
    }

    #[test]
    fn a_freed_address_rests_before_it_is_used_again() {
        let mut few = addresses("192.168.0.0/29");
        let all: Vec<IpAddr> = std::iter::from_fn(|| few.allocate(start()).ok()).collect();
        few.free(all[1], node(1), start());
        let soon = start() + Duration::from_mins(4);
        assert_eq!(few.allocate(soon), Err(Exhausted(few.network())));
        assert_eq!(few.allocate(start() + QUARANTINE), Ok(all[1]));
    }

    #[test]
    fn what_others_claim_is_left_to_them() {
        let mut few = addresses("192.168.0.0/29");
        let mut claimed = Claims::default();
        for ip in ["192.168.0.2", "192.168.0.4"] {
            claimed.add("a", "172.18.0.3".parse().unwrap(), ip.parse().unwrap());
        }
        let mut taken = Vec::new();
        while let Ok(ip) = few.allocate_beside(&claimed, start()) {
            taken.push(ip);
        }
        assert_eq!(taken.len(), 3);
        assert!(taken.iter().all(|ip| !claimed.contains(ip)), "{taken:?}");
        assert!(few.allocate(start()).is_ok(), "they are free once nobody claims them");
    }

    #[test]
    fn what_is_wanted_is_given_if_it_can_be_had() {
        let mut few = addresses("192.168.0.0/29");
        let address = |last| IpAddr::from([192, 168, 0, last]);
        let can_be_had = [5, 5, 0, 1, 7].map(|last| few.take(address(last), node(1), start()));
        assert_eq!(can_be_had, [true, false, false, false, false], "in use, and ends");
        for _ in 0..2 {
            few.free(address(5), node(1), start());
            assert!(!few.take(address(5), node(2), start()), "it was somebody else's just now");
            assert!(few.take(address(5), node(1), start()), "it was its own");
        }
        let others: Vec<IpAddr> = std::iter::from_fn(|| few.allocate(start() + QUARANTINE).ok()).collect();
        assert_eq!(others, [2, 3, 4, 6].map(address), "it rests no longer, and is in use");
        few.free(address(5), node(1), start());
        assert!(few.take(address(5), node(2), start() + QUARANTINE));
        let mut restored = ExternalAddresses::restored(
            few.network(),
            FIRST,
            BTreeSet::new(),
            BTreeMap::from([(address(5), start())]),
        );
        assert!(!restored.take(address(5), node(1), start()), "nobody knows whose it was");
    }

    #[test]
    fn who_starts_elsewhere_has_the_same_addresses() {
        for chance in [0, 1, 4, 5, u32::MAX] {
            let mut few = addresses("192.168.0.0/29");
            few.start_at(chance);
            let taken: BTreeSet<IpAddr> = std::iter::from_fn(|| few.allocate(start()).ok()).collect();
            assert_eq!(taken.len(), 5, "{chance}");
        }
        let mut few = addresses("192.168.0.0/29");
        few.start_at(9);
        assert_eq!(few.allocate(start()), Ok([192, 168, 0, 6].into()));
        let mut none = addresses("192.168.0.0/32");
        none.start_at(7);
        assert!(none.allocate(start()).is_err());
        // What is stored has room for it.
        let mut many = addresses("fd00::/8");
        many.start_at(u32::MAX);
        assert!(u64::try_from(many.next()).is_ok());
    }

    #[test]
    fn other_addresses_come_first() {
        let mut many = addresses("192.168.0.0/24");
        let first = many.allocate(start()).unwrap();
        many.free(first, node(1), start());
        assert_ne!(many.allocate(start() + QUARANTINE * 2), Ok(first));
    }

    proptest! {
        #[test]
        fn no_address_is_given_twice_nor_too_soon(steps in proptest::collection::vec((0_usize..8, 0_u64..200), 1..200)) {
            let mut addresses = addresses("192.168.0.0/28");
            let (mut now, mut held) = (start(), Vec::new());
            let mut freed: BTreeMap<IpAddr, Timestamp> = BTreeMap::new();
            for (step, pause) in steps {
                now += Duration::from_secs(pause);
                if step < 5 || held.is_empty() {
                    let Ok(ip) = addresses.allocate(now) else { continue };
                    prop_assert!(addresses.network().contains(&ip) && !held.contains(&ip));
                    if let Some(since) = freed.remove(&ip) {
                        prop_assert!(now.duration_since(since) >= QUARANTINE.try_into().unwrap());
                    }
                    held.push(ip);
                } else {
                    let ip = held.remove(step % held.len());
                    addresses.free(ip, node(1), now);
                    freed.insert(ip, now);
                }
            }
        }
    }
}
