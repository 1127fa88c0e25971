//! The controller of `ForeignCluster`s: for each peer all facts, one decision, and its writes.
//!
//! Flow: [`Stock`] and [`Books`] are what is watched; [`Facts`] are what they say about one peer; `ferro_core::peering`
//! decides; [`Hand`] writes. [`Links`] carry objects and signs of life to the peers. Guarantees: one peer is decided at
//! a time, from watches that have seen all that was written for it before; nothing is remembered that is not also in
//! the API, except when something was last heard or sent. Assumptions: this process leads.

mod books;
mod facts;
mod hand;
mod leases;
mod link;
mod stock;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::ForeignCluster;
use ferro_core::keepalive::Heartbeat;
use ferro_core::peering::outgoing::State;
use ferro_core::peering::{self, Plan, Snapshot, Write};
use ferro_runtime::shutdown::Tasks;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::home::Home;
use crate::identity::Own;
use crate::metrics::Metrics;
use books::Books;
use facts::Facts;
use hand::Hand;
use link::Links;
use stock::{Check, Stock};

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after a write that failed, and after one that the watches have not seen yet.
const RETRY: Duration = Duration::from_secs(1);
/// A watch that has not seen a write after this long never will: somebody else was faster.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps all peerings as they should be, for ever; tells whose credentials are turned away.
pub async fn run(
    tasks: Tasks,
    home: Home,
    rejected: watch::Sender<BTreeSet<String>>,
    metrics: Metrics,
) -> Result<()> {
    let stock = Stock::start(&tasks, &home);
    let books = Books::start(&tasks, home.client.clone(), stock.nodes.clone());
    home.ready().await?;
    stock.ready().await?;
    tasks.spawn("leases", leases::keep(home.client.clone(), stock.nodes.clone()));
    let links = Links::new(tasks, &home, rejected);
    let hand = Hand::new(&home, stock.clone());
    Controller { home, stock, books, links, hand, metrics, memories: HashMap::new() }.run().await
}

struct Controller {
    home: Home,
    stock: Stock,
    books: Books,
    links: Links,
    hand: Hand,
    metrics: Metrics,
    memories: HashMap<String, Memory>,
}

/// What is remembered about a peer; all of it is found out again after a restart.
#[derive(Default)]
struct Memory {
    heartbeat: Option<Heartbeat>,
    published: Option<Timestamp>,
    /// What the watches have yet to see of what was written.
    unseen: Vec<Check>,
    written: Option<Instant>,
    /// The UID of the node that was found empty.
    emptied: Option<String>,
}

impl Memory {
    /// Whether the watches have yet to see something. What they never see is forgotten after a while.
    fn is_behind(&mut self) -> bool {
        self.unseen.retain(|check| !check());
        if self.written.is_some_and(|written| written.elapsed() > PATIENCE) {
            self.unseen.clear();
        }
        !self.unseen.is_empty()
    }
}

impl Controller {
    async fn run(mut self) -> Result<()> {
        let mut hindrance = self.home.networks.hindrance.subscribe();
        let mut agent = self.home.agent.subscribe();
        loop {
            let wake = self.round().await?;
            tokio::select! {
                changed = self.home.peers.changed() => changed?,
                changed = self.home.config.changed() => changed?,
                changed = self.home.secrets.changed() => changed?,
                changed = self.stock.changed() => changed?,
                changed = self.books.changed() => changed?,
                changed = self.links.changed() => changed?,
                changed = hindrance.changed() => changed?,
                changed = agent.changed() => changed?,
                () = tokio::time::sleep_until(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Looks at all peers once; says when to look again if nothing happens.
    async fn round(&mut self) -> Result<Instant> {
        let (own, settings) = (self.home.own()?, self.home.settings());
        let peers = self.home.peers.all();
        let mut wake = Instant::now() + Duration::from_mins(10);
        for peer in &peers {
            wake = wake.min(self.attend(peer, &own, &settings).await);
        }
        self.metrics.count(peers.iter().map(AsRef::as_ref));
        let names: BTreeSet<String> = peers.iter().map(|peer| peer.name_any()).collect();
        self.memories.retain(|name, _| names.contains(name));
        self.links.retain(&names);
        Ok(wake)
    }

    /// One peer; what goes wrong is tried again, and harms no other.
    async fn attend(
        &mut self,
        peer: &ForeignCluster,
        own: &Arc<Own>,
        settings: &ClusterConfigSpec,
    ) -> Instant {
        let name = peer.name_any();
        if self.memories.entry(name.clone()).or_default().is_behind() {
            return Instant::now() + RETRY;
        }
        match self.advance(peer, own, settings).await {
            Ok(wake) => wake,
            Err(error) => {
                warn!(peer = name, error = format!("{error:#}"), "will be tried again");
                Instant::now() + RETRY
            }
        }
    }

    async fn advance(
        &mut self,
        peer: &ForeignCluster,
        own: &Arc<Own>,
        settings: &ClusterConfigSpec,
    ) -> Result<Instant> {
        let (name, now) = (peer.name_any(), Timestamp::now());
        let mut facts = Facts::gather(peer, own, settings, &self.home, &self.stock, &self.books);
        self.links.keep(peer, own, settings, &facts)?;
        self.links.tell(&name, &mut facts);
        let memory = self.memories.entry(name.clone()).or_default();
        facts.remember(memory, settings, now);
        let auth_url = own.reach.auth.as_ref().map(ToString::to_string);
        let snapshot = facts.snapshot(peer, settings, auth_url.as_deref(), now);
        let plan = peering::decide(&snapshot);
        if !self.is_emptied(&name, &facts, &plan).await? {
            // The watch of pods shows them soon.
            return Ok(Instant::now() + RETRY);
        }
        debug!(peer = name, outgoing = ?plan.outgoing, incoming = ?plan.incoming, writes = plan.writes.len(), "decided");
        let result = self.perform(peer, own, &facts, &snapshot, &plan).await;
        self.memories.entry(name).or_default().written = Some(Instant::now());
        result?;
        Ok(until(plan.wake, now))
    }

    /// Whether a node that is left for empty is. Books of pods may be old, and after a start not be complete, and what follows
    /// is not taken back: so the API server is asked once.
    async fn is_emptied(&mut self, name: &str, facts: &Facts, plan: &Plan) -> Result<bool> {
        let (Some(node), State::Unmapping | State::Emptied) = (&facts.node, plan.outgoing) else {
            return Ok(true);
        };
        let memory = self.memories.entry(name.to_owned()).or_default();
        if memory.emptied.is_none() || memory.emptied != node.metadata.uid {
            let left = self.hand.movable(&node.name_any()).await?;
            if left > facts.movable {
                return Ok(false);
            }
            memory.emptied.clone_from(&node.metadata.uid);
        }
        Ok(true)
    }

    /// The writes in order, then what is shown; each is remembered until the watches have seen it.
    async fn perform(
        &mut self,
        peer: &ForeignCluster,
        own: &Arc<Own>,
        facts: &Facts,
        snapshot: &Snapshot<'_>,
        plan: &Plan,
    ) -> Result<()> {
        if !plan.writes.is_empty() && snapshot.is_going() && !self.hand.still_knows(peer).await? {
            return Ok(());
        }
        let memory = self.memories.entry(peer.name_any()).or_default();
        for write in &plan.writes {
            if matches!(write, Write::CreateOffer(_) | Write::PatchOffer(_)) {
                memory.published = Some(snapshot.now);
            }
            memory.unseen.extend(self.hand.perform(peer, own, facts, snapshot, write).await?);
            if *write == Write::CreateNamespace {
                // What follows lies in it, and is decided when it is seen.
                return Ok(());
            }
        }
        memory.unseen.extend(self.hand.show(peer, plan).await?);
        if plan.writes.is_empty() {
            memory.unseen.extend(self.hand.keep_node(peer, facts, snapshot, plan.outgoing).await?);
        }
        Ok(())
    }
}

/// The moment on the clock that timers use.
fn until(wake: Option<Timestamp>, now: Timestamp) -> Instant {
    let wait =
        wake.map_or(Duration::from_mins(10), |wake| wake.duration_since(now).try_into().unwrap_or_default());
    Instant::now() + wait
}
