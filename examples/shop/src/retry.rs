//! How long to wait for another service, and when to ask again: the loss of a replica is bridged by asking another.
//!
//! Every request of the shop may be repeated, so that what fails is asked again, over a new connection, until time is up.

use std::time::Duration;

/// How much time a request gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until somebody picks up. Short: who is there does so at once, and behind a Service another may be.
    pub(crate) connect: Duration,
    /// For one attempt, from beginning to end.
    pub(crate) attempt: Duration,
    /// For all attempts.
    pub(crate) total: Duration,
}

/// Of a service with one that does its work by itself.
pub(crate) const BRIEF: Patience = Patience::of(700, 3000);
/// Of the front end with the checkout, which asks three others.
pub(crate) const LONGER: Patience = Patience::of(2000, 5000);
/// Of a customer with the front end.
pub(crate) const CUSTOMER: Patience = Patience::of(2500, 6000);

const CONNECT: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

impl Patience {
    const fn of(attempt: u64, total: u64) -> Self {
        let (attempt, total) = (Duration::from_millis(attempt), Duration::from_millis(total));
        Self { connect: CONNECT, attempt, total }
    }

    /// How long the next attempt may take, after a pause, or nothing when time is up.
    pub(crate) fn next(&self, attempts: u32, elapsed: Duration) -> Option<(Duration, Duration)> {
        let pause = if attempts == 0 { Duration::ZERO } else { pause(attempts) };
        let left = self.total.checked_sub(elapsed + pause)?;
        (left >= self.connect).then(|| (pause, self.attempt.min(left)))
    }
}

/// How long to wait after so many attempts: at first hardly at all, since another replica may answer.
fn pause(attempts: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_follow_quickly_and_end_in_time() {
        let (mut elapsed, mut attempts) = (Duration::ZERO, 0);
        // Nobody picks up, each time.
        while let Some((pause, attempt)) = BRIEF.next(attempts, elapsed) {
            assert!(attempt >= BRIEF.connect && elapsed + pause + attempt <= BRIEF.total);
            elapsed += pause + BRIEF.connect;
            attempts += 1;
        }
        assert!((7..=12).contains(&attempts), "{attempts} attempts in {elapsed:?}");
    }

    #[test]
    fn the_first_attempt_begins_at_once_and_pauses_have_an_end() {
        assert_eq!(BRIEF.next(0, Duration::ZERO), Some((Duration::ZERO, BRIEF.attempt)));
        assert_eq!(pause(1), FIRST_PAUSE);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn who_asks_others_is_given_more_time_than_they_are() {
        assert!(BRIEF.attempt < LONGER.attempt && LONGER.attempt < CUSTOMER.attempt);
    }
}
