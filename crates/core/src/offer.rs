//! What this cluster offers to a peer: from its nodes and pods, through the terms, to the `ResourceOffer`.
//!
//! Free for a consumer is what its pods use or could use here: the allocatable resources of our nodes without
//! what *others* run on them. A consumer's own pods are not subtracted, because its scheduler subtracts them
//! from the node that stands for us; two consumers therefore see two figures, and both are right.
//!
//! The way there is a chain of [`ResourceReader`]s, so that a monitor, a broker or a policy can take the
//! place of any part: [`Ledger`] (or another monitor), [`Aggregate`], [`Filter`], [`Share`], and in the end
//! [`compose`].

mod ledger;
mod pod;
mod publish;
mod reader;
mod terms;

pub use ledger::Ledger;
pub use pod::request_of;
pub use publish::{Pace, Publish, should_publish};
pub use reader::{Aggregate, Filter, ResourceReader, Share};
pub use terms::{Terms, compose, storage_classes};
