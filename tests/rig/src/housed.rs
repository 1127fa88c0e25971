//! The gateway role as `ferro gateway` runs it, in a room that stands for its node: for tests and figures that need real
//! packets and a real API server, and no pods.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::net::TunnelEndpoint;
use ferro_core::network::Ipam;
use ferro_core::network::gateway::{CONFIG_MAP, Gateway};
use ferro_core::network::routes::{GATEWAY, GATEWAY_END};
use ferro_fabric::door::SERVICE;
use ferro_fabric::gateway::figures::Figures;
use ferro_fabric::gateway::{Settings, run};
use ferro_fabric::ipam::PORT;
use ferro_runtime::health::Readiness;
use ferro_runtime::shutdown::Tasks;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::addresses::offered;
use crate::opening::Opening;
use crate::room::Room;
use crate::supervisor::client_for;
use crate::topology::Cluster;
use crate::wait::eventually;

const NAMESPACE: &str = "default";
/// The node that the room is.
const NODE: &str = "gateway";
/// Where it listens for tunnels.
const TUNNELS: u16 = 51820;

/// A gateway. It ends with this value.
pub struct Housed {
    /// The public key of its tunnels.
    pub key: [u8; 32],
    tasks: Tasks,
    /// All of its threads are in the room.
    runtime: Option<Runtime>,
    _openings: [Opening; 2],
}

impl Housed {
    /// Starts a gateway in a room that has this address, and the address manager at another one of this process.
    pub async fn start(cluster: &Cluster, room: &Room, address: IpAddr, ipam: SocketAddr) -> Result<Self> {
        let admin = &cluster.client;
        name_node(admin, address).await?;
        let api = SocketAddr::new(cluster.plan.control_plane().into(), 6443);
        let service = SocketAddr::new(service(admin).await?, PORT);
        let openings = [Opening::new(room, api, api)?, Opening::new(room, service, ipam)?];
        // Threads stay where the one is that starts them.
        let runtime = room.run(Runtime::new).context("cannot start a runtime")?;
        let tasks = Tasks::default();
        let started = runtime.spawn(start(tasks.clone(), cluster.kubeconfig.clone()));
        started.await.context("the gateway panicked")??;
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        let said = eventually("the gateway says where it is", || async {
            ensure!(!tasks.have_ended(), "it has ended");
            let map = maps.get(CONFIG_MAP).await?;
            Ok(Gateway::read(&map.data.unwrap_or_default())?)
        })
        .await?;
        Ok(Self { key: said.public_key, tasks, runtime: Some(runtime), _openings: openings })
    }

    /// Leads what is for a peer's pods to the gateway, as the node role would.
    pub fn lead(room: &Room, pods: IpNet) -> Result<()> {
        room.ip(&format!("route replace {pods} via {} dev {GATEWAY} onlink", GATEWAY_END.0))
    }

    /// Ends it, and waits until nothing of it is left.
    pub async fn end(self) {
        self.tasks.end().await;
    }
}

impl Drop for Housed {
    fn drop(&mut self) {
        // Nobody may wait here: this may be dropped by a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn start(tasks: Tasks, kubeconfig: std::path::PathBuf) -> Result<()> {
    let client = client_for(&kubeconfig).await?;
    let settings = Settings {
        namespace: NAMESPACE.into(),
        key_namespace: NAMESPACE.into(),
        node: NODE.into(),
        port: TUNNELS,
        endpoint: None,
    };
    let pending = Readiness::default().pending("tunnels");
    let gateway = run(tasks.clone(), client, settings, Figures::default(), pending);
    tasks.spawn("gateway", gateway);
    Ok(())
}

/// The room as a node of the cluster.
async fn name_node(admin: &Client, address: IpAddr) -> Result<()> {
    let nodes: Api<Node> = Api::all(admin.clone());
    let apply = PatchParams::apply("rig").force();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    nodes.patch(NODE, &apply, &Patch::Apply(node)).await?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address.to_string()}]}});
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// The address of the Service under which gateways look for the address manager.
async fn service(admin: &Client) -> Result<IpAddr> {
    let services: Api<Service> = Api::namespaced(admin.clone(), NAMESPACE);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE},
        "spec": {"ports": [{"name": "grpc", "port": PORT}]},
    });
    let made = services.patch(SERVICE, &PatchParams::apply("rig").force(), &Patch::Apply(service)).await?;
    let ip = made.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    ip.parse().with_context(|| format!("the Service is at {ip:?}"))
}

/// Writes the tunnel to a peer of that number, which has met the address manager and keeps all names, as a network
/// manager would.
pub async fn connect(
    admin: &Client,
    ipam: &Ipam,
    peer: &str,
    number: u8,
    endpoint: SocketAddr,
    key: &[u8; 32],
) -> Result<()> {
    let networks = offered(number)?;
    let (pod, external) = (ipam.own().pod, ipam.external());
    let tunnels: Api<TunnelEndpoint> = Api::namespaced(admin.clone(), NAMESPACE);
    let tunnel = json!({
        "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint", "metadata": {"name": peer},
        "spec": {
            "clusterID": peer, "podCIDR": networks.pod, "externalCIDR": networks.external,
            "endpointIP": endpoint.ip(), "backendType": "wireguard",
            "backend_config": {"port": endpoint.port().to_string(), "publicKey": STANDARD.encode(key)},
        },
    });
    tunnels.patch(peer, &PatchParams::apply("rig").force(), &Patch::Apply(tunnel)).await?;
    let status = json!({"status": {"localPodCIDR": pod, "localExternalCIDR": external}});
    tunnels.patch_status(peer, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}
