//! How good a tunnel is: echo requests through it, twice a second, and what became of the last hundred.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ferro_core::network::report::Measured;

/// How often a request is sent.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// So long an answer may take. One that comes later still counts, when it comes.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many requests are remembered.
const REMEMBERED: usize = 100;

/// Probes through one tunnel.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The last requests; the number of the first of them.
    sent: VecDeque<Request>,
    first: u16,
    next: Option<Instant>,
    last: Option<Duration>,
    round_trip: Option<Duration>,
    jitter: Duration,
}

#[derive(Debug)]
struct Request {
    at: Instant,
    is_answered: bool,
}

impl Probe {
    /// The number of the request that is to be sent now, if it is time for one.
    pub(super) fn tick(&mut self, now: Instant) -> Option<u16> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        // Who comes late does not catch up.
        let in_time = self.next.map(|next| next + INTERVAL).filter(|next| *next > now);
        self.next = Some(in_time.unwrap_or(now + INTERVAL));
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        let number = self.first.wrapping_add(u16::try_from(self.sent.len()).unwrap_or_default());
        self.sent.push_back(Request { at: now, is_answered: false });
        Some(number)
    }

    /// When to ask again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// An answer came. One that nobody asked for, or that came before, is nothing.
    pub(super) fn answered(&mut self, number: u16, now: Instant) {
        let place = usize::from(number.wrapping_sub(self.first));
        let Some(request) = self.sent.get_mut(place).filter(|request| !request.is_answered) else { return };
        request.is_answered = true;
        let took = now.saturating_duration_since(request.at);
        self.round_trip = Some(self.round_trip.map_or(took, |before| (before * 7 + took) / 8));
        if let Some(last) = self.last.replace(took) {
            self.jitter = (self.jitter * 15 + took.abs_diff(last)) / 16;
        }
    }

    /// What the probes say.
    pub(super) fn measured(&self, now: Instant) -> Measured {
        let is_due = |request: &&Request| now.saturating_duration_since(request.at) >= PATIENCE;
        let judged = self.sent.iter().filter(|request| request.is_answered || is_due(request));
        let (mut all, mut lost) = (0_usize, 0_usize);
        for request in judged {
            all += 1;
            lost += usize::from(!request.is_answered);
        }
        let missed = self.sent.iter().rev().take_while(|request| !request.is_answered).filter(is_due).count();
        Measured {
            round_trip: self.round_trip,
            jitter: self.jitter,
            lost_per_thousand: u16::try_from(lost * 1000 / all.max(1)).unwrap_or(1000),
            missed: u32::try_from(missed).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Probes for so many rounds; each is answered after so many milliseconds, or never.
    fn run(probe: &mut Probe, start: Instant, rounds: u32, answer: impl Fn(u32) -> Option<u32>) -> Instant {
        for round in 0..rounds {
            let now = start + INTERVAL * round;
            let number = probe.tick(now).unwrap();
            assert_eq!(probe.tick(now + MS), None, "it is not time yet");
            if let Some(after) = answer(round) {
                probe.answered(number, now + MS * after);
            }
        }
        start + INTERVAL * rounds
    }

    #[test]
    fn at_first_nothing_is_known() {
        assert_eq!(Probe::default().measured(Instant::now()), Measured::default());
    }

    #[test]
    fn a_steady_tunnel_has_its_round_trip_and_no_jitter() {
        let mut probe = Probe::default();
        let end = run(&mut probe, Instant::now(), 1000, |_| Some(20));
        let wanted = Measured { round_trip: Some(20 * MS), ..Measured::default() };
        assert_eq!(probe.measured(end), wanted);
    }

    #[test]
    fn jitter_is_how_much_it_differs() {
        let mut probe = Probe::default();
        let end = run(&mut probe, Instant::now(), 200, |round| Some(if round % 2 == 0 { 10 } else { 30 }));
        let measured = probe.measured(end);
        assert!(measured.jitter > 19 * MS && measured.jitter <= 20 * MS, "{measured:?}");
        assert!(measured.round_trip.unwrap().abs_diff(20 * MS) < 3 * MS, "{measured:?}");
    }

    #[test]
    fn what_is_lost_is_counted_among_the_last_hundred() {
        let mut probe = Probe::default();
        let end = run(&mut probe, Instant::now(), 300, |round| (round % 10 != 3).then_some(5));
        assert_eq!(probe.measured(end).lost_per_thousand, 100);
        let end = run(&mut probe, end, 110, |_| Some(5));
        assert_eq!(probe.measured(end).lost_per_thousand, 0);
    }

    #[test]
    fn a_silence_is_counted_after_a_second_and_ends_with_the_first_answer() {
        let mut probe = Probe::default();
        let end = run(&mut probe, Instant::now(), 10, |_| Some(5));
        let end = run(&mut probe, end, 5, |_| None);
        // The last one, of half a second ago, is still awaited.
        assert_eq!(probe.measured(end).missed, 4);
        assert_eq!(probe.measured(end + PATIENCE).missed, 5);
        let end = run(&mut probe, end, 1, |_| Some(5));
        assert_eq!(probe.measured(end + PATIENCE).missed, 0);
    }

    #[test]
    fn an_answer_counts_once_and_only_if_it_was_asked_for() {
        let start = Instant::now();
        let mut probe = Probe::default();
        let number = probe.tick(start).unwrap();
        probe.answered(number.wrapping_add(1), start + MS);
        assert_eq!(probe.measured(start).round_trip, None);
        probe.answered(number, start + 10 * MS);
        probe.answered(number, start + 90 * MS);
        assert_eq!(probe.measured(start).round_trip, Some(10 * MS));
    }

    #[test]
    fn who_comes_late_does_not_catch_up() {
        let start = Instant::now();
        let mut probe = Probe::default();
        probe.tick(start).unwrap();
        let late = start + Duration::from_mins(1);
        assert!(probe.tick(late).is_some() && probe.tick(late).is_none());
        assert!(probe.next().unwrap() <= late + INTERVAL);
    }
}
