//! Counting visits: by the second, and in all.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::visit::{Setback, Visited};
use crate::report::{Latency, Line, Second, Summary, Trouble};

/// So many failed orders are looked up in the end.
const MOST_UNKNOWN: usize = 500;

/// What was counted so far.
#[derive(Default)]
pub(super) struct Tally {
    now: Second,
    now_times: Vec<u64>,
    times: Vec<u64>,
    summary: Summary,
    /// When the first and the last failed order began.
    failing: Option<(f64, f64)>,
    last_order: f64,
    /// Customer and key of orders of which is not known whether they were taken.
    unknown: Vec<(String, String)>,
}

impl Tally {
    /// Counts a visit; gives what there is to say at once.
    pub(super) fn add(&mut self, visited: Visited, opened: Instant) -> Option<Line> {
        let time = |at: Instant| at.saturating_duration_since(opened).as_secs_f64();
        let (began, ended) = (time(visited.began), time(visited.ended));
        let took = visited.ended.saturating_duration_since(visited.began);
        let trouble = |why| Trouble { began, ended, key: visited.key.clone(), why };
        let line = match visited.outcome {
            Ok(by) => {
                let by: BTreeSet<_> =
                    by.into_iter().map(|instance| (instance.service, instance.node)).collect();
                for (service, node) in by {
                    *self.now.by.entry(service).or_default().entry(node).or_default() += 1;
                }
                self.taken(took, ended);
                return None;
            }
            Err(Setback::Failed(why)) => {
                if self.unknown.len() < MOST_UNKNOWN {
                    self.unknown.push((visited.customer, visited.key.clone()));
                }
                Line::Failed(trouble(why))
            }
            Err(Setback::Wrong(why)) => Line::Wrong(trouble(why)),
        };
        self.note(&line);
        Some(line)
    }

    fn taken(&mut self, took: Duration, ended: f64) {
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.now.orders += 1;
        self.summary.orders += 1;
        self.now_times.push(milliseconds);
        self.times.push(milliseconds);
        let pause = ended - self.last_order;
        self.now.pause = self.now.pause.max(pause);
        self.summary.pause = self.summary.pause.max(pause);
        self.last_order = self.last_order.max(ended);
    }

    /// Counts trouble.
    pub(super) fn note(&mut self, line: &Line) {
        match line {
            Line::Failed(trouble) => {
                self.now.failed += 1;
                self.summary.failed += 1;
                let (first, last) = self.failing.unwrap_or((trouble.began, trouble.began));
                self.failing = Some((first.min(trouble.began), last.max(trouble.began)));
            }
            Line::Wrong(_) => self.summary.wrong += 1,
            Line::Second(_) | Line::Summary(_) => {}
        }
    }

    /// A second is over.
    pub(super) fn second(&mut self) -> Second {
        let second = self.now.second + 1;
        let latency = Latency::of(std::mem::take(&mut self.now_times));
        #[expect(clippy::cast_precision_loss, reason = "nobody orders for so long")]
        let pause = self.now.pause.max(second as f64 - self.last_order);
        let now = std::mem::replace(&mut self.now, Second { second, ..Second::default() });
        Second { second, pause, latency, ..now }
    }

    /// Customers and keys of orders that may have been taken or not.
    pub(super) fn unknown(&self) -> &[(String, String)] {
        &self.unknown
    }

    /// All of it, at the end.
    pub(super) fn summary(self, elapsed: Duration) -> Summary {
        let seconds = elapsed.as_secs_f64();
        let failing = self.failing.map_or(0.0, |(first, last)| last - first);
        let pause = self.summary.pause.max(seconds - self.last_order);
        Summary { seconds, failing, pause, latency: Latency::of(self.times), ..self.summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Instance;

    fn visited(begin: Instant, from: u64, to: u64, outcome: Result<Vec<Instance>, Setback>) -> Visited {
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        Visited { key: "k".into(), customer: "ada".into(), began: at(from), ended: at(to), outcome }
    }

    #[test]
    fn seconds_and_the_whole_add_up() {
        let (mut tally, begin) = (Tally::default(), Instant::now());
        let by = |node: &str| Instance { service: "front".into(), host: "h".into(), node: node.into() };
        tally.add(visited(begin, 0, 100, Ok(vec![by("a"), by("a")])), begin);
        tally.add(visited(begin, 0, 300, Ok(vec![by("b")])), begin);
        let second = tally.second();
        assert_eq!((second.second, second.orders, second.failed), (1, 2, 0));
        assert_eq!((second.by["front"]["a"], second.by["front"]["b"]), (1, 1));
        assert!((second.pause - 0.7).abs() < 0.01, "{second:?}");
        let failed = || Err(Setback::Failed("nobody picks up".into()));
        assert!(matches!(tally.add(visited(begin, 1000, 4000, failed()), begin), Some(Line::Failed(_))));
        tally.add(visited(begin, 2000, 5500, failed()), begin);
        tally.add(visited(begin, 5000, 6300, Ok(vec![])), begin);
        assert_eq!(tally.unknown().len(), 2);
        let second = tally.second();
        assert_eq!((second.second, second.orders, second.failed), (2, 1, 2));
        assert!((second.pause - 6.0).abs() < 0.01, "{second:?}");
        let summary = tally.summary(Duration::from_secs(7));
        assert_eq!((summary.orders, summary.failed, summary.wrong), (3, 2, 0));
        assert!((summary.failing - 1.0).abs() < 0.01 && (summary.pause - 6.0).abs() < 0.01, "{summary:?}");
        assert_eq!(summary.latency.longest, 1300);
    }
}
