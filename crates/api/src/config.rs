//! Group `config.liqo.io`: how a cluster is set up.

mod advertisement;
mod auth;
mod cluster_config;
mod discovery;
mod liqonet;
mod reflection;
mod tenancy;

pub use advertisement::{
    AcceptPolicy, AdvertisementConfig, AutoJoin, IngoingConfig, OutgoingConfig, RequestConfig,
};
pub use auth::{AuthConfig, BundleRef};
pub use cluster_config::{
    AgentConfig, ApiServerConfig, ClusterConfig, ClusterConfigSpec, ClusterConfigStatus, DashboardConfig,
    DispatcherConfig, ReplicatedResource,
};
pub use discovery::DiscoveryConfig;
pub use liqonet::{LiqonetConfig, NetworkMode, Reach};
pub use reflection::{ReflectionConfig, ReflectionMode};
pub use tenancy::{PodSecurity, TenancyConfig};
