//! The one binary: command line, wiring of roles, demo.

mod chart;
mod cli;
mod commands;
mod inventory;
mod kube_args;
mod kube_errors;
mod output;
mod roles;
mod wait;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferro: {error:#}");
            ExitCode::FAILURE
        }
    }
}
