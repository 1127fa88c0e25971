//! The protocol of WireGuard as values: datagrams and times in, datagrams and packets out.

pub mod message;
