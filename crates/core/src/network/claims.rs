//! Addresses of our external network that others wrote into a `NatMapping` without having asked the address manager.
//!
//! It gives none of them to another endpoint; and who asks for the very endpoint gets the address that it has already, so
//! that the answer contradicts nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What others wrote, under our own name for the external network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// By address, the endpoints that it stands for: several where peers differ.
    endpoints: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// By endpoint and peer.
    addresses: BTreeMap<IpAddr, BTreeMap<String, IpAddr>>,
}

impl Claims {
    /// For this peer an address stands for an endpoint.
    pub(super) fn add(&mut self, peer: &str, endpoint: IpAddr, address: IpAddr) {
        self.endpoints.entry(address).or_default().insert(endpoint);
        self.addresses.entry(endpoint).or_default().insert(peer.to_owned(), address);
    }

    /// Whether somebody uses an address.
    pub fn contains(&self, address: &IpAddr) -> bool {
        self.endpoints.contains_key(address)
    }

    /// The address that an endpoint has for this peer, or else for another one, and that stands for nothing else.
    pub(super) fn address(&self, peer: Option<&str>, endpoint: &IpAddr) -> Option<IpAddr> {
        let by_peer = self.addresses.get(endpoint)?;
        let first = peer.and_then(|peer| by_peer.get(peer));
        let is_its_own = |ip: &&IpAddr| self.endpoints.get(*ip).is_some_and(|all| all.len() == 1);
        first.into_iter().chain(by_peer.values()).find(is_its_own).copied()
    }

    /// How many addresses are used.
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_its_address_for_the_peer_that_asks_if_it_can() {
        let ip = |last| IpAddr::from([192, 168, 0, last]);
        let (node, other) = (IpAddr::from([172, 18, 0, 3]), IpAddr::from([172, 18, 0, 4]));
        let mut claims = Claims::default();
        assert_eq!(claims.address(Some("a"), &node), None);
        claims.add("a", node, ip(5));
        claims.add("b", node, ip(6));
        assert_eq!(claims.address(Some("b"), &node), Some(ip(6)));
        assert_eq!(
            claims.address(Some("c"), &node),
            Some(ip(5)),
            "to stay with it when it is published to a"
        );
        assert_eq!(claims.address(None, &node), Some(ip(5)));
        // Another peer has something else at the address.
        claims.add("c", other, ip(6));
        assert_eq!(claims.address(Some("b"), &node), Some(ip(5)));
        assert_eq!(claims.address(Some("c"), &other), None);
        assert!(claims.contains(&ip(6)) && !claims.contains(&ip(7)));
        assert_eq!(claims.len(), 2);
    }
}
