//! What all workers share of one peer: the way to it, what waits for a session, and what went through.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use super::probe::Probe;
use crate::wireguard::{Device, Moment, PeerId, PublicKey, Session};

/// So many packets wait for a session.
const MOST_HELD: usize = 64;
/// So often the device is told that packets were sent; its deadlines are of seconds.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How packets get to a peer.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) session: Arc<Session>,
    pub(super) endpoint: SocketAddr,
}

/// How much went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts what goes through.
#[derive(Debug, Default)]
pub(super) struct Meter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    pub(super) fn add(&self, packets: usize, bytes: usize) {
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// One peer. It stays the same while the key of the peer does.
#[derive(Debug)]
pub(super) struct Link {
    id: PeerId,
    key: PublicKey,
    start: Instant,
    way: ArcSwapOption<Way>,
    held: Mutex<VecDeque<Vec<u8>>>,
    /// When the device was told last that packets were sent, in milliseconds after the start.
    told: AtomicU64,
    handshake: Mutex<Option<Instant>>,
    pub(super) probe: Mutex<Probe>,
    pub(super) sent: Meter,
    pub(super) received: Meter,
}

impl Link {
    pub(super) fn new(id: PeerId, key: PublicKey, start: Instant) -> Self {
        Self {
            id,
            key,
            start,
            way: ArcSwapOption::empty(),
            held: Mutex::default(),
            told: AtomicU64::new(0),
            handshake: Mutex::default(),
            probe: Mutex::default(),
            sent: Meter::default(),
            received: Meter::default(),
        }
    }

    pub(super) fn id(&self) -> PeerId {
        self.id
    }

    pub(super) fn key(&self) -> PublicKey {
        self.key
    }

    /// How to get there, if there is a session.
    pub(super) fn way(&self) -> arc_swap::Guard<Option<Arc<Way>>> {
        self.way.load()
    }

    /// When the last session was made.
    pub(super) fn handshake(&self) -> Option<Instant> {
        *lock(&self.handshake)
    }

    /// Takes over what the device knows. Whoever calls this has the device, so that nothing older is put here.
    pub(super) fn refresh(&self, device: &Device, now: Moment) {
        let (session, endpoint) = (device.session(self.id, now), device.endpoint(self.id));
        let known = self.way.load();
        let Some((session, endpoint)) = session.zip(endpoint) else {
            if known.is_some() {
                self.way.store(None);
            }
            return;
        };
        let is_same_session = known.as_ref().is_some_and(|way| Arc::ptr_eq(&way.session, session));
        if is_same_session && known.as_ref().is_some_and(|way| way.endpoint == endpoint) {
            return;
        }
        if !is_same_session {
            *lock(&self.handshake) = Some(now.instant);
        }
        self.way.store(Some(Arc::new(Way { session: Arc::clone(session), endpoint })));
    }

    /// Forgets the keys.
    pub(super) fn close(&self) {
        self.way.store(None);
        self.forget_held();
    }

    /// Keeps a packet until there is a session. Of too many the oldest goes; how many did.
    pub(super) fn hold(&self, packet: &[u8]) -> u64 {
        let mut held = lock(&self.held);
        let dropped = if held.len() >= MOST_HELD { held.pop_front() } else { None };
        held.push_back(packet.to_vec());
        u64::from(dropped.is_some())
    }

    /// What was held, to be sent.
    pub(super) fn take_held(&self) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut *lock(&self.held))
    }

    /// The peer does not answer. How many packets are dropped.
    pub(super) fn forget_held(&self) -> u64 {
        self.take_held().len() as u64
    }

    /// Whether it is time to tell the device that packets were sent. One of all who ask is told so.
    pub(super) fn should_tell(&self, now: Instant) -> bool {
        let now = u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        let told = self.told.load(Ordering::Relaxed);
        let every = u64::try_from(TELL_EVERY.as_millis()).unwrap_or(u64::MAX);
        // Zero is before the first time.
        (told == 0 || now >= told.saturating_add(every))
            && self.told.compare_exchange(told, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What a thread that panicked has left is still whole: nothing here is half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use super::*;
    use crate::wireguard::{PeerConfig, PresharedKey, PrivateKey};

    fn link() -> Link {
        let mut device = Device::new(PrivateKey::new([1; 32]), Box::new(ring::rand::SystemRandom::new()));
        let key = PrivateKey::new([2; 32]).public();
        let config = PeerConfig {
            key,
            preshared: PresharedKey::default(),
            endpoint: None,
            keepalive: None,
            sent: None,
        };
        let now = Moment { instant: Instant::now(), clock: SystemTime::now() };
        Link::new(device.add(config, now).unwrap(), key, now.instant)
    }

    #[test]
    fn a_bounded_number_of_packets_waits_and_the_oldest_goes_first() {
        let link = link();
        let dropped: u64 = (0..70_u8).map(|number| link.hold(&[number])).sum();
        assert_eq!(dropped, 6);
        let held = link.take_held();
        assert_eq!((held.len(), held[0][0], held[63][0]), (64, 6, 69));
        assert_eq!(link.forget_held(), 0);
    }

    #[test]
    fn the_device_is_told_at_once_and_then_now_and_then() {
        let link = link();
        let at = |ms| link.start + Duration::from_millis(ms);
        let told: Vec<u64> = (0..500).filter(|ms| link.should_tell(at(*ms))).collect();
        assert_eq!(told, [0, 101, 201, 301, 401]);
    }
}
