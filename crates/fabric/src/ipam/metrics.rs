//! The figures of the address manager.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The figures.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    mappings: Gauge,
    turns: Counter,
    requests: Counter,
    writes: Counter,
}

impl Metrics {
    /// Makes the figures known.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mappings = metrics.mappings.clone();
        registry.register("ipam_mappings", "Endpoints with an address of the external network", mappings);
        let turns = metrics.turns.clone();
        registry.register("ipam_turns", "Groups of requests that were stored together", turns);
        let requests = metrics.requests.clone();
        registry.register("ipam_requests", "Requests in these groups", requests);
        let writes = metrics.writes.clone();
        registry.register("ipam_writes", "Writes of IpamStorage objects", writes);
        metrics
    }

    /// How many requests were answered so far, and with how many writes.
    pub fn so_far(&self) -> (u64, u64) {
        (self.requests.get(), self.writes.get())
    }

    pub(super) fn mappings(&self, count: usize) {
        self.mappings.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn turn(&self, requests: usize, writes: usize) {
        self.turns.inc();
        self.requests.inc_by(u64::try_from(requests).unwrap_or_default());
        self.writes.inc_by(u64::try_from(writes).unwrap_or_default());
    }
}
