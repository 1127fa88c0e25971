//! How the networks of clusters are joined: packets, encrypted, between gateways.

pub mod dataplane;
pub mod door;
pub mod gateway;
pub mod ipam;
pub mod manager;
pub mod netlink;
pub mod packet;
pub mod probe;
pub mod routes;
pub mod wireguard;
