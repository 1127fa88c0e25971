//! Two rooms, each with a pod, and something that carries packets between them: our data plane, another one, or the
//! kernel alone.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::net::SocketAddr;

use anyhow::{Context, Result};
use ferro_core::network::{Agreement, Ours, PeerTable, Translation};
use ferro_fabric::dataplane::{Engine, PeerPlan, Tun, Wire};
use ferro_fabric::wireguard::PrivateKey;
use rig::room::{Room, join};
use rig::wireguard::{Other, Program, Wireguard, cpu_seconds};

const PORT: u16 = 51820;
const MTU: u16 = 1420;
const KEYS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
const OUTER: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const PODS: [&str; 2] = ["10.1.0.7", "10.2.0.5"];
const NETWORKS: [&str; 2] = ["10.1.0.0/24", "10.2.0.0/24"];
/// How the second one's pod is called by the first.
pub const CALLED: &str = PODS[1];

/// What carries the packets. It does as long as it is held.
enum Carrier {
    Ours { _engines: Vec<Engine> },
    Programs(Vec<Wireguard>),
    Kernel,
}

/// The two rooms.
pub struct Pair {
    pub rooms: [Room; 2],
    carrier: Carrier,
}

/// User and system time so far, in seconds.
#[derive(Clone, Copy)]
pub struct Times {
    /// Of both gateways; none where there are no gateways.
    pub gateways: Option<f64>,
    /// Of them, of who sends and of who receives.
    pub all: f64,
}

impl Pair {
    fn rooms() -> Result<[Room; 2]> {
        let rooms = [Room::new()?, Room::new()?];
        let addresses = OUTER.map(|ip| format!("{ip}/24"));
        join(&rooms[0], &rooms[1], "outer", addresses.each_ref().map(String::as_str))?;
        Ok(rooms)
    }

    /// Ours. With translation, both have the same networks and know each other by other names.
    pub fn ours(is_translated: bool) -> Result<Self> {
        let rooms = Self::rooms()?;
        let end = |side: usize| -> Result<Engine> {
            let start =
                || Engine::start(Tun::open("ferro0")?, Wire::open(PORT)?, PrivateKey::new(KEYS[side]), MTU);
            let engine = rooms[side].run(start)?;
            engine.set(BTreeMap::from([("peer".to_owned(), plan(side, is_translated)?)]))?;
            let pod = if is_translated { "10.244.0.5" } else { PODS[side] };
            settle(&rooms[side], "ferro0", pod)?;
            rooms[side].ip(&format!("route add {} dev ferro0 src {pod}", NETWORKS[1 - side]))?;
            Ok(engine)
        };
        let engines = vec![end(0)?, end(1)?];
        Ok(Self { rooms, carrier: Carrier::Ours { _engines: engines } })
    }

    /// A program by others.
    pub fn other(program: Program) -> Result<Self> {
        let rooms = Self::rooms()?;
        let end = |side: usize| -> Result<Wireguard> {
            let running = Wireguard::start(program, &rooms[side])?;
            let interface = &running.interface;
            let other = Other {
                key: PrivateKey::new(KEYS[1 - side]).public().0,
                endpoint: Some(endpoint(1 - side)?),
                allowed: vec![NETWORKS[1 - side].to_owned()],
            };
            running.configure(&KEYS[side], PORT, &other)?;
            settle(&rooms[side], interface, PODS[side])?;
            rooms[side].ip(&format!(
                "route add {} dev {interface} src {}",
                NETWORKS[1 - side],
                PODS[side]
            ))?;
            Ok(running)
        };
        let programs = vec![end(0)?, end(1)?];
        Ok(Self { rooms, carrier: Carrier::Programs(programs) })
    }

    /// VXLAN alone, as between the nodes of a cluster: neither encrypted nor translated.
    pub fn vxlan() -> Result<Self> {
        let rooms = Self::rooms()?;
        let hops = ["198.51.100.1", "198.51.100.2"];
        for (side, room) in rooms.iter().enumerate() {
            let (here, there) = (OUTER[side], OUTER[1 - side]);
            room.ip(&format!("link add vx type vxlan id 1 local {here} remote {there} dstport 51880"))?;
            room.ip(&format!("address add {}/24 dev vx", hops[side]))?;
            settle(room, "vx", PODS[side])?;
            let (network, by, pod) = (NETWORKS[1 - side], hops[1 - side], PODS[side]);
            room.ip(&format!("route add {network} via {by} dev vx src {pod}"))?;
        }
        Ok(Self { rooms, carrier: Carrier::Kernel })
    }

    /// What was used so far.
    pub fn times(&self) -> Result<Times> {
        let here = cpu_seconds("/proc/self/stat")?;
        Ok(match &self.carrier {
            Carrier::Kernel => Times { gateways: None, all: here },
            // All engines of this process; those of other pairs rest meanwhile.
            Carrier::Ours { .. } => Times { gateways: Some(workers()?), all: here },
            Carrier::Programs(programs) => {
                let used = programs.iter().map(Wireguard::cpu_seconds).sum::<Result<f64>>()?;
                Times { gateways: Some(used), all: here + used }
            }
        })
    }
}

/// User and system time of the workers of all engines of this process.
fn workers() -> Result<f64> {
    let mut total = 0.0;
    for task in read_dir("/proc/self/task")? {
        let folder = task?.path();
        // Other threads may end while they are looked at.
        if read_to_string(folder.join("comm")).is_ok_and(|name| name.starts_with("ferro-")) {
            total += cpu_seconds(&folder.join("stat").to_string_lossy())?;
        }
    }
    Ok(total)
}

fn endpoint(side: usize) -> Result<SocketAddr> {
    Ok(SocketAddr::new(OUTER[side].parse()?, PORT))
}

fn settle(room: &Room, interface: &str, pod: &str) -> Result<()> {
    room.ip(&format!("address add {pod}/32 dev lo"))?;
    room.ip(&format!("link set {interface} up mtu {MTU}"))
}

fn plan(side: usize, is_translated: bool) -> Result<PeerPlan> {
    let named = NETWORKS[side].parse()?;
    let pods = if is_translated {
        Translation::new("10.244.0.0/24".parse()?, named)?
    } else {
        Translation::identity(named)
    };
    let agreement = Agreement {
        their_pods: Translation::identity(NETWORKS[1 - side].parse()?),
        their_external: None,
        ours: Some(Ours { pods, external: None }),
    };
    Ok(PeerPlan {
        key: PrivateKey::new(KEYS[1 - side]).public(),
        endpoint: Some(endpoint(1 - side)?),
        keepalive: None,
        table: PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).context("both have agreed")?,
        probe: None,
    })
}
