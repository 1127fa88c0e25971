//! One module for each subcommand: its options and what it does.

pub(crate) mod completion;
pub(crate) mod crds;
