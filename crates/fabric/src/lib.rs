//! How the networks of clusters are joined: packets, encrypted, between gateways.

pub mod ipam;
pub mod manager;
pub mod packet;
pub mod wireguard;
