use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use super::{Device, Incoming, Load, PeerId, Work};
use crate::wireguard::tests::Counting;
use crate::wireguard::{Drop, Moment, PeerConfig, PresharedKey, PrivateKey, Transmit};

mod handshakes;
mod hostile;
mod lifetime;
mod weather;

fn key(number: u8) -> PrivateKey {
    PrivateKey::new([number; 32])
}

fn address(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 51820).into()
}

fn config(number: u8) -> PeerConfig {
    PeerConfig {
        key: key(number).public(),
        preshared: PresharedKey::new([9; 32]),
        endpoint: Some(address(number)),
        keepalive: None,
        sent: None,
    }
}

fn start() -> Moment {
    Moment { instant: Instant::now(), clock: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) }
}

fn after(moment: Moment, time: Duration) -> Moment {
    Moment { instant: moment.instant + time, clock: moment.clock + time }
}

fn device(number: u8) -> Device {
    Device::new(key(number), Box::new(Counting(u64::from(number) << 32)))
}

/// Two gateways, of which each knows the other, and a clock.
struct Two {
    now: Moment,
    devices: [Device; 2],
    peers: [PeerId; 2],
    /// The packets that came to each.
    packets: [Vec<Vec<u8>>; 2],
    /// Where each seems to be.
    at: [SocketAddr; 2],
    load: Load,
}

const A: usize = 0;
const B: usize = 1;

impl Two {
    fn with(configs: [PeerConfig; 2]) -> Self {
        let now = start();
        let [of_a, of_b] = configs;
        let (mut a, mut b) = (device(1), device(2));
        let peers = [a.add(of_a, now).unwrap(), b.add(of_b, now).unwrap()];
        let at = [address(1), address(2)];
        let packets = [Vec::new(), Vec::new()];
        Self { now, devices: [a, b], peers, packets, at, load: Load::Normal }
    }

    fn new() -> Self {
        Self::with([config(2), config(1)])
    }

    fn joined() -> Self {
        let mut two = Self::new();
        two.handshake(A);
        two
    }

    fn pass(&mut self, time: Duration) {
        self.now = after(self.now, time);
    }

    fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    fn want(&mut self, side: usize) -> Option<Vec<u8>> {
        bytes(self.devices[side].want(self.peers[side], self.now))
    }

    /// A datagram comes to this side.
    fn deliver(&mut self, side: usize, datagram: &[u8]) -> Result<Incoming, Drop> {
        let mut datagram = datagram.to_vec();
        let from = self.at[1 - side];
        let incoming = self.devices[side].receive(&mut datagram, from, self.load, self.now);
        if let Ok(Incoming::Data { payload, .. }) = &incoming
            && !payload.is_empty()
        {
            self.packets[side].push(datagram[payload.clone()].to_vec());
        }
        incoming
    }

    /// A datagram comes to this side, and what it causes goes to and fro until nothing follows.
    fn settle(&mut self, side: usize, datagram: &[u8]) {
        if let Some(reply) = reply(self.deliver(side, datagram).unwrap()) {
            self.settle(1 - side, &reply);
        }
    }

    fn handshake(&mut self, side: usize) {
        let initiation = self.want(side).unwrap();
        self.settle(1 - side, &initiation);
    }

    fn seal(&self, side: usize, payload: &[u8]) -> Option<Vec<u8>> {
        let session = self.devices[side].session(self.peers[side], self.now)?;
        let mut datagram = [&[0; 16], payload, &[0; 16]].concat();
        session.reserve(1, self.now.instant).ok()?.seal(&mut datagram).unwrap();
        Some(datagram)
    }

    /// A packet goes from one side to the other.
    fn send(&mut self, side: usize, payload: &[u8]) {
        let datagram = self.seal(side, payload).unwrap();
        if let Some(initiation) = bytes(self.devices[side].sent(self.peers[side], self.now)) {
            self.settle(1 - side, &initiation);
        }
        self.deliver(1 - side, &datagram).unwrap();
        assert_eq!(self.packets[1 - side].pop().as_deref(), Some(payload));
    }

    fn both_ways(&mut self) {
        self.send(A, b"from a");
        self.send(B, b"from b");
    }

    fn poll(&mut self, side: usize) -> Vec<Work> {
        self.devices[side].poll(self.now)
    }

    /// What both have to do, done; what is sent arrives.
    fn work(&mut self) -> usize {
        let mut sent = 0;
        for side in [A, B] {
            for work in self.poll(side) {
                if let Work::Send(transmit) = work {
                    sent += 1;
                    self.settle(1 - side, transmit.datagram.bytes());
                }
            }
        }
        sent
    }

    fn index(&self, side: usize) -> u32 {
        self.devices[side].session(self.peers[side], self.now).unwrap().local()
    }

    fn has_session(&self, side: usize) -> bool {
        self.devices[side].session(self.peers[side], self.now).is_some()
    }
}

fn bytes(transmit: Option<Transmit>) -> Option<Vec<u8>> {
    transmit.map(|transmit| transmit.datagram.bytes().to_vec())
}

fn reply(incoming: Incoming) -> Option<Vec<u8>> {
    match incoming {
        Incoming::Reply(transmit) | Incoming::Established { confirmation: transmit, .. } => {
            bytes(Some(transmit))
        }
        Incoming::Nothing | Incoming::Data { .. } => None,
    }
}
