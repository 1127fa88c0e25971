//! `shop`: one program for all services of the shop and for its customers.

use std::process::ExitCode;

use clap::Parser as _;
use shop::cli::Arguments;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Arguments::parse().run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("shop: {error:#}");
            ExitCode::FAILURE
        }
    }
}
