//! Work by name: each name waits once however often it is asked for, is worked on by one at a time, and some are worked
//! on at once.
//!
//! Guarantees: a name that is asked for while it is worked on is worked on again afterwards; a name that fails delays
//! no other. Assumptions: the work is level-triggered, so that one turn serves for many reasons.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Names that wait for work. Clones are the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    bell: Arc<Notify>,
}

#[derive(Debug)]
struct State<K> {
    waiting: VecDeque<K>,
    known: HashSet<K>,
    later: HashMap<K, Instant>,
    busy: HashSet<K>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), bell: Arc::clone(&self.bell) }
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            known: HashSet::new(),
            later: HashMap::new(),
            busy: HashSet::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), bell: Arc::default() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Asks for work on a name, as soon as may be.
    pub fn push(&self, name: K) {
        self.lock().push(name);
        self.bell.notify_one();
    }

    /// Asks for work on a name after so long, unless it is worked on before that anyway.
    pub fn push_after(&self, name: K, pause: Duration) {
        let at = Instant::now() + pause;
        let mut state = self.lock();
        let earliest = state.later.get(&name).map_or(at, |before| at.min(*before));
        state.later.insert(name, earliest);
        self.bell.notify_one();
    }

    /// How many names wait or are worked on.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.busy.len()
    }

    /// Whether nothing is to be done now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Works for ever, on so many names at once. The work says after how long to look at the name again by itself.
    pub async fn work<W, F>(&self, at_once: usize, work: W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Option<Duration>>,
    {
        let mut running = FuturesUnordered::new();
        loop {
            let wake = {
                let mut state = self.lock();
                let wake = state.ripen(Instant::now());
                while running.len() < at_once {
                    let Some(name) = state.take() else { break };
                    let turn = work(name.clone());
                    running.push(async move { (name, turn.await) });
                }
                wake
            };
            tokio::select! {
                Some((name, again)) = running.next() => {
                    self.lock().done(&name);
                    if let Some(pause) = again {
                        self.push_after(name, pause);
                    }
                }
                () = self.bell.notified() => {}
                () = until(wake) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn push(&mut self, name: K) {
        if self.known.insert(name.clone()) {
            self.waiting.push_back(name);
        }
    }

    /// Moves what is due among those that wait; says when the next one is.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        let due: Vec<K> =
            self.later.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.later.remove(&name);
            self.push(name);
        }
        self.later.values().min().copied()
    }

    /// The first name that nobody works on.
    fn take(&mut self) -> Option<K> {
        let place = self.waiting.iter().position(|name| !self.busy.contains(name))?;
        let name = self.waiting.remove(place)?;
        self.known.remove(&name);
        self.later.remove(&name);
        self.busy.insert(name.clone());
        Some(name)
    }

    fn done(&mut self, name: &K) {
        self.busy.remove(name);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn worked_off(queue: &Queue<&'static str>, at_once: usize, turns: &RefCell<Vec<&'static str>>) {
        let work = queue.work(at_once, |name| async move {
            turns.borrow_mut().push(name);
            tokio::time::sleep(Duration::from_millis(10)).await;
            None
        });
        _ = tokio::time::timeout(Duration::from_mins(1), work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_asked_for_often_is_worked_on_once() {
        let (queue, turns) = (Queue::default(), RefCell::default());
        for name in ["a", "b", "a", "a"] {
            queue.push(name);
        }
        worked_off(&queue, 1, &turns).await;
        assert_eq!(turns.into_inner(), ["a", "b"]);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_asked_for_meanwhile_is_worked_on_again_and_never_twice_at_once() {
        let (queue, busy, turns) = (Queue::default(), RefCell::new(0), RefCell::new(0));
        queue.push("a");
        let work = queue.work(4, |name| {
            let (queue, busy, turns) = (&queue, &busy, &turns);
            async move {
                *busy.borrow_mut() += 1;
                assert_eq!(*busy.borrow(), 1);
                if turns.replace_with(|count| *count + 1) < 3 {
                    queue.push(name);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                *busy.borrow_mut() -= 1;
                None
            }
        });
        _ = tokio::time::timeout(Duration::from_secs(1), work).await;
        assert_eq!(turns.into_inner(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_to_be_looked_at_later_comes_in_its_time() {
        let (queue, turns) = (Queue::default(), RefCell::default());
        queue.push_after("late", Duration::from_secs(30));
        queue.push_after("early", Duration::from_secs(20));
        queue.push_after("late", Duration::from_secs(10));
        queue.push("now");
        worked_off(&queue, 2, &turns).await;
        assert_eq!(turns.into_inner(), ["now", "late", "early"]);
    }
}
