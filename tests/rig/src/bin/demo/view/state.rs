//! All that the view shows, as a plain value that hears the news.

use std::collections::VecDeque;
use std::time::Duration;

use ::shop::report::{Latency, Line};

use crate::story::News;
use crate::watch::Scene;

/// So many lines of the story are kept.
const LINES: usize = 200;
/// So many seconds of orders.
const SECONDS: usize = 300;

/// What is shown now.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub elapsed: Duration,
    pub chapter: &'static str,
    pub scene: Scene,
    /// The cluster that is cut off.
    pub cut: Option<String>,
    pub orders: Orders,
    /// The story so far: each line with its time, output of commands without.
    pub lines: VecDeque<(Option<Duration>, String)>,
    /// Whether keys do something.
    pub is_open: bool,
    /// Whether somebody wants an end.
    pub is_ending: bool,
}

/// What the customers say.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    /// Orders of each second, and whether some of them failed.
    pub seconds: VecDeque<(u64, bool)>,
    pub taken: u64,
    pub failed: u64,
    pub wrong: u64,
    pub latency: Latency,
}

impl State {
    /// Takes news in.
    pub fn hear(&mut self, at: Duration, news: News) {
        match news {
            News::Chapter(title) => self.chapter = title,
            News::Said(line) => self.write(Some(at), line),
            News::Printed(text) => text.lines().for_each(|line| self.write(None, line.to_owned())),
            News::Seen(scene) => self.scene = scene,
            News::Heard(line) => self.orders.hear(&line),
            News::Cut(cut) => self.cut = cut,
            News::Open => self.is_open = true,
        }
    }

    fn write(&mut self, at: Option<Duration>, line: String) {
        self.lines.push_back((at, line));
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }
}

impl Orders {
    fn hear(&mut self, line: &Line) {
        match line {
            Line::Second(second) => {
                self.taken += second.orders;
                self.latency = second.latency;
                self.seconds.push_back((second.orders, second.failed > 0));
                if self.seconds.len() > SECONDS {
                    self.seconds.pop_front();
                }
            }
            Line::Failed(_) => self.failed += 1,
            Line::Wrong(_) => self.wrong += 1,
            Line::Summary(_) => {}
        }
    }

    /// Orders of the last second.
    pub fn now(&self) -> u64 {
        self.seconds.back().map_or(0, |(orders, _)| *orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::shop::report::Second;

    #[test]
    fn a_long_story_keeps_its_end() {
        let mut state = State::default();
        for number in 0..1000 {
            state.hear(Duration::ZERO, News::Said(number.to_string()));
            let second = Second { second: number, orders: number, ..Second::default() };
            state.hear(Duration::ZERO, News::Heard(Line::Second(second)));
        }
        assert_eq!((state.lines.len(), state.orders.seconds.len()), (LINES, SECONDS));
        assert_eq!((state.lines.back().unwrap().1.as_str(), state.orders.now()), ("999", 999));
        assert_eq!(state.orders.taken, 499_500);
    }
}
