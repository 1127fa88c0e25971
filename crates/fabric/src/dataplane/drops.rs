//! Every reason for which a packet goes no further, counted; by these words an operator finds out what is wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ferro_core::network::Drop as Rule;

use crate::packet::Dropped;

/// Why a packet goes no further. What `wireguard` drops is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The rules say so.
    Rule(Rule),
    /// It is no packet.
    Malformed,
    /// It is longer than the tunnel lets through.
    TooLong,
    /// There is no session with the peer, and enough packets wait for one.
    NoSession,
    /// The network does not take it.
    NotSent,
    /// The interface does not take it.
    NotWritten,
    /// It is to this gateway, and no echo.
    NotForGateway,
}

impl Reason {
    const ALL: [Self; 11] = [
        Self::Rule(Rule::UnknownPeer),
        Self::Rule(Rule::SpoofedSource),
        Self::Rule(Rule::ForeignDestination),
        Self::Rule(Rule::NamelessSource),
        Self::Rule(Rule::NoPeer),
        Self::Malformed,
        Self::TooLong,
        Self::NoSession,
        Self::NotSent,
        Self::NotWritten,
        Self::NotForGateway,
    ];

    fn place(self) -> usize {
        match self {
            Self::Rule(Rule::UnknownPeer) => 0,
            Self::Rule(Rule::SpoofedSource) => 1,
            Self::Rule(Rule::ForeignDestination) => 2,
            Self::Rule(Rule::NamelessSource) => 3,
            Self::Rule(Rule::NoPeer) => 4,
            Self::Malformed => 5,
            Self::TooLong => 6,
            Self::NoSession => 7,
            Self::NotSent => 8,
            Self::NotWritten => 9,
            Self::NotForGateway => 10,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Rule(Rule::UnknownPeer) => "a packet of a peer that is no more",
            Self::Rule(Rule::SpoofedSource) => "a packet out of a tunnel whose sender is not the peer's",
            Self::Rule(Rule::ForeignDestination) => {
                "a packet out of a tunnel for somebody whom the peer may not reach"
            }
            Self::Rule(Rule::NamelessSource) => "a packet to a peer of somebody who has no name there",
            Self::Rule(Rule::NoPeer) => "a packet for no peer",
            Self::Malformed => "not a whole packet",
            Self::TooLong => "a packet that is too long for the tunnel",
            Self::NoSession => "a packet to a peer with whom there is no session",
            Self::NotSent => "a datagram that the network did not take",
            Self::NotWritten => "a packet that the interface did not take",
            Self::NotForGateway => "a packet to the gateway itself that is no echo",
        }
    }
}

impl From<Dropped> for Reason {
    fn from(dropped: Dropped) -> Self {
        match dropped {
            Dropped::Malformed(_) => Self::Malformed,
            Dropped::Rule(rule) => Self::Rule(rule),
        }
    }
}

impl From<Rule> for Reason {
    fn from(rule: Rule) -> Self {
        Self::Rule(rule)
    }
}

/// How many packets were dropped.
#[derive(Debug, Default)]
pub(super) struct Drops([AtomicU64; Reason::ALL.len()]);

impl Drops {
    /// Counts packets.
    pub(super) fn add(&self, reason: Reason, packets: u64) {
        if let Some(count) = self.0.get(reason.place()) {
            count.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// By reason, in words; those that never occurred are left out.
    pub(super) fn words(&self) -> BTreeMap<String, u64> {
        let counts = Reason::ALL
            .into_iter()
            .zip(&self.0)
            .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)));
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.words().to_owned(), count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_and_words_of_its_own() {
        let drops = Drops::default();
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.place(), place);
            drops.add(reason, u64::try_from(place).unwrap() + 1);
        }
        assert_eq!(drops.words().len(), Reason::ALL.len());
        assert_eq!(drops.words()[Reason::TooLong.words()], 7);
        assert!(Drops::default().words().is_empty());
    }
}
