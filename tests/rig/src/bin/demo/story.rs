//! What happens, told as it happens to whoever shows it: plain lines here, or the live view.

use std::time::{Duration, Instant};

use ::shop::report::{Line, Second};
use tokio::sync::mpsc;

use crate::watch::Scene;

/// Something new.
#[derive(Clone, Debug)]
pub enum News {
    /// A chapter begins.
    Chapter(&'static str),
    /// A sentence, or a command that is run.
    Said(String),
    /// What a command printed.
    Printed(String),
    /// How the clusters look now.
    Seen(Scene),
    /// What the customers say.
    Heard(Line),
    /// This cluster is cut off from now on, or none.
    Cut(Option<String>),
    /// From now on keys do something.
    Open,
}

/// News with the time since the beginning.
pub type Timed = (Duration, News);

/// Where news are told.
#[derive(Clone, Debug)]
pub struct Story {
    begin: Instant,
    news: mpsc::UnboundedSender<Timed>,
}

impl Story {
    /// Begins a story, and gives what is told of it.
    pub fn begin() -> (Self, mpsc::UnboundedReceiver<Timed>) {
        let (news, told) = mpsc::unbounded_channel();
        (Self { begin: Instant::now(), news }, told)
    }

    /// Tells any news. Whoever showed them may be gone already; the story goes on.
    pub fn tell(&self, news: News) {
        let _ = self.news.send((self.begin.elapsed(), news));
    }

    /// Begins a chapter.
    pub fn chapter(&self, title: &'static str) {
        self.tell(News::Chapter(title));
    }

    /// Says a sentence.
    pub fn say(&self, line: impl Into<String>) {
        self.tell(News::Said(line.into()));
    }

    /// Shows a command and what it printed.
    pub fn show(&self, command: &str, output: &str) {
        self.say(format!("$ {command}"));
        self.tell(News::Printed(output.trim_end().to_owned()));
    }
}

/// Every so-many-th second of orders is worth a line.
const SECONDS: u64 = 3;

/// Prints all news as lines, each with its time.
pub async fn print(mut news: mpsc::UnboundedReceiver<Timed>) {
    while let Some((at, news)) = news.recv().await {
        for line in lines(at, &news) {
            println!("{line}");
        }
    }
}

/// The lines that tell of this.
fn lines(at: Duration, news: &News) -> Vec<String> {
    let timed = |line: String| vec![format!("{:6.1} s  {line}", at.as_secs_f32())];
    match news {
        News::Chapter(title) => timed(format!("── {title} ──")),
        News::Said(line) => timed(line.clone()),
        News::Printed(text) => text.lines().map(|line| format!("          {line}")).collect(),
        News::Heard(Line::Second(second)) if second.second.is_multiple_of(SECONDS) => timed(orders(second)),
        News::Heard(line @ (Line::Failed(_) | Line::Wrong(_) | Line::Summary(_))) => {
            timed(format!("orders: {line}"))
        }
        News::Heard(Line::Second(_)) | News::Seen(_) | News::Cut(_) | News::Open => Vec::new(),
    }
}

/// A second of orders, with the nodes that had a part in them.
fn orders(second: &Second) -> String {
    let mut nodes: Vec<&str> =
        second.by.values().flat_map(|nodes| nodes.keys().map(String::as_str)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let Second { orders, failed, latency, .. } = second;
    format!("orders: {orders} in this second, {failed} failed, {latency}; by {}", nodes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_time_and_output_is_set_off() {
        let at = Duration::from_millis(12_340);
        assert_eq!(lines(at, &News::Said("hello".into())), ["  12.3 s  hello"]);
        assert_eq!(lines(at, &News::Printed("a\nb".into())), ["          a", "          b"]);
    }

    #[test]
    fn failed_orders_are_always_told_and_good_seconds_now_and_then() {
        let second = |second| News::Heard(Line::Second(Second { second, orders: 5, ..Second::default() }));
        let told = (1..=6).flat_map(|number| lines(Duration::ZERO, &second(number))).count();
        assert_eq!(told, 2);
        let trouble =
            ::shop::report::Trouble { began: 1.0, ended: 2.0, key: "k".into(), why: "nobody".into() };
        assert!(lines(Duration::ZERO, &News::Heard(Line::Failed(trouble)))[0].contains("failed: k"));
    }
}
