//! What one node says about its cluster.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::discovery::Announcement;
use mdns_sd::ServiceInfo;
use tracing::{info, warn};

use super::multicast::Multicast;

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// What one node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) announcement: Announcement,
    /// Service type and domain, such as `_liqo_api._tcp.local.`.
    pub(super) kind: String,
    pub(super) instance: String,
    pub(super) address: IpAddr,
}

/// What was said last; it is taken back before something else is said, and at the end.
#[derive(Default)]
pub(super) struct Voice {
    said: Option<Words>,
}

impl Voice {
    /// Says this and nothing else.
    pub(super) fn say(&mut self, multicast: &Multicast, words: Option<Words>) {
        if words == self.said {
            return;
        }
        self.take_back(multicast);
        self.said = words;
        self.repeat(multicast);
    }

    /// Says again what was said.
    pub(super) fn repeat(&self, multicast: &Multicast) {
        let Some(words) = &self.said else { return };
        let said = record(words).and_then(|record| {
            multicast.register(record).context("cannot announce this cluster; check discoveryConfig.service")
        });
        match said {
            Ok(()) => {
                info!(instance = words.instance, url = %words.announcement.auth_url, "announced on the LAN");
            }
            Err(error) => warn!(instance = words.instance, error = format!("{error:#}"), "not announced"),
        }
    }

    /// Says goodbye, so that others need not wait for the record to expire.
    fn take_back(&mut self, multicast: &Multicast) {
        let Some(words) = self.said.take() else { return };
        let name = format!("{}.{}", words.instance, words.kind);
        let gone = multicast.unregister(&name).map(|done| done.recv_timeout(GOODBYE));
        if !matches!(gone, Ok(Ok(_))) {
            warn!(instance = words.instance, "could not say goodbye; others forget it when it expires");
        }
    }
}

fn record(words: &Words) -> Result<ServiceInfo> {
    let host = format!("{}.local.", words.instance);
    let properties = words.announcement.properties();
    let properties: Vec<(&str, &str)> =
        properties.iter().map(|(key, value)| (*key, value.as_str())).collect();
    ServiceInfo::new(
        &words.kind,
        &words.instance,
        &host,
        words.address,
        words.announcement.auth_url.port(),
        properties.as_slice(),
    )
    .context("the announcement is not a DNS-SD record")
}
