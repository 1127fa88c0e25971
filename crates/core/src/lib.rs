//! Decisions as plain functions and state machines over values: no I/O, no clock, no client.

pub mod admission;
pub mod auth;
pub mod claims;
pub mod discovery;
pub mod identity;
pub mod keepalive;
pub mod moving;
pub mod names;
pub mod network;
pub mod offer;
pub mod offloading;
pub mod peering;
pub mod pods;
pub mod policy;
pub mod reflection;
pub mod replication;
pub mod resources;
pub mod selector;
pub mod tenancy;
pub mod usage;
pub mod virtual_node;
