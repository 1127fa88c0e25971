//! The demo as people run it, with a terminal and without one: whether it is cut short or goes to its end, nothing is left of
//! it afterwards.

mod terminal;
mod view;

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::plan::ClusterSpec;
use rig::topology::{self, Topology, built};
use rig::traces::{Traces, no_file_is_left, quiet_machine};
use rig::wait::{block_on, eventually};
use rustix::process::{Pid, Signal, kill_process_group};

/// What shells expect of a program that was interrupted.
const INTERRUPTED: i32 = 130;
/// The rig of a demo that stays.
const KEPT: &str = "demo";
/// So long a demo may take where all is built.
const WARM: Duration = Duration::from_mins(4);

/// When to interrupt a demo: what it says then, by which signal, and whether its clusters were to stay.
struct Moment {
    said: &'static str,
    signal: Signal,
    keep: &'static str,
}

/// While clusters start; in a soak also before there is anything, and while customers order.
fn moments() -> Vec<Moment> {
    let starting = Moment { said: "API server answers", signal: Signal::INT, keep: "" };
    if !is_soak() {
        return vec![starting];
    }
    let before = Moment { said: "starting three real", signal: Signal::TERM, keep: "" };
    let ordering = Moment { said: " in this second", signal: Signal::INT, keep: "1" };
    vec![before, starting, ordering]
}

/// Whether the long forms are wanted.
fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// The machine before any demo.
struct Before {
    traces: Traces,
    archives: BTreeSet<String>,
}

impl Before {
    /// Waits until the machine is so again.
    fn is_again(&self, what: &str) -> Result<()> {
        self.traces.await_same(what)?;
        let is_clear = || async {
            no_file_is_left()?;
            let archives = archives()?;
            ensure!(archives == self.archives, "images are left: {archives:?}");
            Ok(())
        };
        block_on(eventually(what, is_clear))
    }
}

/// Images on their way to nodes.
fn archives() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(std::env::temp_dir())? {
        let name = file?.file_name().to_string_lossy().into_owned();
        let is_image = name.starts_with("ferro-") || name.starts_with("shop-");
        if is_image && name.contains(".tar") {
            found.insert(name);
        }
    }
    Ok(found)
}

/// One test, because each part needs the machine for itself.
#[test]
fn nothing_is_left_of_a_demo_however_it_ends() -> Result<()> {
    let before = Before { traces: quiet_machine()?, archives: archives()? };
    none_begins_beside_one_that_was_kept()?;
    before.is_again("beside one that was kept")?;
    for moment in moments() {
        is_cut_short(&moment)?;
        before.is_again(&format!("interrupted when it said {:?}", moment.said))?;
    }
    if is_soak() {
        goes_to_its_end()?;
        before.is_again("at its end")?;
        view::keys_do_what_the_last_line_says()?;
        before.is_again("ended by a key")?;
        view::a_large_terminal_has_room_for_all_and_control_c_leaves()?;
        before.is_again("left by a key")?;
        view::a_terminal_is_closed()?;
        before.is_again("without its terminal")?;
    }
    Ok(())
}

/// The demo without a terminal.
fn demo(keep: &str) -> Result<Command> {
    let mut demo = Command::new(built("demo")?);
    demo.env("KEEP", keep).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(demo)
}

/// Whether the next one is to stay or not: it says how to end the one that was kept.
fn none_begins_beside_one_that_was_kept() -> Result<()> {
    let bare = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
    block_on(Topology::keep(KEPT, vec![bare], |_: &str, _: &str| {}))?;
    let begun = ["", "1"].map(|keep| demo(keep).and_then(|mut demo| Ok(demo.output()?)));
    block_on(topology::end(KEPT))?;
    for ended in begun {
        let ended = ended?;
        let complaint = String::from_utf8_lossy(&ended.stderr);
        ensure!(!ended.status.success(), "it begins: {complaint}");
        ensure!(complaint.contains(&format!("rig --rig {KEPT} down")), "{complaint}");
    }
    Ok(())
}

/// As by Ctrl-C, which goes to all that was started together.
fn is_cut_short(moment: &Moment) -> Result<()> {
    let mut demo = demo(moment.keep)?.process_group(0).spawn().context("cannot start the demo")?;
    let mut said = BufReader::new(demo.stdout.take().context("the demo has no output")?);
    let mut line = String::new();
    while !line.contains(moment.said) {
        line.clear();
        ensure!(said.read_line(&mut line)? > 0, "it ended before it said {:?}", moment.said);
    }
    let begin = Instant::now();
    kill_process_group(Pid::from_child(&demo), moment.signal)?;
    io::copy(&mut said, &mut io::sink())?;
    let ended = demo.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&ended.stderr);
    println!("interrupted when it said {:?}: ended after {:?}", moment.said, begin.elapsed());
    ensure!(ended.status.code() == Some(INTERRUPTED), "{}: {complaint}", ended.status);
    ensure!(complaint.contains("nothing is left"), "{complaint}");
    Ok(())
}

fn goes_to_its_end() -> Result<()> {
    let begin = Instant::now();
    let ended = demo("")?.output().context("cannot start the demo")?;
    let (said, complaint) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{said}\nthe whole demo took {:?}", begin.elapsed());
    ensure!(ended.status.success(), "{}: {complaint}", ended.status);
    ensure!(said.contains("all of it worked"), "it does not say so");
    ensure!(begin.elapsed() < WARM, "it took {:?}", begin.elapsed());
    Ok(())
}
