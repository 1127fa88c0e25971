//! How the pods of a peer are named here, from the tunnel to it.

use ferro_api::net::{NOT_REMAPPED, TunnelEndpoint};
use ipnet::IpNet;

use super::Translation;

/// The names of a peer's pods, here and there; none until they have names.
pub fn pod_names(tunnel: &TunnelEndpoint) -> Option<Translation> {
    let there: IpNet = tunnel.spec.pod_cidr.parse().ok()?;
    let here = match tunnel.status.as_ref()?.remote_nat_pod_cidr.as_deref()? {
        NOT_REMAPPED => there,
        other => other.parse().ok()?,
    };
    Translation::new(here, there).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(name: Option<&str>) -> Option<Translation> {
        let mut tunnel = TunnelEndpoint::default();
        tunnel.spec.pod_cidr = "10.0.0.0/16".into();
        tunnel.status = name.map(|name| serde_json::from_value(json!({"remoteNATPodCIDR": name})).unwrap());
        pod_names(&tunnel)
    }

    #[test]
    fn pods_of_a_peer_have_their_own_names_or_others_or_none_yet() {
        let there = "10.0.3.4".parse().unwrap();
        assert_eq!(named(Some("None")).unwrap().inward(there), Some(there));
        assert_eq!(named(Some("10.60.0.0/16")).unwrap().inward(there), "10.60.3.4".parse().ok());
        assert_eq!(named(None), None);
        assert_eq!(named(Some("10.60.0.0/24")), None, "not of the same size");
    }
}
