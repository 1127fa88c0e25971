//! The engine of a gateway: started once, told which peers there shall be, and asked how they are.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use ferro_core::network::PeerTable;
use ring::rand::SystemRandom;

use super::clock::Clock;
use super::inward::Inward;
use super::link::{Link, Traffic, lock};
use super::outward::Outward;
use super::probe::{ProbePair, Quality};
use super::rules::{Entry, PeerRules, Rules};
use super::shared::{Shared, now};
use super::{Tun, Wire};
use crate::wireguard::{Device, Moment, PeerConfig, PresharedKey, PrivateKey, PublicKey};

/// What tunnels may be told to let through: the least that IPv4 wants, and the most that fits a datagram.
const MTU: std::ops::RangeInclusive<u16> = 576..=65_000;
/// How long to wait between two looks whether workers have left the former rules.
const GLANCE: Duration = Duration::from_micros(50);

/// What is wanted of one peer.
#[derive(Clone, Debug)]
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
    /// When the session in use was made.
    pub last_handshake: Option<SystemTime>,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// What probes say of the tunnel.
    pub quality: Quality,
}

/// What was wanted last of the peer with a key.
struct Known {
    endpoint: Option<SocketAddr>,
    link: Arc<Link>,
}

/// A running data plane. It ends when this is dropped.
pub struct Engine {
    shared: Arc<Shared>,
    key: PublicKey,
    start: Instant,
    known: Mutex<HashMap<PublicKey, Known>>,
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
        let mut engine = Self { shared, key: public, start, known, workers: Vec::new() };
        // The clock is the last one: it is the one that is woken.
        engine.spawn("ferro-outward", |shared| Outward::new(shared).run())?;
        engine.spawn("ferro-inward", |shared| Inward::new(shared).run())?;
        engine.spawn("ferro-clock", |shared| {
            Clock::new(shared).run();
            Ok(())
        })?;
        Ok(engine)
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

    /// What is wanted of all peers, by the identifiers of their clusters. The same again changes nothing, and sessions
    /// of peers whose keys stay are kept. When it returns, no worker uses the rules before.
    pub fn set(&self, peers: BTreeMap<String, PeerPlan>) -> Result<(), Unfit> {
        self.check(&peers)?;
        let mut known = lock(&self.known);
        let keys: Vec<PublicKey> = peers.values().map(|plan| plan.key).collect();
        let now = now();
        let entries = {
            let mut device = self.shared.device();
            let plans = peers.into_iter();
            plans.filter_map(|(name, plan)| self.entry(&mut device, &mut known, name, plan, now)).collect()
        };
        self.swap(Rules::new(entries));
        let mut device = self.shared.device();
        known.retain(|key, peer| {
            let stays = keys.contains(key);
            if !stays {
                device.remove(peer.link.id());
                peer.link.close();
            }
            stays
        });
        drop(device);
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

    /// Brings the device up to date with what is wanted of a peer.
    fn entry(
        &self,
        device: &mut Device,
        known: &mut HashMap<PublicKey, Known>,
        name: String,
        plan: PeerPlan,
        now: Moment,
    ) -> Option<Entry> {
        let PeerPlan { key, endpoint, keepalive, table, probe } = plan;
        if let Some(peer) = known.get_mut(&key) {
            let id = peer.link.id();
            if let Some(endpoint) = endpoint.filter(|_| endpoint != peer.endpoint) {
                device.set_endpoint(id, endpoint);
            }
            device.set_keepalive(id, keepalive, now);
            peer.endpoint = endpoint;
            peer.link.refresh(device, now);
        } else {
            let preshared = PresharedKey::default();
            let config = PeerConfig { key, preshared, endpoint, keepalive, sent: None };
            // It was checked that nobody else has the key.
            let id = device.add(config, now).ok()?;
            let link = Arc::new(Link::new(id, self.start));
            known.insert(key, Known { endpoint, link });
        }
        let link = Arc::clone(&known.get(&key)?.link);
        Some(Entry { name, rules: PeerRules::from(&table), probe, link })
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
            quality: lock(&entry.link.probe).quality(Instant::now()),
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
