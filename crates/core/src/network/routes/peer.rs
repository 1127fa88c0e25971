//! What a `TunnelEndpoint` means for the routes of a node.

use std::net::IpAddr;
use std::str::FromStr;

use ferro_api::net::TunnelEndpoint;
use ipnet::IpNet;

use super::super::Naming;
use super::Peer;

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is \"{text}\", which is not {expected}")]
pub struct Unreadable {
    field: &'static str,
    text: String,
    expected: &'static str,
}

/// The peer that a tunnel leads to; none while it is being set up or removed.
pub fn peer(tunnel: &TunnelEndpoint) -> Result<Option<Peer>, Unreadable> {
    let Some(status) = tunnel.status.as_ref().filter(|_| tunnel.metadata.deletion_timestamp.is_none()) else {
        return Ok(None);
    };
    let Some(gateway) = status.gateway_ip.as_deref() else { return Ok(None) };
    let spec = &tunnel.spec;
    let mut views = vec![view("podCIDR", &spec.pod_cidr, "remoteNATPodCIDR", status.remote_nat_pod_cidr())?];
    if let Some(external) = &spec.external_cidr {
        let name = status.remote_nat_external_cidr();
        views.push(view("externalCIDR", external, "remoteNATExternalCIDR", name)?);
    }
    let own_pods = status.local_pod_cidr.as_deref().map(|text| network("localPodCIDR", text)).transpose()?;
    let gateway: IpAddr = read("gatewayIP", gateway, "an address")?;
    Ok(Some(Peer { views, gateway, own_pods }))
}

/// A network of the peer, as it is named here.
fn view(field: &'static str, theirs: &str, naming: &'static str, name: &str) -> Result<IpNet, Unreadable> {
    let theirs = network(field, theirs)?;
    Ok(match read(naming, name, "a network or None")? {
        Naming::Kept => theirs,
        Naming::Replaced(view) => view.trunc(),
    })
}

fn network(field: &'static str, text: &str) -> Result<IpNet, Unreadable> {
    read::<IpNet>(field, text, "a network").map(|network| network.trunc())
}

fn read<T: FromStr>(field: &'static str, text: &str, expected: &'static str) -> Result<T, Unreadable> {
    text.parse().map_err(|_| Unreadable { field, text: text.chars().take(64).collect(), expected })
}

#[cfg(test)]
mod tests {
    use ferro_api::net::{TunnelEndpointSpec, TunnelEndpointStatus};

    use super::*;

    fn tunnel() -> TunnelEndpoint {
        let spec = TunnelEndpointSpec {
            pod_cidr: "10.244.0.0/16".into(),
            external_cidr: Some("10.50.0.0/16".into()),
            ..TunnelEndpointSpec::default()
        };
        let status = TunnelEndpointStatus {
            gateway_ip: Some("192.0.2.1".into()),
            remote_nat_pod_cidr: Some("10.1.0.0/16".into()),
            local_pod_cidr: Some("10.244.0.0/16".into()),
            ..TunnelEndpointStatus::default()
        };
        TunnelEndpoint { spec, status: Some(status), ..TunnelEndpoint::default() }
    }

    #[test]
    fn networks_are_those_that_this_cluster_uses() {
        let peer = peer(&tunnel()).unwrap().unwrap();
        let views: Vec<_> = peer.views.iter().map(ToString::to_string).collect();
        assert_eq!(views, ["10.1.0.0/16", "10.50.0.0/16"]);
        assert_eq!(peer.gateway.to_string(), "192.0.2.1");
        assert_eq!(peer.own_pods.unwrap().to_string(), "10.244.0.0/16");
    }

    #[test]
    fn a_tunnel_without_a_gateway_leads_nowhere_yet() {
        let mut tunnel = tunnel();
        tunnel.status.as_mut().unwrap().gateway_ip = None;
        assert_eq!(peer(&tunnel), Ok(None));
        tunnel.status = None;
        assert_eq!(peer(&tunnel), Ok(None));
    }

    #[test]
    fn a_field_that_makes_no_sense_is_named() {
        let mut tunnel = tunnel();
        tunnel.status.as_mut().unwrap().remote_nat_pod_cidr = Some("ten".into());
        let error = peer(&tunnel).unwrap_err().to_string();
        assert_eq!(error, "remoteNATPodCIDR is \"ten\", which is not a network or None");
    }
}
