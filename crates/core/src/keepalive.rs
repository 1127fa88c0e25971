//! Whether a peer is alive, from when it was last heard: a glitch changes nothing, a silence does, in steps.
//!
//! The provider confirms its offer every retry time. Only the local clock counts: what matters is when a
//! confirmation *arrived*, not the time that the peer wrote into it; a wrong clock over there does no harm.
//! The same steps hold in the other direction, where a confirmation that could be delivered shows that the
//! consumer is there.

use std::time::Duration;

use ferro_api::config::AdvertisementConfig;
use ferro_api::sharing::ResourceOfferSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// A single miss never counts, whatever is configured.
const LEAST_THRESHOLD: u32 = 2;
/// The longest period between two confirmations that a peer may announce.
const LONGEST_PERIOD: Duration = Duration::from_hours(1);

/// How much silence is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How many confirmations may be missed.
    pub threshold: u32,
    /// How often one is due.
    pub retry: Duration,
    /// How long a lost peer's node keeps its pods.
    pub drain_delay: Duration,
}

impl Timing {
    /// As configured here, except that a peer whose offer is confirmed less often is given that period.
    pub fn new(config: &AdvertisementConfig, offer: Option<&ResourceOfferSpec>) -> Self {
        let period = offer.and_then(|offer| offer.renew_period_seconds).unwrap_or_default();
        let period = Duration::from_secs(period.into()).min(LONGEST_PERIOD);
        Self {
            threshold: config.keepalive_threshold().max(LEAST_THRESHOLD),
            retry: config.keepalive_retry_time().max(period),
            drain_delay: config.drain_delay(),
        }
    }

    fn patience(&self) -> Duration {
        self.retry.saturating_mul(self.threshold)
    }
}

/// What the silence of a peer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Heard in time.
    Alive {
        /// When the next confirmation is due.
        due: Timestamp,
    },
    /// A confirmation is missing. Nothing changes yet.
    Late {
        /// When the peer will count as lost.
        lost_at: Timestamp,
    },
    /// The peer is lost: its node is not ready, its pods stay.
    Lost {
        /// Since when.
        since: Timestamp,
        /// When its node will be drained.
        drain_at: Timestamp,
    },
    /// The peer has been lost for so long that its pods are started elsewhere.
    Drain {
        /// Since when it is lost.
        since: Timestamp,
    },
}

impl Signal {
    /// What it means that the peer was last heard then.
    pub fn judge(heard: Timestamp, timing: &Timing, now: Timestamp) -> Self {
        let due = later(heard, timing.retry);
        let since = later(heard, timing.patience());
        let drain_at = later(since, timing.drain_delay);
        if now <= due {
            Self::Alive { due }
        } else if now < since {
            Self::Late { lost_at: since }
        } else if now < drain_at {
            Self::Lost { since, drain_at }
        } else {
            Self::Drain { since }
        }
    }

    /// When to judge again, if nothing is heard until then.
    pub fn changes_at(&self) -> Option<Timestamp> {
        match self {
            Self::Alive { due } => Some(later(*due, Duration::from_millis(1))),
            Self::Late { lost_at } => Some(*lost_at),
            Self::Lost { drain_at, .. } => Some(*drain_at),
            Self::Drain { .. } => None,
        }
    }

    /// Since when the peer is lost.
    pub fn lost_since(&self) -> Option<Timestamp> {
        match self {
            Self::Alive { .. } | Self::Late { .. } => None,
            Self::Lost { since, .. } | Self::Drain { since } => Some(*since),
        }
    }
}

/// When a peer was last heard, kept from one confirmation to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    confirmed: Option<MicroTime>,
    heard: Timestamp,
}

impl Heartbeat {
    /// Begins to listen. A peer that was lost before, as its node says, stays so until it is heard; of any
    /// other one the best is assumed.
    pub fn begin(
        confirmed: Option<&MicroTime>,
        lost_since: Option<Timestamp>,
        timing: &Timing,
        now: Timestamp,
    ) -> Self {
        let heard = lost_since.map_or(now, |since| earlier(since, timing.patience()));
        Self { confirmed: confirmed.cloned(), heard }
    }

    /// Takes note of the offer as it is now. Any other confirmation than the last one counts as heard.
    pub fn observe(&mut self, confirmed: Option<&MicroTime>, now: Timestamp) {
        if self.confirmed.as_ref() != confirmed {
            self.confirmed = confirmed.cloned();
            self.heard = now;
        }
    }

    /// When the peer was last heard.
    pub fn heard(&self) -> Timestamp {
        self.heard
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferro_api::config::AdvertisementConfig;
    use ferro_api::sharing::ResourceOfferSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;

    use super::{Heartbeat, Signal, Timing};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn timing() -> Timing {
        Timing { drain_delay: Duration::from_mins(10), ..Timing::new(&AdvertisementConfig::default(), None) }
    }

    fn judged(second: i64) -> Signal {
        Signal::judge(at(0), &timing(), at(second))
    }

    #[test]
    fn silence_counts_in_steps() {
        assert_eq!(judged(0), Signal::Alive { due: at(20) });
        assert_eq!(judged(20), Signal::Alive { due: at(20) });
        assert_eq!(judged(21), Signal::Late { lost_at: at(60) });
        assert_eq!(judged(59), Signal::Late { lost_at: at(60) });
        assert_eq!(judged(60), Signal::Lost { since: at(60), drain_at: at(660) });
        assert_eq!(judged(659), Signal::Lost { since: at(60), drain_at: at(660) });
        assert_eq!(judged(660), Signal::Drain { since: at(60) });
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_lose_a_peer() {
        assert_eq!(judged(-3600), Signal::Alive { due: at(20) });
    }

    #[test]
    fn a_single_miss_never_counts() {
        let config = AdvertisementConfig { keepalive_threshold: Some(1), ..AdvertisementConfig::default() };
        let timing = Timing::new(&config, None);
        assert_eq!(Signal::judge(at(0), &timing, at(39)), Signal::Late { lost_at: at(40) });
    }

    #[test]
    fn a_peer_that_confirms_less_often_is_given_its_own_period_within_reason() {
        for (period, retry) in [(60, 60), (5, 20), (u32::MAX, 3600)] {
            let offer = ResourceOfferSpec { renew_period_seconds: Some(period), ..Default::default() };
            let timing = Timing::new(&AdvertisementConfig::default(), Some(&offer));
            assert_eq!(timing.retry, Duration::from_secs(retry));
        }
    }

    #[test]
    fn only_the_arrival_counts_and_not_the_clock_of_the_peer() {
        let (year_ago, in_a_year) = (MicroTime(at(-31_536_000)), MicroTime(at(31_536_000)));
        let mut heartbeat = Heartbeat::begin(Some(&in_a_year), None, &timing(), at(0));
        heartbeat.observe(Some(&in_a_year), at(30));
        assert_eq!(heartbeat.heard(), at(0));
        heartbeat.observe(Some(&year_ago), at(40));
        assert_eq!(heartbeat.heard(), at(40));
    }

    #[test]
    fn a_restart_neither_loses_a_peer_nor_revives_one() {
        let confirmed = MicroTime(at(0));
        let fresh = Heartbeat::begin(Some(&confirmed), None, &timing(), at(500));
        assert_eq!(Signal::judge(fresh.heard(), &timing(), at(501)), Signal::Alive { due: at(520) });
        let lost = Heartbeat::begin(Some(&confirmed), Some(at(60)), &timing(), at(500));
        let expected = Signal::Lost { since: at(60), drain_at: at(660) };
        assert_eq!(Signal::judge(lost.heard(), &timing(), at(501)), expected);
    }

    proptest! {
        #[test]
        fn judging_again_at_the_time_it_names_gives_the_next_step(second in 0_i64..2000) {
            let signal = judged(second);
            if let Some(next) = signal.changes_at() {
                prop_assert!(next > at(second));
                prop_assert_ne!(Signal::judge(at(0), &timing(), next), signal);
            } else {
                prop_assert_eq!(signal, Signal::Drain { since: at(60) });
            }
        }
    }
}
