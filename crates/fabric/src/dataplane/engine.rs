//! The engine of a gateway: started once, told which peers there shall be, and asked how they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use ferro_core::network::report::Measured;
use ferro_core::network::{PeerTable, ProbePair};
use ring::rand::SystemRandom;

use super::clock::Clock;
use super::flows::{Flows, GRACE};
use super::inward::Inward;
use super::link::{Link, Traffic, lock};
use super::outward::Outward;
use super::rules::{Entry, Rules};
use super::shared::{Shared, now};
use super::{Tun, Wire};
use crate::wireguard::{Device, Moment, PeerConfig, PresharedKey, PrivateKey, PublicKey, Timestamp};

/// What tunnels may be told to let through: the least that IPv4 wants, and the most that fits a datagram.
pub const MTU: std::ops::RangeInclusive<u16> = 576..=65_000;
/// How long to wait between two looks whether workers have left the former rules.
const GLANCE: Duration = Duration::from_micros(50);

/// What is wanted of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPlan {
    /// Who it is.
    pub key: PublicKey,
    /// Where it is. One that is wanted anew counts until the peer is heard from somewhere else.
    pub endpoint: Option<SocketAddr>,
    /// The interval of a persistent keepalive.
    pub keepalive: Option<Duration>,
    /// What is done to its addresses.
    pub table: PeerTable,
    /// Between which addresses the tunnel is probed, if it is.
    pub probe: Option<ProbePair>,
}

impl PeerPlan {
    /// Whether it is the same plan. It is not compared what is published, which may be much; see [`PeerTable::is_same`].
    fn is_same(&self, other: &Self) -> bool {
        let fixed = |plan: &Self| (plan.key, plan.endpoint, plan.keepalive, plan.probe);
        fixed(self) == fixed(other) && self.table.is_same(&other.table)
    }
}

/// Peers that cannot be set. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No two have the same key.
    #[error("the clusters {0} and {1} have the same key of a tunnel; one of them has to make another one")]
    SameKey(String, String),
    /// A peer is somebody else.
    #[error("the cluster {0} has the key of this gateway; one of them has to make another one")]
    Ourselves(String),
}

/// How a peer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// What went to it, with padding.
    pub sent: Traffic,
    /// What came from it, with padding.
    pub received: Traffic,
    /// When the session in use was made, by the clock that nobody sets.
    pub last_handshake: Option<Instant>,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// The key that sessions with it are made by.
    pub key: Option<PublicKey>,
    /// What probes say of the tunnel.
    pub probe: Measured,
}

/// What was wanted last, and what came of it.
#[derive(Default)]
struct Known {
    plans: BTreeMap<String, PeerPlan>,
    links: HashMap<PublicKey, Linked>,
    /// Handshakes with new peers are later than this.
    sent: Option<Timestamp>,
}

/// What was wanted last of the peer with a key.
struct Linked {
    endpoint: Option<SocketAddr>,
    link: Arc<Link>,
}

impl Known {
    /// Whether exactly this was wanted last.
    fn is(&self, peers: &BTreeMap<String, PeerPlan>) -> bool {
        let mut pairs = self.plans.iter().zip(peers);
        self.plans.len() == peers.len()
            && pairs.all(|((name, before), (other, plan))| name == other && before.is_same(plan))
    }

    /// Brings the device up to date with what is wanted of a peer.
    fn link(
        &mut self,
        device: &mut Device,
        plan: &PeerPlan,
        start: Instant,
        now: Moment,
    ) -> Option<Arc<Link>> {
        let PeerPlan { key, endpoint, keepalive, .. } = *plan;
        if let Some(peer) = self.links.get_mut(&key) {
            let id = peer.link.id();
            if let Some(endpoint) = endpoint.filter(|_| endpoint != peer.endpoint) {
                device.set_endpoint(id, endpoint);
            }
            device.set_keepalive(id, keepalive, now);
            peer.endpoint = endpoint;
            peer.link.refresh(device, now);
            return Some(Arc::clone(&peer.link));
        }
        let preshared = PresharedKey::default();
        let config = PeerConfig { key, preshared, endpoint, keepalive, sent: self.sent };
        // It was checked that nobody else has the key.
        let id = device.add(config, now).ok()?;
        let link = Arc::new(Link::new(id, key, start));
        self.links.insert(key, Linked { endpoint, link: Arc::clone(&link) });
        Some(link)
    }

    /// Takes away from the device all but the peers with these keys. One that comes back has not forgotten our handshakes.
    fn unlink(&mut self, device: &mut Device, keys: &HashSet<PublicKey>) {
        let sent = &mut self.sent;
        self.links.retain(|key, peer| {
            let stays = keys.contains(key);
            if !stays {
                *sent = (*sent).max(device.sent_timestamp(peer.link.id()));
                device.remove(peer.link.id());
                peer.link.close();
            }
            stays
        });
    }
}

/// A running data plane. It ends when this is dropped.
pub struct Engine {
    shared: Arc<Shared>,
    key: PublicKey,
    start: Instant,
    grace: Duration,
    known: Mutex<Known>,
    workers: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts it without peers. The tunnels let packets of this length through.
    pub fn start(tun: Tun, wire: Wire, key: PrivateKey, mtu: u16) -> io::Result<Self> {
        if !MTU.contains(&mtu) {
            let text = format!("an MTU of {mtu} is not between {} and {}", MTU.start(), MTU.end());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let public = key.public();
        let device = Device::new(key, Box::new(SystemRandom::new()));
        let shared = Arc::new(Shared::new(tun, wire, device, mtu.into())?);
        let (start, known) = (Instant::now(), Mutex::default());
        let mut engine = Self { shared, key: public, start, grace: GRACE, known, workers: Vec::new() };
        // The clock is the last one: it is the one that is woken.
        engine.spawn("ferro-outward", |shared| Outward::new(shared).run())?;
        engine.spawn("ferro-inward", |shared| Inward::new(shared).run())?;
        engine.spawn("ferro-clock", |shared| {
            Clock::new(shared).run();
            Ok(())
        })?;
        Ok(engine)
    }

    /// The same, if who began a connection is not known for so long: two minutes, unless it is told otherwise before peers
    /// are set.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    fn spawn(&mut self, name: &'static str, work: fn(&Shared) -> io::Result<()>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let body = move || {
            if let Err(error) = work(&shared) {
                shared.fail(format!("{name} cannot go on: {error}"));
            }
        };
        self.workers.push(thread::Builder::new().name(name.into()).spawn(body)?);
        Ok(())
    }

    /// Goes on as one who has begun handshakes until then, by whatever clock: peers take none that is not later than the
    /// last one by the same key. It counts for peers that are set from now on.
    pub fn go_on_after(&self, sent: SystemTime) {
        lock(&self.known).sent = Some(Timestamp::after(None, sent));
    }

    /// What is wanted of all peers, by the identifiers of their clusters. The same again changes nothing, and sessions
    /// of peers whose keys stay are kept. When it returns, no worker uses the rules before.
    pub fn set(&self, peers: BTreeMap<String, PeerPlan>) -> Result<(), Unfit> {
        self.check(&peers)?;
        let mut known = lock(&self.known);
        if known.is(&peers) {
            return Ok(());
        }
        let now = now();
        let entries = {
            let mut device = self.shared.device();
            let entry = |(name, plan): (&String, &PeerPlan)| {
                let link = known.link(&mut device, plan, self.start, now)?;
                Some(Entry { name: name.clone(), table: plan.table.clone(), probe: plan.probe, link })
            };
            peers.iter().filter_map(entry).collect()
        };
        if peers.values().any(|plan| plan.table.has_closed()) {
            self.shared.flows.get_or_init(|| {
                let flows = Flows::with_grace(self.start, self.grace);
                flows.tick(now.instant);
                flows
            });
        }
        self.swap(Rules::new(entries));
        let keys: HashSet<PublicKey> = peers.values().map(|plan| plan.key).collect();
        known.unlink(&mut self.shared.device(), &keys);
        known.plans = peers;
        if let Some(clock) = self.workers.last() {
            clock.thread().unpark();
        }
        Ok(())
    }

    fn check(&self, peers: &BTreeMap<String, PeerPlan>) -> Result<(), Unfit> {
        let mut keys: BTreeMap<PublicKey, &String> = BTreeMap::new();
        for (name, plan) in peers {
            if plan.key == self.key {
                return Err(Unfit::Ourselves(name.clone()));
            }
            if let Some(other) = keys.insert(plan.key, name) {
                return Err(Unfit::SameKey(other.clone(), name.clone()));
            }
        }
        Ok(())
    }

    /// Puts other rules in place, and waits until no worker has the former ones. A worker has rules only while it
    /// handles packets, so one that waits for some has none.
    fn swap(&self, rules: Rules) {
        let former = self.shared.rules.swap(Arc::new(rules));
        while Arc::strong_count(&former) > 1 {
            thread::sleep(GLANCE);
        }
    }

    /// How all peers are doing, by the identifiers of their clusters.
    pub fn statistics(&self) -> BTreeMap<String, Statistics> {
        let rules = self.shared.rules.load_full();
        let device = self.shared.device();
        let of = |entry: &Entry| Statistics {
            sent: entry.link.sent.read(),
            received: entry.link.received.read(),
            last_handshake: entry.link.handshake(),
            endpoint: device.endpoint(entry.link.id()),
            key: Some(entry.link.key()),
            probe: lock(&entry.link.probe).measured(Instant::now()),
        };
        rules.entries().iter().map(|entry| (entry.name.clone(), of(entry))).collect()
    }

    /// How many packets went no further, by reason, in words.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = self.shared.drops.words();
        let device = self.shared.device();
        drops.extend(device.drops().iter().map(|(reason, count)| (reason.to_string(), *count)));
        drops
    }

    /// Why it does not work any more, if a worker has ended: the interface is gone, for example.
    pub fn failure(&self) -> Option<String> {
        let has_ended = self.workers.iter().any(JoinHandle::is_finished);
        let failure = self.shared.failure().map(str::to_owned);
        failure.or_else(|| has_ended.then(|| "a worker has ended".to_owned()))
    }

    /// Ends it; when this returns, its threads, sockets and interface are gone.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // It has said why, or panicked.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use ferro_core::network::{Agreement, Ours, Translation};

    use super::*;

    fn plan(endpoint: &str) -> PeerPlan {
        let network = |text: &str| Translation::identity(text.parse().unwrap());
        let ours = Some(Ours { pods: network("10.1.0.0/16"), external: None });
        let agreement = Agreement { their_pods: network("10.2.0.0/16"), their_external: None, ours };
        let redirections = [(endpoint.parse().unwrap(), "10.3.0.9".parse().unwrap())].into();
        PeerPlan {
            key: PublicKey([7; 32]),
            endpoint: None,
            keepalive: None,
            table: PeerTable::new(&agreement, &redirections, Vec::new()).unwrap(),
            probe: None,
        }
    }

    #[test]
    fn handshakes_with_a_peer_that_comes_back_are_later_than_those_before() {
        let mut device = Device::new(PrivateKey::new([1; 32]), Box::new(SystemRandom::new()));
        let ([peer, another], mut known) =
            ([2, 3].map(|key| PrivateKey::new([key; 32]).public()), Known::default());
        let start = now();
        let mut timestamp = |key: PublicKey, now: Moment| {
            let endpoint = Some(([192, 0, 2, 2], 51820).into());
            let link = known.link(
                &mut device,
                &PeerPlan { key, endpoint, ..plan("172.18.0.1") },
                start.instant,
                now,
            );
            let id = link.unwrap().id();
            assert!(device.want(id, now).is_some());
            let sent = device.sent_timestamp(id);
            known.unlink(&mut device, &HashSet::new());
            sent.unwrap()
        };
        let first = timestamp(peer, start);
        let set_back = Moment { clock: SystemTime::UNIX_EPOCH, ..start };
        let second = timestamp(peer, set_back);
        assert!(second > first);
        assert!(timestamp(another, set_back) > second, "no harm is done");
    }

    #[test]
    fn it_is_known_without_a_look_at_what_is_published_that_nothing_has_changed() {
        let plans: BTreeMap<_, _> = ["a", "b"].map(|name| (name.to_owned(), plan("172.18.0.1"))).into();
        let known = Known { plans: plans.clone(), ..Known::default() };
        assert!(known.is(&plans));
        let with = |name: &str, plan: PeerPlan| {
            let mut wanted = plans.clone();
            wanted.insert(name.into(), plan);
            wanted
        };
        assert!(!known.is(&with("b", plan("172.18.0.2"))));
        assert!(
            !known.is(&with("b", PeerPlan { probe: None, keepalive: Some(GLANCE), ..plans["b"].clone() }))
        );
        assert!(!known.is(&with("c", plan("172.18.0.1"))) && !known.is(&BTreeMap::new()));
    }
}
