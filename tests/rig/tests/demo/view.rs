//! The live view as somebody sees and uses it, in the smallest terminal that it is made for and in a large one.

use anyhow::{Result, ensure};

use crate::INTERRUPTED;
use crate::terminal::Terminal;

/// What is on the screen while the shop is open: clusters, nodes, tunnels, pods and orders.
const PANELS: [&str; 9] = [
    " Ferrofluid ",
    " clusters and their nodes ",
    " tunnels ",
    " pods of the shop by cluster ",
    "recommendation",
    " orders a second ",
    "p50 ",
    " 0 wrong",
    " story ",
];
const NODES: [&str; 3] = ["rome-1", "turin-1", "milan-1"];
const KEYS: &str = " c  cut   h  heal   s  scale   u  unpeer   q  quit";

/// One key after the other. Who plays with the clusters may make orders fail, but none may be wrong.
pub fn keys_do_what_the_last_line_says() -> Result<()> {
    let terminal = Terminal::open(80, 24, "")?;
    is_readable(&terminal, 24)?;
    terminal.press("c")?;
    terminal.shows("which cluster is cut off", |screen| screen.contains(" CUT OFF "))?;
    terminal.press("h")?;
    let is_healed = |screen: &str| !screen.contains(" CUT OFF ") && screen.contains("the wire is mended");
    terminal.shows("that it is back", is_healed)?;
    terminal.press("s")?;
    let has_four = |line: &str| line.contains("front") && line.matches('●').count() == 4;
    terminal.shows("more instances", |screen| screen.lines().any(has_four))?;
    terminal.press("u")?;
    let is_alone = |screen: &str| {
        let nodes = nodes_of_home(screen);
        nodes.contains("rome-1") && !nodes.contains("turin") && !nodes.contains("milan")
    };
    terminal.shows("home without peers", is_alone)?;
    terminal.press("q")?;
    let code = terminal.ends()?;
    ensure!(code == 0, "it ended with {code}");
    Ok(())
}

pub fn a_large_terminal_has_room_for_all_and_control_c_leaves() -> Result<()> {
    let terminal = Terminal::open(200, 50, "")?;
    is_readable(&terminal, 50)?;
    terminal.press("C-c")?;
    let code = terminal.ends()?;
    ensure!(code == INTERRUPTED, "it ended with {code}");
    Ok(())
}

/// Clusters that were to stay do not, when their demo is not told to its end.
pub fn a_terminal_is_closed() -> Result<()> {
    let terminal = Terminal::open(80, 24, "1")?;
    terminal.shows("that clusters start", |screen| screen.contains("API server answers"))?;
    drop(terminal);
    Ok(())
}

/// Waits until orders are taken. By then all is on the screen, down to its last line.
fn is_readable(terminal: &Terminal, lines: usize) -> Result<()> {
    terminal.shows("clusters and nodes", |screen| NODES.iter().all(|node| screen.contains(node)))?;
    let is_open = |screen: &str| taken(screen) > 0 && screen.contains(KEYS);
    let screen = terminal.shows("orders", is_open)?;
    for wanted in PANELS {
        ensure!(screen.contains(wanted), "there is no {wanted:?} in\n{screen}");
    }
    let last = screen.lines().nth(lines - 1).unwrap_or_default();
    ensure!(last.starts_with(KEYS), "the last line is {last:?} in\n{screen}");
    println!("{screen}");
    Ok(())
}

/// How many orders the view counts.
fn taken(screen: &str) -> u64 {
    let count = screen.split_once(" taken ").and_then(|(before, _)| before.split_whitespace().next_back());
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// What the view shows of the nodes of home, at the left of all else.
fn nodes_of_home(screen: &str) -> &str {
    let line = screen.lines().find(|line| line.contains("rome-1")).unwrap_or_default();
    line.split('│').nth(1).unwrap_or_default()
}
