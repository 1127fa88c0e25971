//! Who needs which endpoints, and the addresses that these are known to have.
//!
//! An answer is remembered only if nothing was given back, and nothing else agreed on, since it was asked for: otherwise
//! nobody knows in which order the address manager heard of the two.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use ferro_core::reflection::Ledger;

use super::User;

/// All that is known about the endpoints that one peer is told of.
#[derive(Default)]
pub(super) struct Book {
    names: HashMap<IpAddr, IpAddr>,
    users: Ledger<User, IpAddr>,
    /// How often addresses have ceased to be what they were.
    epoch: u64,
}

/// What somebody who needs endpoints finds.
pub(super) struct Found {
    /// The addresses that are known.
    pub(super) known: HashMap<IpAddr, IpAddr>,
    /// The endpoints to ask for.
    pub(super) missing: Vec<IpAddr>,
    /// Since when.
    pub(super) epoch: u64,
}

impl Book {
    /// From now on somebody needs these besides what it needed before.
    pub(super) fn hold(&mut self, user: &User, endpoints: &BTreeSet<IpAddr>) -> Found {
        self.users.hold(user, endpoints);
        let known = |endpoint: &IpAddr| Some((*endpoint, *self.names.get(endpoint)?));
        let missing = endpoints.iter().filter(|endpoint| !self.names.contains_key(*endpoint));
        Found {
            known: endpoints.iter().filter_map(known).collect(),
            missing: missing.copied().collect(),
            epoch: self.epoch,
        }
    }

    /// Remembers the answers to who has asked since then. Whether they can be relied on; otherwise it is to ask again.
    pub(super) fn learn(&mut self, since: u64, answers: &HashMap<IpAddr, IpAddr>) -> bool {
        let is_reliable = since == self.epoch || answers.is_empty();
        if is_reliable {
            self.names.extend(answers);
        }
        is_reliable
    }

    /// From now on somebody needs none but these. Those that nobody needs any more, which are to be given back.
    pub(super) fn keep(&mut self, user: &User, endpoints: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let idle = self.users.keep(user, endpoints);
        for endpoint in &idle {
            self.names.remove(endpoint);
        }
        idle
    }

    /// No slice of a namespace needs anything any more. Those that nobody does, which are to be given back.
    pub(super) fn leave(&mut self, namespace: &str) -> Vec<IpAddr> {
        let is_of = |user: &&User| matches!(user, User::Slice(slice) if slice.0 == namespace);
        let slices: Vec<User> = self.users.all().filter(is_of).cloned().collect();
        slices.iter().flat_map(|slice| self.keep(slice, &BTreeSet::new())).collect()
    }

    /// These have been given back. Who has come to need one of them meanwhile, and is to be looked at again.
    pub(super) fn returned(&mut self, endpoints: &[IpAddr]) -> Vec<User> {
        if endpoints.is_empty() {
            return Vec::new();
        }
        self.epoch += 1;
        for endpoint in endpoints {
            self.names.remove(endpoint);
        }
        endpoints.iter().flat_map(|endpoint| self.users.users(endpoint)).cloned().collect()
    }

    /// All addresses are others from now on.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
        self.names.clear();
    }

    /// Those of the endpoints that nobody needs.
    pub(super) fn idle(&self, endpoints: BTreeSet<IpAddr>) -> Vec<IpAddr> {
        endpoints.into_iter().filter(|endpoint| !self.users.is_used(endpoint)).collect()
    }
}

#[cfg(test)]
mod tests {
    use ferro_core::reflection::Kind;

    use super::*;

    fn slice(namespace: &str, name: &str) -> User {
        User::Slice((namespace.into(), Kind::EndpointSlice, name.into()))
    }

    fn ips<const N: usize>(last: [u8; N]) -> BTreeSet<IpAddr> {
        last.map(|last| IpAddr::from([10, 0, 0, last])).into()
    }

    fn names<const N: usize>(last: [u8; N]) -> HashMap<IpAddr, IpAddr> {
        last.map(|last| (IpAddr::from([10, 0, 0, last]), IpAddr::from([10, 7, 0, last]))).into()
    }

    #[test]
    fn what_is_needed_is_asked_for_once_and_given_back_when_nobody_needs_it() {
        let (mut book, one, other) = (Book::default(), slice("shop", "a"), slice("shop", "b"));
        let found = book.hold(&one, &ips([1, 2]));
        assert_eq!((found.known.len(), found.missing.len()), (0, 2));
        assert!(book.learn(found.epoch, &names([1])), "the other one is to come");
        assert!(book.keep(&one, &ips([1, 2])).is_empty(), "what it waits for it keeps");
        let found = book.hold(&other, &ips([1]));
        assert_eq!((found.known, found.missing.len()), (names([1]), 0));
        assert_eq!(book.keep(&one, &ips([])), [IpAddr::from([10, 0, 0, 2])]);
        assert_eq!(book.idle(ips([1, 2])), [IpAddr::from([10, 0, 0, 2])]);
    }

    #[test]
    fn an_answer_from_before_something_was_given_back_is_not_remembered() {
        let (mut book, one, other) = (Book::default(), slice("shop", "a"), slice("shop", "b"));
        let found = book.hold(&one, &ips([1, 2]));
        assert!(book.learn(found.epoch, &names([1, 2])));
        let idle = book.keep(&one, &ips([]));
        // Before the address manager hears of that, it answers another one about 2, who waits for 3.
        let found = book.hold(&other, &ips([2, 3]));
        assert_eq!(book.returned(&idle), std::slice::from_ref(&other), "it needs what was given back");
        assert!(!book.learn(found.epoch, &names([2, 3])), "it is to ask again");
        let found = book.hold(&other, &ips([2, 3]));
        assert_eq!(found.missing.len(), 2);
        assert!(book.learn(found.epoch, &names([2, 3])));
        assert!(book.returned(&[]).is_empty());
        assert!(book.hold(&other, &ips([2, 3])).missing.is_empty(), "nothing was given back");
    }

    #[test]
    fn a_namespace_that_leaves_takes_along_what_no_other_needs_and_may_come_back_at_once() {
        let (mut book, one, other) = (Book::default(), slice("shop", "a"), slice("bank", "a"));
        let (found, pod) = (book.hold(&one, &ips([1, 2, 3])), User::Pod(("shop".into(), "web".into())));
        book.learn(found.epoch, &names([1, 2, 3]));
        book.hold(&other, &ips([2]));
        book.hold(&pod, &ips([3]));
        let idle = book.leave("shop");
        assert_eq!(idle, [IpAddr::from([10, 0, 0, 1])]);
        // It is offloaded again before the address manager has heard of that, and somebody was still at work.
        assert!(book.learn(found.epoch, &names([1])));
        assert_eq!(book.hold(&one, &ips([1])).known, names([1]));
        assert_eq!(book.returned(&idle), std::slice::from_ref(&one), "it is to ask again");
        assert_eq!(book.hold(&one, &ips([1])).missing.len(), 1);
        assert!(book.leave("elsewhere").is_empty());
    }

    #[test]
    fn an_answer_from_before_something_else_was_agreed_on_is_not_remembered() {
        let (mut book, one) = (Book::default(), slice("shop", "a"));
        let found = book.hold(&one, &ips([1]));
        book.forget();
        assert!(!book.learn(found.epoch, &names([1])));
        assert!(book.learn(found.epoch, &HashMap::new()), "nothing was asked for");
        assert_eq!(book.hold(&one, &ips([1])).missing.len(), 1);
    }
}
