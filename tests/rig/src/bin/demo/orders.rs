//! What the customers went through, chapter by chapter, and whether that is good enough.

use std::fmt;

use ::shop::report::{Line, Summary, Trouble};

/// Seconds for which orders may fail, or fail to come, when a cluster is lost.
pub const ALLOWED: f64 = 5.0;

/// One chapter of the story, as customers saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    title: String,
    /// For so long orders may fail.
    allowed: f64,
    /// When it began, in seconds of the customers.
    from: f64,
    /// Seconds that have passed.
    seconds: u64,
    orders: u64,
    failed: u64,
    wrong: u64,
    /// When the first and the last failed order began.
    failing: Option<(f64, f64)>,
    /// Whether no order was taken in the last second.
    is_idle: bool,
    /// The longest time without an order, in seconds.
    pause: f64,
}

/// All chapters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    phases: Vec<Phase>,
    summary: Option<Summary>,
    /// The last second of the customers that was heard of.
    heard: u64,
}

impl Record {
    /// A chapter begins, in which orders may fail for so many seconds.
    pub fn begin(&mut self, title: impl Into<String>, allowed: f64) {
        // It begins within a second of the customers. Where no order may fail, that second is still of the chapter before.
        let second = if allowed > 0.0 { self.heard } else { self.heard + 1 };
        #[expect(clippy::cast_precision_loss, reason = "nobody orders for so long")]
        let from = second as f64;
        self.phases.push(Phase { title: title.into(), allowed, from, ..Phase::default() });
    }

    /// Counts what the customers say: a second towards the present chapter, and trouble towards the one that it belongs to.
    pub fn hear(&mut self, line: &Line) {
        match line {
            Line::Second(second) => self.heard = second.second,
            Line::Summary(summary) => self.summary = Some(summary.clone()),
            Line::Failed(_) | Line::Wrong(_) => {}
        }
        let phase = match line {
            Line::Failed(trouble) | Line::Wrong(trouble) => self.chapter_of(trouble),
            Line::Second(_) | Line::Summary(_) => self.phases.last_mut(),
        };
        if let Some(phase) = phase {
            phase.hear(line);
        }
    }

    /// The chapter in which an order began: a customer gives up so late that another one may have come. Where none may fail,
    /// those that were still under way as the next one came are of that one.
    fn chapter_of(&mut self, trouble: &Trouble) -> Option<&mut Phase> {
        let at = |time: f64| self.phases.iter().rposition(|phase| phase.from <= time).unwrap_or(0);
        let (began, ended) = (at(trouble.began), at(trouble.ended));
        let may_fail = self.phases.get(began).is_some_and(|phase| phase.allowed > 0.0);
        self.phases.get_mut(if may_fail { began } else { ended })
    }

    /// Whether so many seconds of this chapter have passed, and orders are taken.
    pub fn has_lasted(&self, seconds: u64) -> bool {
        self.phases.last().is_some_and(|phase| phase.seconds >= seconds && phase.orders > 0 && !phase.is_idle)
    }

    /// Whether the customers have gone home.
    pub fn is_over(&self) -> bool {
        self.summary.is_some()
    }

    /// Whether orders worked in all chapters.
    pub fn is_good(&self) -> bool {
        let good = self.phases.iter().all(|phase| phase.complaint().is_none());
        good && !self.phases.is_empty() && self.is_right()
    }

    /// Whether no order was wrong, however many failed.
    pub fn is_right(&self) -> bool {
        let summed_up = self.summary.as_ref().is_none_or(|summary| summary.wrong == 0);
        summed_up && self.phases.iter().all(|phase| phase.wrong == 0)
    }

    /// Whether any order was taken at all.
    pub fn is_begun(&self) -> bool {
        self.phases.iter().any(|phase| phase.orders > 0)
    }
}

impl Phase {
    fn hear(&mut self, line: &Line) {
        match line {
            Line::Second(second) => {
                self.seconds += 1;
                self.orders += second.orders;
                self.is_idle = second.orders == 0;
                // What came before the chapter began is not part of it.
                #[expect(clippy::cast_precision_loss, reason = "nobody orders for so long")]
                let age = second.second as f64 - self.from;
                self.pause = self.pause.max(second.pause.min(age));
            }
            Line::Failed(trouble) => {
                self.failed += 1;
                // What went well before the chapter began is not part of it.
                let began = trouble.began.max(self.from);
                let (first, last) = self.failing.unwrap_or((began, began));
                self.failing = Some((first.min(began), last.max(began)));
            }
            Line::Wrong(_) => self.wrong += 1,
            Line::Summary(_) => {}
        }
    }

    /// For how long orders failed.
    fn failing(&self) -> f64 {
        self.failing.map_or(0.0, |(first, last)| last - first)
    }

    /// What was not good enough.
    fn complaint(&self) -> Option<&'static str> {
        if self.wrong > 0 {
            Some("orders were wrong")
        } else if self.orders == 0 {
            Some("nothing was ordered")
        } else if self.failed > 0 && self.allowed == 0.0 {
            Some("orders failed")
        } else if self.failing() > self.allowed || self.pause > self.allowed.max(ALLOWED) {
            Some("orders failed for too long")
        } else {
            None
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, seconds, orders, failed, wrong, .. } = self;
        write!(out, "{title}: {orders} orders in {seconds} s, {failed} failed")?;
        if *failed > 0 {
            write!(out, " within {:.1} s ({:.0} s allowed)", self.failing(), self.allowed)?;
        }
        write!(out, ", {wrong} wrong: {}", self.complaint().unwrap_or("good"))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in &self.phases {
            writeln!(out, "{phase}")?;
        }
        match &self.summary {
            Some(summary) => write!(out, "in all: {summary}"),
            None => write!(out, "the customers go on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::shop::report::Second;

    fn second(orders: u64) -> Line {
        Line::Second(Second { orders, ..Second::default() })
    }

    /// The so-many-th second of the customers, at whose end none was served for so long.
    fn second_of(second: u64, orders: u64, pause: f64) -> Line {
        Line::Second(Second { second, orders, pause, ..Second::default() })
    }

    fn failed(began: f64, ended: f64) -> Line {
        Line::Failed(Trouble { began, ended, key: "k".into(), why: "nobody".into() })
    }

    /// A demo whose cut went so.
    fn record(cut: &[Line]) -> Record {
        let mut record = Record::default();
        record.begin("before", 0.0);
        record.hear(&second(5));
        record.begin("during", ALLOWED);
        for line in cut {
            record.hear(line);
        }
        record.hear(&Line::Summary(Summary { orders: 10, ..Summary::default() }));
        record
    }

    #[test]
    fn orders_that_fail_for_a_few_seconds_are_bridged() {
        let good = record(&[failed(10.0, 12.0), second(0), failed(14.5, 16.5), second(5)]);
        assert!(good.is_good(), "{good}");
        assert!(
            good.to_string().contains("during: 5 orders in 2 s, 2 failed within 4.5 s (5 s allowed)"),
            "{good}"
        );
        let one = record(&[failed(10.0, 16.0), second(5)]);
        assert!(one.is_good(), "{one}");
    }

    #[test]
    fn orders_that_fail_for_long_or_are_wrong_or_do_not_come_are_not() {
        let wrong = Trouble { began: 1.0, ended: 1.0, key: "k".into(), why: "twice".into() };
        for (cut, why) in [
            (vec![failed(10.0, 12.0), failed(15.1, 17.1), second(5)], "for too long"),
            (vec![second(5), Line::Wrong(wrong)], "were wrong"),
            (vec![second(0)], "nothing was ordered"),
            (vec![second_of(9, 5, 5.1)], "for too long"),
        ] {
            let bad = record(&cut);
            assert!(!bad.is_good() && bad.to_string().contains(why), "{bad}");
        }
        assert!(record(&[second_of(9, 5, 4.9)]).is_good());
    }

    /// The shop opens, two seconds later all is well, and after ten a cluster is cut off.
    fn three_chapters(trouble: &[Line]) -> Record {
        let mut record = Record::default();
        for (from, title, allowed) in [(0, "opening", ALLOWED), (2, "before", 0.0), (10, "cut", ALLOWED)] {
            record.hear(&second_of(from, 5, 0.2));
            record.begin(title, allowed);
            record.hear(&second_of(from + 1, 5, 0.2));
        }
        for line in trouble {
            record.hear(line);
        }
        record
    }

    #[test]
    fn a_failed_order_counts_to_the_chapter_in_which_it_began() {
        let failed_in = |record: &Record| record.phases.iter().map(|phase| phase.failed).collect::<Vec<_>>();
        let opening = three_chapters(&[failed(1.5, 7.5), failed(2.9, 8.9)]);
        assert_eq!(failed_in(&opening), [2, 0, 0], "customers are patient");
        let before = three_chapters(&[failed(3.5, 9.5)]);
        assert_eq!(failed_in(&before), [0, 1, 0]);
        assert!(!before.is_good(), "{before}");
        let cut = three_chapters(&[failed(9.5, 12.5), failed(10.5, 14.5)]);
        assert_eq!(failed_in(&cut), [0, 0, 2], "the cut made them fail");
        assert!(cut.is_good() && cut.to_string().contains("2 failed within 0.5 s"), "{cut}");
    }

    #[test]
    fn before_the_cut_no_order_may_fail() {
        let mut record = Record::default();
        assert!(!record.is_good() && !record.is_begun());
        record.begin("before", 0.0);
        record.hear(&second(5));
        assert!(record.is_begun());
        assert!(record.is_good() && record.has_lasted(1) && !record.has_lasted(2) && !record.is_over());
        record.hear(&failed(1.0, 2.0));
        assert!(!record.is_good() && record.is_right());
    }

    #[test]
    fn what_is_found_wrong_in_the_end_counts() {
        let mut record = record(&[second(5)]);
        assert!(record.is_good() && record.is_over());
        record.hear(&Line::Summary(Summary { orders: 10, wrong: 1, ..Summary::default() }));
        assert!(!record.is_good() && !record.is_right());
    }
}
