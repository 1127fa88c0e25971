//! How the networks of clusters are joined: packets, encrypted, between gateways.

pub mod netlink;
pub mod packet;
pub mod routes;
pub mod wireguard;
