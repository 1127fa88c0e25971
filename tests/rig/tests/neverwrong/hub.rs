//! Cluster B, without pods: its API server, its address manager, and its gateway in the room of the scene.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Result;
use ferro_api::config::Reach;
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_core::network::{Offered, OwnNetworks, default_pools};
use ferro_fabric::ipam::client::{self, Channel};
use ferro_fabric::ipam::{Handle, serve, start};
use ferro_fabric::wireguard::PublicKey;
use ferro_runtime::shutdown::Tasks;
use ipnet::IpNet;
use kube::Client;
use rig::addresses::{define_kinds, kept, meet, offered};
use rig::housed::{Housed, connect};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use rig::tunnels::connected_to;

use crate::scene::{FOREIGN, NUMBER, OUTER, PODS, Scene};

/// A, as B knows it.
pub const PEER: &str = "a";
const NAMESPACE: &str = "default";
/// Large enough for all addresses that rest while others are in use.
const EXTERNAL: u8 = 14;

/// Cluster B.
pub struct Hub {
    pub handle: Handle,
    pub external: IpNet,
    pub scene: Arc<Scene>,
    admin: Client,
    listen: SocketAddr,
    gateway: Housed,
    tasks: Tasks,
    _topology: Topology,
}

impl Hub {
    /// Starts all of it, with a tunnel to A through which packets get.
    pub async fn start() -> Result<Self> {
        if let Ok(directives) = std::env::var("FERRO_LOG") {
            ferro_runtime::logs::start(&directives);
        }
        let spec = ClusterSpec { bare: true, ..ClusterSpec::named("b") }.with_same_cidrs();
        let topology = Topology::up("neverwrong", vec![spec]).await?;
        let cluster = topology.cluster("b")?;
        let admin = cluster.client.clone();
        define_kinds(cluster).await?;

        let tasks = Tasks::default();
        let handle = start(&tasks, admin.clone(), own()?, EXTERNAL).await?;
        // Free for the moment, and nobody else asks for it.
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        tasks.spawn("ipam server", serve(admin.clone(), NAMESPACE.into(), listen, handle.clone()));
        meet(&handle, PEER, NUMBER).await?;
        handle.acquire("c", Offered { pod: FOREIGN.parse()?, external: None }).await?;
        handle.agree("c", kept()).await?;

        let scene = Arc::new(Scene::new()?);
        let gateway = Housed::start(cluster, &scene.b, OUTER[1].parse()?, listen).await?;
        let (external, state) = (handle.watch().borrow().external(), handle.watch().borrow().clone());
        let (endpoint, key) = Scene::gateway()?;
        connect(&admin, &state, PEER, NUMBER, endpoint, &key.0).await?;
        Housed::lead(&scene.b, offered(NUMBER)?.pod)?;
        scene.connect(PublicKey(gateway.key), external)?;
        connected_to(cluster, PEER).await?;
        Ok(Self { handle, external, scene, admin, listen, gateway, tasks, _topology: topology })
    }

    /// One who asks for A.
    pub async fn client(&self) -> Result<IpamClient<Channel>> {
        let identity = client::issue(&self.admin, NAMESPACE, PEER).await?;
        client::ipam(&identity, format!("https://{}", self.listen).parse()?)
    }

    pub async fn end(self) {
        self.gateway.end().await;
        self.tasks.end().await;
    }
}

fn own() -> Result<OwnNetworks> {
    let (pod, service) = (PODS.parse()?, "10.96.0.0/16".parse()?);
    Ok(OwnNetworks { pod, service, reserved: BTreeSet::new(), pools: default_pools(), reach: Reach::Default })
}
