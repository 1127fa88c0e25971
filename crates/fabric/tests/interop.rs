//! The same protocol, as somebody else has written it: boringtun on the other side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey as TheirPublicKey, StaticSecret};
use ferro_fabric::wireguard::{
    Device, Incoming, Load, Moment, NoRandomness, PeerConfig, PeerId, PresharedKey, PrivateKey, PublicKey,
    Random, Transmit,
};

const OUR_KEY: [u8; 32] = [1; 32];
const THEIR_KEY: [u8; 32] = [2; 32];
const SECRET: [u8; 32] = [3; 32];

struct Counting(u64);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        for byte in bytes {
            self.0 += 1;
            *byte = self.0.to_le_bytes()[0];
        }
        Ok(())
    }
}

/// Our device, with boringtun as its only peer.
struct Pair {
    now: Moment,
    ours: Device,
    peer: PeerId,
    theirs: Tunn,
}

fn endpoint() -> SocketAddr {
    ([192, 0, 2, 2], 51820).into()
}

/// The least that boringtun takes for a packet: an IPv4 header that says its length.
fn packet(mark: u8) -> [u8; 20] {
    let mut packet = [0; 20];
    (packet[0], packet[3], packet[19]) = (0x45, 20, mark);
    packet
}

impl Pair {
    fn new() -> Self {
        let now = Moment { instant: Instant::now(), clock: SystemTime::now() };
        let their_key = TheirPublicKey::from(&StaticSecret::from(THEIR_KEY));
        let our_key = TheirPublicKey::from(PrivateKey::new(OUR_KEY).public().0);
        let theirs = Tunn::new(StaticSecret::from(THEIR_KEY), our_key, Some(SECRET), None, 7, None);
        let mut ours = Device::new(PrivateKey::new(OUR_KEY), Box::new(Counting(0)));
        let config = PeerConfig {
            key: PublicKey(their_key.to_bytes()),
            preshared: PresharedKey::new(SECRET),
            endpoint: Some(endpoint()),
            keepalive: None,
            sent: None,
        };
        let peer = ours.add(config, now).unwrap();
        Self { now, ours, peer, theirs }
    }

    fn pass(&mut self, seconds: u64) {
        self.now.instant += Duration::from_secs(seconds);
        self.now.clock += Duration::from_secs(seconds);
    }

    /// What they send back when this comes to them, if anything.
    fn they_get(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = [0; 256];
        match self.theirs.decapsulate(None, datagram, &mut buffer) {
            TunnResult::WriteToNetwork(reply) => Some(reply.to_vec()),
            TunnResult::Done => None,
            other => panic!("{other:?}"),
        }
    }

    /// What we send back when this comes to us, if anything.
    fn we_get(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut datagram = datagram.to_vec();
        match self.ours.receive(&mut datagram, endpoint(), Load::Normal, self.now).unwrap() {
            Incoming::Reply(Transmit { datagram, .. })
            | Incoming::Established { confirmation: Transmit { datagram, .. }, .. } => {
                Some(datagram.bytes().to_vec())
            }
            Incoming::Nothing | Incoming::Data { .. } => None,
        }
    }

    fn our_handshake(&mut self, initiation: &Transmit) {
        let response = self.they_get(initiation.datagram.bytes()).unwrap();
        let confirmation = self.we_get(&response).unwrap();
        assert_eq!(self.they_get(&confirmation), None);
    }

    fn their_handshake(&mut self) {
        let mut buffer = [0; 256];
        let TunnResult::WriteToNetwork(initiation) =
            self.theirs.format_handshake_initiation(&mut buffer, true)
        else {
            panic!("no initiation")
        };
        let response = self.we_get(initiation).unwrap();
        let confirmation = self.they_get(&response).unwrap();
        assert_eq!(self.we_get(&confirmation), None);
    }

    fn sealed(&self, mark: u8) -> Vec<u8> {
        let mut datagram = [&[0; 16][..], &packet(mark), &[0; 16]].concat();
        let session = self.ours.session(self.peer, self.now).unwrap();
        session.reserve(1, self.now.instant).unwrap().seal(&mut datagram).unwrap();
        datagram
    }

    /// Packets go both ways.
    fn talk(&mut self, mark: u8) {
        let mut buffer = [0; 256];
        let datagram = self.sealed(mark);
        match self.theirs.decapsulate(None, &datagram, &mut buffer) {
            TunnResult::WriteToTunnelV4(opened, _) => assert_eq!(opened, packet(mark)),
            other => panic!("{other:?}"),
        }
        let TunnResult::WriteToNetwork(datagram) = self.theirs.encapsulate(&packet(mark), &mut buffer) else {
            panic!("nothing sealed")
        };
        match self.ours.receive(datagram, endpoint(), Load::Normal, self.now).unwrap() {
            Incoming::Data { peer, payload, .. } => {
                assert_eq!((peer, &datagram[payload]), (self.peer, &packet(mark)[..]));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn we_begin_and_make_new_keys_in_time() {
    let mut pair = Pair::new();
    let initiation = pair.ours.want(pair.peer, pair.now).unwrap();
    pair.our_handshake(&initiation);
    for mark in 0..3 {
        pair.talk(mark);
        pair.pass(120);
        let before = pair.ours.session(pair.peer, pair.now).unwrap().local();
        let initiation = pair.ours.sent(pair.peer, pair.now).unwrap();
        pair.our_handshake(&initiation);
        assert_ne!(pair.ours.session(pair.peer, pair.now).unwrap().local(), before);
        pair.talk(10 + mark);
    }
    assert!(pair.ours.drops().is_empty());
}

#[test]
fn they_begin_and_make_new_keys() {
    let mut pair = Pair::new();
    for mark in 0..4 {
        pair.their_handshake();
        pair.talk(mark);
    }
    let initiation = pair.ours.want(pair.peer, pair.now);
    assert_eq!(initiation, None, "there is a session");
    assert!(pair.ours.drops().is_empty());
}

#[test]
fn a_cookie_of_theirs_is_understood() {
    let mut pair = Pair::new();
    let mut buffer = [0; 256];
    let from = Some(endpoint().ip());
    let mut initiation = pair.ours.want(pair.peer, pair.now).unwrap();
    // They are under load after more than ten handshake messages in a second.
    let cookie =
        (0..50).find_map(|_| match pair.theirs.decapsulate(from, initiation.datagram.bytes(), &mut buffer) {
            TunnResult::WriteToNetwork(reply) if reply.len() == 64 => Some(reply.to_vec()),
            TunnResult::WriteToNetwork(_) | TunnResult::Err(_) => None,
            other => panic!("{other:?}"),
        });
    assert_eq!(pair.we_get(&cookie.unwrap()), None);
    pair.pass(6);
    initiation = pair.ours.want(pair.peer, pair.now).unwrap();
    let TunnResult::WriteToNetwork(response) =
        pair.theirs.decapsulate(from, initiation.datagram.bytes(), &mut buffer)
    else {
        panic!("no response")
    };
    assert_eq!(response.len(), 92, "a response, and not another cookie");
}
