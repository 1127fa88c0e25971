//! Pods that run elsewhere: from a pod bound to a virtual node to a ShadowPod over there, from that to a real pod, and
//! back to what the pod at home shows.
//!
//! # Flow
//! At home [`outward::shadow`] makes of a pod what can travel, and [`home::plan`] says what is to be written, here and
//! there. On the provider [`provider::plan`] says what becomes of a ShadowPod, and [`provider::pod`] makes of it a pod
//! that keeps to the Tenant, whatever the consumer wrote. [`inward::status`] is what the pod at home shows of that one.
//!
//! # Guarantees
//! - Nothing is remembered: performing any part of a plan and planning again comes to the same end. At rest it is empty.
//! - What was not made for this pod, or from this ShadowPod, is not changed, and of what has the same name and is ours
//!   nothing is made before the former is gone: no two run for one.
//! - A pod at home goes only when nothing of it is left over there, as far as anybody can see.
//!
//! # Assumptions
//! - Snapshots have seen all that was written for the pod before.
//! - A consumer sees the pods of its own namespaces on the provider, so that their status need not be copied.

pub mod chain;
pub mod events;
pub mod fields;
pub mod home;
pub mod inward;
pub mod outward;
pub mod provider;
mod refusal;
pub mod tokens;

pub use refusal::Refusal;
