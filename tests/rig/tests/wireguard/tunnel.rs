//! One tunnel, with our data plane at one end and that of somebody else at the other.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ferro_core::network::{Agreement, Ours, PeerTable, Translation};
use ferro_fabric::dataplane::{Engine, PeerPlan, Tun, Wire};
use rig::room::{Room, join};
use rig::wireguard::Program;

use crate::theirs::{MTU, OURS, PORT, THEIRS, Theirs, our_key, their_key};

/// Our pod has another address than that by which it is known there.
const POD: &str = "10.244.0.7";
const PEER: &str = "other";
/// The bytes of a stream tell their place by these numbers, one after the other and again.
const PERIOD: usize = 251;
/// So much is written at once.
const PIECE: usize = 256 * PERIOD;
/// How long a connection may stand still.
const PATIENCE: Duration = Duration::from_mins(1);

/// The tunnel.
pub struct Tunnel {
    pub ours: Room,
    pub theirs: Theirs,
    pub engine: Engine,
}

/// Who knows where the other one is, and so can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    Us,
    Them,
}

impl Tunnel {
    /// On one link.
    pub fn direct(program: Program, begins: Begins) -> Result<Self> {
        let (ours, theirs) = (Room::new()?, Room::new()?);
        join(&ours, &theirs, "outer", ["192.0.2.1/24", "192.0.2.2/24"])?;
        Self::between(program, [ours, theirs], ["192.0.2.1".parse()?, "192.0.2.2".parse()?], begins)
    }

    /// The addresses are those at which each reaches the other one.
    pub fn between(
        program: Program,
        [ours, theirs]: [Room; 2],
        addresses: [IpAddr; 2],
        begins: Begins,
    ) -> Result<Self> {
        let [us, them] = addresses.map(|ip| SocketAddr::new(ip, PORT));
        let theirs = Theirs::start(program, theirs, (begins == Begins::Them).then_some(us))?;
        let engine = ours.run(|| Engine::start(Tun::open("ferro0")?, Wire::open(PORT)?, our_key(), MTU))?;
        ours.ip(&format!("address add {POD}/32 dev lo"))?;
        ours.ip(&format!("link set ferro0 up mtu {MTU}"))?;
        ours.ip(&format!("route add 10.2.0.0/24 dev ferro0 src {POD}"))?;
        let plan = plan((begins == Begins::Us).then_some(them))?;
        engine.set(BTreeMap::from([(PEER.to_owned(), plan)]))?;
        Ok(Self { ours, theirs, engine })
    }

    /// Sends so much to them, all of which comes.
    pub fn send(&self, length: usize) -> Result<()> {
        self.to_them()?.send(length)
    }

    /// The other way.
    pub fn receive(&self, length: usize) -> Result<()> {
        self.to_us()?.send(length)
    }

    /// A connection from our pod to theirs.
    pub fn to_them(&self) -> Result<Connection> {
        connect((&self.ours, OURS), (&self.theirs.room, THEIRS), THEIRS)
    }

    /// The other way.
    pub fn to_us(&self) -> Result<Connection> {
        connect((&self.theirs.room, THEIRS), (&self.ours, POD), OURS)
    }

    /// Since when there is the session in use.
    pub fn session_since(&self) -> Option<Instant> {
        self.engine.statistics().get(PEER)?.last_handshake
    }
}

/// What is wanted of the peer, which is there if that is known.
fn plan(endpoint: Option<SocketAddr>) -> Result<PeerPlan> {
    let pods = Translation::new("10.244.0.0/24".parse()?, "10.1.0.0/24".parse()?)?;
    let agreement = Agreement {
        their_pods: Translation::identity("10.2.0.0/24".parse()?),
        their_external: None,
        ours: Some(Ours { pods, external: None }),
    };
    Ok(PeerPlan {
        key: their_key(),
        endpoint,
        keepalive: None,
        table: PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).context("both have agreed")?,
        probe: None,
    })
}

/// A connection through the tunnel.
pub struct Connection {
    caller: TcpStream,
    server: TcpStream,
}

/// Connects a caller, who is known to the other side by an address, with who listens at another one, which has a name
/// for the caller.
fn connect(from: (&Room, &str), to: (&Room, &str), named: &str) -> Result<Connection> {
    let at: IpAddr = to.1.parse()?;
    let listener = to.0.run(|| TcpListener::bind((at, 0)))?;
    let target: SocketAddr = (named.parse::<IpAddr>()?, listener.local_addr()?.port()).into();
    let caller = from.0.run(|| TcpStream::connect(target))?;
    let (server, seen) = listener.accept()?;
    ensure!(seen.ip().to_string() == from.1, "the caller is seen as {seen}");
    for end in [&caller, &server] {
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok(Connection { caller, server })
}

impl Connection {
    /// The caller says something, and hears it again.
    pub fn echo(&self) -> Result<()> {
        let (said, mut heard) = ([7; 4096], [0; 4096]);
        for (mut from, mut to) in [(&self.caller, &self.server), (&self.server, &self.caller)] {
            from.write_all(&said)?;
            to.read_exact(&mut heard)?;
            ensure!(heard == said, "something else came");
        }
        Ok(())
    }

    /// Sends so many bytes and ends; the same ones come.
    fn send(self, length: usize) -> Result<()> {
        let Self { mut caller, mut server } = self;
        let pattern: Vec<u8> = (0..=250).cycle().take(2 * PIECE).collect();
        thread::scope(|scope| {
            let sending = scope.spawn(|| -> std::io::Result<()> {
                for sent in (0..length).step_by(PIECE) {
                    caller.write_all(&pattern[..PIECE.min(length - sent)])?;
                }
                caller.shutdown(std::net::Shutdown::Write)
            });
            let (mut buffer, mut came) = (vec![0; PIECE], 0);
            loop {
                let more = server.read(&mut buffer)?;
                if more == 0 {
                    break;
                }
                let right = &pattern[came % PERIOD..];
                ensure!(buffer[..more] == right[..more], "others came behind {came} bytes");
                came += more;
            }
            sending.join().map_err(|_| anyhow!("the sender panicked"))??;
            ensure!(came == length, "{came} of {length} bytes came");
            Ok(())
        })
    }
}
