//! Which numbered messages of a session have come, so that none is taken twice.
//!
//! Messages may overtake each other: the latest ones are remembered one by one, and what is older than all of them is
//! refused. Looking changes nothing and is done before a message is opened, since most copies are refused for less
//! that way; only a message that proved genuine is recorded. The answer of [`Window::record`] is the one that counts.
//! No session lives to see the number `u64::MAX`.

const WORD: u64 = u64::BITS as u64;
const WORDS: usize = 128;
/// How far a message may be behind the latest one. One word is always being cleared for what comes.
const REACH: u64 = WORD * (WORDS as u64 - 1);

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Replay {
    /// It was taken before.
    #[error("the message was received before")]
    Duplicate,
    /// It cannot be told whether it was.
    #[error("the message is too far behind the latest one")]
    TooOld,
}

/// The messages that were taken.
#[derive(Clone, Debug)]
pub struct Window {
    /// One more than the latest; zero if none has come.
    end: u64,
    taken: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self { end: 0, taken: [0; WORDS] }
    }
}

impl Window {
    /// Whether the message may be taken if it is genuine.
    pub fn check(&self, counter: u64) -> Result<(), Replay> {
        let latest = self.end.saturating_sub(1);
        if counter >= self.end {
            Ok(())
        } else if latest - counter >= REACH {
            Err(Replay::TooOld)
        } else if self.taken.get(place(counter)).is_some_and(|word| word & bit(counter) != 0) {
            Err(Replay::Duplicate)
        } else {
            Ok(())
        }
    }

    /// Takes a genuine message.
    pub fn record(&mut self, counter: u64) -> Result<(), Replay> {
        self.check(counter)?;
        if counter >= self.end {
            self.advance(counter);
        }
        if let Some(word) = self.taken.get_mut(place(counter)) {
            *word |= bit(counter);
        }
        Ok(())
    }

    /// Clears the words between the latest message and this one, at most all of them.
    fn advance(&mut self, counter: u64) {
        let first = self.end.div_ceil(WORD);
        let last = counter / WORD;
        for word in (first..=last).take(WORDS) {
            if let Some(word) = self.taken.get_mut(place(word * WORD)) {
                *word = 0;
            }
        }
        self.end = counter.saturating_add(1);
    }
}

fn place(counter: u64) -> usize {
    usize::try_from(counter / WORD).unwrap_or(0) % WORDS
}

fn bit(counter: u64) -> u64 {
    1 << (counter % WORD)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{REACH, Replay, WORDS, Window};

    #[test]
    fn each_message_is_taken_once_in_any_order() {
        let mut window = Window::default();
        for counter in [0, 1, 5, 3, 64, 63, 200, 4, 2] {
            assert_eq!(window.record(counter), Ok(()), "{counter}");
            assert_eq!(window.check(counter), Err(Replay::Duplicate), "{counter}");
            assert_eq!(window.record(counter), Err(Replay::Duplicate), "{counter}");
        }
    }

    #[test]
    fn looking_changes_nothing() {
        let mut window = Window::default();
        assert_eq!(window.check(u64::MAX - 1), Ok(()));
        assert_eq!(window.check(3), Ok(()));
        assert_eq!(window.record(3), Ok(()));
        assert_eq!(window.check(u64::MAX - 1), Ok(()));
        assert_eq!(window.record(2), Ok(()));
    }

    #[test]
    fn what_is_out_of_reach_is_refused() {
        let mut window = Window::default();
        assert_eq!(window.record(REACH), Ok(()));
        assert_eq!(window.check(0), Err(Replay::TooOld));
        assert_eq!(window.record(1), Ok(()));
        assert_eq!(window.record(REACH + 1), Ok(()));
        assert_eq!(window.check(1), Err(Replay::TooOld));
    }

    #[test]
    fn a_leap_forgets_what_was_before_it() {
        let mut window = Window::default();
        for counter in 0..20_000 {
            window.record(counter).unwrap();
        }
        window.record(10_000_000).unwrap();
        for counter in 10_000_000 - REACH + 1..10_000_000 {
            assert_eq!(window.record(counter), Ok(()), "{counter}");
        }
        assert_eq!(window.check(10_000_000 - REACH), Err(Replay::TooOld));
    }

    #[test]
    fn neighbours_that_swapped_places_are_taken_all_the_way() {
        let mut window = Window::default();
        for counter in (0..30_000).step_by(2) {
            assert_eq!(window.record(counter + 1), Ok(()), "{counter}");
            assert_eq!(window.record(counter), Ok(()), "{counter}");
        }
    }

    #[test]
    fn the_last_counters_do_not_wrap() {
        let mut window = Window::default();
        assert_eq!(window.record(u64::MAX - 1), Ok(()));
        assert_eq!(window.record(u64::MAX - 2), Ok(()));
        assert_eq!(window.record(u64::MAX - 1), Err(Replay::Duplicate));
        assert_eq!(window.check(0), Err(Replay::TooOld));
    }

    proptest! {
        #[test]
        fn the_window_is_the_set_of_what_was_taken(
            start in prop_oneof![Just(0), Just(1_u64 << 40), Just(u64::MAX - 60_000)],
            steps in proptest::collection::vec((0_u64..3 * 64 * WORDS as u64, 0_u64..20), 1..300),
        ) {
            let mut window = Window::default();
            let mut taken = BTreeSet::new();
            for (leap, near) in steps {
                let latest = taken.last().copied();
                for counter in [start + leap, (start + leap).saturating_sub(near)] {
                    let expected = match latest.max(taken.last().copied()) {
                        Some(latest) if counter < latest && latest - counter >= REACH => Err(Replay::TooOld),
                        _ if taken.contains(&counter) => Err(Replay::Duplicate),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(window.check(counter), expected);
                    prop_assert_eq!(window.record(counter), expected);
                    taken.insert(counter);
                }
            }
        }
    }
}
