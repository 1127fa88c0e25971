//! The ports of virtual nodes: one each, since whoever scrapes a kubelet names no node, and all have one address.

use std::collections::{BTreeMap, BTreeSet};

/// So many nodes have a port of their own.
const MOST: u16 = 1024;

/// A port for each node, from the first on. Who has one keeps it; the first node by name has the first port.
pub fn assign(
    present: &BTreeMap<String, u16>,
    nodes: &BTreeSet<String>,
    first: u16,
) -> BTreeMap<String, u16> {
    let mut ports: BTreeMap<String, u16> = present
        .iter()
        .filter(|(node, _)| nodes.contains(*node))
        .map(|(node, port)| (node.clone(), *port))
        .collect();
    let taken: BTreeSet<u16> = ports.values().copied().collect();
    let last = first.saturating_add(MOST - 1);
    let free = (first..=last).filter(|port| !taken.contains(port));
    let new: Vec<&String> = nodes.iter().filter(|node| !present.contains_key(*node)).collect();
    ports.extend(new.into_iter().cloned().zip(free));
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_node_has_a_port_of_its_own_and_keeps_it() {
        let one = assign(&BTreeMap::new(), &nodes(&["turin"]), 10_250);
        assert_eq!(one["turin"], 10_250);
        let three = assign(&one, &nodes(&["milan", "rome", "turin"]), 10_250);
        assert_eq!((three["turin"], three["milan"], three["rome"]), (10_250, 10_251, 10_252));
        let two = assign(&three, &nodes(&["rome", "venice"]), 10_250);
        assert_eq!((two["rome"], two["venice"], two.len()), (10_252, 10_250, 2));
        assert_eq!(assign(&two, &nodes(&["rome", "venice"]), 10_250), two);
    }

    #[test]
    fn there_are_only_so_many() {
        let many: BTreeSet<String> = (0..2000).map(|number| number.to_string()).collect();
        let ports = assign(&BTreeMap::new(), &many, 10_250);
        assert_eq!(ports.len(), 1024);
        assert_eq!(ports.values().collect::<BTreeSet<_>>().len(), 1024);
    }
}
