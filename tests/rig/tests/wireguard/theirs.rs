//! The other end of a tunnel, as somebody else wrote it.

use std::net::SocketAddr;

use anyhow::Result;
use ferro_fabric::wireguard::{PrivateKey, PublicKey};
use rig::room::Room;
use rig::wireguard::{Other, Program, Wireguard};

pub const PORT: u16 = 51820;
pub const MTU: u16 = 1420;
/// Our pod, as it is known there; and theirs.
pub const OURS: &str = "10.1.0.7";
pub const THEIRS: &str = "10.2.0.5";

const THEIR_KEY: [u8; 32] = [2; 32];

/// The key of our end.
pub fn our_key() -> PrivateKey {
    PrivateKey::new([1; 32])
}

/// The key of their end, as we know it.
pub fn their_key() -> PublicKey {
    PrivateKey::new(THEIR_KEY).public()
}

/// Their end, with a pod.
pub struct Theirs {
    pub room: Room,
    running: Wireguard,
    ours: Other,
}

impl Theirs {
    /// Starts it in a room. It can begin if it is told where we are.
    pub fn start(program: Program, room: Room, us: Option<SocketAddr>) -> Result<Self> {
        let running = Wireguard::start(program, &room)?;
        let ours = Other { key: our_key().public().0, endpoint: us, allowed: vec!["10.1.0.0/24".into()] };
        let theirs = Self { room, running, ours };
        theirs.begin_anew()?;
        let (room, interface) = (&theirs.room, &theirs.running.interface);
        room.ip(&format!("address add {THEIRS}/32 dev {interface}"))?;
        room.ip(&format!("link set {interface} up mtu {MTU}"))?;
        room.ip(&format!("route add 10.1.0.0/24 dev {interface} src {THEIRS}"))?;
        Ok(theirs)
    }

    /// Tells it about us as if it had never heard of us. So it forgets all keys that were agreed.
    pub fn begin_anew(&self) -> Result<()> {
        self.running.configure(&THEIR_KEY, PORT, &self.ours)
    }
}
