//! What peers say of networks, and the objects and messages by which addresses are managed.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;

use ferro_api::config::Reach;
use ferro_api::net::{
    IpamStorageSpec, NatMapping, NetworkConfig, NetworkConfigSpec, NetworkConfigStatus, TunnelEndpoint,
};
use ferro_api::proto::gateway::{Acknowledged, Change};
use ferro_api::proto::ipam::{
    BelongsRequest, BelongsResponse, GetHomePodIpRequest, GetHomePodIpResponse, MapRequest, MapResponse,
    UnmapRequest,
};
use ferro_core::identity::ClusterId;
use ferro_core::network::exchange::answer_to;
use ferro_core::network::gateway::Gateway;
use ferro_core::network::layout::Layout;
use ferro_core::network::{
    Agreement, Ipam, Networks, Offered, OwnNetworks, Packet, config, default_pools, routes, tunnels_of,
};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use prost::Message;
use serde::Deserialize;

use crate::{NOW, Read, choice, signer};

const PEER: &str = "milan";
/// No sentence about what a peer wrote is longer: it ends up in a condition.
const LONGEST_SENTENCE: usize = 400;

fn own() -> Option<OwnNetworks> {
    Some(OwnNetworks {
        pod: "10.244.0.0/16".parse().ok()?,
        service: "10.96.0.0/16".parse().ok()?,
        reserved: ["172.18.0.0/24".parse().ok()?].into(),
        pools: default_pools(),
        reach: Reach::Default,
    })
}

/// Whether a network is in use for two.
fn overlaps(networks: impl IntoIterator<Item = IpNet>) -> bool {
    let mut taken = Vec::new();
    networks.into_iter().any(|network| {
        let overlaps = taken.iter().copied().collect::<Networks>().overlapping(&network).is_some();
        taken.push(network);
        overlaps
    })
}

/// What a peer says of its networks, signed by it, and the names that they get here.
pub fn network_config(data: &[u8]) -> Read {
    let mut spec: NetworkConfigSpec = serde_json::from_slice(data).ok()?;
    let receiver: ClusterId = spec.receiver()?.id.parse().ok()?;
    let sender = signer()?;
    config::sign(&mut spec, sender);
    let described = match config::read(&spec, &sender.identity().id(), &receiver) {
        Ok(described) => described,
        Err(problem) => {
            assert!(problem.to_string().len() <= LONGEST_SENTENCE, "{problem}");
            return None;
        }
    };
    assert!(!described.endpoint.ip().is_loopback() && described.endpoint.port() != 0);
    let mut ipam = Ipam::new(own()?, 24).ok()?;
    let Offered { pod, external } = described.offered;
    assert!(pod == pod.trunc() && external.is_none_or(|external| external == external.trunc()));
    ipam.acquire(PEER, described.offered, Timestamp::UNIX_EPOCH).ok()?;
    let agreement = ipam.peers().get(PEER)?;
    assert_eq!(agreement.offered(), described.offered);
    let own = [ipam.own().pod, ipam.own().service, ipam.external()];
    assert!(!overlaps(own.into_iter().chain(agreement.networks())), "{agreement:?}");
    Some(())
}

/// How a peer names our networks.
pub fn network_answer(data: &[u8]) -> Read {
    let status: NetworkConfigStatus = serde_json::from_slice(data).ok()?;
    let mut ipam = Ipam::new(own()?, 24).ok()?;
    let mut ours = NetworkConfig::new("ours", NetworkConfigSpec::default());
    ours.spec.pod_cidr = ipam.own().pod.to_string();
    ours.spec.external_cidr = Some(ipam.external().to_string());
    ours.status = Some(status);
    let answer = match answer_to(&ours)? {
        Ok(answer) => answer,
        Err(problem) => {
            assert!(problem.to_string().len() <= LONGEST_SENTENCE, "{problem}");
            return None;
        }
    };
    let offered = Offered { pod: "10.1.0.0/16".parse().ok()?, external: None };
    let now = Timestamp::from_second(NOW).ok()?;
    ipam.acquire(PEER, offered, now).ok()?;
    ipam.agree(PEER, answer).ok()?;
    let named = ipam.peers().get(PEER)?.ours?;
    let there = [Some(named.pods), named.external].into_iter().flatten().map(|network| network.there());
    assert!(!overlaps(there), "{named:?}");
    let endpoint: IpAddr = "172.18.0.3".parse().ok()?;
    match ipam.map(PEER, endpoint, now) {
        Ok(address) => assert!(named.external?.there().contains(&address)),
        Err(_) => assert_eq!(named.external, None),
    }
    assert_restored(&ipam);
    Some(())
}

/// The objects by which a gateway is set up, which others may write, too.
#[derive(Deserialize)]
struct Objects {
    #[serde(default)]
    tunnels: Vec<TunnelEndpoint>,
    #[serde(default)]
    mappings: Vec<NatMapping>,
}

/// From objects to the tables of a gateway, whatever its peers may reach, and to the routes of a node.
pub fn tunnels(data: &[u8]) -> Read {
    let objects: Objects = serde_json::from_slice(data).ok()?;
    let read = [Reach::Default, Reach::Strict, Reach::Full].map(|reach| tunnels_by(&objects, reach));
    assert!(
        read.iter().all(|it| *it == read[0]),
        "reach decides what is open, and not which tunnels there are"
    );
    read[0]
}

fn tunnels_by(objects: &Objects, reach: Reach) -> Read {
    let (endpoints, mappings): (Vec<_>, Vec<_>) =
        (objects.tunnels.iter().collect(), objects.mappings.iter().collect());
    let (found, problems) = tunnels_of(&endpoints, &mappings, reach);
    for problem in problems {
        assert!(problem.trouble.to_string().chars().count() <= LONGEST_SENTENCE + problem.object.len());
    }
    assert!(!overlaps(found.values().flat_map(|tunnel| tunnel.table.views().to_vec())));
    for tunnel in found.values() {
        assert_eq!(tunnel.table.has_closed(), reach == Reach::Strict);
        let (source, pods) = (tunnel.table.views().first()?.addr(), tunnel.table.ours().pods);
        let pod = pods.here().network();
        if tunnel.table.inbound(Packet { source, destination: pods.there().network() })
            == Ok(Packet { source, destination: pod })
        {
            assert!(tunnel.table.open_pods().is_none_or(|open| open.contains(&pod)));
        }
        for (address, endpoint) in tunnel.table.redirections() {
            let packet = tunnel.table.inbound(Packet { source, destination: address });
            assert_eq!(packet, Ok(Packet { source, destination: endpoint }));
            let answer = Packet { source: endpoint, destination: source };
            assert_eq!(tunnel.table.outbound(answer), Ok(Packet { source: address, ..answer }));
        }
    }
    for endpoint in endpoints {
        if let (Some(tunnel), Ok(Some(peer))) = (
            found.get(&endpoint.spec.cluster_id).filter(|_| objects.tunnels.len() == 1),
            routes::peer(endpoint),
        ) {
            assert_eq!(peer.views, tunnel.table.views());
        }
    }
    (!found.is_empty()).then_some(())
}

/// What the address manager has stored, where somebody may have edited it.
pub fn ipam_storage(data: &[u8]) -> Read {
    let storage: IpamStorageSpec = serde_json::from_slice(data).ok()?;
    let now = Timestamp::from_second(NOW).ok()?;
    let mut ipam = Ipam::from_storage(&storage, own()?).ok()??;
    // Networks that overlap were written by a person: the same address then stands for two things.
    if overlaps([ipam.external()].into_iter().chain(ipam.peers().values().flat_map(Agreement::networks))) {
        return None;
    }
    assert_restored(&ipam);
    if let Ok(Some((layout, turn))) = Layout::read(&BTreeMap::from([(0, storage)]), &own()?, now) {
        layout.plan(&turn);
    }
    let peer = ipam.peers().keys().next().cloned().unwrap_or_default();
    if let Ok(address) = ipam.map(&peer, "172.18.0.77".parse().ok()?, now) {
        assert!(ipam.peers().get(&peer)?.ours?.external?.there().contains(&address));
    }
    assert_restored(&ipam);
    Some(())
}

/// A restart changes nothing.
fn assert_restored(ipam: &Ipam) {
    let restored = Ipam::from_storage(&ipam.to_storage(), ipam.own().clone());
    assert_eq!(restored.ok().flatten().as_ref(), Some(ipam));
}

/// What the gateway says of itself.
pub fn gateway_notice(data: &[u8]) -> Read {
    let notice: BTreeMap<String, String> = serde_json::from_slice(data).ok()?;
    let gateway = Gateway::read(&notice).ok()?;
    assert!(gateway.endpoint.port() != 0 && !gateway.endpoint.ip().is_unspecified());
    assert_eq!(notice.get("publicKey"), Some(&gateway.key_text()));
    Some(())
}

/// The messages of the address manager's services. The first byte says which one it is.
pub fn ipam_message(data: &[u8]) -> Read {
    let (kind, data) = choice(data)?;
    match kind % 9 {
        0 => message::<MapRequest>(data),
        1 => message::<MapResponse>(data),
        2 => message::<UnmapRequest>(data),
        3 => message::<BelongsRequest>(data),
        4 => message::<BelongsResponse>(data),
        5 => message::<GetHomePodIpRequest>(data),
        6 => message::<GetHomePodIpResponse>(data),
        7 => message::<Acknowledged>(data),
        _ => message::<Change>(data),
    }
}

fn message<T: Message + Default + PartialEq + Debug>(data: &[u8]) -> Read {
    let message = T::decode(data).ok()?;
    let written = message.encode_to_vec();
    assert_eq!((written.len(), T::decode(&*written)), (message.encoded_len(), Ok(message)));
    Some(())
}
