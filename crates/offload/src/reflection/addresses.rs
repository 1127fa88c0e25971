//! The addresses at which one peer reaches endpoints: asked for when a slice is to name them, or when a pod on another peer
//! may call from there, and given back when nobody needs them any more.
//!
//! Guarantees: an endpoint that a slice names, or is about to, is not given back. What a process that ended in between
//! has left over is given back by the next one ([`Addresses::sweep`]).

mod book;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::Reach;
use ferro_core::network::{Agreement, Asker, Claims, Ipam, MapError};
use ferro_core::reflection::travel::PodName;
use ferro_fabric::ipam::{Handle, Trouble};
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::Key;
use book::Book;

/// How long an answer is waited for; who has none by then is told later.
const ANSWER: Duration = Duration::from_secs(3);

/// What decides about all addresses for a peer: what is agreed on with it, and whether what it reaches is asked for.
pub(super) type Terms = (Agreement, Reach);

/// The addresses for one peer.
pub(super) struct Addresses {
    peer: String,
    asked: watch::Receiver<Option<Handle>>,
    book: Mutex<Book>,
}

/// Who needs an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum User {
    /// A slice that names the endpoint.
    Slice(Key),
    /// A pod on another peer, of which the endpoint is the address.
    Pod(PodName),
}

/// What the address manager has said.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<IpAddr, IpAddr>,
    /// Whether something is to be asked again.
    pub(super) is_waiting: bool,
    /// Whether there is nobody to ask.
    pub(super) is_blind: bool,
    /// Other peers on which some of the endpoints are.
    pub(super) called: BTreeSet<String>,
    /// The endpoints that are in networks of the peer itself. It takes none of these from us, so they have no address.
    pub(super) theirs: BTreeSet<IpAddr>,
}

impl Names {
    /// The address at which the peer reaches an endpoint.
    pub(super) fn get(&self, endpoint: IpAddr) -> Option<IpAddr> {
        self.known.get(&endpoint).copied()
    }
}

impl Addresses {
    pub(super) fn new(peer: &str, asked: watch::Receiver<Option<Handle>>) -> Self {
        Self { peer: peer.to_owned(), asked, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self) -> Option<Handle> {
        self.asked.borrow().clone()
    }

    /// Whether there is somebody to ask.
    pub(super) fn can_be_asked_for(&self) -> bool {
        self.asked.borrow().is_some()
    }

    /// The addresses of endpoints that somebody needs. From now on it uses them.
    ///
    /// What was told before under the address that it will have again stays so while no gateway confirms that: a gateway
    /// that comes back makes nobody unreachable, nor does an address manager that was started anew, as far as pods go.
    pub(super) async fn names(
        &self,
        user: &User,
        endpoints: &BTreeSet<IpAddr>,
        told: &BTreeSet<IpAddr>,
    ) -> Names {
        let handle = self.handle();
        let found = self.book().hold(user, endpoints);
        let Some(handle) = handle else { return Names { is_blind: true, ..Names::default() } };
        let (called, theirs) = hosts(&self.peer, endpoints, |endpoint| handle.peer_of(endpoint));
        let missing: Vec<IpAddr> =
            found.missing.into_iter().filter(|endpoint| !theirs.contains(endpoint)).collect();
        let answers = join_all(missing.iter().map(|endpoint| self.ask(&handle, *endpoint))).await;
        let (mut names, mut known, mut is_waiting) = (found.known, HashMap::new(), false);
        for (endpoint, answer) in missing.into_iter().zip(answers) {
            match answer {
                Ok(name) => _ = known.insert(endpoint, name),
                Err(false) => {}
                Err(true) => {
                    is_waiting = true;
                    let former = self.expected(&handle, endpoint).filter(|name| told.contains(name));
                    names.extend(former.map(|name| (endpoint, name)));
                }
            }
        }
        is_waiting |= !self.book().learn(found.epoch, &known);
        names.extend(known);
        names.retain(|endpoint, _| !theirs.contains(endpoint));
        Names { known: names, is_waiting, is_blind: false, called, theirs }
    }

    /// The address that an endpoint will have, whether or not it works yet; none if that is still to be found.
    fn expected(&self, handle: &Handle, endpoint: IpAddr) -> Option<IpAddr> {
        let present = handle.watch().borrow().clone();
        let mut state = Ipam::clone(&present);
        let asked = (self.peer.as_str(), endpoint);
        let name = state.map_for(Asker::Slices, &Claims::default(), asked, Timestamp::now()).ok()?;
        let is_known = state.mapped() == present.mapped() || present.own().pod.contains(&endpoint);
        is_known.then_some(name)
    }

    /// One address, or whether it may be had later.
    async fn ask(&self, handle: &Handle, endpoint: IpAddr) -> Result<IpAddr, bool> {
        match tokio::time::timeout(ANSWER, handle.map(Asker::Slices, &self.peer, endpoint)).await {
            Ok(Ok(name)) => Ok(name),
            Ok(Err(trouble)) => {
                debug!(peer = self.peer, %endpoint, %trouble, "an endpoint is not published yet");
                Err(passes(&trouble))
            }
            Err(_) => Err(true),
        }
    }

    /// Somebody needs none but these any more; what nobody does is given back. Who has come to need one of those meanwhile
    /// is to be looked at again.
    pub(super) async fn keep(&self, user: &User, endpoints: &BTreeSet<IpAddr>) -> Vec<User> {
        let idle = self.book().keep(user, endpoints);
        self.give_back(&idle).await
    }

    /// No slice of a namespace is there any more: what is to be given back. From now on the namespace may come again.
    pub(super) fn leave(&self, namespace: &str) -> Vec<IpAddr> {
        self.book().leave(namespace)
    }

    /// Gives back what nobody needs. Who has come to need it meanwhile is to be looked at again.
    pub(super) async fn give_back(&self, endpoints: &[IpAddr]) -> Vec<User> {
        let Some(handle) = self.handle() else { return Vec::new() };
        // Those that ask together are served together.
        let asks = endpoints.iter().map(|endpoint| handle.unmap(Asker::Slices, &self.peer, *endpoint));
        let answers = join_all(asks).await;
        for (endpoint, answer) in endpoints.iter().zip(answers) {
            if let Err(error) = answer {
                warn!(peer = self.peer, %endpoint, %error, "an address stays in use until the next start");
            }
        }
        self.book().returned(endpoints)
    }

    /// Gives back what was asked for by a process before and is used by nobody: all users have been looked at. Nothing, if
    /// there is nobody to give it back to.
    pub(super) async fn sweep(&self) -> Option<Vec<User>> {
        let handle = self.handle()?;
        let reflected = handle.watch().borrow().reflected_to(&self.peer);
        let idle = self.book().idle(reflected);
        Some(self.give_back(&idle).await)
    }

    /// Waits until other terms hold for the peer than did before, and forgets all addresses.
    pub(super) async fn changed(&self, before: &mut Option<Terms>) -> Result<()> {
        let mut asked = self.asked.clone();
        loop {
            let handle = asked.borrow_and_update().clone();
            let present = handle.as_ref().map(Handle::watch);
            let terms = handle.as_ref().and_then(|handle| terms(&handle.watch().borrow(), &self.peer));
            if terms != *before {
                *before = terms;
                self.book().forget();
                return Ok(());
            }
            let news = async {
                if let Some(mut state) = present
                    && state.changed().await.is_ok()
                {
                    return;
                }
                // One that has ended is followed by another.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = news => {}
                changed = asked.changed() => changed.context("nobody manages addresses any more")?,
            }
        }
    }
}

/// The other peers on which some of the endpoints are, and the endpoints of this peer itself.
fn hosts(
    peer: &str,
    endpoints: &BTreeSet<IpAddr>,
    peer_of: impl Fn(IpAddr) -> Option<String>,
) -> (BTreeSet<String>, BTreeSet<IpAddr>) {
    let (mut called, mut theirs) = (BTreeSet::new(), BTreeSet::new());
    for endpoint in endpoints {
        match peer_of(*endpoint) {
            Some(host) if host == peer => _ = theirs.insert(*endpoint),
            Some(host) => _ = called.insert(host),
            None => {}
        }
    }
    (called, theirs)
}

/// The terms for a peer, as soon as there are any. Of the pods that it reaches anyway the address manager keeps nothing, so
/// that all have to be asked for when it reaches them no longer.
fn terms(state: &Ipam, peer: &str) -> Option<Terms> {
    Some((*state.peers().get(peer)?, state.own().reach))
}

/// Whether a reason passes by itself: addresses that others have freed are to be had once they have rested.
fn passes(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::NotYet(_) | Trouble::Storage(_) | Trouble::Unmappable(MapError::Exhausted(_)))
}

#[cfg(test)]
mod tests {
    use ferro_core::network::{Answer, Exhausted, Naming, Offered, OwnNetworks, Turn, default_pools};

    use super::*;

    /// A cluster with one peer, which names our networks as we do.
    fn ipam() -> Ipam {
        let own = OwnNetworks {
            pod: "10.0.0.0/24".parse().unwrap(),
            service: "10.96.0.0/16".parse().unwrap(),
            reserved: BTreeSet::new(),
            pools: default_pools(),
            reach: Reach::Default,
        };
        let mut ipam = Ipam::new(own, 24).unwrap();
        let offered = Offered { pod: "10.1.0.0/24".parse().unwrap(), external: None };
        ipam.acquire("turin", offered, Timestamp::UNIX_EPOCH).unwrap();
        ipam.agree("turin", Answer { pod: Naming::Kept, external: Some(Naming::Kept) }).unwrap();
        ipam
    }

    #[test]
    fn by_another_reach_all_addresses_are_asked_for_again() {
        let (mut before, pod) = (ipam(), IpAddr::from([10, 0, 0, 9]));
        before.map("turin", pod, Timestamp::UNIX_EPOCH).unwrap();
        let mut turn = Turn::new(&before, Timestamp::UNIX_EPOCH);
        turn.reach(Reach::Strict, &BTreeSet::new()).unwrap();
        let mut after = turn.into_after();
        assert!(after.redirections("turin").is_empty(), "what was asked for before is not published");
        assert_ne!(terms(&before, "turin"), terms(&after, "turin"));
        after.map("turin", pod, Timestamp::UNIX_EPOCH).unwrap();
        assert!(after.redirections("turin").contains_key(&pod));
        assert_eq!(terms(&after, "milan"), None);
    }

    #[test]
    fn endpoints_of_the_peer_itself_are_told_apart_from_those_of_others() {
        let [here, own, other] = [[10, 0, 0, 9], [10, 1, 0, 9], [10, 2, 0, 9]].map(IpAddr::from);
        let peer_of = |endpoint: IpAddr| match endpoint {
            _ if endpoint == own => Some("turin".to_owned()),
            _ if endpoint == other => Some("milan".to_owned()),
            _ => None,
        };
        let (called, theirs) = hosts("turin", &[here, own, other].into(), peer_of);
        assert_eq!((called, theirs), (["milan".to_owned()].into(), [own].into()));
    }

    #[test]
    fn who_finds_no_address_left_asks_again_and_who_asks_for_no_endpoint_does_not() {
        let exhausted = MapError::Exhausted(Exhausted("192.168.0.0/30".parse().unwrap()));
        assert!(passes(&Trouble::Unmappable(exhausted)) && passes(&Trouble::NotYet("no gateway".into())));
        assert!(!passes(&Trouble::Unmappable(MapError::NotAnEndpoint([127, 0, 0, 1].into()))));
        // When something else is agreed on, all are asked for again.
        assert!(!passes(&Trouble::Unmappable(MapError::NotReady("turin".into()))));
    }
}
