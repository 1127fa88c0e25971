//! What a `TunnelEndpoint` means for the routes of a node.

use ferro_api::net::{IpamStorageSpec, TunnelEndpoint};
use ipnet::IpNet;

use super::super::Trouble;
use super::super::config::parse;
use super::super::tunnel::named_here;
use super::Peer;

/// The peer that a tunnel leads to; none before its networks have names. It is read as the gateway reads it, so that
/// nothing is led there that it would drop. One that goes keeps its networks until it is gone: what is for them must not
/// leave by another way.
pub fn peer(tunnel: &TunnelEndpoint) -> Result<Option<Peer>, Trouble> {
    let Some(status) = tunnel.status.as_ref() else { return Ok(None) };
    let Some(own_pods) = status.local_pod_cidr.as_deref() else { return Ok(None) };
    let spec = &tunnel.spec;
    let pods = named_here(&spec.pod_cidr, status.remote_nat_pod_cidr(), ["podCIDR", "remoteNATPodCIDR"])?;
    let mut views = vec![pods.here()];
    if let Some(external) = &spec.external_cidr {
        let name = status.remote_nat_external_cidr();
        views.push(named_here(external, name, ["externalCIDR", "remoteNATExternalCIDR"])?.here());
    }
    let own_pods: IpNet = parse("localPodCIDR", own_pods, "a network")?;
    let is_going = tunnel.metadata.deletion_timestamp.is_some();
    let gateway = status.gateway_ip.as_deref().filter(|_| !is_going);
    let gateway = gateway.map(|text| parse("gatewayIP", text, "an address")).transpose()?;
    Ok(Some(Peer { views, gateway, own_pods: Some(own_pods.trunc()) }))
}

/// The peers whose networks have names, by what the address manager has stored. The names outlive each tunnel: while
/// networks are negotiated anew there is none. What cannot be read the address manager does not use, either.
pub fn named(storage: &IpamStorageSpec) -> Vec<Peer> {
    let network = |text: &Option<String>| text.as_deref()?.parse().ok().map(|network: IpNet| network.trunc());
    let own_pods = network(&storage.pod_cidr);
    let peers = storage.cluster_subnets.values().map(|subnets| {
        let views = [&subnets.remote_pod_cidr, &subnets.remote_external_cidr].into_iter().filter_map(network);
        Peer { views: views.collect(), gateway: None, own_pods }
    });
    peers.filter(|peer| !peer.views.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use ferro_api::net::{TunnelEndpointSpec, TunnelEndpointStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

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
        assert_eq!(peer.gateway.unwrap().to_string(), "192.0.2.1");
        assert_eq!(peer.own_pods.unwrap().to_string(), "10.244.0.0/16");
    }

    #[test]
    fn a_tunnel_that_goes_or_has_no_gateway_yet_leads_nowhere_and_keeps_its_networks() {
        let lost = Some(Peer { gateway: None, ..peer(&tunnel()).unwrap().unwrap() });
        let mut going = tunnel();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(peer(&going), Ok(lost.clone()));
        let mut early = tunnel();
        early.status.as_mut().unwrap().gateway_ip = None;
        assert_eq!(peer(&early), Ok(lost));
    }

    #[test]
    fn a_tunnel_whose_networks_have_no_names_yet_is_no_peer() {
        let mut tunnel = tunnel();
        // The gateway may have said already how it fares.
        tunnel.status = Some(TunnelEndpointStatus::default());
        assert_eq!(peer(&tunnel), Ok(None));
        tunnel.status = None;
        assert_eq!(peer(&tunnel), Ok(None));
    }

    #[test]
    fn names_that_are_stored_are_kept_free_without_a_tunnel() {
        let storage: IpamStorageSpec = serde_json::from_value(json!({
            "podCIDR": "10.244.0.0/16",
            "clusterSubnets": {
                "milan": {"remotePodCIDR": "10.1.0.0/16", "remoteExternalCIDR": "10.50.0.0/16"},
                "rome": {"remotePodCIDR": "10.2.0.0/16"},
                "broken": {"remotePodCIDR": "ten"},
            },
        }))
        .unwrap();
        let peers = named(&storage);
        let views: Vec<String> = peers.iter().flat_map(|peer| &peer.views).map(ToString::to_string).collect();
        assert_eq!(views, ["10.1.0.0/16", "10.50.0.0/16", "10.2.0.0/16"]);
        assert!(peers.iter().all(|peer| peer.gateway.is_none()));
        assert_eq!(peers[0].own_pods.unwrap().to_string(), "10.244.0.0/16");
    }

    #[test]
    fn a_field_that_makes_no_sense_is_named() {
        let mut tunnel = tunnel();
        tunnel.status.as_mut().unwrap().remote_nat_pod_cidr = Some("ten".into());
        let error = peer(&tunnel).unwrap_err().to_string();
        assert_eq!(error, "remoteNATPodCIDR is \"ten\", which is not a network or None");
        tunnel.status.as_mut().unwrap().remote_nat_pod_cidr = Some("10.1.0.0/24".into());
        assert!(matches!(peer(&tunnel), Err(Trouble::Unlike(_))), "the gateway would drop it");
    }
}
