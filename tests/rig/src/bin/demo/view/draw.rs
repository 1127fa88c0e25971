//! Draws the state, readable from 80 by 24 up; the story gets all the room that is left.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, SparklineBar, Table};

use super::state::{Orders, State};
use crate::clusters::ALL;
use crate::watch::{ClusterSeen, Instances, TunnelSeen};

/// Lines of the upper panels: three clusters, or three tunnels, and a frame.
const CLUSTERS: u16 = 5;
/// Six parts of the shop, the names of the clusters, and a frame.
const PODS: u16 = 9;
const KEYS: [(&str, &str); 5] = [("c", "cut"), ("h", "heal"), ("s", "scale"), ("u", "unpeer"), ("q", "quit")];

/// Draws all of it.
pub fn draw(frame: &mut Frame, state: &State) {
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(CLUSTERS),
        Constraint::Length(PODS),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [title, upper, middle, story, keys] = rows.areas(frame.area());
    let halves = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]);
    let [clusters, tunnels] = halves.areas(upper);
    let [pods, orders] = halves.areas(middle);
    draw_title(frame, title, state);
    draw_clusters(frame, clusters, state);
    draw_tunnels(frame, tunnels, &state.scene.tunnels);
    draw_pods(frame, pods, &state.scene.pods);
    draw_orders(frame, orders, &state.orders);
    draw_story(frame, story, state);
    draw_keys(frame, keys, state);
}

fn draw_title(frame: &mut Frame, area: Rect, state: &State) {
    let time = format!("{:.0} s ", state.elapsed.as_secs_f32());
    let title = Line::from(vec![" Ferrofluid ".bold().reversed(), format!("  {}", state.chapter).bold()]);
    frame.render_widget(title, area);
    frame.render_widget(Line::from(time).right_aligned(), area);
}

fn draw_clusters(frame: &mut Frame, area: Rect, state: &State) {
    let lines: Vec<_> =
        state.scene.clusters.iter().map(|cluster| cluster_line(cluster, state.cut.as_deref())).collect();
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" clusters and their nodes ")),
        area,
    );
}

/// `rome   rome-1  ⇢turin  ⇢milan`, in red what is not ready.
fn cluster_line<'a>(cluster: &'a ClusterSeen, cut: Option<&str>) -> Line<'a> {
    let mut spans = vec![Span::from(format!("{:<7}", cluster.name)).bold()];
    if cut == Some(cluster.name.as_str()) {
        spans.push(" CUT OFF ".white().on_red());
    }
    for node in &cluster.nodes {
        let (mark, color) = match (node.is_virtual, node.is_ready) {
            (false, true) => ("", Color::Green),
            (true, true) => ("→", Color::Cyan),
            (_, false) => ("✗", Color::Red),
        };
        spans.push(Span::from(format!(" {mark}{}", node.name)).style(color));
    }
    Line::from(spans)
}

fn draw_tunnels(frame: &mut Frame, area: Rect, tunnels: &[TunnelSeen]) {
    let line = |tunnel: &TunnelSeen| {
        let latency = tunnel.microseconds.map_or_else(String::new, milliseconds);
        let (state, color) =
            if tunnel.is_connected { (latency, Color::Green) } else { ("no answer".into(), Color::Red) };
        let ends = format!("{:<6}─ {:<8}", tunnel.from, tunnel.to);
        Line::from(vec![Span::from(ends), Span::from(state).style(color)])
    };
    let lines: Vec<_> = tunnels.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" tunnels ")), area);
}

fn milliseconds(microseconds: u32) -> String {
    format!("{:.2} ms", f64::from(microseconds) / 1000.0)
}

fn draw_pods(frame: &mut Frame, area: Rect, pods: &BTreeMap<String, BTreeMap<String, Instances>>) {
    let rows = pods.iter().map(|(part, places)| {
        let cells = ALL.iter().map(|cluster| instances(places.get(*cluster).copied().unwrap_or_default()));
        Row::new(std::iter::once(Cell::from(part.as_str())).chain(cells))
    });
    let header = Row::new(std::iter::once("").chain(ALL)).bold();
    let widths = std::iter::once(Constraint::Min(14)).chain(ALL.map(|_| Constraint::Length(7)));
    let table = Table::new(rows, widths).header(header);
    frame.render_widget(table.block(Block::bordered().title(" pods of the shop by cluster ")), area);
}

/// A mark for each instance that is ready, and another for each that is not.
fn instances(count: Instances) -> Cell<'static> {
    let ready = "●".repeat(count.ready);
    let waiting = "○".repeat(count.all - count.ready);
    Cell::from(Line::from(vec![ready.green(), waiting.red()]))
}

fn draw_orders(frame: &mut Frame, area: Rect, orders: &Orders) {
    let block = Block::bordered().title(" orders a second ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [figures, graph] = Layout::vertical([Constraint::Length(2), Constraint::Min(1)]).areas(inside);
    let bad = |count: u64| if count > 0 { Style::new().red().bold() } else { Style::new().green() };
    let counts = Line::from(vec![
        format!("{}/s", orders.now()).bold(),
        format!("  {} taken  ", orders.taken).into(),
        Span::styled(format!("{} failed", orders.failed), bad(orders.failed)),
        "  ".into(),
        Span::styled(format!("{} wrong", orders.wrong), bad(orders.wrong)),
    ]);
    let latency = Line::from(format!("p50 {} ms  p99 {} ms", orders.latency.p50, orders.latency.p99));
    frame.render_widget(Paragraph::new(vec![counts, latency]), figures);
    let shown = usize::from(graph.width).min(orders.seconds.len());
    let recent = orders.seconds.iter().skip(orders.seconds.len() - shown);
    let bars = recent.map(|(taken, failed)| {
        let color = if *failed { Color::Red } else { Color::Green };
        // A second without an order is seen as well.
        SparklineBar::from((*taken > 0).then_some(*taken)).style(Some(Style::new().fg(color)))
    });
    let sparkline = Sparkline::default().data(bars.collect::<Vec<_>>());
    frame.render_widget(sparkline.absent_value_symbol("_").absent_value_style(Style::new().red()), graph);
}

fn draw_story(frame: &mut Frame, area: Rect, state: &State) {
    let block = Block::bordered().title(" story ");
    let height = usize::from(block.inner(area).height);
    let lines =
        state.lines.iter().skip(state.lines.len().saturating_sub(height)).map(|(at, line)| match at {
            Some(at) => {
                Line::from(vec![format!("{:6.1} s  ", at.as_secs_f32()).dark_gray(), line.as_str().into()])
            }
            None => Line::from(format!("          {line}")).gray(),
        });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn draw_keys(frame: &mut Frame, area: Rect, state: &State) {
    let line = if state.is_ending {
        Line::from(" ending; q again leaves at once")
    } else if state.is_open {
        let key = |(key, deed): (&'static str, &'static str)| {
            [format!(" {key} ").reversed(), format!(" {deed}  ").into()]
        };
        KEYS.into_iter().flat_map(key).collect()
    } else {
        Line::from(" q quits; other keys work once the shop is open").dark_gray()
    };
    frame.render_widget(line, area);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::shop::report::{self, Latency, Second, Trouble};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::story::News;
    use crate::watch::{NodeSeen, Scene};

    fn node(name: &str, is_virtual: bool, is_ready: bool) -> NodeSeen {
        NodeSeen { name: name.into(), is_virtual, is_ready }
    }

    fn scene() -> Scene {
        let home = vec![node("rome-1", false, true), node("turin", true, false), node("milan", true, true)];
        let cluster = |name: &str, nodes| ClusterSeen { name: name.into(), nodes };
        let tunnel = |to: &str, is_connected| TunnelSeen {
            from: "rome".into(),
            to: to.into(),
            is_connected,
            microseconds: Some(660),
        };
        let places = |places: &[(&str, usize, usize)]| -> BTreeMap<String, Instances> {
            places
                .iter()
                .map(|(name, ready, all)| ((*name).into(), Instances { ready: *ready, all: *all }))
                .collect()
        };
        let parts = ["cart", "catalog", "checkout", "front", "payment", "recommendation"];
        let mut pods: BTreeMap<_, _> =
            parts.map(|part| (part.to_owned(), places(&[("rome", 1, 1), ("milan", 1, 1)]))).into();
        pods.insert("front".into(), places(&[("rome", 2, 2), ("turin", 0, 1)]));
        Scene {
            clusters: vec![
                cluster("rome", home),
                cluster("turin", vec![node("turin-1", false, true)]),
                cluster("milan", vec![node("milan-1", false, true)]),
            ],
            tunnels: vec![tunnel("turin", false), tunnel("milan", true)],
            pods,
        }
    }

    /// In the middle of a cut.
    fn state() -> State {
        let mut state = State { elapsed: Duration::from_secs(92), ..State::default() };
        let mut hear = |news| state.hear(Duration::from_millis(91_200), news);
        hear(News::Chapter("the cut"));
        hear(News::Open);
        hear(News::Seen(scene()));
        hear(News::Cut(Some("turin".into())));
        for number in 1..=30 {
            let latency = Latency { p50: 41, p99: 120, longest: 130 };
            let orders = if number == 20 { 0 } else { number % 7 + 1 };
            hear(News::Heard(report::Line::Second(Second {
                second: number,
                orders,
                latency,
                ..Second::default()
            })));
        }
        let trouble = Trouble { began: 1.0, ended: 2.0, key: "k".into(), why: "nobody".into() };
        hear(News::Heard(report::Line::Failed(trouble)));
        hear(News::Said("turin is cut off; orders go on".into()));
        hear(News::Printed("what a command says".into()));
        state
    }

    fn drawn(width: u16, height: u16, state: &State) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect()).collect()
    }

    #[test]
    fn everything_fits_in_80_by_24_and_in_200_by_50() {
        for (width, height) in [(80, 24), (200, 50)] {
            let lines = drawn(width, height, &state());
            let has = |wanted: &str| {
                assert!(
                    lines.iter().any(|line| line.contains(wanted)),
                    "no {wanted:?} in\n{}",
                    lines.join("\n")
                );
            };
            has(" Ferrofluid   the cut");
            assert!(lines[0].ends_with("92 s "), "{}", lines[0]);
            has("rome    rome-1 ✗turin →milan");
            has("turin   CUT OFF  turin-1");
            has("rome  ─ turin   no answer");
            has("rome  ─ milan   0.66 ms");
            has("recommendation");
            has("p50 41 ms  p99 120 ms");
            has("1 failed  0 wrong");
            has("  91.2 s  turin is cut off; orders go on");
            has("what a command says");
            assert!(
                lines[usize::from(height) - 1]
                    .starts_with(" c  cut   h  heal   s  scale   u  unpeer   q  quit")
            );
        }
    }

    #[test]
    fn pods_are_marks_in_the_column_of_their_cluster() {
        let lines = drawn(80, 24, &state());
        let header =
            lines.iter().find(|line| line.contains("rome    turin   milan")).expect("the clusters are named");
        let front = lines.iter().find(|line| line.contains("front")).expect("the front end is there");
        let column = |name: &str| header[..header.find(name).unwrap()].chars().count();
        let mark = |name: &str| front.chars().skip(column(name)).take(2).collect::<String>();
        assert_eq!(
            (mark("rome").as_str(), mark("turin").as_str(), mark("milan").as_str()),
            ("●●", "○ ", "  ")
        );
    }

    #[test]
    fn before_the_shop_is_open_the_view_says_so_and_shows_the_story() {
        let mut state = State::default();
        state.hear(Duration::from_secs(1), News::Said("rome: etcd runs".into()));
        let lines = drawn(80, 24, &state);
        assert!(lines[23].contains("once the shop is open"), "{}", lines[23]);
        assert!(lines.iter().any(|line| line.contains("rome: etcd runs")));
    }

    #[test]
    fn a_terminal_that_is_far_too_small_is_no_error() {
        for (width, height) in [(1, 1), (20, 5), (79, 10)] {
            assert_eq!(drawn(width, height, &state()).len(), usize::from(height));
        }
    }
}
