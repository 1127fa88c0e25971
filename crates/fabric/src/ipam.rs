//! The address manager as a service: which address a peer must use for an endpoint, and what gateways must do for it.
//!
//! - Flow: requests queue up; one turn takes all that wait, stores what changes in as few writes as can be, tells the
//!   gateways, and answers all ([`actor`]). What is decided is [`ferro_core::network::Ipam`].
//! - Guarantees: what was answered is stored; an address works when it is answered, because at least one gateway, and
//!   all that are connected, have it in force, in a tunnel to that very peer. `NatMapping` objects follow, for people to
//!   read.
//! - Assumptions: one runs at a time. Should two, the writes of the former fail ([`store`]).

mod actor;
mod certificates;
pub mod client;
mod followers;
mod mappings;
mod metrics;
mod progress;
mod rights;
mod server;
mod service;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::config::Reach;
use ferro_core::network::{Agreement, Answer, Asker, Ipam, MapError, Offered, OwnNetworks, Refusal};
use ferro_runtime::shutdown::Tasks;
use ipnet::IpNet;
use kube::Client;
use tokio::sync::{mpsc, oneshot, watch};

use self::actor::{Actor, Ask, Reply, Request};
use self::followers::Followers;
use self::progress::Wanted;
use self::store::Store;

pub use certificates::{AUTHORITY, GATEWAY};
pub use metrics::Metrics;
pub use progress::in_force;
pub use server::{PORT, serve};

/// Requests that may wait; more wait at their callers.
const WAITING: usize = 4096;
/// Under this name we write.
pub(crate) const MANAGER: &str = "ferro-ipam";

/// Why a request was not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Networks cannot be used.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An endpoint cannot be mapped.
    #[error(transparent)]
    Unmappable(#[from] MapError),
    /// No gateway has it in force yet.
    #[error("not ready yet: {0}; ask again")]
    NotYet(String),
    /// It could not be stored.
    #[error("cannot store it: {0}")]
    Storage(String),
}

/// To ask the address manager with.
#[derive(Clone, Debug)]
pub struct Handle {
    asks: mpsc::Sender<Ask>,
    state: watch::Receiver<Arc<Ipam>>,
    followers: Followers,
}

impl Handle {
    /// Finds names for a peer's networks; durable before it returns.
    pub async fn acquire(&self, peer: &str, offered: Offered) -> Result<Answer, Trouble> {
        match self.ask(peer, Request::Acquire(offered)).await? {
            (Reply::Answer(answer), _) => Ok(answer),
            (Reply::Done | Reply::Address { .. }, _) => Err(Trouble::Storage("no answer".into())),
        }
    }

    /// From now on these are kept free; what peers were given before stays.
    pub async fn reserve(&self, reserved: BTreeSet<IpNet>) -> Result<(), Trouble> {
        self.ask("", Request::Reserve(reserved)).await.map(drop)
    }

    /// From now on peers reach this, by full reach these nodes as well; durable before it returns. What somebody asked
    /// for stays published.
    pub async fn reach(&self, reach: Reach, nodes: BTreeSet<IpAddr>) -> Result<(), Trouble> {
        self.ask("", Request::Reach(reach, nodes)).await.map(drop)
    }

    /// From now on these pods are published to whom they belong; durable before it returns.
    pub async fn host(&self, guests: BTreeMap<IpAddr, String>) -> Result<(), Trouble> {
        self.ask("", Request::Host(guests)).await.map(drop)
    }

    /// Notes how a peer names our networks; durable before it returns.
    pub async fn agree(&self, peer: &str, answer: Answer) -> Result<(), Trouble> {
        self.ask(peer, Request::Agree(answer)).await.map(drop)
    }

    /// Forgets a peer and all that was kept for it; durable before it returns. Its `NatMapping` follows.
    pub async fn release(&self, peer: &str) -> Result<(), Trouble> {
        self.ask(peer, Request::Release).await.map(drop)
    }

    /// The address at which a peer reaches an endpoint, once it does. It is kept for this asker.
    pub async fn map(&self, asker: Asker, peer: &str, endpoint: IpAddr) -> Result<IpAddr, Trouble> {
        match self.ask(peer, Request::Map(asker, endpoint)).await? {
            (Reply::Address { address, by }, revision) => {
                if let Some(agreement) = by {
                    self.followers.have(&Wanted::new(revision, peer, &agreement)).await?;
                }
                Ok(address)
            }
            (Reply::Done | Reply::Answer(_), _) => Err(Trouble::Storage("no answer".into())),
        }
    }

    /// Ends the publication of an endpoint to a peer for this asker; durable before it returns.
    pub async fn unmap(&self, asker: Asker, peer: &str, endpoint: IpAddr) -> Result<(), Trouble> {
        self.ask(peer, Request::Unmap(asker, endpoint)).await.map(drop)
    }

    /// Where a pod of a peer, by the address that it has there, is reached from here.
    pub fn home_pod_ip(&self, peer: &str, ip: IpAddr) -> Result<IpAddr, Trouble> {
        Ok(self.state.borrow().home_pod_ip(peer, ip)?)
    }

    /// Whether an address is of a pod of this cluster.
    pub fn belongs_to_pod_cidr(&self, ip: IpAddr) -> bool {
        self.state.borrow().belongs_to_pod_cidr(ip)
    }

    /// Whether an address is in a network of a peer, as it is named here.
    pub fn is_of_a_peer(&self, ip: IpAddr) -> bool {
        self.peer_of(ip).is_some()
    }

    /// The peer in whose networks, as they are named here, an address is.
    pub fn peer_of(&self, ip: IpAddr) -> Option<String> {
        let state = self.state.borrow();
        let has = |agreement: &Agreement| agreement.networks().any(|network| network.contains(&ip));
        state.peers().iter().find(|(_, agreement)| has(agreement)).map(|(peer, _)| peer.clone())
    }

    /// The state as it is stored; what changes after this call rings.
    pub fn watch(&self) -> watch::Receiver<Arc<Ipam>> {
        // A clone would ring at once, and for ever, for all that the handle itself has never looked at.
        let mut state = self.state.clone();
        state.mark_unchanged();
        state
    }

    async fn ask(&self, peer: &str, request: Request) -> Result<(Reply, u64), Trouble> {
        let ended = || Trouble::Storage("the address manager has ended".into());
        let (answer, answered) = oneshot::channel();
        let ask = Ask { peer: peer.to_owned(), request, answer };
        self.asks.send(ask).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// Starts the address manager: reads what is stored, or makes it, puts right what was cut off, and takes requests.
pub async fn start(tasks: &Tasks, client: Client, own: OwnNetworks, external_length: u8) -> Result<Handle> {
    start_counted(tasks, client, own, external_length, Metrics::default()).await
}

/// The same, with figures for others to read.
pub async fn start_counted(
    tasks: &Tasks,
    client: Client,
    own: OwnNetworks,
    external_length: u8,
    metrics: Metrics,
) -> Result<Handle> {
    let followers = Followers::new().context("cannot begin an epoch")?;
    let store = Store::new(client.clone(), own, external_length);
    let (actor, state) = Actor::start(store, followers.clone(), metrics).await?;
    let (asks, requests) = mpsc::channel(WAITING);
    tasks.spawn("ipam", actor.run(requests));
    mappings::start(tasks, &client, &followers, &state).await?;
    Ok(Handle { asks, state, followers })
}

/// Random bytes that nobody has had before, as text.
fn nonce() -> Result<String> {
    Ok(u128::from_le_bytes(random()?).to_string())
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH]> {
    use ring::rand::SecureRandom as _;
    let mut random = [0_u8; LENGTH];
    let filled = ring::rand::SystemRandom::new().fill(&mut random);
    filled.ok().context("this machine gives no random numbers")?;
    Ok(random)
}
