//! `make demo`: three real clusters that share, a shop that spreads over them, and what its customers notice when one of
//! the clusters is cut off.
//!
//! Every step states what it expects and fails loudly when it does not get it: the exit code is 0 only if all worked,
//! and orders were taken before, during and after the cut. On a terminal there is a live view, otherwise plain lines.

mod clusters;
mod orders;
mod script;
mod shop;
mod story;
mod view;
mod watch;

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use rig::topology;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use script::Setting;
use story::Story;

/// Name of the rig; followed by a number unless it is to stay.
const NAME: &str = "demo";
/// What shells expect of a program that was interrupted.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let keep = is_kept(std::env::var_os("KEEP").as_deref());
    match run(keep).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo: {error:#}");
            if keep {
                eprintln!("what runs stays for a look; end it with: target/debug/rig --rig {NAME} down");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether the clusters are to stay, by the variable `KEEP`; the Makefile reads it in the same way.
fn is_kept(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Tells the story; whatever cuts it short, only a demo that is to be kept leaves anything behind.
async fn run(keep: bool) -> Result<ExitCode> {
    let interrupted = interrupted()?;
    let rig = if keep { NAME.to_owned() } else { topology::own(NAME) };
    // One that is not to stay has a name of its own, but its end is that nothing runs any more.
    ensure!(
        !topology::runs(NAME).await?,
        "a demo that was kept runs; end it with: target/debug/rig --rig {NAME} down"
    );
    let (story, news) = Story::begin();
    let (send_deeds, deeds) = mpsc::unbounded_channel();
    let is_live = std::io::stdout().is_terminal();
    let mut showing = tokio::spawn(async move {
        if is_live {
            view::show(news, send_deeds).await
        } else {
            story::print(news).await;
            Ok(())
        }
    });
    let told = tokio::select! {
        told = script::tell(story, deeds, Setting { keep, is_live }) => told,
        () = interrupted => return cut_short(&rig, showing).await,
        // Who shows the story ends before it does only if a person wants that, or where nobody can see it any more.
        shown = &mut showing => return end(&rig, flat(shown)).await,
    };
    showing.await??;
    if !keep {
        topology::end(&rig).await?;
    }
    let ending = told?;
    println!("{ending}");
    Ok(if ending.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// With the clusters ends what was still asked of them; so whoever shows the story hears no more news, and gives the
/// terminal back.
async fn cut_short(rig: &str, showing: JoinHandle<Result<()>>) -> Result<ExitCode> {
    topology::end(rig).await?;
    let shown = flat(showing.await);
    // What was about to be asked may have begun after that.
    end(rig, shown).await
}

/// A task that panicked has failed.
fn flat(shown: Result<Result<()>, JoinError>) -> Result<()> {
    shown.unwrap_or_else(|error| Err(error.into()))
}

/// Ends the clusters of a story that was cut short.
async fn end(rig: &str, why: Result<()>) -> Result<ExitCode> {
    topology::end(rig).await?;
    why?;
    eprintln!("demo: interrupted; nothing is left");
    Ok(ExitCode::from(INTERRUPTED))
}

/// Ends when somebody wants an end, or closes the terminal; from the call on, neither ends this process.
fn interrupted() -> Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::is_kept;

    #[test]
    fn clusters_stay_only_for_who_says_so() {
        assert!(is_kept(Some("1".as_ref())));
        for no in [None, Some(""), Some("0")] {
            assert!(!is_kept(no.map(AsRef::as_ref)), "{no:?}");
        }
    }
}
