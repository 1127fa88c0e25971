//! An end of a tunnel that is in the hand of a test: with a key that the other end trusts, it says whatever it likes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ferro_fabric::wireguard::message::{HEADER, TAG};
use ferro_fabric::wireguard::{
    Device, Incoming, Load, Moment, PeerConfig, PeerId, PresharedKey, PrivateKey, Transmit,
};
use ring::rand::SystemRandom;

use crate::cluster::Line;
use crate::world::{Host, eventually};

/// How long one look for something new takes.
const GLANCE: Duration = Duration::from_millis(2);

/// An end of a tunnel, with a session.
pub struct End {
    socket: UdpSocket,
    device: Device,
    peer: PeerId,
    to: SocketAddr,
}

impl End {
    /// Begins a session with who is there.
    pub fn connect(host: &Host, at: SocketAddr, key: PrivateKey, to: &Line) -> Self {
        let socket = host.inside(|| UdpSocket::bind(at)).unwrap();
        socket.set_read_timeout(Some(GLANCE)).unwrap();
        let mut device = Device::new(key, Box::new(SystemRandom::new()));
        let config = PeerConfig {
            key: to.key,
            preshared: PresharedKey::default(),
            endpoint: Some(to.at),
            keepalive: None,
            sent: None,
        };
        let peer = device.add(config, now()).unwrap();
        let mut end = Self { socket, device, peer, to: to.at };
        end.begin();
        end
    }

    /// Begins a session, also in place of one that was too old.
    fn begin(&mut self) {
        eventually("a session", || {
            if let Some(initiation) = self.device.want(self.peer, now()) {
                self.transmit(&initiation);
            }
            self.receive();
            if self.device.session(self.peer, now()).is_some() { Ok(()) } else { Err("there is none".into()) }
        });
    }

    fn transmit(&self, transmit: &Transmit) {
        self.socket.send_to(transmit.datagram.bytes(), transmit.to).unwrap();
    }

    /// Sends this, be it a packet or not.
    pub fn send(&mut self, packet: &[u8]) {
        let datagram = self.seal(packet);
        self.send_sealed(&datagram);
    }

    /// What is sent of it.
    pub fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut datagram = [&[0; HEADER][..], packet, &[0; TAG]].concat();
        if self.device.session(self.peer, now()).is_none() {
            self.begin();
        }
        let session = self.device.session(self.peer, now()).unwrap();
        session.reserve(1, Instant::now()).unwrap().seal(&mut datagram).unwrap();
        datagram
    }

    /// Sends what was sealed, or looks like it.
    pub fn send_sealed(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.to).unwrap();
    }

    /// A packet with its padding, if one has come.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut datagram = vec![0; 1 << 16];
        let (length, from) = self.socket.recv_from(&mut datagram).ok()?;
        match self.device.receive(&mut datagram[..length], from, Load::Normal, now()).ok()? {
            Incoming::Reply(answer) | Incoming::Established { confirmation: answer, .. } => {
                self.transmit(&answer);
                None
            }
            Incoming::Data { payload, .. } => Some(datagram[payload].to_vec()).filter(|it| !it.is_empty()),
            Incoming::Nothing => None,
        }
    }
}

fn now() -> Moment {
    Moment { instant: Instant::now(), clock: SystemTime::now() }
}

/// What two gateways have to say to each other through somebody who has the keys of both, while something is done.
pub fn overheard(mut ends: [End; 2], during: impl FnOnce()) -> Vec<Vec<u8>> {
    thread::scope(|scope| {
        // Whatever happens, it is dropped here, and the other thread ends.
        let (done, is_done) = channel::<()>();
        let between = scope.spawn(move || {
            let mut heard = Vec::new();
            while is_done.try_recv() == Err(TryRecvError::Empty) {
                for (from, to) in [(0, 1), (1, 0)] {
                    if let Some(packet) = ends[from].receive() {
                        ends[to].send(&packet);
                        heard.push(packet);
                    }
                }
            }
            heard
        });
        during();
        drop(done);
        between.join().unwrap()
    })
}
