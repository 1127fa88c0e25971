//! How the networks of clusters are joined: packets, encrypted, between gateways.

pub mod dataplane;
pub mod ipam;
pub mod packet;
pub mod wireguard;
