//! `ferro completion`: what a shell needs to complete commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Print the completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro completion bash > /etc/bash_completion.d/ferro
  source <(ferro completion zsh)")]
pub(crate) struct Args {
    /// The shell to print for
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ferro", &mut script);
    output::print(&script)
}
