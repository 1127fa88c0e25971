//! The tunnels of a cluster, and the names that it gives to the networks of its peers.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ferro_api::config::ClusterConfig;
use ferro_api::net::{ConnectionStatus, TunnelEndpoint};
use ferro_core::network::map_to_network;
use ipnet::IpNet;
use kube::Api;
use kube::api::ListParams;

use crate::topology::Cluster;
use crate::wait::eventually;

/// What a network of a peer is called where it has no other name.
const KEPT: &str = "None";

/// The identifier by which other clusters know this one.
pub async fn identifier(cluster: &Cluster) -> Result<String> {
    let configs: Api<ClusterConfig> = Api::all(cluster.client.clone());
    let all = configs.list(&ListParams::default()).await?;
    let status = all.items.into_iter().find_map(|config| config.status?.cluster_id);
    status.with_context(|| format!("{} does not say who it is", cluster.plan.name))
}

/// The tunnel of a cluster to another one, if there is one.
pub async fn tunnel(cluster: &Cluster, peer: &Cluster) -> Result<Option<TunnelEndpoint>> {
    tunnel_to(cluster, &identifier(peer).await?).await
}

async fn tunnel_to(cluster: &Cluster, peer: &str) -> Result<Option<TunnelEndpoint>> {
    let tunnels: Api<TunnelEndpoint> = Api::all(cluster.client.clone());
    let all = tunnels.list(&ListParams::default()).await?.items;
    Ok(all.into_iter().find(|tunnel| tunnel.spec.cluster_id == peer))
}

/// The tunnel of a cluster to another one, once packets get through.
pub async fn connected(cluster: &Cluster, peer: &Cluster) -> Result<TunnelEndpoint> {
    connected_to(cluster, &identifier(peer).await?).await
}

/// The same, to a peer that is known by its identifier only. The tunnel of an earlier peering may still be on its way out,
/// and say that it is up.
pub async fn connected_to(cluster: &Cluster, peer: &str) -> Result<TunnelEndpoint> {
    eventually(&format!("{} has a tunnel to {peer}", cluster.plan.name), || async {
        let tunnel = tunnel_to(cluster, peer).await?.context("it has none")?;
        ensure!(tunnel.metadata.deletion_timestamp.is_none(), "it is being removed");
        let connection = tunnel.status.as_ref().and_then(|status| status.connection.clone());
        let connection = connection.context("nothing is known of the tunnel")?;
        ensure!(
            connection.status == Some(ConnectionStatus::Connected),
            "{:?}: {:?}",
            connection.status,
            connection.status_message
        );
        Ok(tunnel)
    })
    .await
}

/// Under which network a cluster sees the pods of its peer.
pub fn view(tunnel: &TunnelEndpoint) -> Result<IpNet> {
    let status = tunnel.status.as_ref().context("the tunnel has no status")?;
    named(&tunnel.spec.pod_cidr, status.remote_nat_pod_cidr())
}

/// Under which network a cluster sees what else its peer has told of.
pub fn external_view(tunnel: &TunnelEndpoint) -> Result<IpNet> {
    let status = tunnel.status.as_ref().context("the tunnel has no status")?;
    let offered = tunnel.spec.external_cidr.as_deref().context("the peer has no external network")?;
    named(offered, status.remote_nat_external_cidr())
}

/// Whether the networks of the peer have other names here: that of its pods, and the external one.
pub fn renames(tunnel: &TunnelEndpoint) -> Result<[bool; 2]> {
    let status = tunnel.status.as_ref().context("the tunnel has no status")?;
    Ok([status.remote_nat_pod_cidr(), status.remote_nat_external_cidr()].map(|name| name != KEPT))
}

fn named(network: &str, name: &str) -> Result<IpNet> {
    let text = if name == KEPT { network } else { name };
    text.parse().with_context(|| format!("{text} is no network"))
}

/// How an address is named there.
pub fn seen(ip: IpAddr, in_network: IpNet) -> Result<IpAddr> {
    map_to_network(ip, in_network).context("families differ")
}
