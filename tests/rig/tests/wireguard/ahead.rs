//! Our protocol against a program by somebody else, by a clock that the test sets: in it keys grow old at once.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, ensure};
use ferro_core::network::Packet;
use ferro_fabric::packet::{Echo, Header, Numbers};
use ferro_fabric::wireguard::message::{HEADER, TAG};
use ferro_fabric::wireguard::{
    Device, Drop, Incoming, Load, Moment, PeerConfig, PeerId, PresharedKey, Session, Transmit,
};
use rig::room::{Room, join};
use rig::wireguard::Program;
use ring::rand::SystemRandom;

use crate::theirs::{OURS, PORT, THEIRS, Theirs, our_key, their_key};

/// How long a datagram may be under way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of two handshakes that begin within 20 ms of their clock, wireguard-go ignores the second.
const APART: Duration = Duration::from_millis(25);

/// Our end of a tunnel, without an interface.
pub struct Ahead {
    now: Moment,
    device: Device,
    peer: PeerId,
    socket: UdpSocket,
    them: SocketAddr,
    /// Both are there as long as they are held.
    _ours: Room,
    _theirs: Theirs,
}

impl Ahead {
    pub fn of(program: Program) -> Result<Self> {
        let (ours, theirs) = (Room::new()?, Room::new()?);
        join(&ours, &theirs, "outer", ["192.0.2.1/24", "192.0.2.2/24"])?;
        let theirs = Theirs::start(program, theirs, None)?;
        let socket = ours.run(|| UdpSocket::bind(("192.0.2.1", PORT)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let them = SocketAddr::new("192.0.2.2".parse()?, PORT);
        let now = Moment { instant: Instant::now(), clock: SystemTime::now() };
        let mut device = Device::new(our_key(), Box::new(SystemRandom::new()));
        let (key, preshared) = (their_key(), PresharedKey::default());
        let config = PeerConfig { key, preshared, endpoint: Some(them), keepalive: None, sent: None };
        let peer = device.add(config, now)?;
        Ok(Self { now, device, peer, socket, them, _ours: ours, _theirs: theirs })
    }

    /// Lets time go on, here only; but for the moment that has to lie between handshakes there.
    pub fn pass(&mut self, time: Duration) {
        thread::sleep(APART);
        self.now.instant += time;
        self.now.clock += time;
    }

    /// Asks for a session, as who wants to send does.
    pub fn begin(&mut self) -> Result<()> {
        let initiation = self.device.want(self.peer, self.now).context("there is a session")?;
        self.shake_hands(&initiation)
    }

    /// Says that something was sent, whereupon keys that are too old are replaced.
    pub fn renew(&mut self) -> Result<()> {
        let before = self.session()?.local();
        let initiation = self.device.sent(self.peer, self.now).context("the keys are not too old")?;
        self.shake_hands(&initiation)?;
        ensure!(self.session()?.local() != before, "the session is the same");
        Ok(())
    }

    fn shake_hands(&mut self, initiation: &Transmit) -> Result<()> {
        self.send(initiation.datagram.bytes())?;
        loop {
            let mut datagram = self.receive()?;
            match self.device.receive(&mut datagram, self.them, Load::Normal, self.now)? {
                Incoming::Established { confirmation, .. } => {
                    return self.send(confirmation.datagram.bytes());
                }
                Incoming::Reply(reply) => self.send(reply.datagram.bytes())?,
                Incoming::Nothing | Incoming::Data { .. } => {}
            }
        }
    }

    /// Their pod answers a ping.
    pub fn ping(&mut self, sequence: u16) -> Result<()> {
        let addresses = Packet { source: OURS.parse()?, destination: THEIRS.parse()? };
        let numbers = Numbers { identifier: 7, sequence };
        let mut request = [0; Echo::LONGEST_REQUEST];
        let length = Echo::write_request(&mut request, addresses, numbers).context("no request")?;
        let mut datagram = [&[0; HEADER][..], &request[..length], &[0; TAG]].concat();
        self.session()?.reserve(1, self.now.instant)?.seal(&mut datagram)?;
        self.send(&datagram)?;
        while self.opened()?.is_none_or(|packet| answered(&packet) != Some(numbers)) {}
        Ok(())
    }

    /// The next datagram, and the packet in it if there is one.
    fn opened(&mut self) -> Result<Option<Vec<u8>>> {
        let mut datagram = self.receive()?;
        match self.device.receive(&mut datagram, self.them, Load::Normal, self.now)? {
            Incoming::Data { payload, .. } => Ok(datagram.get(payload).map(<[u8]>::to_vec)),
            Incoming::Nothing | Incoming::Reply(_) | Incoming::Established { .. } => Ok(None),
        }
    }

    fn session(&self) -> Result<&Session> {
        self.device.session(self.peer, self.now).map(AsRef::as_ref).context("there is no session")
    }

    fn send(&self, datagram: &[u8]) -> Result<()> {
        self.socket.send_to(datagram, self.them)?;
        Ok(())
    }

    fn receive(&self) -> Result<Vec<u8>> {
        let mut buffer = vec![0; 2048];
        let length = self.socket.recv(&mut buffer).map_err(|error| anyhow!("nothing comes: {error}"))?;
        buffer.truncate(length);
        Ok(buffer)
    }

    /// How many datagrams were dropped here, by reason.
    pub fn drops(&self) -> &BTreeMap<Drop, u64> {
        self.device.drops()
    }
}

/// The numbers of an answer to a ping.
fn answered(packet: &[u8]) -> Option<Numbers> {
    match Echo::read(packet, &Header::parse(packet).ok()?)? {
        Echo::Reply(numbers) => Some(numbers),
        Echo::Request(_) => None,
    }
}
