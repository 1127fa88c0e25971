//! Figures of the address manager, by the method of the first paper: five clients, each with so many requests in a row.
//!
//! In one variant all endpoints are different, in the other five clusters ask for the same ones. A gateway that only
//! listens acknowledges every change.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferro_api::net::{IpamStorage, NatMapping};
use ferro_api::proto::ipam::MapRequest;
use ferro_fabric::ipam::client::{self, Identity};
use ferro_fabric::ipam::{Metrics, serve, start_counted};
use ferro_runtime::shutdown::Tasks;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rig::addresses::{Listener, Manner, define_kinds, meet, own};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use serde_json::json;

const NAMESPACE: &str = "default";
const PEERS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Requests of each client.
const COUNTS: [u32; 5] = [10, 50, 100, 150, 200];
/// Large enough for all of them.
const EXTERNAL: u8 = 14;
/// How often a bare write is measured.
const WRITES: u32 = 50;

/// Whether clients ask for the same endpoints.
#[derive(Clone, Copy, Debug)]
enum Variant {
    Distinct,
    Same,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Distinct => "distinct",
            Self::Same => "same",
        }
    }

    /// The endpoint that a client asks for at its n-th turn.
    fn endpoint(self, client: u32, n: u32) -> IpAddr {
        let number = match self {
            Self::Distinct => client * 65_536 + n,
            Self::Same => n,
        };
        IpAddr::V4((0xc612_0000 + number).into())
    }
}

/// Prints all figures of the address manager.
pub async fn run() -> Result<()> {
    let bare = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
    let topology = Topology::up("bench-ipam", vec![bare]).await?;
    let cluster = topology.cluster("a")?;
    define_kinds(cluster).await?;
    for variant in [Variant::Distinct, Variant::Same] {
        for count in COUNTS {
            let write = bare_write(&cluster.client).await?;
            let round = Round::start(&cluster.client).await?;
            round.measure(variant, count, write).await?;
            round.end().await;
        }
    }
    Ok(())
}

/// How long one write of a small object takes.
async fn bare_write(client: &Client) -> Result<Duration> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "bench"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let begin = Instant::now();
    for n in 0..WRITES {
        let change = json!({"data": {"n": n.to_string()}});
        maps.patch("bench", &PatchParams::default(), &Patch::Merge(change)).await?;
    }
    let took = begin.elapsed() / WRITES;
    maps.delete("bench", &DeleteParams::default()).await?;
    Ok(took)
}

/// An address manager with nothing in it.
struct Round {
    client: Client,
    tasks: Tasks,
    metrics: Metrics,
    listen: SocketAddr,
    _gateway: Listener,
}

impl Round {
    async fn start(client: &Client) -> Result<Self> {
        let (now, all) = (DeleteParams::default(), ListParams::default());
        Api::<IpamStorage>::all(client.clone()).delete_collection(&now, &all).await?;
        Api::<NatMapping>::all(client.clone()).delete_collection(&now, &all).await?;
        let (tasks, metrics) = (Tasks::default(), Metrics::default());
        let handle = start_counted(&tasks, client.clone(), own()?, EXTERNAL, metrics.clone()).await?;
        let listen = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        tasks.spawn("ipam server", serve(client.clone(), NAMESPACE.into(), listen, handle.clone()));
        for (number, peer) in (1..).zip(PEERS) {
            meet(&handle, peer, number).await?;
        }
        let gateway = Listener::start(client, NAMESPACE, &origin(listen)?, Manner::Promptly).await?;
        Ok(Self { client: client.clone(), tasks, metrics, listen, _gateway: gateway })
    }

    async fn measure(&self, variant: Variant, count: u32, write: Duration) -> Result<()> {
        let mut clients = Vec::new();
        for peer in PEERS {
            let identity = Identity::issue(&self.client, NAMESPACE, peer).await?;
            clients.push(client::ipam(&identity, origin(self.listen)?)?);
        }
        let (_, before) = self.metrics.so_far();
        let begin = Instant::now();
        let asked = (0..).zip(PEERS).zip(clients).map(|((number, peer), mut client)| async move {
            for n in 0..count {
                let ip = variant.endpoint(number, n).to_string();
                let request = MapRequest { cluster_id: peer.to_owned(), ip };
                client.map_endpoint_ip(request).await.context("a request failed")?;
            }
            anyhow::Ok(())
        });
        try_join_all(asked).await?;
        let (took, writes) = (begin.elapsed(), self.metrics.so_far().1 - before);
        let requests = count * 5;
        let (name, each) = (variant.name(), took / requests);
        let call = each * 5;
        println!("ipam.{name}.{requests}.total {:.2} s", took.as_secs_f64());
        println!("ipam.{name}.{requests}.each {:.2} ms ({writes} writes)", millis(each));
        println!(
            "ipam.{name}.{requests}.call {:.2} ms (goal {:.2}: 1.2 of a bare write, {:.2})",
            millis(call),
            millis(write) * 1.2,
            millis(write)
        );
        Ok(())
    }

    async fn end(self) {
        self.tasks.end().await;
    }
}

fn origin(listen: SocketAddr) -> Result<http::Uri> {
    Ok(format!("https://{listen}").parse()?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
