//! Which namespaces have pods on which clusters: the agent of virtual nodes tells, and who drops namespaces waits for it.
//!
//! Both run in the process that leads, so that this costs no write. Nothing is lost with it: an agent that starts anew
//! looks at all pods, and until it has, every namespace counts as one that has some.
//!
//! Who drops a namespace closes it first, and looks who is in it afterwards: no pod begins where it is closed, so that what
//! was found still holds when the entry goes. It is opened again when it is gone, or asked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_core::offloading::{Index, Occupants};
use tokio::sync::watch;

/// What the agent tells. Clones are the same. Without an agent, nothing runs anywhere.
#[derive(Clone, Debug, Default)]
pub struct Occupancy(Arc<watch::Sender<Book>>);

/// All that was told.
#[derive(Debug, Default)]
pub(crate) struct Book {
    agent: Agent,
    /// Clusters and namespaces of which nothing begins there.
    closed: BTreeSet<(String, String)>,
    turns: u64,
}

#[derive(Debug, Default)]
enum Agent {
    #[default]
    Absent,
    /// It has yet to tell which nodes there are.
    Awaited,
    /// By the nodes that it looks after.
    Present(BTreeMap<String, Post>),
}

/// A node that is looked after, by one station after the other.
#[derive(Debug)]
struct Post {
    cluster: String,
    turn: u64,
    occupants: Occupants,
}

impl Post {
    fn new(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), turn: 0, occupants: Occupants::Unknown }
    }
}

/// The word of a station, which counts until there is another for its node.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    node: String,
    cluster: String,
    number: u64,
}

impl Book {
    /// Tells it to who drops namespaces.
    pub(crate) fn tell(&self, index: &mut Index) {
        match &self.agent {
            Agent::Absent => index.set_occupants(&BTreeMap::new(), &Occupants::Nobody),
            Agent::Awaited => index.set_occupants(&BTreeMap::new(), &Occupants::Unknown),
            Agent::Present(posts) => {
                let clusters: BTreeSet<&String> = posts.values().map(|post| &post.cluster).collect();
                let told = clusters.into_iter().map(|id| (id.clone(), self.occupants(id))).collect();
                index.set_occupants(&told, &Occupants::Unknown);
            }
        }
    }

    /// Of all nodes that stand for a cluster.
    fn occupants(&self, cluster: &str) -> Occupants {
        match &self.agent {
            Agent::Absent => Occupants::Nobody,
            Agent::Awaited => Occupants::Unknown,
            Agent::Present(posts) => {
                let told = posts.values().filter(|post| post.cluster == cluster);
                told.map(|post| post.occupants.clone()).reduce(Occupants::and).unwrap_or_default()
            }
        }
    }

    fn post(&mut self, node: &str) -> Option<&mut Post> {
        match &mut self.agent {
            Agent::Absent | Agent::Awaited => None,
            Agent::Present(posts) => posts.get_mut(node),
        }
    }

    /// Who had a former turn has nothing to say any more.
    fn note(&mut self, turn: &Turn, occupants: Occupants) -> bool {
        let Some(post) = self.post(&turn.node).filter(|post| post.turn == turn.number) else { return false };
        let is_news = post.occupants != occupants;
        post.occupants = occupants;
        is_news
    }
}

impl Occupancy {
    /// Of a process with an agent, which has yet to tell.
    pub fn awaited() -> Self {
        Self(Arc::new(watch::Sender::new(Book { agent: Agent::Awaited, ..Book::default() })))
    }

    /// There are these nodes, for these clusters, and no others. What was not told of one yet is not known.
    pub(crate) fn survey<'a>(&self, nodes: impl Iterator<Item = (&'a str, &'a str)>) {
        self.0.send_if_modified(|book| {
            let (mut before, mut is_news) = match take(&mut book.agent) {
                Agent::Absent | Agent::Awaited => (BTreeMap::new(), true),
                Agent::Present(posts) => (posts, false),
            };
            let mut after = BTreeMap::new();
            for (node, cluster) in nodes {
                let known = before.remove(node).filter(|post| post.cluster == cluster);
                is_news |= known.is_none();
                after.insert(node.to_owned(), known.unwrap_or_else(|| Post::new(cluster)));
            }
            book.agent = Agent::Present(after);
            is_news || !before.is_empty()
        });
    }

    /// Another station looks after a node, and has not looked yet.
    pub(crate) fn begin(&self, node: &str, cluster: &str) -> Turn {
        let mut number = 0;
        self.0.send_modify(|book| {
            book.turns += 1;
            number = book.turns;
            if let Some(post) = book.post(node) {
                (post.turn, post.occupants) = (number, Occupants::Unknown);
            }
        });
        Turn { node: node.to_owned(), cluster: cluster.to_owned(), number }
    }

    /// These namespaces have pods on the cluster of the node.
    pub(crate) fn tell(&self, turn: &Turn, occupants: Occupants) {
        self.0.send_if_modified(|book| book.note(turn, occupants));
    }

    /// A pod of a namespace is about to begin, with which these have pods there. Whether it may, and is counted from now on.
    pub(crate) fn admit(&self, turn: &Turn, namespace: &str, occupants: Occupants) -> bool {
        let place = (turn.cluster.clone(), namespace.to_owned());
        let mut is_open = false;
        self.0.send_if_modified(|book| {
            is_open = !book.closed.contains(&place);
            is_open && book.note(turn, occupants)
        });
        is_open
    }

    /// From now on nothing of a namespace begins on a cluster. Whether it has pods there, or may have.
    pub(crate) fn close(&self, cluster: &str, namespace: &str) -> bool {
        let mut is_occupied = true;
        self.0.send_if_modified(|book| {
            book.closed.insert((cluster.to_owned(), namespace.to_owned()));
            is_occupied = book.occupants(cluster).has(namespace);
            false
        });
        is_occupied
    }

    /// Only what leaves stays closed, by cluster and namespace.
    pub(crate) fn reopen(&self, leaves: impl Fn(&str, &str) -> bool) {
        self.0.send_if_modified(|book| {
            book.closed.retain(|(cluster, namespace)| leaves(cluster, namespace));
            false
        });
    }

    /// To wait for news, and to read.
    pub(crate) async fn follow(&self) -> Result<watch::Receiver<Book>> {
        let mut told = self.0.subscribe();
        told.wait_for(|book| !matches!(book.agent, Agent::Awaited))
            .await
            .context("nobody tells which namespaces have pods")?;
        Ok(told)
    }

    /// What is known of a cluster.
    #[cfg(test)]
    pub(crate) fn occupants(&self, cluster: &str) -> Occupants {
        self.0.borrow().occupants(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Occupants {
        Occupants::Of(Arc::new(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[tokio::test]
    async fn what_is_told_of_a_node_lasts_as_long_as_its_station() {
        let occupancy = Occupancy::awaited();
        assert!(occupancy.close("turin", "shop"), "nobody has told anything");
        occupancy.survey([("liqo-turin", "turin")].into_iter());
        occupancy.follow().await.unwrap();
        assert_eq!(occupancy.occupants("turin"), Occupants::Unknown);
        let former = occupancy.begin("liqo-turin", "turin");
        occupancy.tell(&former, of(&["shop"]));
        occupancy.survey([("liqo-milan", "milan"), ("liqo-turin", "turin")].into_iter());
        assert_eq!(occupancy.occupants("turin"), of(&["shop"]));
        assert_eq!(occupancy.occupants("milan"), Occupants::Unknown);
        let present = occupancy.begin("liqo-turin", "turin");
        occupancy.tell(&former, of(&[]));
        assert_eq!(occupancy.occupants("turin"), Occupants::Unknown, "it has yet to look");
        occupancy.tell(&present, of(&["bank"]));
        assert_eq!(occupancy.occupants("turin"), of(&["bank"]));
        occupancy.survey([("liqo-milan", "milan")].into_iter());
        occupancy.tell(&present, of(&[]));
        assert_eq!(occupancy.occupants("turin"), Occupants::Unknown, "nobody looks any more");
    }

    #[test]
    fn of_two_nodes_for_one_cluster_both_count() {
        let occupancy = Occupancy::awaited();
        occupancy.survey([("liqo-turin", "turin"), ("made-up", "turin")].into_iter());
        let [first, second] = ["liqo-turin", "made-up"].map(|node| occupancy.begin(node, "turin"));
        occupancy.tell(&first, of(&["shop"]));
        assert_eq!(occupancy.occupants("turin"), Occupants::Unknown);
        occupancy.tell(&second, of(&[]));
        assert_eq!(occupancy.occupants("turin"), of(&["shop"]));
    }

    #[test]
    fn nothing_begins_where_it_is_closed_and_who_was_there_before_is_seen() {
        let occupancy = Occupancy::awaited();
        occupancy.survey([("liqo-turin", "turin")].into_iter());
        let turn = occupancy.begin("liqo-turin", "turin");
        occupancy.tell(&turn, of(&[]));
        assert!(occupancy.admit(&turn, "shop", of(&["shop"])), "it was faster");
        assert!(occupancy.close("turin", "shop"), "and is seen");
        assert!(!occupancy.close("turin", "bank"));
        assert!(!occupancy.admit(&turn, "bank", of(&["bank", "shop"])));
        assert_eq!(occupancy.occupants("turin"), of(&["shop"]));
        occupancy.reopen(|cluster, namespace| (cluster, namespace) == ("turin", "shop"));
        assert!(occupancy.admit(&turn, "bank", of(&["bank", "shop"])));
        assert!(!occupancy.admit(&turn, "shop", of(&["bank", "shop"])));
    }

    #[test]
    fn without_an_agent_nothing_runs_anywhere() {
        assert!(!Occupancy::default().close("turin", "shop"));
    }
}
