//! Group `net.liqo.io`: how pod networks are joined and addresses translated.

mod ipam_storage;
mod nat_mapping;
mod network_config;
mod tunnel_endpoint;

pub use ipam_storage::{EndpointMapping, IpamStorage, IpamStorageSpec, Subnets};
pub use nat_mapping::{NatMapping, NatMappingSpec};
pub use network_config::{NetworkConfig, NetworkConfigSpec, NetworkConfigStatus, Receiver, Signature};
pub use tunnel_endpoint::{
    Connection, ConnectionStatus, Probe, Throughput, TunnelEndpoint, TunnelEndpointSpec, TunnelEndpointStatus,
};

/// What stands in a field for a replacement network when the original is used as it is.
pub const NOT_REMAPPED: &str = "None";
