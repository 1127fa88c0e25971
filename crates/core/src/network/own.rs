//! The networks of this cluster: as they are configured, or else as its own objects show them.
//!
//! Kubernetes nowhere says what the network of all pods is; only what each node has of it. So it is taken to have the
//! usual room for 256 nodes, and whoever knows better says so in the configuration. What was once told to peers stays
//! until it is said otherwise: [`stray`] tells of a node that lies outside.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferro_api::config::LiqonetConfig;
use ferro_api::names::labels;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::ResourceExt as _;

use super::acquisition::shortest_mask;
use super::{Ipam, Networks, OwnNetworks};

/// So many bits the network of all pods is wider than that of one node, unless more are needed.
const ROOM: u8 = 8;
/// The `ServiceCIDR` that every cluster has.
const DEFAULT_SERVICES: &str = "kubernetes";

/// A network of this cluster that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownNetwork {
    /// No node has a network for pods.
    #[error(
        "the network of this cluster's pods is not known; set liqonetConfig.podCIDR in the ClusterConfig"
    )]
    Pods,
    /// The networks of the nodes have too little in common.
    #[error(
        "the network of this cluster's pods is not clear from those of its nodes, such as {0} and {1}; set \
         liqonetConfig.podCIDR in the ClusterConfig"
    )]
    PodsUnclear(IpNet, IpNet),
    /// What would be the network of pods also holds something else.
    #[error(
        "the network of this cluster's pods is taken to be {0}, which also holds {1}; set liqonetConfig.podCIDR \
         in the ClusterConfig"
    )]
    PodsAmongOthers(IpNet, IpNet),
    /// Pods have addresses of IPv6 only, as far as is known.
    #[error(
        "the pods of this cluster are in {0}, a network of IPv6, which cannot be joined yet; if they have addresses of \
         IPv4, too, set liqonetConfig.podCIDR in the ClusterConfig to the network of these"
    )]
    PodsOfV6(IpNet),
    /// There is no `ServiceCIDR`.
    #[error(
        "the network of this cluster's services is not known; set liqonetConfig.serviceCIDR in the ClusterConfig"
    )]
    Services,
    /// A setting is not a network.
    #[error("{1:?} in liqonetConfig.{0} of the ClusterConfig is not a network")]
    Unreadable(&'static str, String),
}

/// The networks of this cluster. `stored` is the network of pods that was told to peers before.
pub fn own_networks<'a>(
    config: &LiqonetConfig,
    nodes: impl IntoIterator<Item = &'a Node>,
    services: &[ServiceCIDR],
    stored: Option<IpNet>,
) -> Result<OwnNetworks, UnknownNetwork> {
    let nodes: Vec<&Node> = nodes.into_iter().filter(|node| is_real(node)).collect();
    let known = services_of(services);
    let configured = config.service_cidr.as_ref().map(|text| network("serviceCIDR", text)).transpose()?;
    // No network of a peer may hide a node.
    let of_nodes = nodes.iter().flat_map(|node| addresses(node, &["InternalIP", "ExternalIP"]));
    let mut reserved: BTreeSet<IpNet> = of_nodes.map(IpNet::from).collect();
    let pod = match (&config.pod_cidr, stored) {
        (Some(text), _) => network("podCIDR", text)?,
        (None, Some(stored)) => stored,
        (None, None) => {
            let others: Networks = reserved.iter().chain(&known).chain(&configured).copied().collect();
            pods_of(&nodes, &others)?
        }
    };
    // Each peer would refuse it, one after the other.
    if pod.addr().is_ipv6() {
        return Err(UnknownNetwork::PodsOfV6(pod));
    }
    let service = match configured {
        Some(service) => service,
        None => known.iter().copied().find(|it| is_alike(it, &pod)).ok_or(UnknownNetwork::Services)?,
    };
    reserved.extend(known.into_iter().filter(|network| *network != service));
    for text in &config.reserved_cidrs {
        reserved.insert(network("reservedCIDRs", text)?);
    }
    let pools = config.pools().iter().map(|text| network("pools", text)).collect::<Result<_, _>>()?;
    Ok(OwnNetworks { pod, service, reserved, pools, reach: config.reach() })
}

impl OwnNetworks {
    /// Keeps these hosts reachable, too: no network of a peer may hide them.
    pub fn reserve(&mut self, hosts: impl IntoIterator<Item = IpAddr>) {
        self.reserved.extend(hosts.into_iter().map(IpNet::from));
    }
}

/// The addresses at which nodes know each other.
pub fn node_addresses<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> BTreeSet<IpAddr> {
    let real = nodes.into_iter().filter(|node| is_real(node));
    real.flat_map(|node| addresses(node, &["InternalIP"])).collect()
}

/// The first network that is to be kept free and was given to a peer before that was known: the peer, its network, and
/// what that hides.
pub fn hidden(ipam: &Ipam) -> Option<(&String, IpNet, IpNet)> {
    let reserved: Networks = ipam.own().reserved.iter().copied().collect();
    ipam.peers().iter().find_map(|(peer, agreement)| {
        let hides = |network: IpNet| Some((peer, network, *reserved.overlapping(&network)?));
        agreement.networks().find_map(hides)
    })
}

/// The first node whose pods are not in the network of pods, and where they are.
pub fn stray<'a>(nodes: impl IntoIterator<Item = &'a Node>, pod: &IpNet) -> Option<(String, IpNet)> {
    let of_nodes = nodes.into_iter().filter(|node| is_real(node));
    let mut of_nodes = of_nodes.filter_map(|node| Some((node.name_any(), pods_of_node(node)?)));
    of_nodes.find(|(_, network)| !pod.contains(network))
}

fn is_real(node: &Node) -> bool {
    !labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata)
}

fn network(field: &'static str, text: &str) -> Result<IpNet, UnknownNetwork> {
    let read: Option<IpNet> = text.parse().ok();
    read.map(|network| network.trunc()).ok_or_else(|| UnknownNetwork::Unreadable(field, text.to_owned()))
}

/// One network around those of all nodes, of the family that comes first on them. It has less room for nodes to come
/// where it would hold others, too: the nodes themselves, or services.
fn pods_of(nodes: &[&Node], others: &Networks) -> Result<IpNet, UnknownNetwork> {
    let of_nodes: Vec<IpNet> = nodes.iter().filter_map(|node| pods_of_node(node)).collect();
    let (Some(first), Some(last)) = (of_nodes.iter().min(), of_nodes.iter().max()) else {
        return Err(UnknownNetwork::Pods);
    };
    let unclear = || UnknownNetwork::PodsUnclear(*first, *last);
    let widest = of_nodes.iter().map(IpNet::prefix_len).min().unwrap_or_default();
    let length = widest.saturating_sub(ROOM).max(shortest_mask(first));
    let mut around = IpNet::new(first.network(), length).map_err(|_| unclear())?.trunc();
    while !of_nodes.iter().all(|network| around.contains(network)) {
        let wider = around.supernet().filter(|wider| wider.prefix_len() >= shortest_mask(wider));
        around = wider.ok_or_else(unclear)?;
    }
    while let Some(other) = others.overlapping(&around) {
        let narrower = around.prefix_len() + 1;
        let half = IpNet::new(first.network(), narrower).map(|half| half.trunc()).ok();
        let half = half.filter(|half| of_nodes.iter().all(|network| half.contains(network)));
        around = half.ok_or(UnknownNetwork::PodsAmongOthers(around, *other))?;
    }
    Ok(around)
}

fn pods_of_node(node: &Node) -> Option<IpNet> {
    let spec = node.spec.as_ref()?;
    let first = spec.pod_cidrs.as_ref().and_then(|networks| networks.first()).or(spec.pod_cidr.as_ref())?;
    first.parse().ok()
}

/// All networks of services, that of the cluster's beginning first.
fn services_of(services: &[ServiceCIDR]) -> Vec<IpNet> {
    let (first, others): (Vec<_>, Vec<_>) =
        services.iter().partition(|services| services.name_any() == DEFAULT_SERVICES);
    let specs = first.into_iter().chain(others).filter_map(|services| services.spec.as_ref());
    specs.flat_map(|spec| spec.cidrs.iter().flatten()).filter_map(|text| text.parse().ok()).collect()
}

fn is_alike(a: &IpNet, b: &IpNet) -> bool {
    a.max_prefix_len() == b.max_prefix_len()
}

/// The addresses of a node that are of these types.
fn addresses(node: &Node, types: &[&str]) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let ips = addresses.iter().filter(|address| types.contains(&&*address.type_));
    ips.filter_map(|address| address.address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use ferro_api::config::Reach;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn node(pods: &str, ip: &str) -> Node {
        let status = json!({"addresses": [
            {"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": "n"}
        ]});
        serde_json::from_value(json!({"spec": {"podCIDRs": [pods]}, "status": status})).unwrap()
    }

    fn services(name: &str, cidrs: &[&str]) -> ServiceCIDR {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}})).unwrap()
    }

    fn pods(nodes: &[&str], stored: Option<&str>) -> Result<IpNet, UnknownNetwork> {
        let nodes: Vec<Node> = nodes.iter().map(|pods| node(pods, "172.18.0.3")).collect();
        let services = [services("kubernetes", &["10.96.0.0/16", "fd01::/112"])];
        own_networks(&LiqonetConfig::default(), &nodes, &services, stored.map(net)).map(|own| own.pod)
    }

    #[test]
    fn the_network_of_pods_has_room_for_nodes_to_come() {
        for (nodes, stored, found) in [
            (&["10.244.0.0/24"][..], None, "10.244.0.0/16"),
            (&["10.244.0.0/24", "10.244.7.0/24"], None, "10.244.0.0/16"),
            (&["10.244.255.0/24", "10.245.0.0/24"], None, "10.244.0.0/15"),
            (&["10.42.0.0/26", "10.42.3.64/26"], None, "10.42.0.0/18"),
            (&["10.42.0.0/20", "10.43.16.0/20"], None, "10.32.0.0/12"),
            // What peers were told stays.
            (&["10.244.16.0/24"], Some("10.244.0.0/20"), "10.244.0.0/20"),
            (&[], Some("10.244.0.0/20"), "10.244.0.0/20"),
        ] {
            assert_eq!(pods(nodes, stored), Ok(net(found)), "{nodes:?}");
        }
    }

    #[test]
    fn nodes_and_services_are_not_taken_for_pods() {
        let found = |pods: &[&str], ip: &str, cidr: &str| {
            let nodes: Vec<Node> = pods.iter().map(|pods| node(pods, ip)).collect();
            let services = [services("kubernetes", &[cidr])];
            own_networks(&LiqonetConfig::default(), &nodes, &services, None).map(|own| own.pod)
        };
        let one = &["10.0.8.0/24"][..];
        assert_eq!(found(one, "172.18.0.3", "10.96.0.0/16"), Ok(net("10.0.0.0/16")));
        assert_eq!(found(one, "10.0.200.3", "10.96.0.0/16"), Ok(net("10.0.0.0/17")));
        assert_eq!(found(one, "172.18.0.3", "10.0.16.0/20"), Ok(net("10.0.0.0/20")));
        let two = &["10.0.8.0/24", "10.0.9.0/24"][..];
        assert_eq!(found(two, "10.0.10.3", "10.96.0.0/16"), Ok(net("10.0.8.0/23")));
        let within = found(&["10.0.8.0/24", "10.0.11.0/24"], "10.0.10.3", "10.96.0.0/16");
        let node = net("10.0.10.3/32");
        assert_eq!(within, Err(UnknownNetwork::PodsAmongOthers(net("10.0.8.0/22"), node)));
        let within = found(one, "10.0.8.3", "10.96.0.0/16").unwrap_err();
        assert!(within.to_string().contains("also holds 10.0.8.3/32"), "{within}");
    }

    #[test]
    fn nodes_are_known_by_their_internal_addresses_and_those_of_peers_are_none() {
        let mut virtual_node = node("10.244.9.0/24", "172.18.0.9");
        virtual_node
            .labels_mut()
            .insert(labels::TYPE_VIRTUAL_NODE.key().to_owned(), labels::TYPE_VIRTUAL_NODE.value().to_owned());
        let mut outer = node("10.244.1.0/24", "172.18.0.4");
        let addresses = outer.status.as_mut().unwrap().addresses.as_mut().unwrap();
        addresses[1].type_ = "ExternalIP".into();
        addresses[1].address = "198.51.100.4".into();
        let nodes = [node("10.244.0.0/24", "172.18.0.3"), outer, virtual_node];
        let expected = ["172.18.0.3", "172.18.0.4"].map(|text| text.parse().unwrap());
        assert_eq!(node_addresses(&nodes), expected.into());
    }

    #[test]
    fn a_node_outside_is_found() {
        let nodes = [node("10.244.0.0/24", "172.18.0.3"), node("10.245.0.0/24", "172.18.0.4")];
        assert_eq!(stray(&nodes, &net("10.244.0.0/15")), None);
        assert_eq!(stray(&nodes, &net("10.244.0.0/16")).unwrap().1, net("10.245.0.0/24"));
    }

    #[test]
    fn hosts_that_must_be_reached_are_not_given_to_peers() {
        let own = OwnNetworks {
            pod: net("10.244.0.0/16"),
            service: net("10.96.0.0/16"),
            reserved: BTreeSet::new(),
            pools: super::super::default_pools(),
            reach: Reach::Default,
        };
        let offered = |pod: &str| super::super::Offered { pod: net(pod), external: None };
        let mut ipam = Ipam::new(own, 24).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        ipam.acquire("early", offered("10.7.0.0/16"), now).unwrap();
        assert_eq!(hidden(&ipam), None);
        ipam.own.reserve(["10.7.0.3", "10.8.0.3"].map(|ip| ip.parse().unwrap()));
        let early = "early".to_owned();
        assert_eq!(hidden(&ipam), Some((&early, net("10.7.0.0/16"), net("10.7.0.3/32"))));
        let late = ipam.names_for("late", offered("10.8.0.0/16"), now).unwrap();
        assert!(!late.their_pods.is_identity(), "{late:?}");
    }

    #[test]
    fn pods_of_ipv6_are_refused_at_home_and_not_by_each_peer() {
        let refused = pods(&["fd00:7::/64"], None).unwrap_err();
        assert_eq!(refused, UnknownNetwork::PodsOfV6(net("fd00:7::/56")));
        assert!(refused.to_string().contains("IPv6, which cannot be joined yet"), "{refused}");
        let config = LiqonetConfig { pod_cidr: Some("10.244.0.0/16".into()), ..LiqonetConfig::default() };
        let services = [services("kubernetes", &["fd01::/112", "10.96.0.0/16"])];
        let own = own_networks(&config, &[node("fd00:7::/64", "172.18.0.3")], &services, None).unwrap();
        assert_eq!((own.pod, own.service), (net("10.244.0.0/16"), net("10.96.0.0/16")));
    }

    #[test]
    fn what_is_not_clear_is_asked_for() {
        assert_eq!(pods(&[], None), Err(UnknownNetwork::Pods));
        let scattered = pods(&["10.244.0.0/24", "192.168.0.0/24"], None);
        assert_eq!(scattered, Err(UnknownNetwork::PodsUnclear(net("10.244.0.0/24"), net("192.168.0.0/24"))));
        let error = pods(&["10.244.0.0/24", "fd00::/64"], None).unwrap_err();
        assert!(error.to_string().contains("set liqonetConfig.podCIDR"), "{error}");
        let nodes = [node("10.244.0.0/24", "172.18.0.3")];
        let none = own_networks(&LiqonetConfig::default(), &nodes, &[], None);
        assert_eq!(none, Err(UnknownNetwork::Services));
    }

    #[test]
    fn the_configuration_comes_first_and_nodes_and_other_services_are_reserved() {
        let config = LiqonetConfig {
            pod_cidr: Some("10.1.0.0/16".into()),
            reserved_cidrs: vec!["10.9.0.0/16".into()],
            ..LiqonetConfig::default()
        };
        let mut stands_for_a_peer = node("10.7.0.0/24", "10.7.0.1");
        labels::TYPE_VIRTUAL_NODE.put_on(&mut stands_for_a_peer.metadata);
        let nodes = [node("10.244.0.0/24", "172.18.0.3"), stands_for_a_peer];
        let services =
            [services("more", &["10.112.0.0/16"]), services("kubernetes", &["fd01::/112", "10.96.0.0/16"])];
        let own = own_networks(&config, &nodes, &services, None).unwrap();
        assert_eq!((own.pod, own.service), (net("10.1.0.0/16"), net("10.96.0.0/16")));
        let reserved = ["10.9.0.0/16", "10.112.0.0/16", "172.18.0.3/32", "fd01::/112"].map(net);
        assert_eq!(own.reserved, reserved.into());
        assert_eq!(own.pools.len(), 3);
        let bad = LiqonetConfig { service_cidr: Some("ten".into()), ..config };
        let error = own_networks(&bad, &nodes, &services, None).unwrap_err();
        assert_eq!(error, UnknownNetwork::Unreadable("serviceCIDR", "ten".into()));
    }
}
