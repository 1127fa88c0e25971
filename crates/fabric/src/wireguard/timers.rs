//! When something is to be done without being asked: a table of deadlines, moved by what happens.
//!
//! Nothing here looks at a clock. The caller says what happened and when, and asks what is due. What each event moves:
//!
//! | event | handshake again | handshake for want of an answer | answer with nothing | persistent | wipe keys |
//! | --- | --- | --- | --- | --- | --- |
//! | initiation sent | 5 s and a bit | | never | interval | |
//! | response or keepalive sent | | | never | interval | |
//! | data sent | | 15 s, if not set | never | interval | |
//! | handshake message or keepalive received | | never | | interval | |
//! | data received | | never | 10 s, if not set | interval | |
//! | keys derived | | | | | 540 s |
//! | session confirmed | never | | | | |

use std::time::{Duration, Instant};

/// Who began a session makes another one when it is so old.
pub const REKEY_AFTER_TIME: Duration = Duration::from_mins(2);
/// So old, a session is of no use.
pub const REJECT_AFTER_TIME: Duration = Duration::from_mins(3);
/// For how long a handshake is tried.
pub const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// How long the response to an initiation is awaited.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// By how much longer at most, so that two gateways do not keep on crossing each other.
pub const REKEY_JITTER: Duration = Duration::from_millis(333);
/// How long data may stay without an answer.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// So long after the last handshake all keys are wiped.
pub const WIPE_AFTER_TIME: Duration = Duration::from_secs(3 * REJECT_AFTER_TIME.as_secs());

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An initiation was sent; the next one comes later by this.
    InitiationSent {
        /// At most [`REKEY_JITTER`].
        jitter: Duration,
    },
    /// A response was sent, or a message without payload.
    EmptySent,
    /// A packet was sent.
    DataSent,
    /// A genuine handshake message came, or a message without payload.
    EmptyReceived,
    /// A packet came.
    DataReceived,
    /// There are keys for a session.
    KeysDerived,
    /// Both sides are known to have them.
    Confirmed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send an initiation.
    Initiation,
    /// Send a message without payload.
    Keepalive,
    /// The peer does not answer: drop what waits for it.
    GiveUp,
    /// Forget all keys.
    Wipe,
}

/// The deadlines of one peer.
#[derive(Clone, Debug)]
pub struct Timers {
    interval: Option<Duration>,
    last_initiation: Option<Instant>,
    attempt_until: Option<Instant>,
    again: Option<Instant>,
    unanswered: Option<Instant>,
    answer: Option<Instant>,
    persistent: Option<Instant>,
    wipe: Option<Instant>,
}

impl Timers {
    /// With a persistent keepalive of this interval, beginning at once, or without.
    pub fn new(interval: Option<Duration>, now: Instant) -> Self {
        Self {
            interval,
            last_initiation: None,
            attempt_until: None,
            again: None,
            unanswered: None,
            answer: None,
            persistent: interval.map(|_| now),
            wipe: None,
        }
    }

    /// Another interval for the persistent keepalive, or none. One that is new begins at once.
    pub fn set_interval(&mut self, interval: Option<Duration>, now: Instant) {
        if self.interval != interval {
            (self.interval, self.persistent) = (interval, interval.map(|_| now));
        }
    }

    /// Whether an initiation may be sent: not so soon after the last one.
    pub fn may_initiate(&self, now: Instant) -> bool {
        self.last_initiation.is_none_or(|last| now.saturating_duration_since(last) >= REKEY_TIMEOUT)
    }

    /// Somebody wants to send: a handshake that is under way is tried for longer.
    pub fn insist(&mut self, now: Instant) {
        self.attempt_until = Some(now + REKEY_ATTEMPT_TIME);
    }

    /// A handshake is wanted as soon as somebody asks what is due.
    pub fn want_handshake(&mut self, now: Instant) {
        self.unanswered = Some(now);
    }

    /// Moves the deadlines.
    pub fn note(&mut self, event: Event, now: Instant) {
        match event {
            Event::InitiationSent { jitter } => {
                self.last_initiation = Some(now);
                if self.attempt_until.is_none_or(|until| until <= now) {
                    self.insist(now);
                }
                self.again = Some(now + REKEY_TIMEOUT + jitter);
                self.sent(now);
            }
            Event::EmptySent => self.sent(now),
            Event::DataSent => {
                self.unanswered.get_or_insert(now + KEEPALIVE_TIMEOUT + REKEY_TIMEOUT);
                self.sent(now);
            }
            Event::EmptyReceived => self.received(now),
            Event::DataReceived => {
                self.answer.get_or_insert(now + KEEPALIVE_TIMEOUT);
                self.received(now);
            }
            Event::KeysDerived => self.wipe = Some(now + WIPE_AFTER_TIME),
            Event::Confirmed => (self.again, self.attempt_until) = (None, None),
        }
    }

    fn sent(&mut self, now: Instant) {
        self.answer = None;
        self.persistent = self.interval.map(|interval| now + interval);
    }

    fn received(&mut self, now: Instant) {
        self.unanswered = None;
        self.persistent = self.interval.map(|interval| now + interval);
    }

    /// What is due, one thing after the other, until nothing is.
    pub fn due(&mut self, now: Instant) -> Option<Due> {
        if take(&mut self.wipe, now) {
            (self.unanswered, self.answer) = (None, None);
            Some(Due::Wipe)
        } else if take(&mut self.again, now) {
            Some(self.try_again(now))
        } else if take(&mut self.unanswered, now) {
            Some(Due::Initiation)
        } else if take(&mut self.answer, now) {
            Some(Due::Keepalive)
        } else if take(&mut self.persistent, now) {
            self.persistent = self.interval.map(|interval| now + interval);
            Some(Due::Keepalive)
        } else {
            None
        }
    }

    fn try_again(&mut self, now: Instant) -> Due {
        if self.attempt_until.is_some_and(|until| now < until) {
            return Due::Initiation;
        }
        self.attempt_until = None;
        self.answer = None;
        self.wipe.get_or_insert(now + WIPE_AFTER_TIME);
        Due::GiveUp
    }

    /// When to ask again what is due.
    pub fn next(&self) -> Option<Instant> {
        [self.again, self.unanswered, self.answer, self.persistent, self.wipe].into_iter().flatten().min()
    }
}

/// Whether the deadline has come; it comes once.
fn take(deadline: &mut Option<Instant>, now: Instant) -> bool {
    deadline.take_if(|deadline| *deadline <= now).is_some()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Due, Event, Timers};

    struct Clocked {
        timers: Timers,
        start: Instant,
    }

    impl Clocked {
        fn new(interval: Option<u64>) -> Self {
            let start = Instant::now();
            Self { timers: Timers::new(interval.map(Duration::from_secs), start), start }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn note(&mut self, seconds: u64, event: Event) {
            self.timers.note(event, self.at(seconds));
        }

        /// What is due, second by second; an initiation is sent when it is due.
        fn run(&mut self, seconds: std::ops::RangeInclusive<u64>) -> Vec<(u64, Due)> {
            let mut all = Vec::new();
            for second in seconds {
                while let Some(due) = self.timers.due(self.at(second)) {
                    all.push((second, due));
                    match due {
                        Due::Initiation => self.note(second, INITIATION),
                        Due::Keepalive => self.note(second, Event::EmptySent),
                        Due::GiveUp | Due::Wipe => {}
                    }
                }
            }
            all
        }
    }

    const INITIATION: Event = Event::InitiationSent { jitter: Duration::ZERO };

    #[test]
    fn at_rest_nothing_is_ever_due() {
        let mut peer = Clocked::new(None);
        assert_eq!(peer.timers.next(), None);
        assert_eq!(peer.run(0..=1000), []);
    }

    #[test]
    fn an_initiation_is_repeated_until_the_peer_is_given_up_and_keys_are_wiped() {
        let mut peer = Clocked::new(None);
        peer.note(0, INITIATION);
        let due = peer.run(0..=1000);
        let mut expected: Vec<_> = (1..18).map(|attempt| (5 * attempt, Due::Initiation)).collect();
        expected.extend([(90, Due::GiveUp), (630, Due::Wipe)]);
        assert_eq!(due, expected);
    }

    #[test]
    fn jitter_delays_the_next_attempt() {
        let mut peer = Clocked::new(None);
        let jitter = Duration::from_millis(333);
        peer.note(0, Event::InitiationSent { jitter });
        assert_eq!(peer.timers.next(), Some(peer.at(5) + jitter));
        assert!(!peer.timers.may_initiate(peer.at(4)) && peer.timers.may_initiate(peer.at(5)));
    }

    #[test]
    fn whoever_wants_to_send_makes_the_attempt_longer() {
        let mut peer = Clocked::new(None);
        peer.note(0, INITIATION);
        peer.run(0..=50);
        peer.timers.insist(peer.at(50));
        assert_eq!(
            peer.run(51..=1000).iter().find(|(_, due)| *due == Due::GiveUp),
            Some(&(140, Due::GiveUp))
        );
    }

    #[test]
    fn a_wish_of_long_ago_does_not_make_an_attempt_shorter() {
        let mut peer = Clocked::new(None);
        peer.timers.insist(peer.at(0));
        peer.note(200, INITIATION);
        assert_eq!(peer.run(200..=285).len(), 17);
        assert_eq!(peer.run(286..=290), [(290, Due::GiveUp)]);
    }

    #[test]
    fn a_confirmed_session_ends_the_attempt() {
        let mut peer = Clocked::new(None);
        peer.note(0, INITIATION);
        peer.note(1, Event::KeysDerived);
        peer.note(1, Event::Confirmed);
        assert_eq!(peer.run(0..=1000), [(541, Due::Wipe)]);
    }

    #[test]
    fn data_is_answered_with_nothing_after_ten_seconds() {
        let mut peer = Clocked::new(None);
        peer.note(0, Event::DataReceived);
        peer.note(5, Event::DataReceived);
        assert_eq!(peer.run(0..=100), [(10, Due::Keepalive)]);
        peer.note(101, Event::DataReceived);
        peer.note(105, Event::DataSent);
        peer.note(106, Event::EmptyReceived);
        assert_eq!(peer.run(101..=200), []);
    }

    #[test]
    fn data_without_an_answer_makes_a_handshake_after_fifteen_seconds() {
        let mut peer = Clocked::new(None);
        peer.note(0, Event::DataSent);
        peer.note(10, Event::DataSent);
        assert_eq!(peer.run(0..=16), [(15, Due::Initiation)]);

        let mut answered = Clocked::new(None);
        answered.note(0, Event::DataSent);
        answered.note(10, Event::EmptyReceived);
        assert_eq!(answered.run(0..=100), []);
    }

    #[test]
    fn a_persistent_keepalive_begins_at_once_and_follows_silence() {
        let mut peer = Clocked::new(Some(25));
        assert_eq!(peer.run(0..=60), [(0, Due::Keepalive), (25, Due::Keepalive), (50, Due::Keepalive)]);
        peer.note(70, Event::EmptyReceived);
        assert_eq!(peer.run(70..=100), [(95, Due::Keepalive)]);
    }

    #[test]
    fn another_interval_begins_at_once_and_the_same_one_changes_nothing() {
        let mut peer = Clocked::new(Some(25));
        peer.run(0..=0);
        peer.timers.set_interval(Some(Duration::from_secs(25)), peer.at(5));
        assert_eq!(peer.timers.next(), Some(peer.at(25)));
        peer.timers.set_interval(Some(Duration::from_secs(7)), peer.at(5));
        assert_eq!(peer.run(5..=13), [(5, Due::Keepalive), (12, Due::Keepalive)]);
        peer.timers.set_interval(None, peer.at(13));
        assert_eq!(peer.timers.next(), None);
    }

    #[test]
    fn a_persistent_keepalive_outlives_the_keys() {
        let mut peer = Clocked::new(Some(400));
        peer.note(0, Event::KeysDerived);
        let due = peer.run(0..=850);
        assert_eq!(
            due,
            [(0, Due::Keepalive), (400, Due::Keepalive), (540, Due::Wipe), (800, Due::Keepalive)]
        );
    }
}
