//! Structured logs: JSON lines for machines, plain text on a terminal.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging at that level (`info`, or directives as `ferro=debug`); only the first call counts.
pub fn start(level: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let logger = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() { logger.try_init() } else { logger.json().try_init() };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
