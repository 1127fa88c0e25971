//! The part of ClusterConfig about being found and finding others.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

const DOMAIN: &str = "local.";
const SERVICE: &str = "_liqo_api._tcp";
const PORT: u16 = 6443;
const TTL: u32 = 90;
const SEARCH_PERIOD: u32 = 60;

/// How this cluster is announced to others, and how it looks for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryConfig {
    /// Whether this cluster announces itself on the local network. When false, it is silent there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub announce: Option<bool>,

    /// Whether this cluster looks for others, on the local network and in search domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub search: Option<bool>,

    /// The domain in which this cluster announces itself on the local network.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("default" = DOMAIN))]
    pub domain: Option<String>,

    /// The name of this cluster, as other clusters see it. When left out, it is made from the cluster's
    /// identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::cluster_name)]
    pub name: Option<String>,

    /// The port of the API server that is announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = PORT))]
    pub port: Option<u16>,

    /// The DNS service type under which clusters are announced and looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), pattern("^_[A-Za-z0-9_-]+\\._(tcp|udp)$"), extend("default" = SERVICE))]
    pub service: Option<String>,

    /// How long others may remember an announcement, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400), extend("default" = TTL))]
    pub ttl: Option<u32>,

    /// The DNS server that is asked about search domains, as address or address:port; by default the
    /// cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::at_most(253))]
    pub dns_server: Option<String>,

    /// How often a search domain is looked up, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400), extend("default" = SEARCH_PERIOD))]
    pub search_period_seconds: Option<u32>,
}

impl DiscoveryConfig {
    /// Whether this cluster announces itself on the local network.
    pub fn announce(&self) -> bool {
        self.announce.unwrap_or(true)
    }

    /// Whether this cluster looks for others.
    pub fn search(&self) -> bool {
        self.search.unwrap_or(true)
    }

    /// The domain in which this cluster announces itself on the local network.
    pub fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or(DOMAIN)
    }

    /// The port of the API server that is announced.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// The DNS service type under which clusters are announced and looked for.
    pub fn service(&self) -> &str {
        self.service.as_deref().unwrap_or(SERVICE)
    }

    /// How long others may remember an announcement.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.unwrap_or(TTL).into())
    }

    /// How often a search domain is looked up.
    pub fn search_period(&self) -> Duration {
        Duration::from_secs(self.search_period_seconds.unwrap_or(SEARCH_PERIOD).into())
    }
}
