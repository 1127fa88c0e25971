//! Places that cannot all be taken by one: few for each, and so many in all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many each has; none has nothing.
type Taken<K> = Arc<Mutex<BTreeMap<K, usize>>>;

/// Places, counted by who has them.
#[derive(Debug)]
pub struct Places<K> {
    all: usize,
    each: usize,
    taken: Taken<K>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub struct Place<K: Ord> {
    who: K,
    taken: Taken<K>,
}

impl<K: Ord + Clone> Places<K> {
    /// So many in all, and so many for each.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all, each, taken: Arc::default() }
    }

    /// Takes one, if there is one for this one.
    pub fn take(&self, who: K) -> Option<Place<K>> {
        let mut taken = lock(&self.taken);
        let own = taken.get(&who).copied().unwrap_or_default();
        if own >= self.each || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(who.clone(), own + 1);
        Some(Place { who, taken: Arc::clone(&self.taken) })
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(own) = taken.get_mut(&self.who) {
            *own = own.saturating_sub(1);
        }
        taken.retain(|_, own| *own > 0);
    }
}

fn lock<K>(taken: &Mutex<BTreeMap<K, usize>>) -> MutexGuard<'_, BTreeMap<K, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_its_share_and_what_is_left_is_free_again() {
        let places = Places::new(5, 2);
        let mut taken: Vec<_> = [1, 1, 2, 2].into_iter().filter_map(|who| places.take(who)).collect();
        assert_eq!(taken.len(), 4);
        assert!(places.take(1).is_none(), "it has its share");
        taken.push(places.take(3).unwrap());
        assert!(places.take(4).is_none(), "all are taken");
        drop(taken.remove(0));
        assert!(places.take(2).is_none());
        let again = places.take(1).unwrap();
        assert!(places.take(3).is_none());
        drop((taken, again));
        assert!(lock(&places.taken).is_empty(), "nobody is remembered");
    }
}
