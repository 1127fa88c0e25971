//! The device loop of a gateway: packets between one TUN interface and the tunnels to all peers.
//!
//! Three threads, run to completion: `outward` reads packets, cuts, seals and sends them; `inward` receives, opens, puts
//! together and writes them; `clock` does what is due by time. No packet waits in a queue between them, and none costs a
//! lock or an allocation: what it needs to know is in the rules and links of peers, which are swapped as a
//! whole. Everything that decides is in `packet`, `wireguard` and the modules here that do no I/O.

mod clock;
mod drops;
mod engine;
mod flows;
mod inward;
mod link;
mod load;
mod outbox;
mod outward;
mod probe;
mod rules;
mod shared;
mod tun;
mod wire;

pub use engine::{Engine, MTU, PeerPlan, Statistics, Unfit};
pub use flows::Flows;
pub use link::Traffic;
pub use tun::Tun;
pub use wire::Wire;
