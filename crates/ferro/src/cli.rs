//! The command line: which subcommands there are, and what each is called.

use clap::{Parser, Subcommand};

use crate::commands::{completion, crds};

/// Liquid computing: independent Kubernetes clusters that share their spare capacity.
///
/// Clusters, from a laptop to a data centre, find each other, agree to share, and then each one sees its
/// peers' spare capacity as ordinary nodes.
#[derive(Parser)]
#[command(name = "ferro", version, arg_required_else_help = true)]
#[command(after_help = "Run 'ferro help COMMAND' for the options and examples of a command.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Crds(crds::Args),
    Completion(completion::Args),
}

impl Cli {
    /// Does what was asked for.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Crds(args) => crds::run(&args),
            Command::Completion(args) => completion::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
