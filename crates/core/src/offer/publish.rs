//! When a changed offer is worth a write: large changes at once, small ones together, none twice.
//!
//! The first change after a quiet time is published immediately, whatever its size; the next one waits, the
//! longer the smaller it is. So a consumer follows within seconds, a rollout of a hundred pods costs a few
//! writes, and no figure stays wrong for good.

use std::time::Duration;

use ferro_api::sharing::ResourceOfferSpec;

use crate::resources::ResourceMap;

/// A change of at least so many thousandths is a large one.
const LARGE: u32 = 50;
/// A change of less than so many thousandths is a small one.
const SMALL: u32 = 10;

/// How long after the last write a change of each size has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// From 5 % of any resource, and whenever anything else than a figure changes.
    pub large: Duration,
    /// From 1 % to 5 %.
    pub medium: Duration,
    /// Below 1 %.
    pub small: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { large: Duration::from_secs(1), medium: Duration::from_secs(5), small: Duration::from_mins(1) }
    }
}

/// What to do about an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Write it.
    Now,
    /// Look again after this time; until then more may change.
    After(Duration),
    /// It is as published.
    No,
}

/// Whether the offer that would be made now is published, given the one that was, and how long ago.
pub fn should_publish(
    published: &ResourceOfferSpec,
    next: &ResourceOfferSpec,
    since: Duration,
    pace: &Pace,
) -> Publish {
    let Some(wait) = wait(published, next, pace) else { return Publish::No };
    match wait.checked_sub(since) {
        None | Some(Duration::ZERO) => Publish::Now,
        Some(rest) => Publish::After(rest),
    }
}

fn wait(published: &ResourceOfferSpec, next: &ResourceOfferSpec, pace: &Pace) -> Option<Duration> {
    let (before, after) = (figures(published), figures(next));
    if !same_terms(published, next) {
        return Some(pace.large);
    }
    match after.change_from(&before) {
        _ if after == before => None,
        LARGE.. => Some(pace.large),
        SMALL.. => Some(pace.medium),
        _ => Some(pace.small),
    }
}

fn figures(offer: &ResourceOfferSpec) -> ResourceMap {
    offer.resource_quota.as_ref().map(|quota| ResourceMap::read(&quota.hard)).unwrap_or_default()
}

/// All but the figures and what is not part of an offer's content.
fn same_terms(a: &ResourceOfferSpec, b: &ResourceOfferSpec) -> bool {
    let terms = |offer: &ResourceOfferSpec| ResourceOfferSpec {
        resource_quota: None,
        renew_time: None,
        withdrawal_timestamp: None,
        ..offer.clone()
    };
    terms(a) == terms(b)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferro_api::common::ResourceQuota;
    use ferro_api::sharing::ResourceOfferSpec;
    use serde_json::json;

    use super::{Pace, Publish, should_publish};
    use crate::resources::tests::quantities;

    fn offer(cpu: &str, memory: &str) -> ResourceOfferSpec {
        let hard = quantities([("cpu", cpu), ("memory", memory)]);
        ResourceOfferSpec { resource_quota: Some(ResourceQuota { hard }), ..ResourceOfferSpec::default() }
    }

    fn decide(cpu: &str, seconds: u64) -> Publish {
        let next = offer(cpu, "1000Mi");
        should_publish(&offer("100", "1000Mi"), &next, Duration::from_secs(seconds), &Pace::default())
    }

    fn after(seconds: u64) -> Publish {
        Publish::After(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_change_after_a_quiet_time_goes_out_at_once() {
        for cpu in ["50", "95", "98", "99999m", "200"] {
            assert_eq!(decide(cpu, 3600), Publish::Now, "{cpu}");
        }
    }

    #[test]
    fn the_next_change_waits_the_longer_the_smaller_it_is() {
        assert_eq!(decide("50", 0), after(1));
        assert_eq!(decide("95", 0), after(1));
        assert_eq!(decide("96", 0), after(5));
        assert_eq!(decide("104", 2), after(3));
        assert_eq!(decide("99500m", 2), after(58));
    }

    #[test]
    fn what_is_as_published_is_not_written_again_however_it_is_spelled() {
        assert_eq!(decide("100", 3600), Publish::No);
        assert_eq!(decide("100000m", 3600), Publish::No);
        let mut renewed = offer("100", "1000Mi");
        renewed.renew_time = Some(serde_json::from_value(json!("2025-01-01T00:00:00.000000Z")).unwrap());
        let unchanged = should_publish(&renewed, &offer("100", "1000Mi"), Duration::MAX, &Pace::default());
        assert_eq!(unchanged, Publish::No);
    }

    #[test]
    fn a_change_of_prices_or_labels_counts_as_large() {
        let mut next = offer("100", "1000Mi");
        next.labels.insert("liqo.io/region".into(), "eu".into());
        let decision = should_publish(&offer("100", "1000Mi"), &next, Duration::ZERO, &Pace::default());
        assert_eq!(decision, after(1));
    }

    #[test]
    fn a_resource_that_appears_with_nothing_of_it_is_a_small_change() {
        let mut next = offer("100", "1000Mi");
        next.resource_quota.as_mut().unwrap().hard.extend(quantities([("hugepages-2Mi", "0")]));
        let decision = should_publish(&offer("100", "1000Mi"), &next, Duration::ZERO, &Pace::default());
        assert_eq!(decision, after(60));
    }
}
