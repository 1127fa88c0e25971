//! The network between this cluster and its peers, as its objects describe it.

use std::net::IpAddr;

use ferro_api::config::{NetworkMode, Reach};
use ferro_api::discovery::ForeignCluster;
use ferro_api::net::{IpamStorage, NatMapping, TunnelEndpoint};
use ferro_core::network::gateway::CONFIG_MAP;
use ferro_core::network::layout;
use ferro_core::network::trace::{self, Known};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;

use crate::kube_errors::{Explain as _, found};
use crate::peers::{self, Names};
use crate::{listing, this_cluster};

/// What is found in the cluster.
pub(crate) struct Network {
    /// The namespace of the installation.
    pub(crate) namespace: String,
    /// Whether somebody else joins the networks.
    pub(crate) external_mode: bool,
    /// What peers can reach.
    pub(crate) reach: Reach,
    /// The networks in use.
    pub(crate) known: Known,
    /// Where the gateway is, once it has said so.
    pub(crate) gateway: Option<Gateway>,
    /// All tunnels.
    pub(crate) endpoints: Vec<TunnelEndpoint>,
    /// All redirections.
    pub(crate) mappings: Vec<NatMapping>,
    /// All other clusters.
    pub(crate) peers: Vec<ForeignCluster>,
}

/// What the gateway says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// The node that it runs on.
    pub(crate) node: String,
    /// The address of that node inside the cluster.
    pub(crate) node_ip: Option<IpAddr>,
    /// Where peers reach it.
    pub(crate) endpoint: Option<String>,
}

impl Network {
    /// Reads all of it.
    pub(crate) async fn find(client: &Client) -> anyhow::Result<Self> {
        let namespace = this_cluster::namespace(client).await?;
        let map = Api::<ConfigMap>::namespaced(client.clone(), &namespace).get(CONFIG_MAP).await;
        let map = found(map).explain(|| format!("read the ConfigMap {namespace}/{CONFIG_MAP}"))?;
        let config = this_cluster::config(client).await?;
        // The further ones hold single addresses, and may be many.
        let first = layout::name(0);
        let storage = found(Api::<IpamStorage>::all(client.clone()).get(&first).await);
        let storage = storage.explain(|| format!("read the IpamStorage {first}"))?;
        Ok(Self {
            external_mode: config.spec.liqonet().mode() == NetworkMode::External,
            reach: config.spec.liqonet().reach(),
            known: Known::from_storage(storage.as_slice()),
            gateway: map.as_ref().and_then(gateway),
            endpoints: tunnels(client).await?,
            mappings: listing::all(client, "redirections").await?,
            peers: peers::list(client).await?,
            namespace,
        })
    }

    /// What each peer is called, by its identifier.
    pub(crate) fn names(&self) -> Names {
        peers::names(&self.peers)
    }
}

/// All tunnels.
pub(crate) async fn tunnels(client: &Client) -> anyhow::Result<Vec<TunnelEndpoint>> {
    listing::all(client, "tunnels").await
}

fn gateway(map: &ConfigMap) -> Option<Gateway> {
    let data = map.data.as_ref()?;
    let ip = |key: &str| data.get(key).and_then(|text| text.parse::<IpAddr>().ok());
    let port = data.get("port").and_then(|text| text.parse::<u16>().ok());
    let endpoint = ip("endpointIP").zip(port).map(std::net::SocketAddr::from);
    Some(Gateway {
        node: data.get("node")?.clone(),
        node_ip: ip("nodeIP"),
        endpoint: endpoint.map(|endpoint| endpoint.to_string()),
    })
}

/// What is wrong with the tunnel to a peer, and what to do about it.
pub(crate) fn complaint(peer: &str, endpoint: &TunnelEndpoint) -> Option<String> {
    let (status, message) = trace::complaint(endpoint)?;
    Some(format!("{peer}: the tunnel is {status}: {message}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Gateway, Network, complaint, gateway};
    use crate::peers::tests::peer;
    use ferro_api::config::Reach;
    use ferro_api::net::TunnelEndpoint;
    use ferro_core::network::trace::Known;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    pub(crate) const TURIN: &str = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";

    /// The tunnel to turin: both have the same networks.
    pub(crate) fn tunnel(connection: &Value) -> TunnelEndpoint {
        serde_json::from_value(json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint",
            "metadata": {"name": "turin", "namespace": "liqo-tenant-turin"},
            "spec": {
                "clusterID": TURIN, "podCIDR": "10.244.0.0/24", "externalCIDR": "192.168.0.0/24",
                "endpointIP": "192.0.2.2", "backendType": "wireguard",
                "backend_config": {
                    "port": "30020", "publicKey": "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g=",
                },
            },
            "status": {
                "localPodCIDR": "10.244.0.0/24", "localNATPodCIDR": "10.0.40.0/24",
                "remoteNATPodCIDR": "10.0.0.0/24", "localExternalCIDR": "192.168.0.0/24",
                "localNATExternalCIDR": "192.168.8.0/24", "remoteNATExternalCIDR": "192.168.7.0/24",
                "connection": connection,
            },
        }))
        .unwrap()
    }

    pub(crate) fn connected() -> Value {
        json!({"status": "connected", "probe": {
            "roundTripMicroseconds": 812, "jitterMicroseconds": 40, "lostPerThousand": 4,
            "measuredAt": "2030-01-01T00:00:00Z",
        }, "throughput": {"sentBytesPerSecond": 12_345, "receivedBytesPerSecond": 930}})
    }

    /// A cluster that is joined with turin.
    pub(crate) fn joined(connection: &Value) -> Network {
        let identity = json!({"clusterIdentity": {"clusterID": TURIN, "clusterName": "turin"}});
        let mapping = json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping", "metadata": {"name": "natmapping-turin"},
            "spec": {"clusterID": TURIN, "clusterMappings": {"172.18.0.3": "192.168.8.45"}},
        });
        let storage = json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "IpamStorage", "metadata": {"name": "ipam"},
            "spec": {"podCIDR": "10.244.0.0/24", "serviceCIDR": "10.96.0.0/16", "externalCIDR": "192.168.0.0/24"},
        });
        Network {
            namespace: "liqo".into(),
            external_mode: false,
            reach: Reach::Default,
            known: Known::from_storage(&[serde_json::from_value(storage).unwrap()]),
            gateway: gateway(&map(&json!({
                "node": "rome-1", "nodeIP": "172.18.0.2", "endpointIP": "192.0.2.1", "port": "51820",
            }))),
            endpoints: vec![tunnel(connection)],
            mappings: vec![serde_json::from_value(mapping).unwrap()],
            peers: vec![peer("turin", &identity, &json!({"outgoing": {"state": "Established"}}))],
        }
    }

    fn map(data: &Value) -> ConfigMap {
        serde_json::from_value(json!({"data": data})).unwrap()
    }

    #[test]
    fn the_gateway_is_where_it_says() {
        let said = joined(&connected()).gateway.unwrap();
        assert_eq!((said.node.as_str(), said.endpoint.as_deref()), ("rome-1", Some("192.0.2.1:51820")));
        let half = gateway(&map(&json!({"node": "rome-1", "endpointIP": "x"})));
        assert_eq!(half, Some(Gateway { node: "rome-1".into(), ..Gateway::default() }));
        assert_eq!(gateway(&map(&json!({"publicKey": "x"}))), None);
    }

    #[test]
    fn only_a_tunnel_that_carries_nothing_is_complained_about() {
        assert_eq!(complaint("turin", &tunnel(&connected())), None);
        let failed = json!({"status": "error", "statusMessage": "no route to 192.0.2.2"});
        assert_eq!(
            complaint("turin", &tunnel(&failed)).unwrap(),
            "turin: the tunnel is in error: no route to 192.0.2.2"
        );
    }
}
