//! The gRPC messages and, with the feature `grpc`, the clients and servers that speak them.
//!
//! Generated from the files in `proto/`, which are wire-compatible with the published services of that name.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code has a style of its own"
)]

/// What the address manager tells gateways.
pub mod gateway {
    include!(concat!(env!("OUT_DIR"), "/gateway.rs"));
}

/// The address manager: which address another cluster must use for an endpoint, and the other way round.
pub mod ipam {
    include!(concat!(env!("OUT_DIR"), "/ipam.rs"));
}

/// A source of resources to offer: a monitor, a quota, a filter.
pub mod resource_reader {
    include!(concat!(env!("OUT_DIR"), "/resource_reader.rs"));
}
