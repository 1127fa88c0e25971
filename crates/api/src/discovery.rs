//! Group `discovery.liqo.io`: other clusters, how they are found, and what is asked of them.

mod foreign_cluster;
mod foreign_cluster_status;
mod resource_request;
mod search_domain;

pub use foreign_cluster::{
    Decision, DiscoveryType, ForeignCluster, ForeignClusterSpec, NodeLabels, PeerPolicy, TrustMode,
};
pub use foreign_cluster_status::{
    AuthState, Authentication, Contact, ForeignClusterStatus, NetworkState, NetworkStatus, PeeringState,
    PeeringStatus, TenantNamespaces,
};
pub use resource_request::{OfferState, ResourceRequest, ResourceRequestSpec, ResourceRequestStatus};
pub use search_domain::{SearchDomain, SearchDomainSpec, SearchDomainStatus};
