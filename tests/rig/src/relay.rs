//! A stretch of bad weather between two sockets: datagrams are lost, doubled, delayed and overtaken, as the test says.
//!
//! The kernels of test machines have no netem, so that this is a process of its own on the way.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::room::Room;

/// How often it is looked whether the relay is to end.
const GLANCE: Duration = Duration::from_millis(100);

/// What becomes of datagrams: of all, and of every so manyth; zero is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How long all are under way.
    pub delay: Duration,
    /// So much longer are some, and others less: they overtake each other.
    pub jitter: Duration,
    /// Lost.
    pub lost: u64,
    /// Doubled.
    pub doubled: u64,
    /// Sent after the next one.
    pub late: u64,
}

/// A relay between two addresses. It ends with this.
pub struct Relay {
    ended: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    workers: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Passes on what comes to the first address to `b`, and what comes to the second to `a`.
    pub fn start(
        room: &Room,
        listen: [SocketAddr; 2],
        to: [SocketAddr; 2],
        weather: Weather,
    ) -> Result<Self> {
        let [left, right] = listen.map(|address| room.run(move || UdpSocket::bind(address)));
        let (left, right) = (Arc::new(left?), Arc::new(right?));
        let ended = Arc::new(AtomicBool::new(false));
        let passed = Arc::new(AtomicU64::new(0));
        let mut workers = Vec::new();
        for (from, by, to) in [(&left, &right, to[1]), (&right, &left, to[0])] {
            from.set_read_timeout(Some(GLANCE)).context("cannot set a timeout")?;
            let (from, way) = (Arc::clone(from), Way { by: Arc::clone(by), to, queue: BTreeMap::new() });
            let (ended, passed) = (Arc::clone(&ended), Arc::clone(&passed));
            workers.push(thread::spawn(move || pass(&from, way, weather, &ended, &passed)));
        }
        Ok(Self { ended, passed, workers })
    }

    /// How many datagrams came.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            _ = worker.join();
        }
    }
}

/// One direction.
struct Way {
    by: Arc<UdpSocket>,
    to: SocketAddr,
    /// By when they are due, and in which order they came.
    queue: BTreeMap<(Instant, u64), Vec<u8>>,
}

impl Way {
    /// Sends what is due, and says how long nothing else is. What is not sent is lost, as it would be on a wire.
    fn send_due(&mut self, now: Instant) -> Duration {
        while let Some(next) = self.queue.first_entry() {
            let wait = next.key().0.saturating_duration_since(now);
            if !wait.is_zero() {
                return wait.min(GLANCE);
            }
            _ = self.by.send_to(&next.remove(), self.to);
        }
        GLANCE
    }
}

impl Weather {
    /// How long the datagram of this number is under way.
    fn time_of(&self, number: u64) -> Duration {
        // Evenly, in an order that looks like none.
        let part = u32::try_from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54).unwrap_or_default();
        self.delay + self.jitter * part / 1024
    }
}

fn pass(from: &UdpSocket, mut way: Way, weather: Weather, ended: &AtomicBool, passed: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    let mut held: Option<Vec<u8>> = None;
    let (mut count, mut number) = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        let wait = way.send_due(Instant::now());
        // It rounds up, and zero would be for ever.
        _ = from.set_read_timeout(Some(wait));
        let Ok(length) = from.recv(&mut buffer) else { continue };
        count += 1;
        passed.fetch_add(1, Ordering::Relaxed);
        let is = |every: u64| every > 0 && count % every == 0;
        let datagram = buffer[..length].to_vec();
        if is(weather.late) && held.is_none() {
            held = Some(datagram);
            continue;
        }
        let copies = usize::from(!is(weather.lost)) + usize::from(is(weather.doubled));
        for sent in std::iter::repeat_n(datagram, copies).chain(held.take()) {
            number += 1;
            way.queue.insert((Instant::now() + weather.time_of(number), number), sent);
        }
    }
}
