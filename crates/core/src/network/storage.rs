//! The address manager as it is stored: an `IpamStorage` with nothing in it that cannot be read back.
//!
//! What the printed fields have no room for stands in `prefixes`, in a form of our own with a version in it: under a
//! peer's network what the peer itself calls it, under the external network which addresses rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::net::{EndpointMapping, IpamStorageSpec, Subnets};
use ipnet::IpNet;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    version: u32,
    /// What the peer calls the network that is a peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<IpNet>,
    /// Where to look for a free address first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Since when addresses rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    resting: BTreeMap<IpAddr, Timestamp>,
}

const VERSION: u32 = 1;

impl Ipam {
    /// As it is stored.
    pub fn to_storage(&self) -> IpamStorageSpec {
        let own = &self.own;
        IpamStorageSpec {
            prefixes: self.records().map(|(network, record)| (network.to_string(), bytes(&record))).collect(),
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
        let of_external = Record {
            version: VERSION,
            original: None,
            next: u64::try_from(external.next()).ok(),
            resting: external.resting().clone(),
        };
        let theirs = self.peers.values().flat_map(|agreement| {
            [Some(agreement.their_pods), agreement.their_external].into_iter().flatten()
        });
        let of_peers = theirs.map(|network| {
            let original = Some(network.there());
            (network.here(), Record { version: VERSION, original, next: None, resting: BTreeMap::new() })
        });
        std::iter::once((external.network(), of_external)).chain(of_peers)
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
            let mapping = Mapping { ip, peers: mapping.cluster_mappings.clone() };
            mappings.insert(read(endpoint, "a key of endpointMappings")?, mapping);
        }
        let record = record(storage, &external)?;
        let used: BTreeSet<IpAddr> = mappings.values().map(|mapping| mapping.ip).collect();
        let next = record.as_ref().and_then(|record| record.next).unwrap_or_default().into();
        let resting = record.map(|record| record.resting).unwrap_or_default();
        let mut peers = BTreeMap::new();
        for (peer, subnets) in &storage.cluster_subnets {
            peers.insert(peer.clone(), agreement(storage, subnets, own.pod, external)?);
        }
        let external = ExternalAddresses::restored(external, next, used, resting);
        Ok(Some(Self { own, external, peers, mappings }))
    }
}

fn bytes(record: &Record) -> ByteString {
    // A record has only keys that are strings: writing it cannot fail.
    ByteString(serde_json::to_vec(record).unwrap_or_default())
}

fn subnets(agreement: &Agreement) -> Subnets {
    let there = |translation: Translation| {
        let name = Naming::Replaced(translation.there());
        if translation.is_identity() { Naming::Kept } else { name }.to_string()
    };
    Subnets {
        local_nat_pod_cidr: agreement.ours.map(|ours| there(ours.pods)),
        remote_pod_cidr: Some(agreement.their_pods.here().to_string()),
        local_nat_external_cidr: agreement.ours.and_then(|ours| ours.external).map(there),
        remote_external_cidr: agreement.their_external.map(|external| external.here().to_string()),
    }
}

fn stored(mapping: &Mapping) -> EndpointMapping {
    EndpointMapping { ip: mapping.ip.to_string(), cluster_mappings: mapping.peers.clone() }
}

fn read<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, BadStorage> {
    text.parse().map_err(|_| BadStorage::Unreadable(what.to_owned()))
}

fn record(storage: &IpamStorageSpec, network: &IpNet) -> Result<Option<Record>, BadStorage> {
    let Some(bytes) = storage.prefixes.get(&network.to_string()) else { return Ok(None) };
    let record: Option<Record> = serde_json::from_slice(&bytes.0).ok();
    match record.filter(|record| record.version == VERSION) {
        Some(record) => Ok(Some(record)),
        None => Err(BadStorage::Unreadable(format!("prefixes[{network}]"))),
    }
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
