//! The multicast DNS of one node, bounded from outside.
//!
//! The library has no limit on what it remembers. It drops what is under PTR records that nobody asked for, but
//! everything under the asked ones, and every answer without a PTR record, stays for as long as its sender wishes; it
//! also keeps two timers for each time a record is heard. So the number of both is looked at every second, and a
//! flooded daemon is thrown away. That bounds memory to what comes in a second: 10,000 records are a few megabytes.
//! What it has for keeping strangers out is used: it works on the interface of the node's own address alone, so pods
//! of the node, behind interfaces of their own, are not heard. Packets are at most 9,000 bytes, and the channel with
//! events holds 1,000.
//!
//! The time to live of our records cannot be set: the library always says what RFC 6762 recommends, 120 s for
//! addresses and ports, 75 minutes for the rest. See `ear` for how silence is noticed sooner.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use mdns_sd::{IfKind, Metrics, Receiver, ServiceDaemon, ServiceEvent, ServiceInfo, UnregisterStatus};
use tokio::time::timeout;

/// So many records are remembered at most: four for each instance, and room for what others say.
const MOST_RECORDS: i64 = 4096;
/// So many timers, of a few bytes each.
const MOST_TIMERS: i64 = 65_536;
/// How long the daemon may take to say how much it remembers. One that takes longer is busy with a flood.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one that was asked for may take to answer, as RFC 6762 says.
const CONFIRMATION: Duration = Duration::from_secs(10);

pub(super) struct Multicast(ServiceDaemon);

impl Multicast {
    /// Opens multicast DNS on the interface with this address.
    pub(super) fn open(address: IpAddr) -> Result<Self> {
        let cannot = "cannot use multicast on this node";
        let daemon = ServiceDaemon::new().context(cannot)?;
        daemon.disable_interface(IfKind::All).context(cannot)?;
        daemon.enable_interface(IfKind::Addr(address)).context(cannot)?;
        Ok(Self(daemon))
    }

    /// Whether multicast DNS can be about this service type and domain.
    pub(super) fn knows(kind: &str) -> bool {
        kind.ends_with("._tcp.local.") || kind.ends_with("._udp.local.")
    }

    pub(super) fn register(&self, record: ServiceInfo) -> mdns_sd::Result<()> {
        self.0.register(record)
    }

    pub(super) fn unregister(&self, name: &str) -> mdns_sd::Result<Receiver<UnregisterStatus>> {
        self.0.unregister(name)
    }

    /// Events about instances of this type, beginning with those that are known already.
    pub(super) fn browse(&self, kind: &str) -> mdns_sd::Result<Receiver<ServiceEvent>> {
        self.0.browse(kind)
    }

    pub(super) fn stop_browse(&self, kind: &str) -> mdns_sd::Result<()> {
        self.0.stop_browse(kind)
    }

    /// Asks an instance whether it is still there; if not, that is an event.
    pub(super) fn ask(&self, name: String) -> mdns_sd::Result<()> {
        self.0.verify(name, CONFIRMATION)
    }

    /// Whether it remembers too much, or does not even say how much.
    pub(super) async fn is_flooded(&self) -> bool {
        match self.0.get_metrics() {
            Ok(metrics) => match timeout(PATIENCE, metrics.recv_async()).await {
                Ok(Ok(metrics)) => is_too_much(&metrics),
                Ok(Err(_)) | Err(_) => true,
            },
            // It has enough to do; it is asked again.
            Err(mdns_sd::Error::Again) => false,
            Err(_) => true,
        }
    }

    /// Goes without a goodbye: without interfaces, there is nowhere to say it.
    pub(super) fn leave_silently(&self) {
        let _ = self.0.disable_interface(IfKind::All);
        self.close();
    }

    pub(super) fn close(&self) {
        let _ = self.0.shutdown();
    }
}

fn is_too_much(metrics: &Metrics) -> bool {
    let cached = metrics.iter().filter(|(name, _)| name.starts_with("cached-"));
    let records: i64 = cached.map(|(_, count)| count).sum();
    records > MOST_RECORDS || metrics.get("timer").is_some_and(|timers| *timers > MOST_TIMERS)
}

#[cfg(test)]
mod tests {
    use super::{Multicast, is_too_much};
    use mdns_sd::Metrics;

    #[test]
    fn records_of_all_sorts_count_together() {
        let metrics = |counts: &[(&str, i64)]| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Metrics>()
        };
        assert!(!is_too_much(&metrics(&[("cached-ptr", 2000), ("cached-srv", 2000), ("browse", 9_000_000)])));
        assert!(is_too_much(&metrics(&[("cached-ptr", 2000), ("cached-srv", 2000), ("cached-txt", 100)])));
        assert!(is_too_much(&metrics(&[("timer", 70_000)])));
    }

    #[test]
    fn only_services_of_the_local_domain_are_known() {
        assert!(Multicast::knows("_liqo_api._tcp.local."));
        assert!(!Multicast::knows("_liqo_api._tcp.local"));
        assert!(!Multicast::knows("_liqo_api._tcp.example.org."));
    }
}
