//! What the customers went through, chapter by chapter, and whether that is good enough.

use std::fmt;

use ::shop::report::{Line, Summary};

/// Seconds for which orders may fail, or fail to come, when a cluster is lost.
pub const ALLOWED: f64 = 5.0;

/// One chapter of the story, as customers saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    title: String,
    /// For so long orders may fail.
    allowed: f64,
    /// Seconds that have passed.
    seconds: u64,
    orders: u64,
    failed: u64,
    wrong: u64,
    /// When the first and the last failed order began.
    failing: Option<(f64, f64)>,
    /// Seconds without an order, up to now and at most.
    pause: u64,
    longest_pause: u64,
}

/// All chapters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    phases: Vec<Phase>,
    summary: Option<Summary>,
}

impl Record {
    /// A chapter begins, in which orders may fail for so many seconds.
    pub fn begin(&mut self, title: impl Into<String>, allowed: f64) {
        self.phases.push(Phase { title: title.into(), allowed, ..Phase::default() });
    }

    /// Counts what the customers say towards the present chapter.
    pub fn hear(&mut self, line: &Line) {
        if let Line::Summary(summary) = line {
            self.summary = Some(summary.clone());
        }
        if let Some(phase) = self.phases.last_mut() {
            phase.hear(line);
        }
    }

    /// Whether so many seconds of this chapter have passed, and orders are taken.
    pub fn has_lasted(&self, seconds: u64) -> bool {
        self.phases
            .last()
            .is_some_and(|phase| phase.seconds >= seconds && phase.orders > 0 && phase.pause == 0)
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
}

impl Phase {
    fn hear(&mut self, line: &Line) {
        match line {
            Line::Second(second) => {
                self.seconds += 1;
                self.orders += second.orders;
                self.pause = if second.orders == 0 { self.pause + 1 } else { 0 };
                self.longest_pause = self.longest_pause.max(self.pause);
            }
            Line::Failed(trouble) => {
                self.failed += 1;
                let (first, last) = self.failing.unwrap_or((trouble.began, trouble.began));
                self.failing = Some((first.min(trouble.began), last.max(trouble.began)));
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
        #[expect(clippy::cast_precision_loss, reason = "nobody waits so long")]
        let pause = self.longest_pause as f64;
        if self.wrong > 0 {
            Some("orders were wrong")
        } else if self.orders == 0 {
            Some("nothing was ordered")
        } else if self.failed > 0 && self.allowed == 0.0 {
            Some("orders failed")
        } else if self.failing() > self.allowed || pause > self.allowed.max(ALLOWED) {
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
    use ::shop::report::{Second, Trouble};

    fn second(orders: u64) -> Line {
        Line::Second(Second { orders, ..Second::default() })
    }

    fn failed(began: f64) -> Line {
        Line::Failed(Trouble { began, ended: began + 2.0, key: "k".into(), why: "nobody".into() })
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
        let good = record(&[failed(10.0), second(0), failed(14.5), second(5)]);
        assert!(good.is_good(), "{good}");
        assert!(
            good.to_string().contains("during: 5 orders in 2 s, 2 failed within 4.5 s (5 s allowed)"),
            "{good}"
        );
    }

    #[test]
    fn orders_that_fail_for_long_or_are_wrong_or_do_not_come_are_not() {
        let wrong = Trouble { began: 1.0, ended: 1.0, key: "k".into(), why: "twice".into() };
        let pause = [vec![second(5)], vec![second(0); 6], vec![second(5)]].concat();
        for (cut, why) in [
            (vec![failed(10.0), failed(15.1), second(5)], "for too long"),
            (vec![second(5), Line::Wrong(wrong)], "were wrong"),
            (vec![second(0)], "nothing was ordered"),
            (pause, "for too long"),
        ] {
            let bad = record(&cut);
            assert!(!bad.is_good() && bad.to_string().contains(why), "{bad}");
        }
    }

    #[test]
    fn before_the_cut_no_order_may_fail() {
        let mut record = Record::default();
        assert!(!record.is_good());
        record.begin("before", 0.0);
        record.hear(&second(5));
        assert!(record.is_good() && record.has_lasted(1) && !record.has_lasted(2) && !record.is_over());
        record.hear(&failed(1.0));
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
