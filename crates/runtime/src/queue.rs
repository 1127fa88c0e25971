//! Work by name: each name waits once however often it is asked for, is worked on by one at a time, and some are worked
//! on at once.
//!
//! Guarantees: a name that is asked for while it is worked on is worked on again afterwards; a name that fails delays
//! no other, nor does one whose work panics, which is tried again. Assumptions: the work is level-triggered, so that one
//! turn serves for many reasons.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::error;

/// Nothing is put off for longer: clocks end somewhere, and what is computed from what others say may be beyond it.
const FARTHEST: Duration = Duration::from_hours(24 * 365);
/// A name whose work panics is worked on again after so long.
const AFTER_A_FAULT: Duration = Duration::from_secs(30);

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
    later: Later<K>,
    busy: HashSet<K>,
}

/// Names that wait for their time, found by either: a wake costs what is due, however many wait.
#[derive(Debug)]
struct Later<K> {
    places: HashMap<K, Place>,
    order: BTreeMap<Place, K>,
    count: u64,
}

/// A time, and a number that tells names of the same time apart.
type Place = (Instant, u64);

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
            later: Later::new(),
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

    /// Asks for work on a name after so long, or after a year, unless it is worked on before that anyway.
    pub fn push_after(&self, name: K, pause: Duration) {
        let at = Instant::now() + pause.min(FARTHEST);
        self.lock().later.put(name, at);
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
                    running.push(async move { (name, AssertUnwindSafe(turn).catch_unwind().await) });
                }
                wake
            };
            tokio::select! {
                Some((name, ended)) = running.next() => {
                    self.lock().done(&name);
                    let again = ended.unwrap_or_else(|_| {
                        error!("a fault in the work on one of many; it will be tried again");
                        Some(AFTER_A_FAULT)
                    });
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
        while let Some(name) = self.later.take(now) {
            self.push(name);
        }
        self.later.first()
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

impl<K> Later<K> {
    fn new() -> Self {
        Self { places: HashMap::new(), order: BTreeMap::new(), count: 0 }
    }

    /// When the first of them is due.
    fn first(&self) -> Option<Instant> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }
}

impl<K: Clone + Eq + Hash> Later<K> {
    /// From now on a name waits for this time, unless it does for an earlier one.
    fn put(&mut self, name: K, at: Instant) {
        if self.places.get(&name).is_some_and(|(before, _)| *before <= at) {
            return;
        }
        self.remove(&name);
        self.count += 1;
        let place = (at, self.count);
        self.places.insert(name.clone(), place);
        self.order.insert(place, name);
    }

    fn remove(&mut self, name: &K) {
        if let Some(place) = self.places.remove(name) {
            self.order.remove(&place);
        }
    }

    /// The first of them, if it is due.
    fn take(&mut self, now: Instant) -> Option<K> {
        let first = self.order.first_entry().filter(|first| first.key().0 <= now)?;
        let name = first.remove();
        self.places.remove(&name);
        Some(name)
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

    #[test]
    fn what_is_due_comes_in_the_order_of_its_time_and_leaves_nothing_behind() {
        let (mut later, begin) = (Later::new(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for (name, seconds) in [("a", 30), ("b", 20), ("c", 20), ("a", 10), ("b", 40), ("d", 15), ("e", 50)] {
            later.put(name, at(seconds));
        }
        later.remove(&"d");
        assert_eq!(later.first(), Some(at(10)));
        let mut due = |now| std::iter::from_fn(|| later.take(now)).collect::<Vec<_>>();
        assert!(due(at(9)).is_empty());
        assert_eq!(due(at(20)), ["a", "b", "c"]);
        assert_eq!((later.first(), later.places.len(), later.order.len()), (Some(at(50)), 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_in_the_work_on_one_name_is_none_of_another() {
        let (queue, turns) = (Queue::default(), RefCell::new(Vec::new()));
        for name in ["bad", "good"] {
            queue.push(name);
        }
        let work = queue.work(1, |name| {
            turns.borrow_mut().push(name);
            async move {
                assert_ne!(name, "bad", "a fault");
                None
            }
        });
        _ = tokio::time::timeout(AFTER_A_FAULT + Duration::from_secs(1), work).await;
        assert_eq!(turns.into_inner(), ["bad", "good", "bad"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_no_clock_reaches_delays_no_other() {
        let (queue, turns) = (Queue::default(), RefCell::new(Vec::new()));
        queue.push("far");
        queue.push_after("near", Duration::from_secs(10));
        let work = queue.work(1, |name| {
            turns.borrow_mut().push(name);
            async move { (name == "far").then_some(Duration::MAX) }
        });
        _ = tokio::time::timeout(Duration::from_mins(1), work).await;
        assert_eq!(turns.into_inner(), ["far", "near"]);
    }
}
