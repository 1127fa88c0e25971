//! Whether handshake messages take more work than a gateway should do without proof of where they come from.
//!
//! Time is measured and not messages counted: what a machine can do in a second depends on the machine.

use std::time::{Duration, Instant};

use crate::wireguard::Load;

/// So much of a span is spent for anybody: enough for a hundred peers that come at once, and a small part of one core.
const MOST: Duration = Duration::from_millis(20);
const SPAN: Duration = Duration::from_secs(1);

/// Sums up what handshake messages take.
#[derive(Debug)]
pub(super) struct Meter {
    since: Instant,
    spent: Duration,
    /// Until when the last flood counts.
    high_until: Option<Instant>,
}

impl Meter {
    /// One that has measured nothing.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, spent: Duration::ZERO, high_until: None }
    }

    /// How a handshake message is to be handled now.
    pub(super) fn load(&self, now: Instant) -> Load {
        if self.high_until.is_some_and(|until| now < until) { Load::High } else { Load::Normal }
    }

    /// One was handled.
    pub(super) fn spend(&mut self, begin: Instant, end: Instant) {
        if begin.saturating_duration_since(self.since) >= SPAN {
            (self.since, self.spent) = (begin, Duration::ZERO);
        }
        self.spent += end.saturating_duration_since(begin);
        if self.spent > MOST {
            self.high_until = Some(end + SPAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Duration = Duration::from_micros(100);
    const REFUSAL: Duration = Duration::from_micros(5);

    /// How many of so many messages, evenly over a second, are handled under load, which is less work.
    fn second(meter: &mut Meter, start: Instant, messages: u32) -> usize {
        let mut high = 0;
        for begin in (0..messages).map(|n| start + SPAN * n / messages) {
            let load = meter.load(begin);
            meter.spend(begin, begin + if load == Load::High { REFUSAL } else { WORK });
            high += usize::from(load == Load::High);
        }
        high
    }

    #[test]
    fn what_honest_peers_send_is_no_load() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        for n in 0..10 {
            assert_eq!(second(&mut meter, start + SPAN * n, 200), 0);
        }
    }

    #[test]
    fn a_flood_is_load_and_is_over_a_second_after_it() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        assert_eq!(second(&mut meter, start, 1000), 799);
        assert!(second(&mut meter, start + SPAN, 1000) > 700, "it goes on");
        assert_eq!(second(&mut meter, start + SPAN * 4, 100), 0);
    }

    #[test]
    fn few_messages_are_load_where_each_takes_long() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        meter.spend(start, start + MOST * 2);
        assert_eq!(meter.load(start + MOST * 3), Load::High);
    }
}
