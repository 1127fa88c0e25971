//! The address manager as it is stored: an `IpamStorage` with nothing in it that cannot be read back.
//!
//! What the printed fields have no room for stands in `prefixes`, in a form of our own with a version in it: under a
//! peer's network what the peer itself calls it, and, if it has the name no longer, whose it was and since when it rests;
//! under the external network where to look for the next address, and under a single address since when it rests. The
//! [`layout`] says which object of several holds what.

pub mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::net::{EndpointMapping, IpamStorageSpec, Subnets};
use ipnet::IpNet;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ipam::Rest;
use super::{Agreement, ExternalAddresses, Ipam, Mapping, Naming, Ours, OwnNetworks, Translation};

/// A storage that does not make sense.
#[derive(Debug, thiserror::Error)]
pub enum BadStorage {
    /// It was made for another cluster, or this one was made anew.
    #[error(
        "it is for a cluster with the pod network {stored}, and this one has {actual}; delete it to begin anew"
    )]
    AnotherCluster {
        /// The one that is stored.
        stored: String,
        /// The one that there is.
        actual: IpNet,
    },
    /// A part cannot be read.
    #[error("{0} cannot be read; correct it, or delete the object to begin anew")]
    Unreadable(String),
}

/// What stands in `prefixes` under a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    version: u32,
    /// What the peer calls the network that is a peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    original: Option<IpNet>,
    /// Where to look for a free address first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The number of the change that wrote it: of several, the latest knows best where to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u64>,
    /// In the first object: so many objects there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<u32>,
    /// Since when the address or network rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Whose network it was that rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

impl Record {
    fn new() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    fn rest(since: Timestamp) -> Self {
        Self { since: Some(since), ..Self::new() }
    }

    fn former(rest: &Rest) -> Self {
        Self { since: Some(rest.since), peer: Some(rest.peer.clone()), ..Self::original(rest.original) }
    }

    fn original(network: IpNet) -> Self {
        Self { original: Some(network), ..Self::new() }
    }

    fn next(external: &ExternalAddresses, turn: u64) -> Self {
        Self { next: u64::try_from(external.next()).ok(), turn: Some(turn), ..Self::new() }
    }

    fn bytes(&self) -> ByteString {
        // A record has only keys that are strings: writing it cannot fail.
        ByteString(serde_json::to_vec(self).unwrap_or_default())
    }
}

const VERSION: u32 = 1;

impl Ipam {
    /// As it is stored where one object is enough.
    pub fn to_storage(&self) -> IpamStorageSpec {
        let own = &self.own;
        IpamStorageSpec {
            prefixes: self.records().map(|(network, record)| (network.to_string(), record.bytes())).collect(),
            pools: own.pools.iter().map(ToString::to_string).collect(),
            cluster_subnets: self.peers.iter().map(|(peer, it)| (peer.clone(), subnets(it))).collect(),
            external_cidr: Some(self.external().to_string()),
            endpoint_mappings: self.mappings.iter().map(|(ip, it)| (ip.to_string(), stored(it))).collect(),
            nat_mappings_configured: self.peers.keys().cloned().collect(),
            pod_cidr: Some(own.pod.to_string()),
            service_cidr: Some(own.service.to_string()),
        }
    }

    fn records(&self) -> impl Iterator<Item = (IpNet, Record)> {
        let external = &self.external;
        let resting = external.resting().map(|(ip, since)| (IpNet::from(ip), Record::rest(since)));
        let next = std::iter::once((external.network(), Record::next(external, 0)));
        next.chain(resting).chain(self.names())
    }

    /// What peers call their networks, and called those that rest.
    fn names(&self) -> impl Iterator<Item = (IpNet, Record)> {
        let theirs = self.peers.values().flat_map(Agreement::theirs);
        let theirs = theirs.map(|network| (network.here(), Record::original(network.there())));
        theirs.chain(self.resting.iter().map(|(network, rest)| (*network, Record::former(rest))))
    }

    /// From what is stored, in a cluster with these networks; none when nothing is stored yet.
    pub fn from_storage(storage: &IpamStorageSpec, own: OwnNetworks) -> Result<Option<Self>, BadStorage> {
        let Some(external) = &storage.external_cidr else { return Ok(None) };
        if let Some(stored) = storage.pod_cidr.as_ref().filter(|stored| **stored != own.pod.to_string()) {
            return Err(BadStorage::AnotherCluster { stored: stored.clone(), actual: own.pod });
        }
        let external: IpNet = read(external, "externalCIDR")?;
        let mut mappings = BTreeMap::new();
        for (endpoint, mapping) in &storage.endpoint_mappings {
            let ip = read(&mapping.ip, &format!("endpointMappings[{endpoint}].ip"))?;
            let mapping = restored(ip, mapping);
            mappings.insert(read(endpoint, "a key of endpointMappings")?, mapping);
        }
        let next = record(storage, &external)?.and_then(|record| record.next).unwrap_or_default().into();
        let used = mappings.values().map(|mapping: &Mapping| mapping.ip).filter(|ip| external.contains(ip));
        let used: BTreeSet<IpAddr> = used.collect();
        let resting = resting(storage, &external)?;
        let mut peers = BTreeMap::new();
        for (peer, subnets) in &storage.cluster_subnets {
            peers.insert(peer.clone(), agreement(storage, subnets, own.pod, external)?);
        }
        let external = ExternalAddresses::restored(external, next, used, resting);
        let (resting, mappings) = (former(storage)?, mappings.into_iter().collect());
        Ok(Some(Self { own, external, peers, resting, mappings }))
    }
}

/// The names that rest.
fn former(storage: &IpamStorageSpec) -> Result<BTreeMap<IpNet, Rest>, BadStorage> {
    let mut found = BTreeMap::new();
    for (network, bytes) in &storage.prefixes {
        let Record { peer: Some(peer), since: Some(since), original: Some(original), .. } =
            parse(network, bytes)?
        else {
            continue;
        };
        found.insert(read(network, "a key of prefixes")?, Rest { peer, original, since });
    }
    Ok(found)
}

/// Since when addresses of the external network rest.
fn resting(storage: &IpamStorageSpec, external: &IpNet) -> Result<BTreeMap<IpAddr, Timestamp>, BadStorage> {
    let mut found = BTreeMap::new();
    for (network, bytes) in &storage.prefixes {
        let parsed: IpNet = read(network, "a key of prefixes")?;
        if parsed.prefix_len() == parsed.max_prefix_len()
            && external.contains(&parsed)
            && let Some(since) = parse(network, bytes)?.since
        {
            found.insert(parsed.addr(), since);
        }
    }
    Ok(found)
}

fn subnets(agreement: &Agreement) -> Subnets {
    let there = |translation: Translation| Naming::there(&translation).to_string();
    Subnets {
        local_nat_pod_cidr: agreement.ours.map(|ours| there(ours.pods)),
        remote_pod_cidr: Some(agreement.their_pods.here().to_string()),
        local_nat_external_cidr: agreement.ours.and_then(|ours| ours.external).map(there),
        remote_external_cidr: agreement.their_external.map(|external| external.here().to_string()),
    }
}

fn stored(mapping: &Mapping) -> EndpointMapping {
    EndpointMapping {
        ip: mapping.ip.to_string(),
        cluster_mappings: mapping.peers.clone(),
        reflected_to: mapping.reflected_to.clone(),
        all_clusters: mapping.to_all.then_some(true),
        guest_of: mapping.guest_of.clone(),
    }
}

fn restored(ip: IpAddr, stored: &EndpointMapping) -> Mapping {
    Mapping {
        ip,
        peers: stored.cluster_mappings.clone(),
        reflected_to: stored.reflected_to.clone(),
        to_all: stored.all_clusters(),
        guest_of: stored.guest_of.clone(),
    }
}

fn read<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, BadStorage> {
    text.parse().map_err(|_| BadStorage::Unreadable(what.to_owned()))
}

fn record(storage: &IpamStorageSpec, network: &IpNet) -> Result<Option<Record>, BadStorage> {
    let name = network.to_string();
    storage.prefixes.get(&name).map(|bytes| parse(&name, bytes)).transpose()
}

fn parse(network: &str, bytes: &ByteString) -> Result<Record, BadStorage> {
    let record: Option<Record> = serde_json::from_slice(&bytes.0).ok();
    let known = record.filter(|record| record.version == VERSION);
    known.ok_or_else(|| BadStorage::Unreadable(format!("prefixes[{network}]")))
}

fn agreement(
    storage: &IpamStorageSpec,
    subnets: &Subnets,
    own_pod: IpNet,
    own_external: IpNet,
) -> Result<Agreement, BadStorage> {
    let theirs = |text: &Option<String>, what: &str| {
        let Some(text) = text else { return Ok(None) };
        let here: IpNet = read(text, what)?;
        let original = record(storage, &here)?.and_then(|record| record.original).unwrap_or(here);
        let translation = Translation::new(here, original);
        translation.map(Some).map_err(|_| BadStorage::Unreadable(what.to_owned()))
    };
    let ours = |text: &Option<String>, network: IpNet, what: &str| {
        let Some(text) = text else { return Ok(None) };
        let naming: Naming = read(text, what)?;
        naming.of(network).map(Some).map_err(|_| BadStorage::Unreadable(what.to_owned()))
    };
    let their_pods = theirs(&subnets.remote_pod_cidr, "remotePodCIDR")?;
    let external = ours(&subnets.local_nat_external_cidr, own_external, "localNATExternalCIDR")?;
    let pods = ours(&subnets.local_nat_pod_cidr, own_pod, "localNATPodCIDR")?;
    Ok(Agreement {
        their_pods: their_pods.ok_or_else(|| BadStorage::Unreadable("remotePodCIDR".into()))?,
        their_external: theirs(&subnets.remote_external_cidr, "remoteExternalCIDR")?,
        ours: pods.map(|pods| Ours { pods, external }),
    })
}
