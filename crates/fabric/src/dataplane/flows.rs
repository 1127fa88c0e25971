//! What pods of this cluster have begun with peers, so that answers are let in where nothing else is.
//!
//! - Flow: `outward` notes what leaves, `inward` asks about what arrives, only for pods that peers may not reach. The
//!   connections of others are noted, too: such a pod may become one that peers may not reach.
//! - Guarantees: it never grows, and no packet waits or allocates. Only what leaves is noted, so that no peer can fill it
//!   or keep anything in it; where it is full, the oldest goes. What is not known is not let in. A connection is known only
//!   if its first packet left here: what a pod sends on one that a peer began does not make it ours. Only at first, when
//!   nobody knows who began, any packet will do, so that a gateway that starts again cuts off nobody.
//! - Assumptions: one thread notes. Another one may take away what is too old.
//!
//! A conversation is known by a keyed hash, which cannot be guessed: that another one has the same 46 bits in the same
//! place happens once in 10¹³ packets, and then one packet gets in.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::packet::{Flow, Stage};

/// How many conversations lie together: as many as the processor fetches at once.
const WAYS: usize = 8;
/// How many such places there are; all of it is one megabyte.
const PLACES: usize = 1 << 14;
/// As exact as times are.
const TICK: Duration = Duration::from_secs(4);
/// How long who began is waited for, in ticks: of a connection, and of all else.
const LONG: u16 = 24 * 60 * 15;
const SHORT: u16 = 3 * 15;
/// So long after the start any packet of a connection makes it known, by default.
pub(super) const GRACE: Duration = Duration::from_mins(2);
/// How often what is too old is taken away, in ticks: before its time can look young again.
const SWEEP: u16 = 60;

/// The parts of an entry: when it was noted, how far it is, and who it is.
const TIME: u64 = 0xffff;
const STAGE: u64 = 0x3_0000;
const WHO: u64 = !(TIME | STAGE);
const BEGUN: u64 = 0;
const GOING_ON: u64 = 0x1_0000;
const ENDED: u64 = 0x2_0000;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Place([AtomicU64; WAYS]);

/// The conversations.
#[derive(Debug)]
pub struct Flows {
    places: Box<[Place]>,
    secret: RandomState,
    start: Instant,
    grace: Duration,
    now: AtomicU16,
    swept: AtomicU16,
    /// Whether all connections that were there at the start are known, or cut off.
    is_settled: AtomicBool,
}

impl Flows {
    /// An empty table of a gateway that has started then.
    pub fn new(start: Instant) -> Self {
        Self::with_grace(start, GRACE)
    }

    /// The same, where any packet of a connection makes it known for so long.
    pub(super) fn with_grace(start: Instant, grace: Duration) -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            secret: RandomState::new(),
            start,
            grace,
            now: AtomicU16::new(0),
            swept: AtomicU16::new(0),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Lets time go on, and takes away what is too old.
    pub fn tick(&self, now: Instant) {
        let age = now.saturating_duration_since(self.start);
        if age >= self.grace {
            self.is_settled.store(true, Ordering::Relaxed);
        }
        let ticks = age.as_secs() / TICK.as_secs();
        let now = u16::try_from(ticks & TIME).unwrap_or_default();
        self.now.store(now, Ordering::Relaxed);
        if now.wrapping_sub(self.swept.load(Ordering::Relaxed)) >= SWEEP {
            self.swept.store(now, Ordering::Relaxed);
            for entry in self.places.iter().flat_map(|place| &place.0) {
                let seen = entry.load(Ordering::Relaxed);
                if seen != 0 && !is_young(seen, now) {
                    // It may have been noted again just now.
                    let _ = entry.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Notes a packet that leaves, unless it belongs to a connection that was not begun here.
    pub fn note(&self, flow: Flow, stage: Stage) {
        if self.is_settled.load(Ordering::Relaxed) {
            self.note_open(flow, stage);
        } else {
            self.keep(flow, stage);
        }
    }

    /// The same for a pod that peers may reach: nothing of it is cut off, so that it need not be spared at first either.
    pub fn note_open(&self, flow: Flow, stage: Stage) {
        if stage == Stage::Begins || self.has(flow) {
            self.keep(flow, stage);
        }
    }

    fn keep(&self, flow: Flow, stage: Stage) {
        self.put(flow, stage);
        self.put(flow.of_both(), Stage::Begins);
    }

    fn put(&self, flow: Flow, stage: Stage) {
        let (hash, now) = (self.secret.hash_one(flow), self.now.load(Ordering::Relaxed));
        let Some(place) = self.place(hash) else { return };
        let Some(entry) = place.find(hash).or_else(|| place.oldest(now)) else { return };
        let seen = entry.load(Ordering::Relaxed);
        let has_ended = seen & WHO == hash & WHO && seen & STAGE == ENDED;
        let stage = match stage {
            Stage::Begins => BEGUN,
            // Of the last packets of a connection some come behind its end.
            Stage::GoesOn if has_ended => ENDED,
            Stage::GoesOn => GOING_ON,
            Stage::Ends => ENDED,
        };
        let wanted = hash & WHO | stage | u64::from(now);
        if seen != wanted {
            entry.store(wanted, Ordering::Release);
        }
    }

    /// Whether this one was begun here, and not too long ago.
    pub fn has(&self, flow: Flow) -> bool {
        let (hash, now) = (self.secret.hash_one(flow), self.now.load(Ordering::Relaxed));
        let found = self.place(hash).and_then(|place| place.find(hash));
        found.is_some_and(|entry| is_young(entry.load(Ordering::Acquire), now))
    }

    /// Where a conversation would be: by bits of its hash that are not kept.
    fn place(&self, hash: u64) -> Option<&Place> {
        self.places.get(usize::try_from(hash).ok()? & (PLACES - 1))
    }
}

impl Place {
    fn find(&self, hash: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|entry| {
            let seen = entry.load(Ordering::Acquire);
            seen != 0 && seen & WHO == hash & WHO
        })
    }

    /// One that is free, or too old, or the oldest.
    fn oldest(&self, now: u16) -> Option<&AtomicU64> {
        let worth = |entry: &&AtomicU64| {
            let seen = entry.load(Ordering::Relaxed);
            if seen == 0 || !is_young(seen, now) { 0 } else { u32::from(u16::MAX - age(seen, now)) + 1 }
        };
        self.0.iter().min_by_key(worth)
    }
}

fn age(entry: u64, now: u16) -> u16 {
    now.wrapping_sub(u16::try_from(entry & TIME).unwrap_or_default())
}

fn is_young(entry: u64, now: u16) -> bool {
    age(entry, now) <= if entry & STAGE == GOING_ON { LONG } else { SHORT }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::packet::Header;

    /// A pod that talks from this port.
    fn flow(port: u16) -> Flow {
        flow_of(7, port)
    }

    fn flow_of(pod: u8, port: u16) -> Flow {
        let builder = PacketBuilder::ipv4([10, 244, 0, pod], [10, 0, 0, 5], 64).udp(port, 80);
        let mut packet = Vec::new();
        builder.write(&mut packet, &[]).unwrap();
        Flow::begun(&packet, &Header::parse(&packet).unwrap()).unwrap().0
    }

    fn after(flows: &Flows, ticks: u32) {
        flows.tick(flows.start + TICK * ticks);
    }

    #[test]
    fn only_what_was_noted_is_known_and_not_for_ever() {
        let flows = Flows::new(Instant::now());
        flows.note(flow(1), Stage::Begins);
        assert!(flows.has(flow(1)) && !flows.has(flow(2)));
        assert!(flows.has(flow(2).of_both()));
        after(&flows, u32::from(SHORT));
        assert!(flows.has(flow(1)));
        after(&flows, u32::from(SHORT) + 1);
        assert!(!flows.has(flow(1)) && !flows.has(flow(1).of_both()));
        flows.note(flow(1), Stage::Begins);
        assert!(flows.has(flow(1)));
    }

    #[test]
    fn a_connection_is_kept_until_it_ends() {
        let flows = Flows::new(Instant::now());
        flows.note(flow(1), Stage::Begins);
        flows.note(flow(1), Stage::GoesOn);
        after(&flows, u32::from(LONG));
        assert!(flows.has(flow(1)));
        flows.note(flow(1), Stage::Ends);
        flows.note(flow(1), Stage::GoesOn);
        after(&flows, u32::from(LONG) + u32::from(SHORT));
        assert!(flows.has(flow(1)), "the last packets are let in");
        after(&flows, u32::from(LONG) + u32::from(SHORT) + 1);
        assert!(!flows.has(flow(1)));
        // The same numbers are used again.
        for stage in [Stage::Begins, Stage::GoesOn] {
            flows.note(flow(1), stage);
        }
        after(&flows, 2 * u32::from(LONG));
        assert!(flows.has(flow(1)));
    }

    #[test]
    fn what_goes_on_is_known_only_if_it_was_begun_here() {
        let flows = Flows::new(Instant::now());
        flows.note_open(flow(1), Stage::GoesOn);
        assert!(!flows.has(flow(1)), "it is open, whoever began");
        flows.note(flow(1), Stage::GoesOn);
        assert!(flows.has(flow(1)), "who begins anew does not know who began");
        flows.tick(flows.start + GRACE);
        flows.note(flow(1), Stage::GoesOn);
        assert!(flows.has(flow(1)));
        for stage in [Stage::GoesOn, Stage::Ends] {
            flows.note(flow_of(8, 1), stage);
            assert!(!flows.has(flow_of(8, 1)) && !flows.has(flow_of(8, 1).of_both()), "a peer began it");
        }
        for stage in [Stage::Begins, Stage::GoesOn] {
            flows.note(flow_of(8, 1), stage);
        }
        flows.tick(flows.start + GRACE + TICK * u32::from(LONG));
        assert!(flows.has(flow_of(8, 1)));
        flows.tick(flows.start + GRACE + TICK * (u32::from(LONG) + 1));
        flows.note(flow_of(8, 1), Stage::GoesOn);
        assert!(!flows.has(flow_of(8, 1)), "nobody knows any more");
    }

    #[test]
    fn what_is_too_old_does_not_become_young_again() {
        let flows = Flows::new(Instant::now());
        flows.note(flow(1), Stage::GoesOn);
        for ticks in (0..=0x1_0000).step_by(usize::from(SWEEP)) {
            after(&flows, ticks);
            assert_eq!(flows.has(flow(1)), ticks <= u32::from(LONG), "{ticks}");
        }
    }

    #[test]
    fn where_it_is_full_the_oldest_goes() {
        let flows = Flows::new(Instant::now());
        let early = || (0..4).flat_map(|pod| (0..u16::MAX).map(move |port| flow_of(pod, port)));
        early().for_each(|flow| flows.note(flow, Stage::GoesOn));
        after(&flows, 1);
        let late = || (0..2_000).map(|port| flow_of(4, port));
        late().for_each(|flow| flows.note(flow, Stage::GoesOn));
        assert!(late().all(|flow| flows.has(flow)));
        let kept = early().filter(|flow| flows.has(*flow)).count();
        assert!(kept < PLACES * WAYS && kept > PLACES * WAYS / 2, "{kept}");
    }
}
