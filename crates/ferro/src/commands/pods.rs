//! `ferro pods`: where the pods of offloaded namespaces run, and by which addresses they are known here and there.

mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferro_api::discovery::{ForeignCluster, NetworkState};
use ferro_api::names::labels;
use ferro_api::net::TunnelEndpoint;
use ferro_core::network::pod_names;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::kube_args::KubeArgs;
use crate::kube_errors::Explain as _;
use crate::offloading::Seen;
use crate::output::{self, Format, View};
use crate::peers::{self, Names};
use crate::table::{self, NOTHING};
use crate::{listing, network, offloading};
use status::status;

/// What stands for this cluster.
const HOME: &str = "(home)";

/// List the pods of offloaded namespaces: on which cluster each runs, and its address here and there
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro pods

  Those of one namespace, offloaded or not:
    ferro pods -n shop")]
pub(crate) struct Args {
    /// Only this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The format to print in
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<View>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// One pod.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    status: String,
    /// The peer that it runs on; none at home.
    cluster: Option<String>,
    node: Option<String>,
    address_here: Option<IpAddr>,
    address_there: Option<IpAddr>,
}

/// Lists the pods.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let pods = pods(&client, args.namespace.as_deref()).await?;
        let places = Places::find(&client).await?;
        let rows: Vec<Row> = pods.iter().map(|pod| places.row(pod)).collect();
        match args.output {
            Some(View::Json) => output::print_value(&json!(rows), Format::Json),
            Some(View::Yaml) => output::print_value(&json!(rows), Format::Yaml),
            Some(View::Wide) | None if rows.is_empty() => {
                output::line(&nothing(&client, args.namespace.as_deref()).await?)
            }
            Some(View::Wide) | None => output::print(text(&rows, &pods).as_bytes()),
        }
    })
}

/// Why there is nothing to list.
async fn nothing(client: &Client, namespace: Option<&str>) -> anyhow::Result<String> {
    let Some(namespace) = namespace else {
        let why = "no pod is in a namespace that uses other clusters; begin with: ferro offload NAMESPACE";
        return Ok(why.to_owned());
    };
    Ok(match offloading::namespace(client, namespace).await? {
        Seen::Missing => format!("there is no namespace {namespace}; see 'kubectl get namespaces'"),
        Seen::There { .. } | Seen::Hidden => format!("there are no pods in the namespace {namespace}"),
    })
}

/// The pods of one namespace, or of all that are offloaded.
async fn pods(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<Pod>> {
    let namespaces = match namespace {
        Some(namespace) => vec![namespace.to_owned()],
        None => offloading::list(client).await?.iter().map(offloading::name).collect(),
    };
    let mut pods = Vec::new();
    for namespace in namespaces {
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let some =
            api.list(&ListParams::default()).await.explain(|| format!("list the pods of {namespace}"))?;
        pods.extend(some.items);
    }
    pods.sort_by_key(|pod| (pod.namespace(), pod.name_any()));
    Ok(pods)
}

/// Which nodes stand for which clusters, and how those name their pods.
struct Places {
    nodes: BTreeMap<String, String>,
    tunnels: Vec<TunnelEndpoint>,
    names: Names,
    /// The clusters with which somebody else joins the networks.
    external: BTreeSet<String>,
}

impl Places {
    async fn find(client: &Client) -> anyhow::Result<Self> {
        let which = ListParams::default().labels(&labels::TYPE_VIRTUAL_NODE.selector());
        let nodes: Vec<Node> = listing::labelled(client, "nodes", &which).await?;
        let id = |node: &Node| Some((node.name_any(), labels::REMOTE_ID.of(&node.metadata)?.to_owned()));
        // Whoever may not list them sees the identifiers of their clusters instead.
        let all = ListParams::default();
        let peers = listing::if_allowed::<ForeignCluster>(client, "peers", &all).await?.unwrap_or_default();
        Ok(Self {
            nodes: nodes.iter().filter_map(id).collect(),
            tunnels: network::tunnels(client).await?,
            names: peers::names(&peers),
            external: external(&peers),
        })
    }

    fn row(&self, pod: &Pod) -> Row {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let cluster = node.as_ref().and_then(|node| self.nodes.get(node));
        let here: Option<IpAddr> =
            pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).and_then(|ip| ip.parse().ok());
        let there = cluster.zip(here).and_then(|(id, ip)| self.there(id, ip));
        Row {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            status: status(pod),
            cluster: cluster.map(|id| self.names.get(id).unwrap_or(id).clone()),
            node,
            address_here: here,
            address_there: there,
        }
    }

    /// What an address of a pod here is on the cluster with this identifier.
    fn there(&self, id: &str, here: IpAddr) -> Option<IpAddr> {
        // Without tunnels of ours nobody gives pods other names.
        if self.external.contains(id) {
            return Some(here);
        }
        let tunnel = self.tunnels.iter().find(|tunnel| tunnel.spec.cluster_id == id)?;
        pod_names(tunnel)?.outward(here)
    }
}

/// The identifiers of the clusters with which somebody else joins the networks.
fn external(peers: &[ForeignCluster]) -> BTreeSet<String> {
    let is_external = |peer: &&ForeignCluster| {
        let network = peer.status.as_ref().and_then(|status| status.network.as_ref());
        network.is_some_and(|network| network.state == NetworkState::External)
    };
    peers.iter().filter(is_external).filter_map(peers::cluster_id).map(str::to_owned).collect()
}

fn text(rows: &[Row], pods: &[Pod]) -> String {
    let head = ["NAMESPACE", "NAME", "STATUS", "CLUSTER", "HERE", "THERE", "AGE"].map(str::to_owned);
    let cell = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
    let now = Timestamp::now();
    let rows = rows.iter().zip(pods).map(|(row, pod)| {
        let cluster = row.cluster.clone().or_else(|| row.node.is_some().then(|| HOME.to_owned()));
        let cells = [
            row.namespace.clone(),
            row.name.clone(),
            row.status.clone(),
            cell(cluster),
            cell(row.address_here.map(|ip| ip.to_string())),
            cell(row.address_there.map(|ip| ip.to_string())),
            table::since(pod.creation_timestamp().map(|created| created.0), now),
        ];
        cells.iter().map(|cell| output::plain(cell)).collect()
    });
    table::aligned(&std::iter::once(head.to_vec()).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{TURIN, tunnel};
    use crate::peers::tests::peer;

    fn pod(node: &str, ip: &str, waits: Option<&str>) -> Pod {
        let state = waits.map_or(json!({"running": {}}), |reason| json!({"waiting": {"reason": reason}}));
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "podIP": ip, "containerStatuses": [{"name": "a", "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": state}]},
        }))
        .unwrap()
    }

    fn places() -> Places {
        Places {
            nodes: [("liqo-turin".to_owned(), TURIN.to_owned())].into(),
            tunnels: vec![tunnel(&json!({"status": "connected"}))],
            names: [(TURIN.to_owned(), "turin-1".to_owned())].into(),
            external: BTreeSet::new(),
        }
    }

    #[test]
    fn a_pod_elsewhere_has_two_addresses_and_one_at_home_has_one() {
        let view = pod_names(&places().tunnels[0]).unwrap();
        let there: IpAddr = "10.244.0.9".parse().unwrap();
        let here = view.inward(there).unwrap();
        let row = places().row(&pod("liqo-turin", &here.to_string(), None));
        assert_eq!((row.address_here, row.address_there), (Some(here), Some(there)));
        assert_eq!((row.cluster.as_deref(), row.status.as_str()), (Some("turin-1"), "Running"));
        let row = places().row(&pod("rome-1", "10.244.0.7", None));
        assert_eq!((row.cluster, row.address_there), (None, None));
    }

    #[test]
    fn where_somebody_else_joins_the_networks_a_pod_has_the_same_address_there() {
        let identity = json!({"clusterIdentity": {"clusterID": TURIN, "clusterName": "turin"}});
        let peers = [
            peer("turin-1", &identity, &json!({"network": {"state": "External"}})),
            peer("milan-1", &json!({}), &json!({"network": {"state": "External"}})),
        ];
        let places = Places { tunnels: Vec::new(), external: external(&peers), ..places() };
        let row = places.row(&pod("liqo-turin", "10.244.0.9", None));
        let address: Option<IpAddr> = "10.244.0.9".parse().ok();
        assert_eq!((row.address_here, row.address_there), (address, address));
        let unknown = Places { external: BTreeSet::new(), ..places };
        assert_eq!(unknown.row(&pod("liqo-turin", "10.244.0.9", None)).address_there, None);
    }

    #[test]
    fn what_a_container_waits_for_is_said() {
        let pods = [pod("liqo-turin", "", Some("HostPathVolume"))];
        let shown = text(&[places().row(&pods[0])], &pods);
        assert!(shown.contains("HostPathVolume") && shown.contains("turin-1"), "{shown}");
    }
}
