//! What the load generator says, line by line: for people, and as JSON for programs that watch it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// A second has passed.
    Second(Second),
    /// An order was not taken in time.
    Failed(Trouble),
    /// Something was taken, charged or sent that was not ordered.
    Wrong(Trouble),
    /// The end.
    Summary(Summary),
}

/// What one second has brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its number, from 1.
    pub second: u64,
    /// Orders that were taken and found right.
    pub orders: u64,
    /// Orders that were not taken in time.
    pub failed: u64,
    /// The longest time without an order that was taken, in seconds, of those that ended in this second or go on.
    #[serde(default)]
    pub pause: f64,
    /// Milliseconds from the first look at the shop to the last check of an order.
    pub latency: Latency,
    /// Who served: for each service, how often each node.
    pub by: BTreeMap<String, BTreeMap<String, u64>>,
}

/// How long orders took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 of a hundred took no longer.
    pub p99: u64,
    /// None took longer.
    pub longest: u64,
}

/// An order that did not go well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// When it began, in seconds from the start.
    pub began: f64,
    /// When it was given up.
    pub ended: f64,
    /// The key of the order.
    pub key: String,
    /// What was wrong.
    pub why: String,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How long it took.
    pub seconds: f64,
    /// Orders that were taken and found right.
    pub orders: u64,
    /// Orders that were not taken in time.
    pub failed: u64,
    /// Orders that were taken, charged or sent otherwise than ordered, or twice.
    pub wrong: u64,
    /// For how long orders failed: from when the first of them was begun to when the last was, in seconds.
    pub failing: f64,
    /// The longest time without an order that was taken, in seconds.
    pub pause: f64,
    /// How long they took.
    pub latency: Latency,
}

impl Latency {
    /// Of these milliseconds, in any order.
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(place).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), longest: at(100) }
    }
}

impl Summary {
    /// Whether every order was taken, once and as it was meant.
    pub fn is_good(&self) -> bool {
        self.orders > 0 && self.failed == 0 && self.wrong == 0
    }

    /// Orders in a second.
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "nobody places so many orders")]
        let orders = self.orders as f64;
        if self.seconds > 0.0 { orders / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Second(Second { second, orders, failed, latency, .. }) => {
                write!(out, "{second:5} s  {orders} orders  {failed} failed  {latency}")
            }
            Self::Failed(trouble) => write!(out, "failed: {trouble}"),
            Self::Wrong(trouble) => write!(out, "WRONG: {trouble}"),
            Self::Summary(summary) => write!(out, "{summary}"),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, longest } = self;
        write!(out, "p50 {p50} ms, p99 {p99} ms, longest {longest} ms")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began, ended, key, why } = self;
        write!(out, "{key}, from {began:.1} s to {ended:.1} s: {why}")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, orders, failed, wrong, failing, pause, latency } = self;
        write!(
            out,
            "{orders} orders in {seconds:.1} s ({:.1} per second), {failed} failed within {failing:.1} s, \
             {wrong} wrong, {pause:.1} s at most without an order; {latency}",
            self.rate()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_of_the_sorted_times() {
        let times: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(Latency::of(times), Latency { p50: 50, p99: 99, longest: 100 });
        assert_eq!(Latency::of(vec![7]), Latency { p50: 7, p99: 7, longest: 7 });
        assert_eq!(Latency::of(vec![]), Latency::default());
    }

    #[test]
    fn a_line_is_the_same_for_programs_and_for_people() {
        let summary = Summary { seconds: 10.0, orders: 50, failed: 1, failing: 2.5, ..Summary::default() };
        let line = Line::Summary(summary);
        let json = serde_json::to_string(&line).unwrap();
        assert!(json.starts_with(r#"{"kind":"summary""#), "{json}");
        assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line);
        let text = line.to_string();
        assert!(text.contains("50 orders in 10.0 s (5.0 per second), 1 failed within 2.5 s"), "{text}");
    }

    #[test]
    fn no_orders_are_no_success() {
        assert!(!Summary::default().is_good());
        assert!(Summary { orders: 1, ..Summary::default() }.is_good());
        assert!(!Summary { orders: 1, wrong: 1, ..Summary::default() }.is_good());
    }
}
