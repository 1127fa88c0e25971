//! What is due by time: handshakes, keepalives, and probes.

use std::thread;
use std::time::{Duration, Instant};

use super::drops::Reason;
use super::inward::IDENTIFIER;
use super::link::lock;
use super::outbox::{Outbox, Without};
use super::rules::{Entry, Rules};
use super::shared::{Shared, now};
use super::wire::Patience;
use crate::packet::{Echo, Numbers};
use crate::wireguard::{Device, Moment, Work};

/// Other workers move deadlines without ringing: so long at most one is missed.
const NAP: Duration = Duration::from_millis(250);

/// The worker that looks at the clock.
pub(super) struct Clock<'a> {
    shared: &'a Shared,
    outbox: Outbox,
}

impl<'a> Clock<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, outbox: Outbox::new(shared.mtu) }
    }

    /// Works until the end.
    pub(super) fn run(&mut self) {
        while !self.shared.is_stopping() {
            let next = self.tick(&self.shared.rules.load());
            let rest = next.map_or(NAP, |next| next.saturating_duration_since(Instant::now()));
            thread::park_timeout(rest.min(NAP));
        }
    }

    /// Does what is due. When to come again.
    fn tick(&mut self, rules: &Rules) -> Option<Instant> {
        let now = now();
        if let Some(flows) = self.shared.flows.get() {
            flows.tick(now.instant);
        }
        let (work, deadline) = {
            let mut device = self.shared.device();
            let work = device.poll(now);
            refresh(&device, rules, &work, now);
            (work, device.deadline())
        };
        for work in work {
            self.perform(rules, &work);
        }
        let probes = rules.entries().iter().filter_map(|entry| self.probe(entry, now.instant)).min();
        [deadline, probes].into_iter().flatten().min()
    }

    fn perform(&self, rules: &Rules, work: &Work) {
        match work {
            Work::Send(transmit) => self.shared.transmit(transmit),
            Work::GaveUp(peer) => {
                let dropped = rules.of(*peer).map_or(0, |entry| entry.link.forget_held());
                self.shared.drops.add(Reason::NoSession, dropped);
            }
            Work::Wiped(_) => {}
        }
    }

    /// Sends a probe, if it is time for one. When the next one is due.
    fn probe(&mut self, entry: &Entry, now: Instant) -> Option<Instant> {
        let pair = entry.probe?;
        let (number, next) = {
            let mut probe = lock(&entry.link.probe);
            (probe.tick(now), probe.next())
        };
        if let Some(sequence) = number {
            let numbers = Numbers { identifier: IDENTIFIER, sequence };
            let write = |place: &mut [u8]| Echo::write_request(place, pair.request(), numbers);
            if self.outbox.add(Echo::LONGEST_REQUEST, write) {
                self.outbox.send(self.shared, &entry.link, Without::Drop, Patience::Drop);
            }
        }
        next
    }
}

/// Sessions that are wiped are not kept by anybody else.
fn refresh(device: &Device, rules: &Rules, work: &[Work], now: Moment) {
    for work in work {
        if let Work::Wiped(peer) = work
            && let Some(entry) = rules.of(*peer)
        {
            entry.link.refresh(device, now);
        }
    }
}
