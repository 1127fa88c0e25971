//! How one namespace fares on one cluster: whether it is wanted there, under which name, and what became of it.

use ferro_api::names::{annotations, finalizers};
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use k8s_openapi::jiff::Timestamp;

use super::cluster::{Cluster, is_going, is_held};
use super::index::{Index, Offloading};
use super::standing;
use super::wish::Wish;
use crate::peering::plain;
use crate::policy::Reason;

/// What a cluster is to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    /// Nothing.
    Nothing,
    /// The namespace, under this name.
    Name(&'a str),
    /// It is wanted, and cannot be had.
    Refused(Reason),
    /// It is wanted, and something has to go first.
    Later(Reason),
}

impl Wanted<'_> {
    /// The entry in the map.
    pub(super) fn entry(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Nothing | Self::Refused(_) | Self::Later(_) => None,
        }
    }
}

/// What became of a namespace on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Whether it is wanted there.
    pub(super) required: bool,
    pub(super) fate: Fate,
}

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Created(Reason),
    Awaited(Reason),
    Failed(Reason),
    Going(Reason),
}

impl Offloading {
    pub(super) fn is_going(&self) -> bool {
        is_going(&self.object.metadata)
    }

    pub(super) fn is_held(&self) -> bool {
        is_held(&self.object.metadata, finalizers::OFFLOADING)
    }

    /// Whether it goes without waiting for other clusters.
    pub(super) fn is_forced(&self) -> bool {
        standing::is_forced(&self.object)
    }

    /// Whether it is the label's, and goes with it.
    pub(super) fn is_made_by_label(&self) -> bool {
        annotations::CREATED_BY_LABEL.of(&self.object.metadata) == Some("true")
    }

    /// Whether its namespace is to be on a cluster. One whose node is missing for the moment keeps what it has.
    pub(super) fn selects(&self, namespace: &str, cluster: &Cluster) -> bool {
        let matches = || {
            let selector = self.selector.as_ref().ok();
            selector
                .zip(cluster.node())
                .is_some_and(|(selector, (name, labels))| selector.matches(name, labels))
        };
        let stays = || cluster.desired(namespace).is_some() && (cluster.node().is_none() || matches());
        !self.is_going()
            && match cluster.wish() {
                Wish::Part => false,
                Wish::Keep => stays(),
                Wish::Map => matches() || (cluster.node().is_none() && stays()),
            }
    }

    /// Whether a namespace that is not wanted on a cluster any more stays there for the sake of its pods.
    pub(super) fn lingers(&self, namespace: &str, cluster: &Cluster) -> bool {
        !self.is_forced() && !cluster.is_lost() && cluster.is_occupied(namespace)
    }

    /// Who comes first, of those that want the same name: the older one.
    fn age<'a>(&self, namespace: &'a str) -> (Option<Timestamp>, &'a str) {
        (self.object.metadata.creation_timestamp.as_ref().map(|time| time.0), namespace)
    }
}

impl Index {
    /// What a cluster is to be asked for, for the sake of an offloading. What it was asked for otherwise goes first, after its
    /// pods.
    pub(super) fn wanted<'a>(
        &self,
        namespace: &str,
        offloading: &'a Offloading,
        cluster: &Cluster,
    ) -> Wanted<'a> {
        let wanted = self.wished(namespace, offloading, cluster);
        let is_asked_for = wanted.entry() == cluster.desired(namespace);
        if !is_asked_for && offloading.lingers(namespace, cluster) { Wanted::Nothing } else { wanted }
    }

    fn wished<'a>(&self, namespace: &str, offloading: &'a Offloading, cluster: &Cluster) -> Wanted<'a> {
        if !offloading.selects(namespace, cluster) {
            return Wanted::Nothing;
        }
        let remote = match &offloading.remote {
            Ok(remote) => remote,
            Err(why) => return Wanted::Refused(Reason::new(why.word(), why.to_string())),
        };
        if let Some(rival) = self.rival(namespace, offloading, remote, cluster) {
            return Wanted::Refused(taken(remote, rival));
        }
        let present = cluster.current(namespace).and_then(|current| current.remote_namespace.as_deref());
        // Who is asked for it already, and says another name, may do so for ever: it is not asked anew in circles.
        let is_asked_for = cluster.desired(namespace) == Some(remote);
        match present.filter(|present| present != remote && !is_asked_for) {
            Some(other) => Wanted::Later(Reason::new(GOES, format!("{other} has to go first"))),
            None => Wanted::Name(remote),
        }
    }

    /// Another namespace that has the name on a cluster, or comes before this one: nobody is driven out.
    fn rival(
        &self,
        namespace: &str,
        offloading: &Offloading,
        remote: &str,
        cluster: &Cluster,
    ) -> Option<&str> {
        let is_asked_for = |name: &str| cluster.desired(name) == Some(remote);
        let is_there = |name: &str| {
            let current = cluster.current(name).and_then(|current| current.remote_namespace.as_deref());
            is_asked_for(name) || current == Some(remote)
        };
        let others = self.claims.get(remote)?.iter().filter(|other| *other != namespace);
        let mut others = others.filter_map(|other| self.offloadings.get_key_value(other));
        let comes_first = |(other, rival): &(&String, &Offloading)| {
            let is_older = rival.age(other) < offloading.age(namespace);
            match (is_asked_for(namespace), is_there(other)) {
                (true, false) => false,
                (false, true) => true,
                (true, true) => is_older,
                (false, false) => is_older && rival.selects(other, cluster),
            }
        };
        others.find(comes_first).map(|(other, _)| other.as_str())
    }

    /// The clusters that an offloading which goes has to wait for, by identifier. Where the peering ends, the map is
    /// waited for instead; where nobody can remove anything, nobody waits.
    pub(super) fn waits_for(&self, namespace: &str) -> Vec<(&str, &Cluster)> {
        let holds =
            |cluster: &&Cluster| cluster.has(namespace) && cluster.wish() != Wish::Part && !cluster.is_lost();
        let clusters = self.clusters.iter().map(|(id, cluster)| (id.as_str(), cluster));
        clusters.filter(|(_, cluster)| holds(cluster)).collect()
    }
}

/// What became of a namespace on a cluster; nothing if it is neither wanted nor there.
pub(super) fn outlook(namespace: &str, id: &str, cluster: &Cluster, wanted: &Wanted<'_>) -> Option<Outlook> {
    let peer = cluster.name(id);
    let fate = match wanted {
        Wanted::Nothing if !cluster.has(namespace) => return None,
        Wanted::Nothing => Fate::Going(goes(peer, namespace, cluster)),
        Wanted::Refused(reason) => Fate::Failed(reason.clone()),
        Wanted::Later(reason) => Fate::Awaited(reason.clone()),
        Wanted::Name(name) => {
            let current = cluster.current(namespace);
            let current =
                current.filter(|current| current.remote_namespace.as_deref().is_none_or(|is| is == *name));
            current.map_or_else(
                || Fate::Awaited(unanswered(peer, cluster)),
                |current| answered(peer, name, current),
            )
        }
    };
    Some(Outlook { required: *wanted != Wanted::Nothing, fate })
}

const GOES: &str = "RemoteNamespaceGoes";
/// The word of a namespace that waits for its pods.
pub(super) const PODS_GO: &str = "PodsGo";

/// What the peer says of a namespace.
fn answered(peer: &str, name: &str, current: &CurrentMapping) -> Fate {
    let said = current.message.as_deref().map(plain);
    match current.phase {
        MappingPhase::Accepted => Fate::Created(Reason::new("Created", format!("{name} exists on {peer}"))),
        MappingPhase::CreationLoopBackOff => {
            let said = said.unwrap_or_else(|| "no reason is given".to_owned());
            Fate::Failed(Reason::new(
                "CreationFailed",
                format!("{peer} cannot create {name}; it says: {said}"),
            ))
        }
        MappingPhase::Terminating => {
            let text = format!("{name} is being removed on {peer}, and is created again when it is gone");
            Fate::Awaited(Reason::new(GOES, text))
        }
    }
}

fn unanswered(peer: &str, cluster: &Cluster) -> Reason {
    if cluster.is_silent() {
        return Reason::new("PeerUnreachable", format!("{peer} is silent, and is asked when it is back"));
    }
    let text = format!("{peer} has not answered yet; if this lasts, is its controller running?");
    Reason::new("WaitsForPeer", text)
}

fn goes(peer: &str, namespace: &str, cluster: &Cluster) -> Reason {
    if cluster.is_silent() {
        return Reason::new("PeerUnreachable", format!("{peer} is silent, and removes it when it is back"));
    }
    if cluster.is_occupied(namespace) {
        let text =
            format!("its pods on {peer} are deleted first, so that their owners make them again elsewhere");
        return Reason::new(PODS_GO, text);
    }
    Reason::new(GOES, format!("{peer} is asked to remove it"))
}

fn taken(remote: &str, rival: &str) -> Reason {
    let text = format!(
        "the namespace {rival} has the name {remote} there already; rename one of the two, or let them select different \
         clusters"
    );
    Reason::new("NameTaken", text)
}
