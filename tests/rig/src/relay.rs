//! A stretch of bad weather between two sockets: datagrams are lost, doubled and overtaken, as the test says.
//!
//! The kernels of test machines have no netem, so that this is a process of its own on the way.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::room::Room;

/// What becomes of every so manyth datagram; zero is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
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
            from.set_read_timeout(Some(Duration::from_millis(100))).context("cannot set a timeout")?;
            let (from, by) = (Arc::clone(from), Arc::clone(by));
            let (ended, passed) = (Arc::clone(&ended), Arc::clone(&passed));
            workers.push(thread::spawn(move || pass(&from, &by, to, weather, &ended, &passed)));
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

fn pass(
    from: &UdpSocket,
    by: &UdpSocket,
    to: SocketAddr,
    weather: Weather,
    ended: &AtomicBool,
    passed: &AtomicU64,
) {
    let mut buffer = vec![0; 1 << 16];
    let mut held: Option<Vec<u8>> = None;
    let mut count = 0;
    while !ended.load(Ordering::Relaxed) {
        let Ok(length) = from.recv(&mut buffer) else { continue };
        count += 1;
        passed.fetch_add(1, Ordering::Relaxed);
        let is = |every: u64| every > 0 && count % every == 0;
        let datagram = &buffer[..length];
        // What is not sent is lost, as it would be on a wire.
        if is(weather.late) && held.is_none() {
            held = Some(datagram.to_vec());
            continue;
        }
        if !is(weather.lost) {
            _ = by.send_to(datagram, to);
        }
        if is(weather.doubled) {
            _ = by.send_to(datagram, to);
        }
        if let Some(late) = held.take() {
            _ = by.send_to(&late, to);
        }
    }
}
