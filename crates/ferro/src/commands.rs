//! One module for each subcommand: its options and what it does.

pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod install;
pub(crate) mod uninstall;

/// Runs a command that talks to a cluster. One thread is enough to serve one person.
fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
