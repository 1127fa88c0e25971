//! What an application needs beside its pods: copies of Services, endpoints, configuration and Ingresses on the clusters
//! that a namespace uses.
//!
//! # Flow
//! A watch at home keeps of each object what travels ([`Kind::keep_original`]), one over there keeps of each copy what it
//! takes to compare it ([`Kind::keep_copy`]). [`choose`] says whether an object goes to a cluster, [`slices`] under which
//! addresses endpoints do, [`travel`] which pods may call them from a third cluster, [`references`] which configuration a
//! pod cannot start without. [`Wish`] is the copy that is wanted, and [`step`] what brings the one that is there nearer to
//! it.
//!
//! # Guarantees
//! - Nothing is remembered: performing any part of what is to be done and looking again comes to the same end. At rest
//!   nothing is done. A copy that somebody changed is made as it was; what is not ours is never touched.
//! - No endpoint is published under an address that does not lead to it, and none that the other cluster finds by itself.
//! - What nobody over there needs does not leave home, if it may be confidential.
//!
//! # Assumptions
//! - Who looks has seen all that was written before.
//! - The account of addresses ([`Ledger`]) is one for each cluster.

mod choice;
mod content;
mod copy;
mod kind;
mod ledger;
#[cfg(test)]
mod model;
pub mod references;
pub mod silence;
pub mod slices;
pub mod travel;

pub use choice::{Choice, choose};
pub use content::digest;
pub use copy::{Former, Holder, Step, Wish, holder, step};
pub use kind::Kind;
pub use ledger::Ledger;
