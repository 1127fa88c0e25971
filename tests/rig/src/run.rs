//! Running the machine's own tools (`ip`, `nft`, `mount`, …) with errors that say which call failed and why.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Runs a program to its end and gives what it printed.
pub async fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    finish(program, arguments, Stdio::null(), "").await
}

/// Runs a program to its end with that text as its standard input.
pub async fn run_with_input<S: AsRef<OsStr>>(program: &str, arguments: &[S], input: &str) -> Result<String> {
    finish(program, arguments, Stdio::piped(), input).await
}

/// Runs a program to its end with that file as its standard input.
pub async fn run_with_file<S: AsRef<OsStr>>(program: &str, arguments: &[S], file: &Path) -> Result<String> {
    let file = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    finish(program, arguments, Stdio::from(file), "").await
}

async fn finish<S: AsRef<OsStr>>(
    program: &str,
    arguments: &[S],
    stdin: Stdio,
    input: &str,
) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {program}; is it installed?"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .await
            .with_context(|| format!("{program} does not read its input"))?;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        let shown: Vec<_> = command.as_std().get_args().map(OsStr::to_string_lossy).collect();
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", shown.join(" "), complaint.trim().replace('\n', "; "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ends a process at once; one that is gone already is no error.
pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
