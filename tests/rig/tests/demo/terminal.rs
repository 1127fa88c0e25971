//! A terminal of any size with the demo in it, as tmux shows it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rig::topology::built;
use rig::wait::{block_on, eventually};

/// A terminal. It is closed with this value, and whoever runs in it is told so.
pub struct Terminal {
    /// By which a tmux of our own is known.
    socket: PathBuf,
}

impl Terminal {
    /// Starts a demo in a terminal of that size.
    pub fn open(columns: usize, lines: usize, keep: &str) -> Result<Self> {
        let socket = std::env::temp_dir().join(format!("demo-{}.tmux", std::process::id()));
        let terminal = Self { socket };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let demo = format!("KEEP={keep} exec {}", built("demo")?.display());
        // All lines are the demo's, and the last picture stays when it ends.
        let options = ["set-option", "-g", "status", "off", ";", "set-option", "-g", "remain-on-exit", "on"];
        let start = ["-f", "/dev/null", "start-server", ";"];
        let session = [";", "new-session", "-d", "-x", &columns, "-y", &lines, &demo];
        terminal.tmux(&[&start[..], &options, &session].concat())?;
        Ok(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Result<String> {
        let mut tmux = Command::new("tmux");
        tmux.arg("-u").arg("-S").arg(&self.socket).args(words).env_remove("TMUX");
        let output = tmux.output().context("cannot start tmux; scripts/setup installs it")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tmux {}: {}", words.join(" "), complaint.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Presses a key.
    pub fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Waits until the screen is as this, and gives it.
    pub fn shows(&self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<String> {
        block_on(eventually(&format!("the terminal shows {what}"), || async {
            let screen = self.tmux(&["capture-pane", "-p"])?;
            ensure!(is_it(&screen), "it shows\n{screen}");
            Ok(screen)
        }))
    }

    /// Waits until the demo has ended, and gives its exit code.
    pub fn ends(&self) -> Result<i32> {
        block_on(eventually("the demo ends", || async {
            let code = self.tmux(&["display-message", "-p", "#{pane_dead_status}"])?;
            code.trim().parse::<i32>().context("it goes on")
        }))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Where it did not even start there is nothing to end.
        let _ = self.tmux(&["kill-server"]);
        let _ = std::fs::remove_file(&self.socket);
    }
}
