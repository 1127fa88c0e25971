//! How far the gateways have come: which changes each has in force, and in which tunnels.
//!
//! A redirection is worth nothing without the tunnel to its peer, and the name of a pod is not in force before the
//! gateway has the same names as were agreed on. So a caller waits for both, and for those of its own peer alone.

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::proto::gateway::Tunnel;
use ferro_core::network::Agreement;

/// The tunnel to a peer that is in force, as a gateway tells of it and the address manager expects it.
pub fn in_force(peer: &str, agreement: &Agreement) -> Tunnel {
    let ours = agreement.ours;
    let external = ours.and_then(|ours| ours.external);
    Tunnel {
        cluster_id: peer.to_owned(),
        trouble: String::new(),
        pod_cidr: ours.map(|ours| ours.pods.there().to_string()).unwrap_or_default(),
        external_cidr: external.map(|external| external.there().to_string()).unwrap_or_default(),
        views: agreement.networks().map(|view| view.to_string()).collect(),
    }
}

/// What a caller waits for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    revision: u64,
    tunnel: Tunnel,
}

impl Wanted {
    /// All changes up to this one, and the tunnel to a peer as it was agreed on.
    pub(super) fn new(revision: u64, peer: &str, agreement: &Agreement) -> Self {
        Self { revision, tunnel: in_force(peer, agreement) }
    }
}

/// How far one gateway has come.
#[derive(Clone, Debug, Default)]
struct Reached {
    revision: u64,
    tunnels: BTreeMap<String, Tunnel>,
}

impl Reached {
    fn has(&self, wanted: &Wanted) -> bool {
        self.revision >= wanted.revision
            && self.tunnels.get(&wanted.tunnel.cluster_id) == Some(&wanted.tunnel)
    }

    /// What it lacks, given that it does not have all that is wanted.
    fn lacking(&self, wanted: &Wanted) -> String {
        let peer = &wanted.tunnel.cluster_id;
        match self.tunnels.get(peer) {
            _ if self.revision < wanted.revision => "the gateway has not confirmed it".to_owned(),
            None => format!("the gateway has no tunnel to {peer} yet"),
            Some(tunnel) if !tunnel.trouble.is_empty() => {
                format!("the gateway has no tunnel to {peer}: {}", tunnel.trouble)
            }
            Some(_) => format!("the gateway has the tunnel to {peer} under other names of the networks"),
        }
    }
}

/// How far each gateway has come, by the number of its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(BTreeMap<u64, Reached>);

impl Progress {
    pub(super) fn add(&mut self, number: u64) {
        self.0.insert(number, Reached::default());
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// Those who are here.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        self.0.keys().copied().collect()
    }

    /// Notes what a gateway said; tells whether that is news.
    pub(super) fn note(&mut self, number: u64, revision: Option<u64>, tunnels: Option<Vec<Tunnel>>) -> bool {
        let Some(reached) = self.0.get_mut(&number) else { return false };
        let further = revision.filter(|revision| *revision > reached.revision);
        reached.revision = further.unwrap_or(reached.revision);
        let tunnels = tunnels.map(|tunnels| {
            tunnels.into_iter().map(|tunnel| (tunnel.cluster_id.clone(), tunnel)).collect::<BTreeMap<_, _>>()
        });
        let other = tunnels.filter(|tunnels| *tunnels != reached.tunnels);
        let is_news = further.is_some() || other.is_some();
        if let Some(other) = other {
            reached.tunnels = other;
        }
        is_news
    }

    /// Whether all of those who were present, as far as they still are, and at least one, have it.
    pub(super) fn is_in_force(&self, present: &BTreeSet<u64>, wanted: &Wanted) -> bool {
        let lacks = |number: &u64| self.0.get(number).is_some_and(|reached| !reached.has(wanted));
        self.0.values().any(|reached| reached.has(wanted)) && !present.iter().any(lacks)
    }

    /// Why nobody has it; nothing where somebody does.
    pub(super) fn lacking(&self, wanted: &Wanted) -> Option<String> {
        if self.0.values().any(|reached| reached.has(wanted)) {
            return None;
        }
        // Who came last is the one that stays, as a rule.
        let last = self.0.values().next_back();
        Some(last.map_or_else(|| "no gateway is connected".to_owned(), |reached| reached.lacking(wanted)))
    }

    /// Those of the present who do not confirm changes. Who only has no tunnel to this peer may serve all others.
    pub(super) fn laggards(&self, present: &BTreeSet<u64>, wanted: &Wanted) -> Vec<u64> {
        let is_behind = |(number, reached): &(&u64, &Reached)| {
            present.contains(number) && reached.revision < wanted.revision
        };
        self.0.iter().filter(is_behind).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ferro_core::network::{Ours, Translation};

    use super::*;

    /// What was agreed with a peer that calls our pods 10.N.0.0/16.
    pub(in super::super) fn agreement(number: u8) -> Agreement {
        let network = |text: String| text.parse().unwrap();
        let pods = Translation::new(network("10.0.0.0/16".into()), network(format!("10.{number}.0.0/16")));
        let their_pods = Translation::identity(network("10.99.0.0/16".into()));
        let ours = Some(Ours { pods: pods.unwrap(), external: None });
        Agreement { their_pods, their_external: None, ours }
    }

    #[test]
    fn all_who_were_there_count_and_one_is_needed() {
        let both = BTreeSet::from([1, 2]);
        let wanted = Wanted::new(5, "a", &agreement(7));
        for (reached, is_enough) in [
            (&[(1, 5), (2, 5)][..], true),
            (&[(1, 5), (2, 4)], false),
            (&[(1, 5)], true),
            (&[], false),
            (&[(3, 5)], true),
            (&[(1, 5), (2, 6), (3, 0)], true),
        ] {
            let mut progress = Progress::default();
            for (number, revision) in reached {
                progress.add(*number);
                assert!(progress.note(*number, Some(*revision), Some(vec![in_force("a", &agreement(7))])));
                assert!(!progress.note(*number, Some(*revision), None), "it was said before");
            }
            assert_eq!(progress.is_in_force(&both, &wanted), is_enough, "{reached:?}");
        }
    }
}
