//! The ways between peers that lead through home: who tells the others which pods of a peer may call them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferro_core::reflection::travel::{PodName, Travellers, Visit};
use ferro_runtime::queue::Queue;

/// The ways between all peers. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Roads(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    travellers: Travellers,
    gates: HashMap<String, Keeper>,
    joined: u64,
}

/// Who looks at the pods that a peer is to be told of.
struct Keeper {
    /// A station that is begun anew comes before the former has left.
    number: u64,
    queue: Queue<PodName>,
    /// Whether it is known all that the peer has to do with others.
    is_settled: bool,
}

/// What one peer has to do with the others, as long as this is kept.
pub(super) struct Gate {
    roads: Roads,
    peer: String,
    number: u64,
    /// The pods on other peers that are to be looked at.
    pub(super) queue: Queue<PodName>,
}

impl Roads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, peer: &str) -> Gate {
        let (queue, mut state) = (Queue::default(), self.state());
        state.joined += 1;
        let number = state.joined;
        state.gates.insert(peer.to_owned(), Keeper { number, queue: queue.clone(), is_settled: false });
        drop(state);
        let gate = Gate { roads: self.clone(), peer: peer.to_owned(), number, queue };
        gate.look_at_all();
        gate
    }
}

impl State {
    fn ring(&self, visits: Vec<Visit>) {
        for (peer, pod) in visits {
            if let Some(keeper) = self.gates.get(&peer) {
                keeper.queue.push(pod);
            }
        }
    }
}

impl Gate {
    /// A pod on this peer has this address here, or none.
    pub(super) fn set(&self, pod: &PodName, address: Option<IpAddr>) {
        let mut state = self.roads.state();
        if state.gates.get(&self.peer).is_some_and(|keeper| keeper.number == self.number) {
            let visits = state.travellers.set(&self.peer, pod, address);
            state.ring(visits);
        }
    }

    /// This peer is told of an endpoint on another one.
    pub(super) fn open(&self, to: &str) {
        let mut state = self.roads.state();
        let visits = state.travellers.open(&self.peer, to);
        state.ring(visits);
    }

    /// The address of a pod on another peer that this one is to be told of, if it is.
    pub(super) fn address(&self, pod: &PodName) -> Option<IpAddr> {
        self.roads.state().travellers.address(&self.peer, pod)
    }

    /// From now on it is known all that this peer has to do with others. Whether it is of every peer.
    pub(super) fn settle(&self) -> bool {
        let mut state = self.roads.state();
        let own = state.gates.get_mut(&self.peer).filter(|keeper| keeper.number == self.number);
        if let Some(keeper) = own {
            keeper.is_settled = true;
        }
        state.gates.values().all(|keeper| keeper.is_settled)
    }

    /// Looks at all of them again.
    pub(super) fn look_at_all(&self) {
        let pods = self.roads.state().travellers.towards(&self.peer);
        for pod in pods {
            self.queue.push(pod);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.roads.state();
        if state.gates.get(&self.peer).is_some_and(|keeper| keeper.number == self.number) {
            state.gates.remove(&self.peer);
            let visits = state.travellers.leave(&self.peer);
            state.ring(visits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_who_calls_whom_when_every_peer_has_settled() {
        let roads = Roads::default();
        let (turin, milan) = (roads.join("turin"), roads.join("milan"));
        assert!(!turin.settle(), "milan may call pods in turin");
        assert!(milan.settle() && turin.settle());
        let renewed = roads.join("milan");
        assert!(!milan.settle() && !turin.settle(), "the former speaks for nobody");
        drop(milan);
        assert!(!turin.settle());
        drop(renewed);
        assert!(turin.settle(), "who has left calls nobody");
    }
}
