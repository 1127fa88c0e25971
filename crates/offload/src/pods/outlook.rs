//! What is known at home about the cluster behind a virtual node: its namespaces, the way to its pods, how long a silence
//! is put up with.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferro_api::discovery::NetworkState;
use ferro_api::names::labels;
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use ferro_core::network::{Translation, pod_names, report};
use ferro_core::offloading::map_is_for;
use ferro_peering::home::Home;
use k8s_openapi::api::core::v1::Node;

/// What is known about the cluster of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outlook {
    /// The node itself: its labels, and where its agent is.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) host_ip: Option<IpAddr>,
    /// What its cluster says about our namespaces.
    pub(super) mappings: BTreeMap<String, CurrentMapping>,
    /// Whether packets get there, and how pods over there are named here.
    pub(super) tunnel_is_up: bool,
    pub(super) network: Network,
    pub(super) drain_delay: Duration,
}

/// How pods over there are named here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Network {
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
        let mapping = self.mappings.get(here)?;
        match mapping.phase {
            MappingPhase::Accepted | MappingPhase::Terminating => mapping.remote_namespace.as_deref(),
            MappingPhase::CreationLoopBackOff => None,
        }
    }
}

fn host_ip(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

fn mappings(home: &Home, own: &str, peer: &str) -> BTreeMap<String, CurrentMapping> {
    let maps = home.maps.all();
    let map = maps.iter().find(|map| map_is_for(map, own) == Some(peer));
    map.and_then(|map| map.status.as_ref()).map(|status| status.current_mapping.clone()).unwrap_or_default()
}

fn network(home: &Home, own: &str, peer: &str) -> (bool, Network) {
    let is_external = home.peers.all().iter().any(|known| {
        let id = known.spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.as_str());
        let network = known.status.as_ref().and_then(|status| status.network.as_ref());
        id == Some(peer) && network.is_some_and(|network| network.state == NetworkState::External)
    });
    if is_external {
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

/// All that is shared of it between the pods of a station.
pub(super) type Shared = Arc<Outlook>;
