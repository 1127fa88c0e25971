//! What one node hears of other clusters on its LAN.
//!
//! - Flow: the library resolves instances of our service type, [`Earshot`] decides what of that counts, and every
//!   change is handed on to be noted down.
//! - Silence: the library tells when a record has expired, or its sender said goodbye. Since our records live longer
//!   than `discoveryConfig.ttl` may say, every instance is asked once in that time whether it is still there.
//! - Guarantees: what was dropped in a flood is heard again later, since the library is asked for all it knows once a
//!   minute as long as something is missing. No line is logged for one announcement, only one a minute for all.

use std::time::{Duration, Instant};

use ferro_core::discovery::{Announcement, Earshot, NotAnAnnouncement, Report, Unheard};
use ferro_core::identity::ClusterId;
use k8s_openapi::jiff::Timestamp;
use mdns_sd::{Receiver, ResolvedService, ServiceEvent};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::multicast::Multicast;
use super::notes::Heard;

/// How long after a new beginning what was heard before counts without being heard again.
const SETTLE: Duration = Duration::from_secs(15);
/// How soon all is asked for again when something was dropped, and how often that is told.
const PAUSE: Duration = Duration::from_mins(1);
/// So many instances are asked at once.
const ASKED: usize = 32;

pub(super) struct Ear {
    earshot: Earshot,
    /// Service type and domain that is listened for.
    kind: Option<String>,
    events: Option<Receiver<ServiceEvent>>,
    ttl: Duration,
    heard: watch::Sender<Heard>,
    settled_at: Option<Instant>,
    dropped: Dropped,
}

/// What was not taken in, since when.
struct Dropped {
    rubbish: u32,
    surplus: u32,
    since: Instant,
}

impl Ear {
    /// Begins with what was noted down before.
    pub(super) fn new(heard: watch::Sender<Heard>) -> Self {
        let mut earshot = Earshot::default();
        let now = Timestamp::now();
        earshot.recall(Report::new(heard.borrow().clone().unwrap_or_default(), now), now);
        let dropped = Dropped { rubbish: 0, surplus: 0, since: Instant::now() };
        let (ttl, settled_at) = (Duration::MAX, Some(Instant::now() + SETTLE));
        Self { earshot, kind: None, events: None, ttl, heard, settled_at, dropped }
    }

    /// Listens for instances of this type, or for none.
    pub(super) fn listen(&mut self, multicast: &Multicast, kind: Option<String>, ttl: Duration) {
        self.ttl = ttl;
        if kind != self.kind
            && let Some(before) = self.kind.take()
        {
            let _ = multicast.stop_browse(&before);
            self.deafen();
        }
        match kind {
            Some(kind) if self.kind.is_none() => {
                self.kind = Some(kind);
                self.browse(multicast);
            }
            Some(_) => {}
            None => self.deafen(),
        }
    }

    /// Whether the library has given up on us, because more came than its channel holds.
    pub(super) fn is_cut_off(&self) -> bool {
        self.kind.is_some() && self.events.is_none()
    }

    /// Listens with another daemon, which knows nothing yet.
    pub(super) fn begin_anew(&mut self, multicast: &Multicast) {
        self.earshot.doubt();
        self.settled_at = Some(Instant::now() + SETTLE);
        self.browse(multicast);
    }

    /// What comes next.
    pub(super) async fn next(&self) -> Option<ServiceEvent> {
        match &self.events {
            Some(events) => events.recv_async().await.ok(),
            None => std::future::pending().await,
        }
    }

    /// Takes in what came; nothing means that the library has given up on us.
    pub(super) fn take_in(&mut self, event: Option<ServiceEvent>, own: Option<&ClusterId>, now: Timestamp) {
        let changed = match event {
            Some(ServiceEvent::ServiceResolved(service)) => self.resolved(&service, own, now),
            Some(ServiceEvent::ServiceRemoved(_, name)) => {
                self.instance(&name).is_some_and(|instance| self.earshot.goodbye(&instance))
            }
            Some(_) => false,
            None => {
                self.events = None;
                false
            }
        };
        if changed {
            self.tell();
        }
    }

    /// Does what is overdue.
    pub(super) fn look_after(&mut self, multicast: &Multicast, now: Timestamp) {
        if self.settled_at.is_some_and(|at| at <= Instant::now()) {
            self.settled_at = None;
            if self.earshot.forget_doubtful() {
                self.tell();
            }
        }
        if let Some(kind) = &self.kind {
            for instance in self.earshot.to_ask(self.ttl, ASKED, now) {
                // If its queue is full, there will be another time.
                let _ = multicast.ask(format!("{instance}.{kind}"));
            }
        }
        if self.dropped.since.elapsed() >= PAUSE {
            self.catch_up(multicast);
        }
    }

    fn resolved(&mut self, service: &ResolvedService, own: Option<&ClusterId>, now: Timestamp) -> bool {
        let Some(instance) = self.instance(&service.fullname) else { return false };
        let heard = match read(service) {
            Ok(announcement) => self.earshot.hear(&instance, announcement, own, now),
            Err(problem) => {
                debug!(%problem, "an announcement on the LAN is not understood");
                Err(Unheard::Rubbish)
            }
        };
        match heard {
            Ok(is_news) => is_news,
            Err(Unheard::Own) => false,
            Err(Unheard::TooMany) => {
                self.dropped.surplus = self.dropped.surplus.saturating_add(1);
                false
            }
            Err(Unheard::Rubbish) => {
                self.dropped.rubbish = self.dropped.rubbish.saturating_add(1);
                self.earshot.goodbye(&instance)
            }
        }
    }

    /// The first label of an instance's full name.
    fn instance(&self, name: &str) -> Option<String> {
        let head = name.strip_suffix(self.kind.as_deref()?)?;
        head.strip_suffix('.').map(str::to_owned)
    }

    /// Asks for everything again if some of it was dropped, and tells about it.
    fn catch_up(&mut self, multicast: &Multicast) {
        let Dropped { rubbish, surplus, .. } = self.dropped;
        if rubbish > 0 || surplus > 0 {
            warn!(rubbish, surplus, "announcements on the LAN were not taken in");
        }
        if surplus > 0 {
            self.browse(multicast);
        }
        self.dropped = Dropped { rubbish: 0, surplus: 0, since: Instant::now() };
    }

    fn browse(&mut self, multicast: &Multicast) {
        let Some(kind) = &self.kind else { return };
        match multicast.browse(kind) {
            Ok(events) => {
                info!(kind, "listening on the LAN");
                self.events = Some(events);
            }
            Err(error) => {
                warn!(%error, "cannot listen on the LAN; it is tried again");
                self.events = None;
            }
        }
    }

    /// Hears nothing, and has heard nothing.
    fn deafen(&mut self) {
        self.events = None;
        self.earshot.clear();
        self.tell();
    }

    fn tell(&self) {
        let all = self.earshot.all();
        self.heard.send_if_modified(|heard| {
            let is_news = heard.as_ref() != Some(&all);
            *heard = Some(all);
            is_news
        });
    }
}

/// Reads the TXT record of an instance. The library has split its strings; they are put together again.
fn read(service: &ResolvedService) -> Result<Announcement, NotAnAnnouncement> {
    let properties = service.txt_properties.iter();
    let strings: Vec<Vec<u8>> = properties
        .map(|property| [property.key().as_bytes(), b"=", property.val().unwrap_or_default()].concat())
        .collect();
    Announcement::parse(strings.iter().map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use super::super::notes::Heard;
    use super::Ear;
    use ferro_core::discovery::Announcement;
    use k8s_openapi::jiff::Timestamp;
    use mdns_sd::{ServiceEvent, ServiceInfo};
    use tokio::sync::watch;

    const KIND: &str = "_liqo_api._tcp.local.";

    fn announcement(url: &str) -> Announcement {
        Announcement {
            id: "34750f98-bd59-8cfc-946d-a45aaabe933b".parse().unwrap(),
            name: "milan".parse().unwrap(),
            auth_url: url.parse().unwrap(),
            pin: "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().unwrap(),
        }
    }

    fn resolved(instance: &str, properties: &[(&str, String)]) -> ServiceEvent {
        let properties: Vec<_> = properties.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let service =
            ServiceInfo::new(KIND, instance, "h.local.", "192.0.2.7", 443, &properties[..]).unwrap();
        ServiceEvent::ServiceResolved(Box::new(service.as_resolved_service()))
    }

    fn listening() -> (Ear, watch::Receiver<Heard>) {
        let (heard, noted) = watch::channel(None);
        let mut ear = Ear::new(heard);
        ear.kind = Some(KIND.into());
        (ear, noted)
    }

    #[test]
    fn what_comes_moves_and_goes_is_noted_down() {
        let (mut ear, noted) = listening();
        let now = Timestamp::now();
        let urls = || {
            noted
                .borrow()
                .iter()
                .flatten()
                .map(|(name, one)| format!("{name} {}", one.auth_url))
                .collect::<Vec<_>>()
        };
        for url in ["https://192.0.2.7:30443", "https://192.0.2.8:30443"] {
            ear.take_in(Some(resolved("milan", &announcement(url).properties())), None, now);
            assert_eq!(urls(), [format!("milan {url}")]);
        }
        let gone = ServiceEvent::ServiceRemoved(KIND.into(), format!("milan.{KIND}"));
        ear.take_in(Some(gone), None, now);
        assert_eq!(urls(), [""; 0]);
    }

    #[test]
    fn two_nodes_of_a_cluster_are_two_instances_and_the_own_cluster_is_none() {
        let (mut ear, noted) = listening();
        let (now, announced) = (Timestamp::now(), announcement("https://192.0.2.7"));
        for instance in ["milan-1", "milan-2"] {
            ear.take_in(Some(resolved(instance, &announced.properties())), Some(&announced.id), now);
            assert!(noted.borrow().iter().flatten().all(|(heard, _)| heard != instance));
            ear.take_in(Some(resolved(instance, &announced.properties())), None, now);
        }
        assert_eq!(noted.borrow().as_ref().unwrap().len(), 2);
    }

    #[test]
    fn rubbish_is_counted_and_takes_the_place_of_what_was_there() {
        let (mut ear, noted) = listening();
        let now = Timestamp::now();
        ear.take_in(Some(resolved("milan", &announcement("https://192.0.2.7").properties())), None, now);
        for instance in ["other", "milan"] {
            ear.take_in(Some(resolved(instance, &[("v", "1".into())])), None, now);
        }
        assert_eq!(ear.dropped.rubbish, 2);
        assert!(noted.borrow().as_ref().unwrap().is_empty());
    }
}
