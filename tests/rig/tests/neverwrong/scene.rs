//! What vector V3 of the contract is about, in two rooms: a caller in A, and in B a listener on every address that it
//! may come to, right or wrong.
//!
//! B's pods have 10.0.0.0/24, and A calls them so. Pods of a third cluster are 10.1.0.0/16 in B. By the old rule A was
//! told of 10.1.0.5 as 10.0.0.5, which is another pod.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_core::network::{Agreement, Ours, PeerTable, ProbePair, Translation, map_to_network};
use ferro_fabric::dataplane::{Engine, PeerPlan, Tun, Wire};
use ferro_fabric::wireguard::{PrivateKey, PublicKey};
use ipnet::IpNet;
use rig::addresses::offered;
use rig::room::{Room, join};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;

/// A's number among peers, which says what networks it has.
pub const NUMBER: u8 = 1;
/// B's pods.
pub const PODS: &str = "10.0.0.0/24";
/// Pods of the third cluster.
pub const FOREIGN: &str = "10.1.0.0/16";
/// The gateways.
pub const OUTER: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
pub const TUNNELS: u16 = 51820;
/// Where calls go to that must arrive.
pub const CALLS: u16 = 8080;
/// Where calls go to that may come to nobody.
pub const LATE_CALLS: u16 = 8081;

const KEY: [u8; 32] = [1; 32];
const MTU: u16 = 1420;

/// What of handshakes was seen. A packet that is sent twice is counted twice on both sides: only a lost one makes a
/// difference, however slow the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshakes {
    /// Left the caller, and came to B.
    pub asked: [u64; 2],
    /// Left B, and came to the caller.
    pub answered: [u64; 2],
}

/// The two rooms. Everything in them goes with this.
pub struct Scene {
    pub a: Room,
    pub b: Room,
    engine: Engine,
    /// How often who was called.
    heard: Arc<Mutex<BTreeMap<IpAddr, u64>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Scene {
    /// Builds both rooms, and the gateway of A.
    pub fn new() -> Result<Self> {
        let (a, b) = (Room::new()?, Room::new()?);
        join(&a, &b, "outer", OUTER.map(|ip| format!("{ip}/24")).each_ref().map(String::as_str))?;
        for network in [PODS, FOREIGN] {
            b.ip(&format!("route add local {network} dev lo"))?;
        }
        count(&a, ["asked", "output", "syn"], ["answered", "input", "syn | ack"])?;
        count(&b, ["asked", "prerouting", "syn"], ["answered", "output", "syn | ack"])?;
        b.nft("add counter inet seen wrong")?;
        b.nft(&format!("add rule inet seen asked iifname != lo ip daddr {PODS} counter name wrong"))?;
        let engine =
            a.run(|| Engine::start(Tun::open("ferro0")?, Wire::open(TUNNELS)?, PrivateKey::new(KEY), MTU))?;
        a.ip(&format!("address add {}/32 dev lo", caller()?))?;
        a.ip(&format!("link set ferro0 up mtu {MTU}"))?;
        let heard = Arc::default();
        let mut listeners = Vec::new();
        for port in [CALLS, LATE_CALLS] {
            let listener = b.run(|| {
                let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            listeners.push(tokio::spawn(listen(listener, Arc::clone(&heard))));
        }
        Ok(Self { a, b, engine, heard, listeners })
    }

    /// Where A's gateway is, and its key.
    pub fn gateway() -> Result<(SocketAddr, PublicKey)> {
        Ok((SocketAddr::new(OUTER[0].parse()?, TUNNELS), PrivateKey::new(KEY).public()))
    }

    /// Connects A to the gateway in B, whose external network A calls so.
    pub fn connect(&self, key: PublicKey, external: IpNet) -> Result<()> {
        let (networks, first) = (offered(NUMBER)?, IpAddr::from([0, 0, 0, 1]));
        let own_external = networks.external.context("a peer has one")?;
        let agreement = Agreement {
            their_pods: Translation::identity(PODS.parse()?),
            their_external: Some(Translation::identity(external)),
            ours: Some(Ours {
                pods: Translation::identity(networks.pod),
                external: Some(Translation::identity(own_external)),
            }),
        };
        let gateway_of = |network| map_to_network(first, network).context("both are of IPv4");
        let plan = PeerPlan {
            key,
            endpoint: Some(SocketAddr::new(OUTER[1].parse()?, TUNNELS)),
            keepalive: None,
            table: PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).context("both have agreed")?,
            probe: Some(ProbePair { ours: gateway_of(own_external)?, theirs: gateway_of(external)? }),
        };
        self.engine.set(BTreeMap::from([("b".to_owned(), plan)]))?;
        for network in [PODS.to_owned(), external.to_string()] {
            self.a.ip(&format!("route add {network} dev ferro0 src {}", caller()?))?;
        }
        Ok(())
    }

    /// Calls from A, and says who answers.
    pub async fn call(self: &Arc<Self>, ip: IpAddr, port: u16, patience: Duration) -> Result<IpAddr> {
        let scene = Arc::clone(self);
        let call = move || {
            scene.a.run(|| {
                let mut stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), patience)?;
                stream.set_read_timeout(Some(patience))?;
                let mut said = String::new();
                stream.read_to_string(&mut said)?;
                Ok(said)
            })
        };
        let said = tokio::task::spawn_blocking(call).await.context("a call panicked")?;
        Ok(said.with_context(|| format!("a call to {ip}"))?.parse()?)
    }

    /// What of handshakes was seen so far.
    pub fn handshakes(&self) -> Result<Handshakes> {
        let both = |name| Ok::<_, anyhow::Error>([counted(&self.a, name)?, counted(&self.b, name)?]);
        let ([asked_a, asked_b], [answered_a, answered_b]) = (both("asked")?, both("answered")?);
        Ok(Handshakes { asked: [asked_a, asked_b], answered: [answered_b, answered_a] })
    }

    /// The pods of B that heard anything, though nobody called them, and how many packets came for any of them.
    pub fn wrong(&self) -> Result<(Vec<IpAddr>, u64)> {
        let pods: IpNet = PODS.parse()?;
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = heard.keys().copied().filter(|ip| pods.contains(ip)).collect();
        Ok((wrong, counted(&self.b, "wrong")?))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for listener in &self.listeners {
            listener.abort();
        }
    }
}

/// What A was told of an endpoint by the old rule: its last part, in the network of B's pods.
pub fn old_rule(endpoint: IpAddr) -> Result<IpAddr> {
    map_to_network(endpoint, PODS.parse()?).context("both are of IPv4")
}

/// The pod that calls.
fn caller() -> Result<IpAddr> {
    map_to_network([0, 0, 0, 7].into(), offered(NUMBER)?.pod).context("both are of IPv4")
}

/// Counts packets of handshakes: a name, where they pass, and their flags.
fn count(room: &Room, out: [&str; 3], back: [&str; 3]) -> Result<()> {
    room.nft("add table inet seen")?;
    for ([name, hook, flags], end) in [(out, "dport"), (back, "sport")] {
        room.nft(&format!("add counter inet seen {name}"))?;
        room.nft(&format!("add chain inet seen {name} {{ type filter hook {hook} priority 0; }}"))?;
        let flags = format!("tcp flags & (syn | ack) == ({flags})");
        room.nft(&format!("add rule inet seen {name} tcp {end} {CALLS} {flags} counter name {name}"))?;
    }
    Ok(())
}

fn counted(room: &Room, name: &str) -> Result<u64> {
    let listed = room.nft(&format!("list counter inet seen {name}"))?;
    let mut words = listed.split_whitespace().skip_while(|word| *word != "packets");
    let count = words.nth(1).with_context(|| format!("no count of {name} in {listed:?}"))?;
    Ok(count.parse()?)
}

/// Tells everybody who comes to whom they came.
async fn listen(listener: tokio::net::TcpListener, heard: Arc<Mutex<BTreeMap<IpAddr, u64>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        if let Ok(local) = stream.local_addr() {
            *heard.lock().unwrap_or_else(PoisonError::into_inner).entry(local.ip()).or_default() += 1;
            // Whoever does not hear it says so.
            _ = stream.write_all(local.ip().to_string().as_bytes()).await;
        }
    }
}

/// Whether every packet of a handshake that was sent has come.
pub fn none_lost(seen: Handshakes) -> Result<()> {
    let Handshakes { asked: [left, came], answered: [answered, returned] } = seen;
    ensure!(left == came, "{} of {left} first packets were lost", left.saturating_sub(came));
    ensure!(answered == returned, "{} of {answered} answers were lost", answered.saturating_sub(returned));
    Ok(())
}
