//! The service instances that one node hears on its LAN: bounded, and forgotten when they are silent.
//!
//! What listens to the network may have to begin anew, when it was flooded or the process was restarted. What
//! was heard before then becomes uncertain: it still counts, until there was time to hear it again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{Announcement, Report};
use crate::auth::{Meter, Pace, between};
use crate::identity::ClusterId;

/// How fast new instances may come.
const NEWCOMERS: Pace = Pace { burst: 128, every: Duration::from_millis(200) };

/// What one node hears.
#[derive(Clone, Debug, Default)]
pub struct Earshot {
    heard: BTreeMap<String, Heard>,
    newcomers: Meter,
}

#[derive(Clone, Debug)]
struct Heard {
    announcement: Announcement,
    is_certain: bool,
    /// When it was heard, or asked about, last.
    asked_at: Timestamp,
}

impl Earshot {
    /// Takes in what an instance announces; whether that is news.
    pub fn hear(
        &mut self,
        instance: &str,
        announcement: Announcement,
        own: Option<&ClusterId>,
        now: Timestamp,
    ) -> Result<bool, Unheard> {
        if own == Some(&announcement.id) {
            return Err(Unheard::Own);
        }
        if !Report::takes(instance) {
            return Err(Unheard::Rubbish);
        }
        let is_news = self.heard.get(instance).map(|heard| &heard.announcement) != Some(&announcement);
        if !self.heard.contains_key(instance) {
            self.let_in(now)?;
        }
        let heard = Heard { announcement, is_certain: true, asked_at: now };
        self.heard.insert(instance.to_owned(), heard);
        Ok(is_news)
    }

    /// Forgets an instance; whether there was one.
    pub fn goodbye(&mut self, instance: &str) -> bool {
        self.heard.remove(instance).is_some()
    }

    /// Takes up what was reported before: it counts, but is uncertain.
    pub fn recall(&mut self, report: Report, now: Timestamp) {
        if report.expires_at > now {
            let recalled = report.heard.into_iter().map(|(instance, announcement)| {
                (instance, Heard { announcement, is_certain: false, asked_at: now })
            });
            self.heard.extend(recalled);
        }
    }

    /// Nothing of this is certain any longer.
    pub fn doubt(&mut self) {
        self.heard.values_mut().for_each(|heard| heard.is_certain = false);
    }

    /// Forgets what was not heard again; whether there was any.
    pub fn forget_doubtful(&mut self) -> bool {
        let before = self.heard.len();
        self.heard.retain(|_, heard| heard.is_certain);
        self.heard.len() < before
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.heard.clear();
    }

    /// Some of the instances that have not been asked for that long, to be asked whether they are still there.
    pub fn to_ask(&mut self, silence: Duration, most: usize, now: Timestamp) -> Vec<String> {
        let silent =
            self.heard.iter_mut().filter(|(_, heard)| between(heard.asked_at, now) >= silence).take(most);
        silent
            .map(|(instance, heard)| {
                heard.asked_at = now;
                instance.clone()
            })
            .collect()
    }

    /// Everything that counts.
    pub fn all(&self) -> BTreeMap<String, Announcement> {
        let heard = self.heard.iter();
        heard.map(|(instance, heard)| (instance.clone(), heard.announcement.clone())).collect()
    }

    fn let_in(&mut self, now: Timestamp) -> Result<(), Unheard> {
        let is_full = self.heard.len() >= Report::MOST;
        if is_full || self.newcomers.wait(&NEWCOMERS, now) > Duration::ZERO {
            return Err(Unheard::TooMany);
        }
        self.newcomers.count(&NEWCOMERS, now);
        Ok(())
    }
}

/// Why an announcement was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// It is of this cluster.
    #[error("it is of this cluster itself")]
    Own,
    /// Its instance has no proper name.
    #[error("the instance has no proper name")]
    Rubbish,
    /// There are too many, or they come too fast. It may come again.
    #[error("too many instances come at once")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::{Earshot, Unheard};
    use crate::auth::tests::at;
    use crate::discovery::Report;
    use crate::discovery::announcement::tests::announcement;
    use std::time::Duration;

    fn heard(earshot: &Earshot) -> Vec<String> {
        earshot.all().into_keys().collect()
    }

    #[test]
    fn only_what_changes_is_news() {
        let mut earshot = Earshot::default();
        let one = announcement(1, "https://192.0.2.1");
        assert_eq!(earshot.hear("a", one.clone(), None, at(0)), Ok(true));
        assert_eq!(earshot.hear("a", one.clone(), None, at(1)), Ok(false));
        assert_eq!(earshot.hear("a", announcement(1, "https://192.0.2.2"), None, at(2)), Ok(true));
        assert_eq!(earshot.hear("a", one.clone(), Some(&one.id), at(3)), Err(Unheard::Own));
        assert!(earshot.goodbye("a"));
        assert!(!earshot.goodbye("a"));
    }

    #[test]
    fn a_flood_is_bounded_and_disturbs_nobody_who_is_there() {
        let mut earshot = Earshot::default();
        earshot.hear("friend", announcement(1, "https://192.0.2.1"), None, at(0)).unwrap();
        for number in 0..10_000_u64 {
            _ = earshot.hear(&number.to_string(), announcement(2, "https://192.0.2.2"), None, at(number));
        }
        assert_eq!(earshot.all().len(), Report::MOST);
        let moved = announcement(1, "https://192.0.2.9");
        assert_eq!(earshot.hear("friend", moved.clone(), None, at(10_000)), Ok(true));
        assert_eq!(earshot.all()["friend"], moved);
        assert_eq!(earshot.hear("late", moved.clone(), None, at(10_000)), Err(Unheard::TooMany));
        earshot.goodbye("7");
        assert_eq!(earshot.hear("late", moved, None, at(10_000)), Ok(true));
    }

    #[test]
    fn what_comes_too_fast_waits() {
        let mut earshot = Earshot::default();
        let one = announcement(1, "https://192.0.2.1");
        let let_in = (0..1000).filter(|n| earshot.hear(&n.to_string(), one.clone(), None, at(0)).is_ok());
        assert_eq!(let_in.count(), 128);
        assert_eq!(earshot.hear("later", one, None, at(1)), Ok(true));
    }

    #[test]
    fn after_a_new_beginning_only_what_is_heard_again_stays() {
        let mut before = Earshot::default();
        let one = announcement(1, "https://192.0.2.1");
        for instance in ["a", "b"] {
            before.hear(instance, one.clone(), None, at(0)).unwrap();
        }
        let mut earshot = Earshot::default();
        earshot.recall(Report::new(before.all(), at(0)), at(100));
        assert_eq!(heard(&earshot), ["a", "b"]);
        assert_eq!(earshot.hear("a", one.clone(), None, at(101)), Ok(false));
        assert!(earshot.forget_doubtful());
        assert_eq!(heard(&earshot), ["a"]);
        earshot.doubt();
        assert!(earshot.forget_doubtful());
        earshot.recall(Report::new(before.all(), at(0)), at(601));
        assert_eq!(heard(&earshot), [""; 0], "a report that has expired is not taken up");
    }

    #[test]
    fn each_is_asked_once_in_a_while() {
        let mut earshot = Earshot::default();
        for instance in ["a", "b", "c"] {
            earshot.hear(instance, announcement(1, "https://192.0.2.1"), None, at(0)).unwrap();
        }
        let silence = Duration::from_secs(90);
        assert_eq!(earshot.to_ask(silence, 2, at(89)), [""; 0]);
        assert_eq!(earshot.to_ask(silence, 2, at(90)), ["a", "b"]);
        assert_eq!(earshot.to_ask(silence, 2, at(91)), ["c"]);
        assert_eq!(earshot.to_ask(silence, 2, at(92)), [""; 0]);
    }
}
