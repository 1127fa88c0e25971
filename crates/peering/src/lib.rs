//! How two clusters find each other, prove who they are, and agree on what to share.
//!
//! Controllers here are thin: they take snapshots from shared watches, let `ferro-core` decide, and perform the writes.

pub mod approver;
pub mod auth;
pub mod contact;
pub mod controller;
pub mod discovery;
pub mod enrol;
mod filing;
mod handover;
pub mod home;
pub mod identity;
pub mod keepsake;
pub mod lan;
pub mod metrics;
pub mod networks;
pub mod peers;
pub mod reach;
pub mod remote;
pub mod replicator;
pub mod tenant;
pub mod tokens;
