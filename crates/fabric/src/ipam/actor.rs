//! Turns: all requests that wait are applied together, stored in as few writes as can be, and answered.
//!
//! Those who are answered together tend to ask again together: a turn waits a moment for as many as the one before had,
//! and for those who came while that was written, instead of leaving them to the next one.
//!
//! A write that fails leaves the former value, and whoever waited hears of it; what is stored is then read again before
//! anything else, since nobody knows how far the writes came.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ferro_api::config::Reach;
use ferro_core::network::layout::Layout;
use ferro_core::network::{Agreement, Answer, Asker, Ipam, MapError, Offered, Turn};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::Trouble;
use super::followers::Followers;
use super::metrics::Metrics;
use super::store::{Failure, Store};

/// Requests that one turn takes.
const MOST: usize = 1000;
/// How long a turn waits for those who are expected: such a part of what the one before took, since who misses it waits for
/// the whole of it, and never longer than this.
const GATHER: u32 = 4;
const LONGEST: Duration = Duration::from_millis(5);
/// So often somebody else may write, who should not.
const TRIES: usize = 5;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// For no peer: what is kept free from now on.
    Reserve(BTreeSet<IpNet>),
    /// For no peer: what peers reach from now on, and which nodes there are.
    Reach(Reach, BTreeSet<IpAddr>),
    /// For no peer: which pods run here for which peers.
    Host(BTreeMap<IpAddr, String>),
    Acquire(Offered),
    Agree(Answer),
    Release,
    Map(Asker, IpAddr),
    Unmap(Asker, IpAddr),
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Answer(Answer),
    Done,
    /// The address of an endpoint.
    Address {
        address: IpAddr,
        /// By what a gateway must forward to it; nothing where the peer needs none of ours.
        by: Option<Agreement>,
    },
}

/// A request, and who waits. The answer comes with the revision with which gateways know of it.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) peer: String,
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Result<(Reply, u64), Trouble>>,
}

/// The one who changes the state.
pub(super) struct Actor {
    store: Store,
    layout: Layout,
    ipam: Ipam,
    /// What is stored may not be what is known.
    is_stale: bool,
    state: watch::Sender<Arc<Ipam>>,
    followers: Followers,
    metrics: Metrics,
}

impl Actor {
    /// Reads what is stored, and puts it right.
    pub(super) async fn start(
        mut store: Store,
        followers: Followers,
        metrics: Metrics,
    ) -> Result<(Self, watch::Receiver<Arc<Ipam>>)> {
        let (layout, ipam) = load(&mut store).await?;
        let (state, watched) = watch::channel(Arc::new(ipam.clone()));
        let actor = Self { store, layout, ipam, is_stale: false, state, followers, metrics };
        actor.publish(&Turn::from_nothing(&actor.ipam, Timestamp::now()));
        info!(mappings = actor.ipam.mapped(), external = %actor.ipam.external(), "addresses are known");
        Ok((actor, watched))
    }

    /// Takes turns for as long as somebody may ask.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>) -> Result<()> {
        let (mut waiting, mut expected, mut patience) = (Vec::new(), 1, Duration::ZERO);
        while asks.recv_many(&mut waiting, MOST).await > 0 {
            gather(&mut asks, &mut waiting, expected, patience).await;
            let (answered, begin) = (waiting.len(), Instant::now());
            self.turn(&mut waiting).await;
            expected = MOST.min(answered + asks.len());
            patience = LONGEST.min(begin.elapsed() / GATHER);
        }
        Ok(())
    }

    async fn turn(&mut self, waiting: &mut Vec<Ask>) {
        match self.attempt(waiting).await {
            Ok(replies) => {
                let revision = self.followers.revision();
                for (ask, reply) in waiting.drain(..).zip(replies) {
                    // Whoever does not wait any more will ask again.
                    _ = ask.answer.send(reply.map(|reply| (reply, revision)));
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                warn!(error, requests = waiting.len(), "a turn could not be stored");
                for ask in waiting.drain(..) {
                    _ = ask.answer.send(Err(Trouble::Storage(error.clone())));
                }
            }
        }
    }

    async fn attempt(&mut self, waiting: &[Ask]) -> Result<Vec<Result<Reply, Trouble>>> {
        for _ in 0..TRIES {
            if self.is_stale {
                self.reload().await?;
            }
            let mut turn = Turn::new(&self.ipam, Timestamp::now());
            turn.leave(self.followers.claimed(&self.ipam));
            let replies = waiting.iter().map(|ask| apply(&mut turn, &ask.peer, &ask.request)).collect();
            let plan = self.layout.plan(&turn);
            let writes = plan.writes.len();
            match self.store.write(&plan.writes).await {
                Ok(()) => {
                    self.layout.done(plan);
                    self.metrics.turn(waiting.len(), writes);
                    let is_own_new = turn.before().own() != turn.after().own();
                    if is_own_new {
                        self.store.set_own(turn.after().own());
                    }
                    if writes > 0 || is_own_new {
                        self.publish(&turn);
                    }
                    self.ipam = turn.into_after();
                    return Ok(replies);
                }
                Err(Failure::Conflict) => self.is_stale = true,
                Err(Failure::Other(error)) => {
                    self.is_stale = true;
                    return Err(error);
                }
            }
        }
        bail!("somebody else writes the IpamStorage all the time; does another address manager run?")
    }

    /// Begins anew from what is stored.
    async fn reload(&mut self) -> Result<()> {
        let (layout, ipam) = load(&mut self.store).await?;
        let turn = Turn::between(&self.ipam, &ipam, Timestamp::now());
        self.layout = layout;
        self.publish(&turn);
        (self.ipam, self.is_stale) = (ipam, false);
        Ok(())
    }

    /// Tells the gateways and everybody else what is stored now.
    fn publish(&self, turn: &Turn) {
        self.state.send_replace(Arc::new(turn.after().clone()));
        self.followers.follow(turn, &self.layout);
        self.metrics.mappings(turn.after().mapped());
    }
}

/// Waits a moment, until as many wait as are expected.
async fn gather<T>(asks: &mut mpsc::Receiver<T>, waiting: &mut Vec<T>, expected: usize, patience: Duration) {
    let until = Instant::now() + patience;
    while waiting.len() < expected {
        let room = MOST.saturating_sub(waiting.len());
        match timeout_at(until, asks.recv_many(waiting, room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Reads what is stored, and stores what has to be put right.
async fn load(store: &mut Store) -> Result<(Layout, Ipam)> {
    for _ in 0..TRIES {
        let (mut layout, turn) = store.read().await?;
        let plan = layout.plan(&turn);
        match store.write(&plan.writes).await {
            Ok(()) => {
                layout.done(plan);
                return Ok((layout, turn.into_after()));
            }
            Err(Failure::Conflict) => {}
            Err(Failure::Other(error)) => return Err(error),
        }
    }
    bail!("somebody else writes the IpamStorage all the time; does another address manager run?")
}

fn apply(turn: &mut Turn, peer: &str, request: &Request) -> Result<Reply, Trouble> {
    Ok(match request {
        Request::Reserve(reserved) => {
            turn.reserve(reserved.clone());
            Reply::Done
        }
        Request::Reach(reach, nodes) => {
            turn.reach(*reach, nodes).map_err(MapError::from)?;
            Reply::Done
        }
        Request::Host(guests) => {
            turn.host(guests);
            Reply::Done
        }
        Request::Acquire(offered) => Reply::Answer(turn.acquire(peer, *offered)?),
        Request::Agree(answer) => {
            turn.agree(peer, *answer)?;
            Reply::Done
        }
        Request::Release => {
            turn.release(peer);
            Reply::Done
        }
        Request::Map(asker, endpoint) => {
            let address = turn.map(*asker, peer, *endpoint)?;
            let agreement = turn.after().peers().get(peer).copied();
            // To its own pods a peer has its own way.
            let by = agreement.filter(|agreement| !agreement.their_pods.here().contains(endpoint));
            Reply::Address { address, by }
        }
        Request::Unmap(asker, endpoint) => {
            turn.unmap(*asker, peer, *endpoint);
            Reply::Done
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_waits_for_those_of_the_turn_before_and_not_for_long() {
        let (ask, mut asks) = mpsc::channel(10);
        let mut waiting = vec![1];
        let begin = Instant::now();
        gather(&mut asks, &mut waiting, 1, LONGEST).await;
        assert_eq!((waiting.len(), begin.elapsed()), (1, Duration::ZERO), "who is alone does not wait");
        ask.try_send(2).unwrap();
        ask.try_send(3).unwrap();
        gather(&mut asks, &mut waiting, 3, LONGEST).await;
        assert_eq!((waiting.len(), begin.elapsed()), (3, Duration::ZERO));
        gather(&mut asks, &mut waiting, 4, LONGEST).await;
        assert!(waiting.len() == 3 && begin.elapsed() < LONGEST * 3);
        drop(ask);
        gather(&mut asks, &mut waiting, 4, LONGEST).await;
        assert_eq!(waiting.len(), 3, "nobody will come any more");
    }
}
