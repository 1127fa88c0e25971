//! `ferro completion`: what a shell needs to complete commands, options and the names of peers.

use anyhow::Context as _;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::complete::VARIABLE;
use crate::output;

/// Print the completion script for a shell
///
/// The script has this program answer, which asks the cluster for the names of peers.
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
    output::print(&script(args.shell)?)
}

fn script(shell: Shell) -> anyhow::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let completer =
        shells.completer(&shell.to_string()).with_context(|| format!("{shell} cannot be completed for"))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "ferro", "ferro", "ferro", &mut script)?;
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::script;
    use clap::ValueEnum as _;
    use clap_complete::Shell;

    #[test]
    fn every_shell_has_a_script_that_asks_the_program() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell).unwrap()).unwrap();
            assert!(script.contains("FERRO_COMPLETE") && script.contains("ferro"), "{shell}: {script}");
        }
    }
}
