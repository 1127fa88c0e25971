//! Who uses what: endpoints that slices publish, configuration that pods refer to. What nobody uses any more is told.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Users, and the things that each of them uses.
#[derive(Clone, Debug)]
pub struct Ledger<U, T> {
    used: HashMap<U, BTreeSet<T>>,
    users: HashMap<T, BTreeSet<U>>,
}

impl<U, T> Default for Ledger<U, T> {
    fn default() -> Self {
        Self { used: HashMap::new(), users: HashMap::new() }
    }
}

impl<U: Clone + Eq + Hash + Ord, T: Clone + Eq + Hash + Ord> Ledger<U, T> {
    /// From now on a user uses these besides what it used before. Those that nobody did before.
    pub fn hold(&mut self, user: &U, things: &BTreeSet<T>) -> Vec<T> {
        let mut gained = Vec::new();
        for thing in things {
            let users = self.users.entry(thing.clone()).or_default();
            if users.is_empty() {
                gained.push(thing.clone());
            }
            users.insert(user.clone());
        }
        if !things.is_empty() {
            self.used.entry(user.clone()).or_default().extend(things.iter().cloned());
        }
        gained
    }

    /// From now on a user uses none but these. Those that nobody uses any more.
    pub fn keep(&mut self, user: &U, things: &BTreeSet<T>) -> Vec<T> {
        let before = self.used.remove(user).unwrap_or_default();
        let kept: BTreeSet<T> = before.intersection(things).cloned().collect();
        let dropped: Vec<T> = before.difference(things).cloned().collect();
        if !kept.is_empty() {
            self.used.insert(user.clone(), kept);
        }
        dropped.into_iter().filter(|thing| self.leave(user, thing)).collect()
    }

    /// Whether nobody uses the thing without this user.
    fn leave(&mut self, user: &U, thing: &T) -> bool {
        let Some(users) = self.users.get_mut(thing) else { return true };
        users.remove(user);
        let is_idle = users.is_empty();
        if is_idle {
            self.users.remove(thing);
        }
        is_idle
    }

    /// Who uses a thing.
    pub fn users(&self, thing: &T) -> impl Iterator<Item = &U> {
        self.users.get(thing).into_iter().flatten()
    }

    /// What a user uses.
    pub fn used_by(&self, user: &U) -> impl Iterator<Item = &T> {
        self.used.get(user).into_iter().flatten()
    }

    /// Whether anybody uses a thing.
    pub fn is_used(&self, thing: &T) -> bool {
        self.users.contains_key(thing)
    }

    /// All that use anything.
    pub fn all(&self) -> impl Iterator<Item = &U> {
        self.used.keys()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_told_as_idle_is_what_nobody_uses(
            turns in proptest::collection::vec((0..4_u8, proptest::collection::btree_set(0..6_u8, 0..4)), 0..40)
        ) {
            let (mut ledger, mut plain) = (Ledger::default(), BTreeMap::<u8, BTreeSet<u8>>::new());
            for (user, things) in turns {
                let before: BTreeSet<u8> = plain.values().flatten().copied().collect();
                plain.insert(user, things.clone());
                let after: BTreeSet<u8> = plain.values().flatten().copied().collect();
                let mut gained = ledger.hold(&user, &things);
                gained.sort_unstable();
                let idle: BTreeSet<u8> = ledger.keep(&user, &things).into_iter().collect();
                prop_assert_eq!(gained, things.difference(&before).copied().collect::<Vec<_>>());
                prop_assert_eq!(idle, before.difference(&after).copied().collect::<BTreeSet<_>>());
                prop_assert!(ledger.used_by(&user).eq(&things));
                for thing in 0..6 {
                    prop_assert_eq!(ledger.is_used(&thing), after.contains(&thing));
                }
            }
        }
    }
}
