//! Which addresses, networks and names a cluster gets: decided before anything is made, so that bad input makes nothing.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// Pods per node, with room for twice as many addresses (`NODE_PREFIX`), as on a busy real node.
pub const MAX_PODS: u16 = 250;
/// Prefix length of the slice of the pod CIDR that each node owns.
pub const NODE_PREFIX: u8 = 23;
/// Nodes of a cluster; the LAN gives each cluster a block of sixteen addresses.
pub const MAX_NODES: u8 = 15;
/// Clusters on one LAN.
pub const MAX_CLUSTERS: u8 = 15;
/// Longest name of a cluster: `<name>-<node>` must fit into an interface name.
const MAX_NAME: usize = 10;

/// Which CNI plugin joins a node's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cni {
    /// A Linux bridge per node.
    #[default]
    Bridge,
    /// A routed pair of interfaces per pod, no bridge.
    Ptp,
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Name of the cluster.
    pub name: String,
    /// Number of nodes; a bare cluster has one, without a kubelet.
    pub nodes: u8,
    /// Network of the pods; one of its own for each cluster when absent.
    pub pod_cidr: Option<Ipv4Net>,
    /// Network of the services; one of its own for each cluster when absent.
    pub service_cidr: Option<Ipv4Net>,
    /// How pods are joined.
    pub cni: Cni,
    /// etcd, API server and controller-manager only.
    pub bare: bool,
    /// Whether certificates are signed; in a managed cluster often nobody does.
    pub signs: bool,
    /// Whether the API server writes down who asked it for what; see [`crate::audit`].
    pub audited: bool,
}

impl ClusterSpec {
    /// A cluster of one node with everything on it.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            nodes: 1,
            pod_cidr: None,
            service_cidr: None,
            cni: Cni::Bridge,
            bare: false,
            signs: true,
            audited: false,
        }
    }

    /// The networks that every cluster gets under `--same-cidrs`: the hard case, where everything overlaps.
    #[must_use]
    pub fn with_same_cidrs(mut self) -> Self {
        self.pod_cidr = Some(net([10, 200, 0, 0], 16));
        self.service_cidr = Some(net([10, 96, 0, 0], 16));
        self
    }
}

/// The range set aside for benchmarks (RFC 2544), which is routed nowhere: all wires are slices of it.
const WIRES: Ipv4Net = net([198, 18, 0, 0], 15);

/// The wire that all clusters of one rig share, outside every range that a cluster would use for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// Distinguishes rigs that run at the same time.
    pub index: u8,
}

impl Lan {
    /// The whole wire.
    pub fn network(self) -> Ipv4Net {
        net([198, 18, self.index, 0], 24)
    }

    /// This machine's own address on the wire.
    pub fn host(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 1)
    }

    /// Default gateway and resolver that nodes believe in; nothing answers there unless a test puts something.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 2)
    }

    /// Name of this machine's interface on the wire.
    pub fn host_link(self) -> String {
        format!("rig{}", self.index)
    }

    fn node(self, cluster: u8, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, cluster * 16 + node)
    }
}

/// Refuses what no rig could start, before anything is made; a running rig knows further reasons.
pub fn check(specs: &[ClusterSpec]) -> Result<()> {
    for (index, spec) in specs.iter().enumerate() {
        ensure!(
            specs[..index].iter().all(|other| other.name != spec.name),
            "the name {} is given twice",
            spec.name
        );
        ClusterPlan::new(spec, 1, Lan { index: 0 })?;
    }
    Ok(())
}

/// A node before it exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Name of the Node object, host name, network namespace and bridge port.
    pub name: String,
    /// 1 for the node with the control plane.
    pub number: u8,
    /// Address on the LAN.
    pub address: Ipv4Addr,
    /// Its slice of the pod CIDR.
    pub pod_cidr: Ipv4Net,
}

/// A cluster before it exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// Name of the cluster.
    pub name: String,
    /// Its place on the LAN, from 1.
    pub index: u8,
    /// The wire it hangs on.
    pub lan: Lan,
    /// Network of the pods.
    pub pod_cidr: Ipv4Net,
    /// Network of the services.
    pub service_cidr: Ipv4Net,
    /// How pods are joined.
    pub cni: Cni,
    /// Without scheduler and kubelets.
    pub bare: bool,
    /// With a signer of certificates.
    pub signs: bool,
    /// With an audit log.
    pub audited: bool,
    /// Its nodes, the one with the control plane first.
    pub nodes: Vec<NodePlan>,
}

impl ClusterPlan {
    /// Turns a wish into a plan, or says in one line why not.
    pub fn new(spec: &ClusterSpec, index: u8, lan: Lan) -> Result<Self> {
        check_name(&spec.name)?;
        ensure!(
            (1..=MAX_NODES).contains(&spec.nodes),
            "cluster {}: {} nodes asked for; choose 1 to {MAX_NODES}",
            spec.name,
            spec.nodes
        );
        ensure!(
            !spec.bare || spec.nodes == 1,
            "cluster {}: a bare cluster has no nodes to multiply",
            spec.name
        );
        let pod_cidr = spec.pod_cidr.unwrap_or_else(|| net([10, 100 + index, 0, 0], 16));
        let service_cidr = spec.service_cidr.unwrap_or_else(|| net([10, 116 + index, 0, 0], 16));
        check_networks(&spec.name, pod_cidr, service_cidr)?;
        let mut slices = pod_cidr.subnets(NODE_PREFIX).with_context(|| {
            format!("cluster {}: pod CIDR {pod_cidr} is smaller than one node's /{NODE_PREFIX}", spec.name)
        })?;
        let nodes = (1..=spec.nodes)
            .map(|number| {
                let pod_cidr = slices.next().with_context(|| {
                    format!(
                        "cluster {}: pod CIDR {pod_cidr} has no /{NODE_PREFIX} left for node {number}",
                        spec.name
                    )
                })?;
                Ok(NodePlan {
                    name: format!("{}-{number}", spec.name),
                    number,
                    address: lan.node(index, number),
                    pod_cidr,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            name: spec.name.clone(),
            index,
            lan,
            pod_cidr,
            service_cidr,
            cni: spec.cni,
            bare: spec.bare,
            signs: spec.signs,
            audited: spec.audited,
            nodes,
        })
    }

    /// Address of the node that carries the control plane.
    pub fn control_plane(&self) -> Ipv4Addr {
        self.nodes[0].address
    }

    /// Where the API server listens.
    pub fn server(&self) -> String {
        format!("https://{}:6443", self.control_plane())
    }

    /// Cluster address of the API server, the first of the service CIDR.
    pub fn api_service(&self) -> Ipv4Addr {
        self.service_address(1)
    }

    /// Cluster address of DNS, the tenth of the service CIDR, as everywhere.
    pub fn dns_service(&self) -> Ipv4Addr {
        self.service_address(10)
    }

    fn service_address(&self, host: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.service_cidr.network()) + host)
    }

    /// The node of that number or name.
    pub fn node(&self, wanted: &str) -> Result<&NodePlan> {
        self.nodes.iter().find(|node| node.name == wanted || node.number.to_string() == wanted).with_context(
            || format!("cluster {} has no node {wanted}; it has {}", self.name, self.node_names()),
        )
    }

    fn node_names(&self) -> String {
        self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Checks a cluster's name: it becomes host names, interface names and folders.
fn check_name(name: &str) -> Result<()> {
    let starts = name.chars().next().is_some_and(|first| first.is_ascii_lowercase());
    let legal = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    ensure!(
        starts && legal && name.len() <= MAX_NAME,
        "\"{name}\" cannot name a cluster: use 1 to {MAX_NAME} lower-case letters and digits, a letter first"
    );
    Ok(())
}

fn check_networks(name: &str, pods: Ipv4Net, services: Ipv4Net) -> Result<()> {
    for (what, network) in [("pod", pods), ("service", services)] {
        if network.trunc() != network {
            bail!(
                "cluster {name}: {what} CIDR {network} has host bits set; did you mean {}?",
                network.trunc()
            );
        }
        ensure!(
            !overlap(network, WIRES),
            "cluster {name}: {what} CIDR {network} overlaps {WIRES}, where the rig's LANs are"
        );
        let first = network.network();
        let special =
            first.is_loopback() || first.is_link_local() || first.is_multicast() || first.is_unspecified();
        ensure!(
            !special && network.prefix_len() >= 8,
            "cluster {name}: {what} CIDR {network} is not for ordinary addresses"
        );
    }
    ensure!(!overlap(pods, services), "cluster {name}: pod CIDR {pods} and service CIDR {services} overlap");
    ensure!(
        (12..=28).contains(&services.prefix_len()),
        "cluster {name}: service CIDR {services} must be between /12 and /28"
    );
    Ok(())
}

fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

const fn net(address: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(address[0], address[1], address[2], address[3]), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: Lan = Lan { index: 3 };

    fn plan(change: impl FnOnce(&mut ClusterSpec)) -> Result<ClusterPlan> {
        let mut spec = ClusterSpec::named("a");
        change(&mut spec);
        ClusterPlan::new(&spec, 2, LAN)
    }

    fn refusal(change: impl FnOnce(&mut ClusterSpec)) -> String {
        format!("{:#}", plan(change).expect_err("must be refused"))
    }

    #[test]
    fn clusters_get_networks_of_their_own_unless_told_otherwise() {
        let one = ClusterPlan::new(&ClusterSpec::named("a"), 1, LAN).unwrap();
        let two = ClusterPlan::new(&ClusterSpec::named("b"), 2, LAN).unwrap();
        assert!(!overlap(one.pod_cidr, two.pod_cidr) && !overlap(one.service_cidr, two.service_cidr));
        let same = ClusterPlan::new(&ClusterSpec::named("a").with_same_cidrs(), 1, LAN).unwrap();
        let other = ClusterPlan::new(&ClusterSpec::named("b").with_same_cidrs(), 2, LAN).unwrap();
        assert_eq!((same.pod_cidr, same.service_cidr), (other.pod_cidr, other.service_cidr));
    }

    #[test]
    fn every_node_has_an_address_and_a_slice_of_its_own() {
        let plan = plan(|spec| spec.nodes = 3).unwrap();
        let addresses: Vec<_> = plan.nodes.iter().map(|node| node.address.to_string()).collect();
        assert_eq!(addresses, ["198.18.3.33", "198.18.3.34", "198.18.3.35"]);
        let slices: Vec<_> = plan.nodes.iter().map(|node| node.pod_cidr.to_string()).collect();
        assert_eq!(slices, ["10.102.0.0/23", "10.102.2.0/23", "10.102.4.0/23"]);
    }

    #[test]
    fn well_known_addresses_come_from_the_service_network() {
        let plan = plan(|spec| spec.service_cidr = Some("10.96.0.0/16".parse().unwrap())).unwrap();
        assert_eq!(plan.api_service().to_string(), "10.96.0.1");
        assert_eq!(plan.dns_service().to_string(), "10.96.0.10");
    }

    #[test]
    fn bad_input_is_refused_with_one_line_that_names_it() {
        for (expected, text) in [
            ("\"A_b\" cannot name a cluster", refusal(|spec| spec.name = "A_b".into())),
            ("cannot name a cluster", refusal(|spec| spec.name = "averylongname".into())),
            ("0 nodes asked for", refusal(|spec| spec.nodes = 0)),
            (
                "did you mean 10.1.0.0/16",
                refusal(|spec| spec.pod_cidr = Some("10.1.2.3/16".parse().unwrap())),
            ),
            ("overlap", refusal(|spec| spec.pod_cidr = Some("10.118.0.0/15".parse().unwrap()))),
            (
                "where the rig's LANs are",
                refusal(|spec| spec.pod_cidr = Some("198.16.0.0/12".parse().unwrap())),
            ),
            (
                "smaller than one node's /23",
                refusal(|spec| spec.pod_cidr = Some("10.1.0.0/24".parse().unwrap())),
            ),
            (
                "no /23 left for node 2",
                refusal(|spec| {
                    spec.nodes = 2;
                    spec.pod_cidr = Some("10.1.0.0/23".parse().unwrap());
                }),
            ),
            (
                "not for ordinary addresses",
                refusal(|spec| spec.pod_cidr = Some("127.0.0.0/16".parse().unwrap())),
            ),
            ("between /12 and /28", refusal(|spec| spec.service_cidr = Some("10.1.0.0/30".parse().unwrap()))),
        ] {
            assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_node_is_found_by_number_or_name() {
        let plan = plan(|spec| spec.nodes = 2).unwrap();
        assert_eq!(plan.node("2").unwrap().name, "a-2");
        assert_eq!(plan.node("a-1").unwrap().number, 1);
        assert!(format!("{:#}", plan.node("9").unwrap_err()).contains("a-1, a-2"));
    }
}
