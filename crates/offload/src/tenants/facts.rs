//! What is known about the peer of a Tenant, beside what the Tenant has.

use std::collections::HashMap;

use anyhow::Result;
use ferro_api::common::{ClusterIdentity, ResourceQuota};
use ferro_api::config::NetworkMode;
use ferro_api::discovery::ForeignCluster;
use ferro_core::network::exchange::is_forced;
use ferro_core::tenancy::{Wish, views, wish};
use ferro_peering::home::Home;
use ferro_peering::tenant;
use ipnet::IpNet;
use k8s_openapi::api::rbac::v1::Subject;
use kube::ResourceExt as _;

/// What is known about a peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) consumer: ClusterIdentity,
    pub(super) wish: Wish,
    pub(super) forced: bool,
    pub(super) offered: Option<ResourceQuota>,
    /// The namespace through which the two clusters talk.
    pub(super) control: Option<String>,
    /// What the peer is in this cluster.
    pub(super) identity: Vec<Subject>,
    /// Its networks, as they are called here.
    pub(super) views: Vec<IpNet>,
    pub(super) is_joined_elsewhere: bool,
    /// Ours.
    pub(super) own: Vec<IpNet>,
    /// Which version of the Tenant is known.
    version: Option<String>,
}

impl Facts {
    /// What is known about all peers, by their identifiers. Of two that claim to be the same cluster, the older one is.
    pub(super) fn gather(home: &Home) -> Result<HashMap<String, Self>> {
        let us = home.own()?.signer.identity().id().to_string();
        let mut peers = home.peers.all();
        peers.sort_by_key(|peer| (peer.creation_timestamp(), peer.name_any()));
        let mut all = HashMap::new();
        for peer in peers {
            if let Some(identity) = &peer.spec.cluster_identity {
                let of_peer = || Self::of(home, &us, &peer, identity);
                all.entry(identity.cluster_id.clone()).or_insert_with(of_peer);
            }
        }
        Ok(all)
    }

    /// What there is to say about a Tenant without a peer.
    pub(super) fn of_nobody(home: &Home, name: &str) -> Self {
        Self {
            consumer: ClusterIdentity { cluster_id: name.to_owned(), cluster_name: None },
            wish: wish(None),
            forced: false,
            offered: None,
            control: None,
            identity: Vec::new(),
            views: Vec::new(),
            is_joined_elsewhere: false,
            own: Vec::new(),
            version: version(home, name),
        }
    }

    /// Whether there is to be a Tenant.
    pub(super) fn is_wanted(&self) -> bool {
        self.wish == Wish::Use
    }

    fn of(home: &Home, us: &str, peer: &ForeignCluster, consumer: &ClusterIdentity) -> Self {
        let (id, status) = (consumer.cluster_id.as_str(), peer.status.as_ref());
        let control = status
            .and_then(|status| status.tenant_namespaces.as_ref())
            .and_then(|namespaces| namespaces.local.clone());
        let incoming = status.and_then(|status| status.incoming.as_ref());
        let binding =
            control.as_deref().and_then(|control| home.bindings.get(Some(control), tenant::BINDING));
        let tunnel = control.as_deref().and_then(|control| home.networks.of(control, us, id).tunnel);
        let own = tunnel.as_ref().and_then(|tunnel| tunnel.status.as_ref()?.local_pod_cidr.clone());
        let config = home.settings().liqonet();
        let own = own.into_iter().chain(config.pod_cidr.clone()).chain(config.service_cidr.clone());
        let mut own: Vec<IpNet> = own.filter_map(|network| network.parse().ok()).collect();
        own.sort_unstable();
        own.dedup();
        Self {
            consumer: consumer.clone(),
            wish: wish(Some(peer)),
            forced: is_forced(peer),
            offered: incoming.and_then(|incoming| incoming.resource_quota.clone()),
            identity: binding.as_deref().map(tenant::identity_of).unwrap_or_default(),
            views: tunnel.as_deref().map(views).unwrap_or_default(),
            is_joined_elsewhere: config.mode() == NetworkMode::External,
            own,
            control,
            version: version(home, id),
        }
    }
}

fn version(home: &Home, name: &str) -> Option<String> {
    home.tenants.get(None, name).and_then(|tenant| tenant.resource_version())
}
