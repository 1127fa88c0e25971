//! How often something may happen: for each source, and for all of them together.
//!
//! A token bucket, kept as the one moment at which it will be full again. A bucket that is full is as good
//! as none, so that forgetting it loses nothing and memory stays bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{between, later};

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How often at once, after a rest.
    pub burst: u32,
    /// How long it takes until it may happen once more.
    pub every: Duration,
}

/// Counts how often something happens, against a pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    full_again: Option<Timestamp>,
}

impl Meter {
    /// How long to wait until it may happen; nothing when it may happen now.
    pub fn wait(&mut self, pace: &Pace, now: Timestamp) -> Duration {
        let room = pace.every * pace.burst.saturating_sub(1);
        self.debt(pace, now).saturating_sub(room)
    }

    /// It happens.
    pub fn count(&mut self, pace: &Pace, now: Timestamp) {
        let debt = self.debt(pace, now) + pace.every;
        self.full_again = Some(later(now, debt));
    }

    /// Whether the bucket is full, so that it can be forgotten.
    pub fn is_full(&self, now: Timestamp) -> bool {
        self.full_again <= Some(now)
    }

    /// How long it takes until the bucket is full again. A clock that was set back does not make it longer.
    fn debt(&mut self, pace: &Pace, now: Timestamp) -> Duration {
        self.full_again = self.full_again.min(Some(later(now, pace.every * pace.burst)));
        self.full_again.map_or(Duration::ZERO, |full_again| between(now, full_again))
    }
}

/// The limits of a [`RateLimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// How often one source may come.
    pub source: Pace,
    /// How often all sources together may come.
    pub total: Pace,
    /// How many sources are remembered.
    pub sources: usize,
}

impl Default for RateLimits {
    /// Enough for a peer that retries, and for a hundred peers that all begin at once.
    fn default() -> Self {
        Self {
            source: Pace { burst: 20, every: Duration::from_secs(1) },
            total: Pace { burst: 400, every: Duration::from_millis(20) },
            sources: 4096,
        }
    }
}

/// Limits how often each source, and all of them together, may come.
///
/// An IPv6 source is its network of 64 bits, of which one machine has as many addresses as it likes.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    total: Meter,
    sources: HashMap<IpAddr, Meter>,
}

impl RateLimiter {
    /// A limiter that has seen nobody yet.
    pub fn new(limits: RateLimits) -> Self {
        Self { limits, total: Meter::default(), sources: HashMap::new() }
    }

    /// Lets the source in, or says how long it must wait.
    pub fn admit(&mut self, source: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let source = network(source);
        let known = self.sources.get_mut(&source);
        let own_wait = known.map_or(Duration::ZERO, |meter| meter.wait(&self.limits.source, now));
        let wait = own_wait.max(self.total.wait(&self.limits.total, now));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        self.total.count(&self.limits.total, now);
        self.make_room(&source, now);
        self.sources.entry(source).or_default().count(&self.limits.source, now);
        Ok(())
    }

    /// Forgets the sources that owe nothing; when all owe something, the one that owes least.
    fn make_room(&mut self, source: &IpAddr, now: Timestamp) {
        if self.sources.len() < self.limits.sources || self.sources.contains_key(source) {
            return;
        }
        self.sources.retain(|_, meter| !meter.is_full(now));
        if self.sources.len() >= self.limits.sources {
            let least = self.sources.iter().min_by_key(|(_, meter)| meter.full_again);
            if let Some(least) = least.map(|(source, _)| *source) {
                self.sources.remove(&least);
            }
        }
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Meter, Pace, RateLimiter, RateLimits};
    use crate::auth::{later, tests::at};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    fn limiter(sources: usize) -> RateLimiter {
        RateLimiter::new(RateLimits {
            source: Pace { burst: 2, every: Duration::from_secs(10) },
            total: Pace { burst: 1000, every: Duration::from_millis(1) },
            sources,
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_its_burst_and_then_waits() {
        let mut limiter = limiter(10);
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(0)), Ok(()));
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(0)), Ok(()));
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(4)), Err(Duration::from_secs(6)));
        assert_eq!(limiter.admit(ip("192.0.2.2"), at(4)), Ok(()));
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(10)), Ok(()));
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_source() {
        let mut limiter = limiter(10);
        assert_eq!(limiter.admit(ip("2001:db8::1"), at(0)), Ok(()));
        assert_eq!(limiter.admit(ip("2001:db8::2"), at(0)), Ok(()));
        assert!(limiter.admit(ip("2001:db8::3"), at(0)).is_err());
        assert_eq!(limiter.admit(ip("2001:db8:0:1::3"), at(0)), Ok(()));
    }

    #[test]
    fn a_flood_from_many_sources_meets_the_total() {
        let mut limiter = RateLimiter::new(RateLimits {
            total: Pace { burst: 5, every: Duration::from_secs(1) },
            ..RateLimits::default()
        });
        let admitted = |limiter: &mut RateLimiter, second| {
            let sources = (0..10_000_u32).map(|n| IpAddr::V4(Ipv4Addr::from_bits(n)));
            sources.filter(|source| limiter.admit(*source, at(second)).is_ok()).count()
        };
        assert_eq!(admitted(&mut limiter, 0), 5);
        assert_eq!(admitted(&mut limiter, 3), 3);
    }

    #[test]
    fn memory_is_bounded_and_whoever_owes_most_is_remembered() {
        let mut limiter = limiter(3);
        let greedy = ip("192.0.2.99");
        limiter.admit(greedy, at(0)).unwrap();
        limiter.admit(greedy, at(0)).unwrap();
        for n in 0..100 {
            limiter.admit(IpAddr::V4(Ipv4Addr::from_bits(n)), at(0)).unwrap();
        }
        assert_eq!(limiter.sources.len(), 3);
        assert!(limiter.admit(greedy, at(0)).is_err());
        limiter.admit(ip("192.0.2.1"), at(1000)).unwrap();
        assert_eq!(limiter.sources.len(), 1);
    }

    #[test]
    fn a_clock_that_was_set_back_locks_nobody_out_for_long() {
        let mut limiter = limiter(3);
        limiter.admit(ip("192.0.2.1"), at(100_000)).unwrap();
        limiter.admit(ip("192.0.2.1"), at(100_000)).unwrap();
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(0)), Err(Duration::from_secs(10)));
        assert_eq!(limiter.admit(ip("192.0.2.1"), at(10)), Ok(()));
    }

    proptest! {
        #[test]
        fn no_more_happens_than_the_pace_allows(
            steps in proptest::collection::vec(0_u64..5000, 1..200),
            burst in 1_u32..10,
            every in 1_u64..3000,
        ) {
            let pace = Pace { burst, every: Duration::from_millis(every) };
            let (mut meter, mut now, mut count) = (Meter::default(), at(0), 0_u64);
            for step in &steps {
                now = later(now, Duration::from_millis(*step));
                if meter.wait(&pace, now) == Duration::ZERO {
                    meter.count(&pace, now);
                    count += 1;
                }
            }
            prop_assert!(count <= u64::from(burst) + steps.iter().sum::<u64>() / every);
        }
    }
}
