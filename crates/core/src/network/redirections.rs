//! Endpoints that are published to a peer, each with the address that stands for it, found by either.
//!
//! There may be a hundred thousand of them, and every change makes another table of the gateway. A clone shares all that
//! does not change, so that a change costs what changes, and not what there is.

use std::net::IpAddr;

use rpds::HashTrieMapSync;

use super::Trouble;
use super::config::parse;

/// Endpoints and addresses, one for the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirections {
    addresses: HashTrieMapSync<IpAddr, IpAddr>,
    endpoints: HashTrieMapSync<IpAddr, IpAddr>,
}

impl Redirections {
    /// An endpoint and its address, as they are written.
    pub fn read(endpoint: &str, address: &str) -> Result<(IpAddr, IpAddr), Trouble> {
        let endpoint: IpAddr = parse("a key of clusterMappings", endpoint, "an address")?;
        let address: IpAddr = parse("clusterMappings", address, "an address")?;
        if endpoint.is_ipv4() == address.is_ipv4() {
            Ok((endpoint, address))
        } else {
            Err(Trouble::Families(endpoint, address))
        }
    }

    /// Adds one; what was there before counts more.
    pub fn insert(&mut self, endpoint: IpAddr, address: IpAddr) -> Result<(), Trouble> {
        match (self.address(&endpoint), self.endpoint(&address)) {
            (Some(other), _) if other != address => Err(Trouble::Twice(endpoint, other)),
            (Some(_), _) => Ok(()),
            (None, Some(other)) => Err(Trouble::Taken(address, other)),
            (None, None) => {
                self.addresses.insert_mut(endpoint, address);
                self.endpoints.insert_mut(address, endpoint);
                Ok(())
            }
        }
    }

    /// Takes one away, if it is there.
    pub fn remove(&mut self, endpoint: &IpAddr) {
        let Some(address) = self.address(endpoint) else { return };
        self.addresses.remove_mut(endpoint);
        self.endpoints.remove_mut(&address);
    }

    /// The address that stands for an endpoint.
    pub fn address(&self, endpoint: &IpAddr) -> Option<IpAddr> {
        // Most have none, and packets ask.
        if self.addresses.is_empty() { None } else { self.addresses.get(endpoint).copied() }
    }

    /// The endpoint behind an address.
    pub fn endpoint(&self, address: &IpAddr) -> Option<IpAddr> {
        if self.endpoints.is_empty() { None } else { self.endpoints.get(address).copied() }
    }

    /// All endpoints with their addresses, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.addresses.iter().map(|(endpoint, address)| (*endpoint, *address))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.addresses.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Whether one is a clone of the other, and neither has changed since; or both are empty. This is known without
    /// looking at them; equal ones that came about apart are not found out.
    pub fn is_same(&self, other: &Self) -> bool {
        self.addresses.ptr_eq(&other.addresses) || (self.is_empty() && other.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ip(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    #[test]
    fn what_was_there_counts_more_and_an_address_is_free_again() {
        let mut some = Redirections::default();
        some.insert(ip(1), ip(101)).unwrap();
        let before = some.clone();
        assert!(some.insert(ip(1), ip(101)).is_ok() && some.is_same(&before), "nothing has changed");
        assert_eq!(some.insert(ip(1), ip(102)), Err(Trouble::Twice(ip(1), ip(101))));
        assert_eq!(some.insert(ip(2), ip(101)), Err(Trouble::Taken(ip(101), ip(1))));
        some.remove(&ip(1));
        some.insert(ip(2), ip(101)).unwrap();
        assert_eq!((some.endpoint(&ip(101)), some.address(&ip(1))), (Some(ip(2)), None));
        assert_eq!(before.endpoint(&ip(101)), Some(ip(1)), "who has the former is not disturbed");
        assert!(!some.is_same(&before) && some != before);
        assert!(Redirections::default().is_same(&Redirections::default()));
        assert!(Redirections::read("10.0.0.1", "fd00::1").is_err() && Redirections::read("x", "y").is_err());
    }

    proptest! {
        #[test]
        fn each_is_found_by_either(steps in proptest::collection::vec((any::<bool>(), 0_u8..20, 0_u8..20), 0..200)) {
            let (mut some, mut model) = (Redirections::default(), BTreeMap::new());
            for (is_added, endpoint, address) in steps {
                let (endpoint, address) = (ip(endpoint), ip(100 + address));
                if !is_added {
                    some.remove(&endpoint);
                    model.remove(&endpoint);
                } else if some.insert(endpoint, address).is_ok() {
                    prop_assert!(model.values().all(|other| *other != address) || model.get(&endpoint) == Some(&address));
                    model.insert(endpoint, address);
                }
                prop_assert_eq!(&some.entries().collect::<BTreeMap<_, _>>(), &model);
                prop_assert_eq!(some.len(), model.len());
                for (endpoint, address) in &model {
                    prop_assert_eq!(some.endpoint(address), Some(*endpoint));
                }
                prop_assert_eq!(some.endpoints.size(), model.len());
            }
        }
    }
}
