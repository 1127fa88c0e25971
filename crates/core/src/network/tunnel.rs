//! From resources to what a gateway runs: each peer's tunnel and table, rebuilt from `TunnelEndpoint` and `NatMapping`.
//!
//! The gateway and the commands read the same value here, so that what is shown is what is done. A field that cannot be
//! read leaves out no more than what depends on it, and is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferro_api::config::Reach;
use ferro_api::names::labels;
use ferro_api::net::{NatMapping, TunnelEndpoint, TunnelEndpointStatus};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::config::{BACKEND, BadConfig, another_backend, endpoint, parse, public_key};
use super::{
    Agreement, Naming, Networks, Ours, Packet, PeerTable, ReachablePods, Redirections, Table, Translation,
    Unlike, map_to_network,
};

/// What a gateway needs to know of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The object that tells of it, as a person would name it.
    pub object: String,
    /// Under which names each sees the networks of the other.
    pub agreement: Agreement,
    /// What is done to the addresses.
    pub table: PeerTable,
    /// Where the peer's end is.
    pub endpoint: SocketAddr,
    /// The public key of the peer's end.
    pub public_key: [u8; 32],
    /// Between which addresses the tunnel is probed; none where one of the two has no external network.
    pub probe: Option<ProbePair>,
}

/// The addresses of the two gateways, as a probe that leaves here carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePair {
    /// Of ours, as the peer names it.
    pub ours: IpAddr,
    /// Of the peer's, as it is named here.
    pub theirs: IpAddr,
}

impl ProbePair {
    /// The addresses of a probe that leaves here.
    pub fn request(self) -> Packet {
        Packet { source: self.ours, destination: self.theirs }
    }

    fn of(agreement: &Agreement) -> Option<Self> {
        let ours = agreement.ours?.external?.there();
        Some(Self { ours: gateway_of(ours)?, theirs: gateway_of(agreement.their_external?.here())? })
    }
}

/// The first address behind that of the network: it is kept back for the gateway.
fn gateway_of(external: IpNet) -> Option<IpAddr> {
    // The smallest network has the two kept back, and the one for broadcasts.
    if external.max_prefix_len() - external.prefix_len() < 2 {
        return None;
    }
    let first = match external {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(1)),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(1)),
    };
    map_to_network(first, external)
}

/// Something in the resources that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {trouble}")]
pub struct Problem {
    /// The identifier of the peer.
    pub peer: String,
    /// The object that it stands in, as a person would name it.
    pub object: String,
    /// What is wrong.
    pub trouble: Trouble,
}

impl Problem {
    /// Whether it is why there is no tunnel by this object.
    pub fn is_of(&self, endpoint: &TunnelEndpoint) -> bool {
        self.peer == endpoint.spec.cluster_id && self.object == object(endpoint)
    }
}

/// Why something is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The network manager has not filled in the status.
    #[error("it is not processed yet: {0} is missing")]
    Unprocessed(&'static str),
    /// A field cannot be used.
    #[error(transparent)]
    Field(#[from] BadConfig),
    /// Two networks cannot stand for each other.
    #[error(transparent)]
    Unlike(#[from] Unlike),
    /// There is another tunnel to the same peer.
    #[error("there is already a tunnel to the same cluster: {0}")]
    Second(String),
    /// By its key a peer is told from the others.
    #[error("its publicKey is that of {0}; one of the two clusters has to make another one")]
    SameKey(String),
    /// A gateway has no tunnel to itself.
    #[error("its publicKey is that of this cluster's own gateway")]
    OwnKey,
    /// A network of the peer would hide another one.
    #[error("{0} stands for the peer here, and overlaps with {1}, which is in use")]
    Overlap(IpNet, IpNet),
    /// A pod is reached under the name of its network, and nothing else.
    #[error("{0} is a pod of this cluster; only {1}, its name there, can stand for it")]
    Pod(IpAddr, IpAddr),
    /// Two redirections contradict each other.
    #[error("{0} is redirected already: {1} stands for it")]
    Twice(IpAddr, IpAddr),
    /// An address cannot stand for two endpoints.
    #[error("{0} stands for another endpoint already: {1}")]
    Taken(IpAddr, IpAddr),
    /// Addresses of one family cannot stand for those of another.
    #[error("{0} and {1} are not of the same family")]
    Families(IpAddr, IpAddr),
}

/// Everything that a gateway does to addresses, and what of the resources is not used.
pub fn tables(endpoints: &[TunnelEndpoint], mappings: &[NatMapping], reach: Reach) -> (Table, Vec<Problem>) {
    let (endpoints, mappings): (Vec<_>, Vec<_>) = (endpoints.iter().collect(), mappings.iter().collect());
    let (tunnels, problems) = tunnels_of(&endpoints, &mappings, reach);
    (Table { peers: tunnels.into_iter().map(|(peer, tunnel)| (peer, tunnel.table)).collect() }, problems)
}

/// The tunnel to each peer, by its identifier, and what of the resources is not used; each peer reaches all pods.
pub fn tunnels(
    endpoints: &[TunnelEndpoint],
    mappings: &[NatMapping],
) -> (BTreeMap<String, Tunnel>, Vec<Problem>) {
    let (endpoints, mappings): (Vec<_>, Vec<_>) = (endpoints.iter().collect(), mappings.iter().collect());
    tunnels_of(&endpoints, &mappings, Reach::Default)
}

/// The same for whoever knows how far peers reach, and does not have the resources to itself: there may be many.
pub fn tunnels_of(
    endpoints: &[&TunnelEndpoint],
    mappings: &[&NatMapping],
    reach: Reach,
) -> (BTreeMap<String, Tunnel>, Vec<Problem>) {
    let published =
        |peer: &str, ours: &Ours, problems: &mut Vec<Problem>| published(peer, ours, mappings, problems);
    read_all(endpoints, reach, published)
}

/// The same for whoever was told what is published to each peer, and was told of contradictions there.
pub fn tunnels_publishing(
    endpoints: &[&TunnelEndpoint],
    published: &BTreeMap<String, Redirections>,
    reach: Reach,
) -> (BTreeMap<String, Tunnel>, Vec<Problem>) {
    read_all(endpoints, reach, |peer, _, _| published.get(peer).cloned().unwrap_or_default())
}

fn read_all(
    endpoints: &[&TunnelEndpoint],
    reach: Reach,
    published: impl Fn(&str, &Ours, &mut Vec<Problem>) -> Redirections,
) -> (BTreeMap<String, Tunnel>, Vec<Problem>) {
    let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
    let mut taken: Vec<IpNet> = Vec::new();
    let mut firsts: BTreeMap<String, String> = BTreeMap::new();
    let mut keys: BTreeMap<[u8; 32], String> = BTreeMap::new();
    // In an order of their own: whoever lists them, the same one comes first.
    let mut sorted = endpoints.to_vec();
    sorted.sort_by_key(|endpoint| (endpoint.creation_timestamp(), object(endpoint)));
    for endpoint in sorted {
        let peer = endpoint.spec.cluster_id.clone();
        let read = match firsts.get(&peer) {
            Some(first) => Err(Trouble::Second(first.clone())),
            None => read(endpoint, &taken).and_then(|read| match keys.get(&read.3) {
                Some(other) => Err(Trouble::SameKey(other.clone())),
                None => Ok(read),
            }),
        };
        match read {
            Ok((agreement, ours, address, key)) => {
                taken.extend(agreement.networks());
                firsts.insert(peer.clone(), object(endpoint));
                keys.insert(key, object(endpoint));
                let table = PeerTable::new(&agreement, &BTreeMap::new(), Vec::new());
                let Some(table) = table else { continue };
                // No pods of a peer run here yet.
                let table = table.reaching(ReachablePods::of(reach, BTreeSet::new()));
                let table = table.publishing(published(&peer, &ours, &mut problems));
                let probe = ProbePair::of(&agreement);
                let object = object(endpoint);
                let tunnel = Tunnel { object, agreement, table, endpoint: address, public_key: key, probe };
                found.insert(peer, tunnel);
            }
            Err(trouble) => problems.push(Problem { peer, object: object(endpoint), trouble }),
        }
    }
    (found, problems)
}

/// Leaves out the peer that claims to have the key of this cluster's gateway.
pub fn without_ourselves(own: &[u8; 32], tunnels: &mut BTreeMap<String, Tunnel>) -> Vec<Problem> {
    let ourselves = tunnels.extract_if(.., |_, tunnel| tunnel.public_key == *own);
    let problem =
        |(peer, tunnel): (String, Tunnel)| Problem { peer, object: tunnel.object, trouble: Trouble::OwnKey };
    ourselves.map(problem).collect()
}

type Read = (Agreement, Ours, SocketAddr, [u8; 32]);

fn read(tunnel: &TunnelEndpoint, taken: &[IpNet]) -> Result<Read, Trouble> {
    let (spec, missing) = (&tunnel.spec, TunnelEndpointStatus::default());
    let status = tunnel.status.as_ref().unwrap_or(&missing);
    if spec.backend_type != BACKEND {
        return Err(another_backend(&spec.backend_type).into());
    }
    let own_pods = status.local_pod_cidr.as_ref().ok_or(Trouble::Unprocessed("status.localPodCIDR"))?;
    let own_external = status.local_external_cidr.as_ref().map(|own| {
        named_there(own, status.local_nat_external_cidr(), ["localExternalCIDR", "localNATExternalCIDR"])
    });
    let their_external = spec.external_cidr.as_ref().map(|theirs| {
        named_here(theirs, status.remote_nat_external_cidr(), ["externalCIDR", "remoteNATExternalCIDR"])
    });
    let ours = Ours {
        pods: named_there(own_pods, status.local_nat_pod_cidr(), ["localPodCIDR", "localNATPodCIDR"])?,
        external: own_external.transpose()?,
    };
    let agreement = Agreement {
        their_pods: named_here(
            &spec.pod_cidr,
            status.remote_nat_pod_cidr(),
            ["podCIDR", "remoteNATPodCIDR"],
        )?,
        their_external: their_external.transpose()?,
        ours: Some(ours),
    };
    apart(&agreement, &ours, taken)?;
    let address = endpoint(&spec.endpoint_ip, &spec.backend_config)?;
    Ok((agreement, ours, address, public_key(&spec.backend_config)?))
}

/// A network of ours and what the peer calls it.
fn named_there(ours: &str, named: &str, fields: [&'static str; 2]) -> Result<Translation, Trouble> {
    let ours: IpNet = parse(fields[0], ours, "a network")?;
    Ok(parse::<Naming>(fields[1], named, "a network or None")?.of(ours)?)
}

/// A network of the peer and what it is called here.
pub(super) fn named_here(
    theirs: &str,
    named: &str,
    fields: [&'static str; 2],
) -> Result<Translation, Trouble> {
    let theirs: IpNet = parse(fields[0], theirs, "a network")?;
    match parse(fields[1], named, "a network or None")? {
        Naming::Kept => Ok(Translation::identity(theirs)),
        Naming::Replaced(here) => Ok(Translation::new(here, theirs)?),
    }
}

/// No network stands for two: traffic would go to whichever comes first.
fn apart(agreement: &Agreement, ours: &Ours, taken: &[IpNet]) -> Result<(), Trouble> {
    let own = [Some(ours.pods), ours.external].into_iter().flatten().map(|network| network.here());
    let mut taken: Vec<IpNet> = taken.iter().copied().chain(own).collect();
    for view in agreement.networks() {
        if let Some(other) = taken.iter().copied().collect::<Networks>().overlapping(&view) {
            return Err(Trouble::Overlap(view, *other));
        }
        taken.push(view);
    }
    Ok(())
}

/// The endpoints that are published to a peer, each with the address that stands for it; whoever wrote them. What the
/// address manager wrote comes first: callers were told so. Of a pod it only says that the peer may reach it.
fn published(peer: &str, ours: &Ours, mappings: &[&NatMapping], problems: &mut Vec<Problem>) -> Redirections {
    let mut published = Redirections::default();
    let mut of_peer: Vec<_> = mappings.iter().filter(|mapping| mapping.spec.cluster_id == peer).collect();
    of_peer.sort_by_key(|mapping| precedence(mapping));
    for mapping in of_peer {
        for (endpoint, address) in &mapping.spec.cluster_mappings {
            let entry = entry(endpoint, address, ours);
            let added = entry.and_then(|(endpoint, address)| published.insert(endpoint, address));
            if let Err(trouble) = added {
                let object = format!("NatMapping {}", mapping.name_any());
                problems.push(Problem { peer: peer.to_owned(), object, trouble });
            }
        }
    }
    published
}

/// Where entries contradict each other, those of the object with the lesser one count: of one of ours, or the older one.
pub fn precedence(mapping: &NatMapping) -> (bool, Option<Time>, String) {
    (!labels::PART_OF.is_on(&mapping.metadata), mapping.creation_timestamp(), mapping.name_any())
}

fn entry(endpoint: &str, address: &str, ours: &Ours) -> Result<(IpAddr, IpAddr), Trouble> {
    let (endpoint, address) = Redirections::read(endpoint, address)?;
    match ours.pods.outward(endpoint) {
        Some(name) if name != address => Err(Trouble::Pod(endpoint, name)),
        _ => Ok((endpoint, address)),
    }
}

fn object(endpoint: &TunnelEndpoint) -> String {
    let namespace = endpoint.namespace().unwrap_or_default();
    format!("TunnelEndpoint {namespace}/{}", endpoint.name_any())
}

#[cfg(test)]
pub(super) mod tests;
