//! Which peers would lose something: uninstalling under a peering leaves the other side with objects about us.

use anyhow::ensure;
use ferro_api::discovery::{ForeignCluster, PeeringState, PeeringStatus};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use crate::kube_errors::{Explain as _, found};

/// The names of all clusters with which something is shared, or is about to be.
pub(super) async fn peers(client: &Client) -> anyhow::Result<Vec<String>> {
    let clusters = Api::<ForeignCluster>::all(client.clone()).list(&ListParams::default()).await;
    let clusters = found(clusters).explain(|| "list the other clusters".into())?;
    let peered = clusters.iter().flatten().filter(|cluster| is_peered(cluster));
    Ok(peered.map(ForeignCluster::name_any).collect())
}

/// Says no while there are peers.
pub(super) fn refuse(peers: &[String]) -> anyhow::Result<()> {
    let first = peers.first().map_or("PEER", String::as_str);
    ensure!(
        peers.is_empty(),
        "this cluster still shares with {0}; end each peering first, as with 'ferro unpeer {first}', or use --force, which \
         leaves objects about this cluster behind on the other side",
        peers.join(", ")
    );
    Ok(())
}

fn is_peered(cluster: &ForeignCluster) -> bool {
    let status = cluster.status.as_ref();
    let directions = [
        status.and_then(|status| status.outgoing.as_ref()),
        status.and_then(|status| status.incoming.as_ref()),
    ];
    cluster.spec.join() || directions.into_iter().flatten().any(is_active)
}

fn is_active(direction: &PeeringStatus) -> bool {
    match direction.state {
        PeeringState::None | PeeringState::Refused => false,
        PeeringState::Pending
        | PeeringState::Established
        | PeeringState::Unreachable
        | PeeringState::Disconnecting => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_peered, refuse};
    use ferro_api::discovery::ForeignCluster;
    use serde_json::{Value, json};

    fn cluster(spec: &Value, status: &Value) -> ForeignCluster {
        serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster", "metadata": {"name": "b"},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_that_is_only_known_is_not_a_peer() {
        assert!(!is_peered(&cluster(&json!({"authUrl": "b"}), &json!({}))));
        let refused = json!({"outgoing": {"state": "Refused"}, "incoming": {"state": "None"}});
        assert!(!is_peered(&cluster(&json!({}), &refused)));
    }

    #[test]
    fn a_cluster_that_is_asked_or_shares_in_either_direction_is_one() {
        assert!(is_peered(&cluster(&json!({"join": true}), &json!({}))));
        for state in ["Pending", "Established", "Unreachable", "Disconnecting"] {
            assert!(is_peered(&cluster(&json!({}), &json!({"outgoing": {"state": state}}))));
            assert!(is_peered(&cluster(&json!({}), &json!({"incoming": {"state": state}}))));
        }
    }

    #[test]
    fn the_refusal_names_the_peers_and_the_way_out() {
        let said = refuse(&["b".into(), "c".into()]).unwrap_err().to_string();
        assert!(said.contains("b, c") && said.contains("'ferro unpeer b'"), "{said}");
        assert!(refuse(&[]).is_ok());
    }
}
