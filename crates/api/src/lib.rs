//! The contract: custom resources, the names that go on objects, and the gRPC messages; no behaviour.
//!
//! One module per API group and one file per kind, so that a manifest leads to its code:
//! `net.liqo.io/v1alpha1 NatMapping` is `net::NatMapping` in `net/nat_mapping.rs`. What two kinds share is in
//! [`common`]; what a value of a sort looks like (a CIDR, a cluster ID) is said once in `schema` and named at
//! each field.
//!
//! Two habits hold for every field:
//! - Its documentation is the text of `kubectl explain`, and so speaks to a user of the cluster.
//! - A field that may be left out is an `Option`, and is written out only when it is set: what was read comes
//!   back unchanged. A getter of the same name gives the value that holds when it is left out; the schema
//!   shows the same default. An empty list or map means the same as none.

#![allow(
    clippy::duplicated_attributes,
    reason = "two printer columns of one type are two columns, not a mistake"
)]
#![allow(
    clippy::doc_markdown,
    reason = "field documentation is shown by kubectl explain, where back ticks are noise"
)]

pub mod common;
pub mod config;
mod crds;
pub mod discovery;
pub mod names;
pub mod net;
pub mod offloading;
pub mod proto;
mod schema;
pub mod sharing;
pub mod tenancy;
pub mod virtualkubelet;

pub use crds::{CATEGORY, crds};
