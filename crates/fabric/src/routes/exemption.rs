//! What keeps senders, as a table of nftables, and back.
//!
//! A packet that was accepted in one chain still comes by the next one, in which a CNI masquerades it. Therefore the
//! sender is translated, to itself: a connection is translated once, and whoever comes later finds it done.

use std::collections::BTreeSet;

use ferro_core::network::routes::{Exemption, Family};
use ipnet::IpNet;

use crate::netlink::nftables::{Chain, Expression, Table, Version};

/// The name of our table.
pub(super) const NAME: &str = "ferro";

const OWN: &str = "own";
const VIEWS: &str = "views";
const INSIDE: &str = "inside";
/// Behind the routing, on the way out.
const POSTROUTING: u32 = 4;
/// Before 100, where everybody else changes senders.
const EARLY: i32 = 90;

pub(super) fn version(family: Family) -> Version {
    match family {
        Family::V4 => Version::V4,
        Family::V6 => Version::V6,
    }
}

/// The table that is written for an exemption.
pub(super) fn table(exemption: &Exemption) -> Table {
    let from_to = |from: &str, to: &str| {
        let is_in = |set: &str| Expression::IsIn(set.to_owned());
        // The sender is still at hand, but `nft` shows a rule as it was written only if it is taken twice.
        let keep = [Expression::Source, Expression::Snat];
        [Expression::Destination, is_in(to), Expression::Source, is_in(from)]
            .into_iter()
            .chain(keep)
            .collect()
    };
    let mut rules = vec![from_to(OWN, VIEWS), from_to(VIEWS, INSIDE)];
    if exemption.masquerades {
        rules.push(vec![Expression::Source, Expression::IsIn(VIEWS.to_owned()), Expression::Masquerade]);
    }
    let set = |name: &str, networks: &BTreeSet<IpNet>| (name.to_owned(), networks.clone());
    Table {
        sets: [set(OWN, &exemption.own), set(VIEWS, &exemption.views), set(INSIDE, &exemption.inside)].into(),
        chain: Chain {
            name: "postrouting".into(),
            kind: "nat".into(),
            hook: POSTROUTING,
            priority: EARLY,
            rules,
        },
    }
}

/// The exemption that a table was written for; none if somebody has changed it.
pub(super) fn written_for(present: &Table) -> Option<Exemption> {
    let set = |name: &str| present.sets.get(name).cloned();
    let masquerades = present.chain.rules.len() > 2;
    let exemption = Exemption { own: set(OWN)?, views: set(VIEWS)?, inside: set(INSIDE)?, masquerades };
    (table(&exemption) == *present).then_some(exemption)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemption(masquerades: bool) -> Exemption {
        let set = |text: &str| [text.parse().unwrap()].into();
        Exemption {
            own: set("10.244.0.0/16"),
            views: set("10.0.0.0/16"),
            inside: set("192.0.2.1/32"),
            masquerades,
        }
    }

    #[test]
    fn an_exemption_is_found_again_in_its_table() {
        for masquerades in [false, true] {
            let exemption = exemption(masquerades);
            assert_eq!(written_for(&table(&exemption)), Some(exemption));
        }
    }

    #[test]
    fn a_table_that_somebody_changed_is_no_exemption() {
        let mut table = table(&exemption(true));
        table.chain.rules.swap(0, 2);
        assert_eq!(written_for(&table), None);
    }
}
