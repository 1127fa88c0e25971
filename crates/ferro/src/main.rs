//! The one binary: command line, wiring of roles, demo.

mod ask;
mod calling;
mod chart;
mod cli;
mod commands;
mod complete;
mod introduction;
mod inventory;
mod invitation;
mod kube_args;
mod kube_errors;
mod listing;
mod network;
mod offloading;
mod output;
mod peers;
mod progress;
mod roles;
mod table;
mod teller;
mod tenants;
mod this_cluster;
mod volumes;
mod wait;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    complete::answer();
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferro: {error:#}");
            ExitCode::FAILURE
        }
    }
}
