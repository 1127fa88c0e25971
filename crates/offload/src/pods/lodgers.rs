//! The pods of one node of which something is over there, by namespace, and what is told of them.
//!
//! A namespace that has had some counts until a look at all of it, when it is dropped, has found nothing: watches may be
//! behind, and what a former process has left is not known by any pod at home.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferro_core::offloading::Occupants;
use ferro_runtime::queue::Queue;

use super::station::Key;
use crate::occupancy::{Occupancy, Turn};

/// The pods of one node of which something is over there.
pub(super) struct Lodgers {
    occupancy: Occupancy,
    turn: Turn,
    /// By their namespace here; nothing before anybody has looked.
    namespaces: Mutex<Option<Namespaces>>,
    /// Namespaces that no pod is known of any more.
    deserted: Queue<String>,
}

type Namespaces = HashMap<String, Guests>;

/// The pods of a namespace.
#[derive(Default)]
struct Guests {
    names: HashSet<String>,
    /// How many have come so far.
    count: u64,
}

impl Guests {
    fn take_in(&mut self, name: &str) {
        if self.names.insert(name.to_owned()) {
            self.count += 1;
        }
    }
}

impl Lodgers {
    pub(super) fn new(occupancy: Occupancy, turn: Turn) -> Self {
        Self { occupancy, turn, namespaces: Mutex::default(), deserted: Queue::default() }
    }

    /// These are all pods that may be there, and these the namespaces that something may be left in.
    pub(super) fn expect(&self, pods: impl Iterator<Item = Key>, namespaces: impl Iterator<Item = String>) {
        let mut expected: Namespaces = namespaces.map(|namespace| (namespace, Guests::default())).collect();
        for (namespace, name) in pods {
            expected.entry(namespace).or_default().take_in(&name);
        }
        self.occupancy.tell(&self.turn, occupants(&expected));
        *self.lock() = Some(expected);
        self.look_at_deserted();
    }

    /// Something of a pod is over there, or nothing is.
    pub(super) fn set(&self, key: &Key, lodges: bool) {
        let (namespace, name) = key;
        let mut known = self.lock();
        let Some(namespaces) = known.as_mut() else { return };
        if lodges {
            let is_new = !namespaces.contains_key(namespace);
            namespaces.entry(namespace.clone()).or_default().take_in(name);
            if is_new {
                self.occupancy.tell(&self.turn, occupants(namespaces));
            }
        } else if let Some(guests) = namespaces.get_mut(namespace)
            && guests.names.remove(name)
            && guests.names.is_empty()
        {
            self.deserted.push(namespace.clone());
        }
    }

    /// A pod is about to get there. Whether it may: who is told of it beforehand waits for it.
    pub(super) fn begin(&self, key: &Key) -> bool {
        let (namespace, name) = key;
        let mut known = self.lock();
        let Some(namespaces) = known.as_mut() else { return false };
        let is_new = !namespaces.contains_key(namespace);
        namespaces.entry(namespace.clone()).or_default().take_in(name);
        let may = self.occupancy.admit(&self.turn, namespace, occupants(namespaces));
        if !may && is_new {
            namespaces.remove(namespace);
        } else if !may && let Some(guests) = namespaces.get_mut(namespace) {
            guests.names.remove(name);
            self.deserted.push(namespace.clone());
        }
        may
    }

    /// The namespaces that no pod is known of any more, and that still count.
    pub(super) fn deserted(&self) -> &Queue<String> {
        &self.deserted
    }

    /// All of these are to be looked at.
    pub(super) fn look_at_deserted(&self) {
        let known = self.lock();
        for (namespace, _) in known.iter().flatten().filter(|(_, guests)| guests.names.is_empty()) {
            self.deserted.push(namespace.clone());
        }
    }

    /// How many pods a namespace has had of which none is left, if it still counts.
    pub(super) fn departed(&self, namespace: &str) -> Option<u64> {
        let known = self.lock();
        known.as_ref()?.get(namespace).filter(|guests| guests.names.is_empty()).map(|guests| guests.count)
    }

    /// Nothing was found in a namespace when so many pods had been there.
    pub(super) fn leave(&self, namespace: &str, departed: u64) {
        let mut known = self.lock();
        let Some(namespaces) = known.as_mut() else { return };
        let is_so = |guests: &Guests| guests.names.is_empty() && guests.count == departed;
        if namespaces.get(namespace).is_some_and(is_so) {
            namespaces.remove(namespace);
            self.occupancy.tell(&self.turn, occupants(namespaces));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Namespaces>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn occupants(namespaces: &Namespaces) -> Occupants {
    Occupants::Of(Arc::new(namespaces.keys().cloned().collect::<BTreeSet<String>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.to_owned(), name.to_owned())
    }

    fn of(names: &[&str]) -> Occupants {
        Occupants::Of(Arc::new(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    fn lodgers(occupancy: &Occupancy) -> Lodgers {
        occupancy.survey([("liqo-turin", "turin")].into_iter());
        Lodgers::new(occupancy.clone(), occupancy.begin("liqo-turin", "turin"))
    }

    #[test]
    fn a_namespace_is_told_with_its_first_pod_and_until_nothing_is_found_after_its_last() {
        let occupancy = Occupancy::awaited();
        let lodgers = lodgers(&occupancy);
        let told = || occupancy.occupants("turin");
        lodgers.set(&key("early", "a"), true);
        assert_eq!(told(), Occupants::Unknown);
        lodgers.expect([key("shop", "a"), key("shop", "b")].into_iter(), ["bank".to_owned()].into_iter());
        assert_eq!(told(), of(&["bank", "shop"]));
        assert_eq!((lodgers.departed("bank"), lodgers.departed("shop")), (Some(0), None));
        for name in ["a", "b", "never-there"] {
            lodgers.set(&key("shop", name), false);
        }
        assert_eq!(told(), of(&["bank", "shop"]), "something may be left");
        lodgers.leave("shop", lodgers.departed("shop").unwrap());
        lodgers.leave("bank", 0);
        assert_eq!(told(), of(&[]));
        lodgers.set(&key("bank", "a"), true);
        assert_eq!(told(), of(&["bank"]));
    }

    #[test]
    fn what_was_found_before_another_pod_came_does_not_count() {
        let occupancy = Occupancy::awaited();
        let lodgers = lodgers(&occupancy);
        lodgers.expect([].into_iter(), ["shop".to_owned()].into_iter());
        let departed = lodgers.departed("shop").unwrap();
        assert!(lodgers.begin(&key("shop", "a")));
        lodgers.leave("shop", departed);
        lodgers.set(&key("shop", "a"), false);
        lodgers.leave("shop", departed);
        assert_eq!(occupancy.occupants("turin"), of(&["shop"]));
    }

    #[test]
    fn a_pod_that_may_not_begin_is_not_counted() {
        let occupancy = Occupancy::awaited();
        let lodgers = lodgers(&occupancy);
        lodgers.expect([].into_iter(), [].into_iter());
        assert!(!occupancy.close("turin", "shop"));
        assert!(!lodgers.begin(&key("shop", "a")));
        assert_eq!((occupancy.occupants("turin"), lodgers.departed("shop")), (of(&[]), None));
        lodgers.set(&key("shop", "a"), true);
        assert_eq!(occupancy.occupants("turin"), of(&["shop"]), "what is there is there");
    }
}
