//! Finalizers: each names the work that must be done before an object may go.

/// On a ForeignCluster: peerings, identities and the tenant namespace are removed first.
pub const PEERING: &str = "discovery.liqo.io/peering";
/// On a copied object: its copy on the peer is removed first.
pub const REPLICATION: &str = "liqo.io/replication";
/// On a ResourceOffer: its node is drained and removed first.
pub const VIRTUAL_NODE: &str = "virtualkubelet.liqo.io/virtual-node";
/// On a NamespaceMap: the namespaces on the peer are removed first.
pub const NAMESPACE_MAP: &str = "virtualkubelet.liqo.io/namespaces";
/// On a NamespaceOffloading: its entries in all maps are removed first.
pub const OFFLOADING: &str = "offloading.liqo.io/namespaces";
/// On a TunnelEndpoint: the gateway forwards nothing by it any more first.
pub const TUNNEL: &str = "net.liqo.io/tunnel";
/// On a NetworkConfig of ours: the tunnel to the peer and all addresses that are kept for it are released first.
pub const ADDRESSES: &str = "net.liqo.io/addresses";
/// On a Tenant: its namespaces are removed first.
pub const TENANT: &str = "tenancy.liqo.io/namespaces";
/// On a claim that waits for its volume: what was made for it on a peer is noted down in a volume, or removed, first.
pub const CLAIM: &str = "storage.liqo.io/claim";
/// On a volume that stands for a claim on a peer: that claim is removed first, where the reclaim policy says so.
pub const VOLUME: &str = "storage.liqo.io/volume";
