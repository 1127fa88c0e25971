//! What all workers of an engine have in common.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use ferro_core::network::PeerTable;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::drops::{Drops, Reason};
use super::flows::Flows;
use super::link::{Link, lock};
use super::rules::Rules;
use super::wire::Patience;
use super::{Tun, Wire};
use crate::packet::{Flow, Header, Malformed};
use crate::wireguard::{Device, Moment, Transmit};

/// What all workers have in common.
pub(super) struct Shared {
    pub(super) tun: Tun,
    pub(super) wire: Wire,
    pub(super) mtu: usize,
    /// Handshakes, deadlines, and what has come before. It is taken once for many packets.
    device: Mutex<Device>,
    pub(super) rules: ArcSwap<Rules>,
    pub(super) drops: Drops,
    /// What was begun here, from the time on when a peer may not begin with everybody.
    pub(super) flows: OnceLock<Flows>,
    stopping: AtomicBool,
    bell: OwnedFd,
    failure: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(tun: Tun, wire: Wire, device: Device, mtu: usize) -> io::Result<Self> {
        Ok(Self {
            tun,
            wire,
            mtu,
            device: Mutex::new(device),
            rules: ArcSwap::default(),
            drops: Drops::default(),
            flows: OnceLock::new(),
            stopping: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            failure: OnceLock::new(),
        })
    }

    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }

    /// Sends something besides packets. What is lost is sent again by whoever misses it.
    pub(super) fn transmit(&self, transmit: &Transmit) {
        let bytes = transmit.datagram.bytes();
        if self.wire.send(transmit.to, bytes, bytes.len(), Patience::Drop).is_err() {
            self.drops.add(Reason::NotSent, 1);
        }
    }

    /// There is something to be sent, and no session.
    pub(super) fn want(&self, link: &Link) {
        let now = now();
        let initiation = {
            let mut device = self.device();
            let initiation = device.want(link.id(), now);
            link.refresh(&device, now);
            initiation
        };
        if let Some(initiation) = initiation {
            self.transmit(&initiation);
        }
    }

    /// Packets were sent.
    pub(super) fn tell_sent(&self, link: &Link) {
        let initiation = self.device().sent(link.id(), now());
        if let Some(initiation) = initiation {
            self.transmit(&initiation);
        }
    }

    /// Whether a translated packet of a peer is for somebody who is open for it, or is an answer to what was begun here.
    pub(super) fn lets_in(&self, table: &PeerTable, packet: &[u8]) -> Result<bool, Malformed> {
        let header = Header::parse(packet)?;
        if table.is_open(&header.addresses.destination) {
            return Ok(true);
        }
        let answered = Flow::answered(packet, &header);
        Ok(self.flows.get().zip(answered).is_some_and(|(flows, answered)| flows.has(answered)))
    }

    /// Waits until one of these has something to read, or the end has come. Which of them have.
    pub(super) fn wait(
        &self,
        first: BorrowedFd<'_>,
        second: Option<BorrowedFd<'_>>,
    ) -> io::Result<[bool; 2]> {
        let bell = self.bell.as_fd();
        let mut all =
            [first, second.unwrap_or(bell), bell].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [first, second, _] = all.map(|one| !one.revents().is_empty());
        Ok([first, second])
    }

    /// Whether the end has come.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends all workers that wait.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        // A counter that is full rings, too.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// A worker cannot go on.
    pub(super) fn fail(&self, failure: String) {
        let _ = self.failure.set(failure);
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

/// Now, by both clocks.
pub(super) fn now() -> Moment {
    Moment { instant: Instant::now(), clock: SystemTime::now() }
}
