//! Running the machine's own tools (`ip`, `nft`, `mount`, …) with errors that say which call failed and why.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Runs a program to its end and gives what it printed.
pub async fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    finish(program, &mut command(program, arguments), None).await
}

/// Runs a program to its end with that text as its standard input.
pub async fn run_with_input<S: AsRef<OsStr>>(program: &str, arguments: &[S], input: &str) -> Result<String> {
    finish(program, &mut command(program, arguments), Some(input)).await
}

fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    command
}

async fn finish(program: &str, command: &mut Command, input: Option<&str>) -> Result<String> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin
            .write_all(text.as_bytes())
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
