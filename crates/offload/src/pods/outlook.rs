//! What is known at home about the cluster behind a virtual node: its namespaces, the way to its pods, how long a silence
//! is put up with.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferro_api::discovery::NetworkState;
use ferro_api::names::labels;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase, NamespaceMap};
use ferro_core::network::{Translation, pod_names, report};
use ferro_core::offloading::map_is_for;
use ferro_peering::home::Home;
use k8s_openapi::api::core::v1::Node;

/// What is known about the cluster of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outlook {
    /// The node itself: its labels, and where its agent is.
    pub(crate) labels: BTreeMap<String, String>,
    pub(super) host_ip: Option<IpAddr>,
    /// What its cluster says about our namespaces.
    pub(crate) mappings: BTreeMap<String, CurrentMapping>,
    /// Whether packets get there, and how pods over there are named here.
    pub(super) tunnel_is_up: bool,
    pub(crate) network: Network,
    pub(super) drain_delay: Duration,
}

/// How pods over there are named here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Network {
    /// Not known yet.
    #[default]
    Unknown,
    /// By the same names: somebody else joins the networks.
    External,
    /// By these.
    Named(Translation),
}

impl Network {
    /// An address of a pod over there, as it is named here.
    pub(super) fn view(&self, ip: IpAddr) -> Option<IpAddr> {
        match self {
            Self::Unknown => None,
            Self::External => Some(ip),
            Self::Named(names) => names.inward(ip),
        }
    }
}

impl Outlook {
    /// What the watches say now about the node of a peer.
    pub(super) fn gather(home: &Home, own: &str, node: &str, peer: &str) -> Self {
        let node = home.nodes.get(None, node);
        let drain_delay = home.settings().advertisement().drain_delay();
        let (tunnel_is_up, network) = network(home, own, peer);
        Self {
            labels: node.as_ref().and_then(|node| node.metadata.labels.clone()).unwrap_or_default(),
            host_ip: node.as_deref().and_then(host_ip),
            mappings: mappings(home, own, peer),
            tunnel_is_up,
            network,
            drain_delay,
        }
    }

    /// Our namespaces that exist over there, or go: their names here and there.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&String, &str)> {
        self.mappings.keys().filter_map(|here| Some((here, self.namespace(here)?)))
    }

    /// The name over there of one of our namespaces, as long as there may be something in it.
    pub(super) fn namespace(&self, here: &str) -> Option<&str> {
        self.mappings.get(here).and_then(name_there)
    }
}

/// The name over there of one of our namespaces, as long as there may be something in it.
pub(crate) fn counterpart(home: &Home, own: &str, peer: &str, here: &str) -> Option<String> {
    let maps = home.maps.all();
    let map = maps.iter().find(|map| map_is_for(map, own) == Some(peer))?;
    map.status.as_ref()?.current_mapping.get(here).and_then(name_there).map(str::to_owned)
}

fn name_there(mapping: &CurrentMapping) -> Option<&str> {
    match mapping.phase {
        MappingPhase::Accepted | MappingPhase::Terminating => mapping.remote_namespace.as_deref(),
        MappingPhase::CreationLoopBackOff => None,
    }
}

fn host_ip(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

fn mappings(home: &Home, own: &str, peer: &str) -> BTreeMap<String, CurrentMapping> {
    let maps = home.maps.all();
    let map = maps.iter().find(|map| map_is_for(map, own) == Some(peer));
    let exists = |here: &str| home.namespaces.get(None, here).is_some();
    map.map(|map| present(map, exists)).unwrap_or_default()
}

/// What is not asked for any more goes, whether or not the peer has said so yet. Namespaces that nobody here has are nothing
/// but the peer's word, which could be long.
fn present(map: &NamespaceMap, exists: impl Fn(&str) -> bool) -> BTreeMap<String, CurrentMapping> {
    let mut mappings = map.status.as_ref().map(|status| status.current_mapping.clone()).unwrap_or_default();
    let is_asked_for = |here: &str| map.spec.desired_mapping.contains_key(here);
    mappings.retain(|here, _| is_asked_for(here) || exists(here));
    for (here, mapping) in &mut mappings {
        if mapping.phase == MappingPhase::Accepted && !is_asked_for(here) {
            mapping.phase = MappingPhase::Terminating;
        }
    }
    mappings
}

/// Whether packets get to a peer, and how its pods are named here.
pub(crate) fn network(home: &Home, own: &str, peer: &str) -> (bool, Network) {
    if is_external(home, peer) {
        return (true, Network::External);
    }
    let control = home
        .namespaces
        .all()
        .into_iter()
        .find(|namespace| labels::REMOTE_ID.of(&namespace.metadata) == Some(peer));
    let control = control.and_then(|namespace| namespace.metadata.name.clone());
    let tunnel = control.and_then(|control| home.networks.of(&control, own, peer).tunnel);
    let Some(tunnel) = tunnel else { return (false, Network::Unknown) };
    let connection = tunnel.status.as_ref().and_then(|status| status.connection.as_ref());
    let names = pod_names(&tunnel).map_or(Network::Unknown, Network::Named);
    (report::reaches(connection), names)
}

/// Whether somebody else joins our network with that of a peer.
pub(crate) fn is_external(home: &Home, peer: &str) -> bool {
    home.peers.all().iter().any(|known| {
        let id = known.spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.as_str());
        let network = known.status.as_ref().and_then(|status| status.network.as_ref());
        id == Some(peer) && network.is_some_and(|network| network.state == NetworkState::External)
    })
}

/// All that is shared of it between the pods of a station.
pub(crate) type Shared = Arc<Outlook>;

#[cfg(test)]
mod tests {
    use super::{MappingPhase, NamespaceMap, present};
    use serde_json::json;

    fn map() -> NamespaceMap {
        let accepted = json!({"phase": "Accepted", "remoteNamespace": "there"});
        serde_json::from_value(json!({
            "metadata": {"name": "rome"}, "spec": {"desiredMapping": {"stays": "there"}},
            "status": {"currentMapping": {"stays": accepted, "leaves": accepted}},
        }))
        .unwrap()
    }

    #[test]
    fn what_nobody_here_has_ever_asked_for_is_not_followed() {
        let present = present(&map(), |here| here == "stays");
        assert_eq!(present.keys().collect::<Vec<_>>(), ["stays"]);
    }

    #[test]
    fn a_namespace_that_is_not_asked_for_any_more_goes_before_its_peer_says_so() {
        let present = present(&map(), |_| true);
        assert_eq!(present["stays"].phase, MappingPhase::Accepted);
        assert_eq!(present["leaves"].phase, MappingPhase::Terminating);
    }
}
