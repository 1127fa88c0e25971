//! Answers that hold for some seconds, and never more of them than there is room for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was answered, and until when it holds.
pub(super) struct Cache<K, V> {
    most: usize,
    life: Duration,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new(most: usize, life: Duration) -> Self {
        Self { most, life, entries: Mutex::default() }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most {
            entries.retain(|_, (until, _)| now < *until);
        }
        if entries.len() >= self.most {
            // Somebody asks for the sake of asking: to ask again is all that is lost.
            entries.clear();
        }
        entries.insert(key, (now + self.life, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_time_and_there_are_never_too_many() {
        let (cache, start) = (Cache::new(3, Duration::from_secs(10)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.put("a", 1, at(0));
        cache.put("b", 2, at(5));
        assert_eq!(cache.get(&"a", at(9)), Some(1));
        assert_eq!(cache.get(&"a", at(10)), None);
        cache.put("c", 3, at(11));
        cache.put("d", 4, at(11));
        assert_eq!((cache.get(&"b", at(11)), cache.get(&"d", at(11))), (Some(2), Some(4)));
        cache.put("e", 5, at(11));
        assert_eq!((cache.get(&"b", at(11)), cache.get(&"e", at(11))), (None, Some(5)));
    }
}
