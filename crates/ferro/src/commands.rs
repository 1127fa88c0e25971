//! One module for each subcommand: its options and what it does.

pub(crate) mod add;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod decide;
pub(crate) mod discovery;
pub(crate) mod explain;
pub(crate) mod install;
pub(crate) mod moving;
pub(crate) mod namespaces;
pub(crate) mod network;
pub(crate) mod offload;
pub(crate) mod peer;
pub(crate) mod peers;
pub(crate) mod pods;
pub(crate) mod probe;
pub(crate) mod remove;
pub(crate) mod status;
pub(crate) mod tenant;
pub(crate) mod tenants;
pub(crate) mod token;
pub(crate) mod trace;
pub(crate) mod uninstall;
pub(crate) mod unoffload;
pub(crate) mod unpeer;

/// Runs a command that talks to a cluster. One thread is enough to serve one person.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
