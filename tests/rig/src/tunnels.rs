//! The tunnel of a cluster with one peer, and the names that it gives to the peer's pods.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ferro_api::net::{ConnectionStatus, TunnelEndpoint};
use ferro_core::network::map_to_network;
use ipnet::IpNet;
use kube::Api;
use kube::api::ListParams;

use crate::topology::Cluster;
use crate::wait::eventually;

/// The tunnel of a cluster, once packets get through.
pub async fn connected(cluster: &Cluster) -> Result<TunnelEndpoint> {
    eventually(&format!("the tunnel of {} is connected", cluster.plan.name), || async {
        let tunnels: Api<TunnelEndpoint> = Api::all(cluster.client.clone());
        let mut all = tunnels.list(&ListParams::default()).await?.items;
        ensure!(all.len() == 1, "it has {} tunnels", all.len());
        let tunnel = all.remove(0);
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
    let named = status.remote_nat_pod_cidr();
    let text = if named == "None" { tunnel.spec.pod_cidr.as_str() } else { named };
    text.parse().with_context(|| format!("{text} is no network"))
}

/// How an address is named there.
pub fn seen(ip: IpAddr, in_network: IpNet) -> Result<IpAddr> {
    map_to_network(ip, in_network).context("families differ")
}
