//! Reflection: what an application needs beside its pods is copied to every cluster that its namespace uses.
//!
//! - Flow: at home each offloaded namespace has a [`source`], with one watch of each kind that all peers share. Each peer
//!   has a [`Reflector`], with one watch of each kind in each of our namespaces over there ([`target`]). A change on
//!   either side puts the name of the object into the peer's queue; whoever takes it out gathers what is known,
//!   `ferro_core::reflection` decides, and [`hand`] writes. On the other side [`silence`] takes endpoints out of use
//!   whose cluster is not heard.
//! - Guarantees: only what changed is looked at, one object by one at a time; a peer that is slow, dead or hostile delays
//!   only itself. Of what is large or confidential nothing is kept here but a hash.
//! - Assumptions: this process leads.

mod addresses;
mod hand;
mod notices;
mod proofs;
mod recent;
mod reflector;
pub mod rights;
mod roads;
pub mod silence;
mod source;
mod target;
mod watches;

use std::sync::Arc;

use ferro_fabric::ipam::Handle;
use ferro_peering::home::Home;
use ferro_runtime::shutdown::Tasks;
use tokio::sync::watch;

pub(crate) use reflector::{MadeOf, Reflector};
use roads::Roads;
use source::Sources;

/// An object: the namespace that it has here, its kind, and its name.
type Key = (String, ferro_core::reflection::Kind, String);

/// What the reflectors of all peers share. Clones are the same.
#[derive(Clone)]
pub struct Reflection {
    sources: Arc<Sources>,
    /// Whom to ask for the addresses of endpoints.
    asked: watch::Receiver<Option<Handle>>,
    /// How pods on one peer reach those on another.
    roads: Roads,
}

impl Reflection {
    /// Of the namespaces of this cluster.
    pub fn new(tasks: &Tasks, home: &Home, asked: watch::Receiver<Option<Handle>>) -> Self {
        Self { sources: Arc::new(Sources::new(tasks, &home.client)), asked, roads: Roads::default() }
    }
}
