//! Asking the person at the keyboard: never by a program's leave, and beside the standard output.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, ensure};

/// Longer than any secret that is asked for.
const MOST: u64 = 4096;

/// Goes on only with a yes. `otherwise` says what a no means.
pub(crate) fn confirm(question: &str, otherwise: &'static str) -> anyhow::Result<()> {
    ensure!(io::stdin().is_terminal(), "there is nobody to ask for confirmation; use --yes");
    let mut to = io::stderr().lock();
    write!(to, "{question} Go on? [y/N] ")?;
    to.flush()?;
    let mut answer = String::new();
    io::stdin().lock().take(MOST).read_line(&mut answer)?;
    ensure!(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()), otherwise);
    Ok(())
}

/// The first line from the standard input that says something.
pub(crate) fn secret_line(prompt: &str) -> anyhow::Result<String> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        eprintln!("{prompt}");
    }
    first_line(stdin.lock())
}

/// The first line that says something.
pub(crate) fn first_line(from: impl BufRead) -> anyhow::Result<String> {
    let mut lines = from.take(MOST).lines();
    let line = lines.find(|line| line.as_ref().is_ok_and(|line| !line.trim().is_empty()) || line.is_err());
    line.context("there is nothing to read")?.context("cannot read it")
}

#[cfg(test)]
mod tests {
    use super::first_line;

    #[test]
    fn the_first_line_with_something_in_it_counts() {
        assert_eq!(first_line(&b"\n  \nferro_x\nmore\n"[..]).unwrap(), "ferro_x");
        assert!(first_line(&b"\n\n"[..]).is_err());
    }

    #[test]
    fn no_more_is_read_than_a_secret_can_have() {
        assert_eq!(first_line("x".repeat(100_000).as_bytes()).unwrap().len(), 4096);
    }
}
