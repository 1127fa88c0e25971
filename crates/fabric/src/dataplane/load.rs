//! Whether there are more handshake messages than a gateway should work for without proof of where they come from.

use std::time::{Duration, Instant};

use crate::wireguard::Load;

/// So many in a second are handled for anybody: more than honest peers send, and a small part of one core.
const MOST: u32 = 200;
const SPAN: Duration = Duration::from_secs(1);

/// Counts handshake messages.
#[derive(Debug)]
pub(super) struct Meter {
    since: Instant,
    count: u32,
    /// Until when the last flood counts. It goes on for as long as it was measured.
    high_until: Option<Instant>,
}

impl Meter {
    /// One that has counted nothing.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, count: 0, high_until: None }
    }

    /// Counts a handshake message, and says how it is to be handled.
    pub(super) fn note(&mut self, now: Instant) -> Load {
        if now.saturating_duration_since(self.since) >= SPAN {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count > MOST {
            self.high_until = Some(now + SPAN);
        }
        match self.high_until {
            Some(until) if now < until => Load::High,
            Some(_) | None => Load::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many messages, evenly over a second, are handled under load.
    fn second(meter: &mut Meter, start: Instant, messages: u32) -> usize {
        let at = |n| start + SPAN * n / messages;
        (0..messages).filter(|n| meter.note(at(*n)) == Load::High).count()
    }

    #[test]
    fn what_honest_peers_send_is_no_load() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        for n in 0..10 {
            assert_eq!(second(&mut meter, start + SPAN * n, MOST), 0);
        }
    }

    #[test]
    fn a_flood_is_load_and_is_over_a_second_after_it() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        assert_eq!(second(&mut meter, start, 1000), 800);
        assert_eq!(second(&mut meter, start + SPAN, 1000), 1000, "it goes on");
        assert_eq!(second(&mut meter, start + SPAN * 3, 100), 0);
    }
}
