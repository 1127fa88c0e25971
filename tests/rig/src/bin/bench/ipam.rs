//! Figures of the address manager, by the method of the first paper: five clients, each with so many requests in a row.
//!
//! First of the address manager alone, with a follower that only listens; then with a gateway, which says so only when
//! its rules are in force. In one variant all endpoints are different, in the other five clusters ask for the same ones.
//! At last a hundred thousand requests are made, many at a time, and the same is measured once more behind them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferro_api::net::{IpamStorage, NatMapping};
use ferro_api::proto::ipam::MapRequest;
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_core::network::Asker;
use ferro_fabric::ipam::client::{self, Channel};
use ferro_fabric::ipam::{Handle, Metrics, serve, start_counted};
use ferro_fabric::wireguard::PrivateKey;
use ferro_runtime::shutdown::Tasks;
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rig::addresses::{Listener, Manner, define_kinds, meet, own};
use rig::housed::{Housed, connect};
use rig::plan::ClusterSpec;
use rig::room::{Room, join};
use rig::topology::{Cluster, Topology};
use rig::wait::eventually;
use serde_json::json;
use tonic::Code;

const NAMESPACE: &str = "default";
const PEERS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Requests of each client, in a row.
const COUNTS: [u32; 5] = [10, 50, 100, 150, 200];
/// Requests of each client at last, so many at a time.
const MANY: u32 = 20_000;
const AT_ONCE: usize = 200;
/// What the paper printed of some numbers of requests, in seconds.
const PAPER: [(u32, f64); 2] = [(500, 260.68), (1000, 675.42)];
/// How often a request is made that was told to come again.
const TRIES: u32 = 30;
/// The numbers of endpoints that are asked for in a row are below.
const IN_A_ROW: u32 = 1000;
/// Large enough for all of them.
const EXTERNAL: u8 = 14;
/// How often a bare write is measured.
const WRITES: u32 = 50;
/// A call may take so much of a bare write.
const GOAL: f64 = 1.2;

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
    // Free for the moment, and nobody else asks for it.
    let listen = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    for variant in [Variant::Distinct, Variant::Same] {
        measure("ipam.alone", cluster, listen, variant, None).await?;
    }
    let rooms = [Room::new()?, Room::new()?];
    join(&rooms[0], &rooms[1], "outer", ["192.0.2.1/24", "192.0.2.2/24"])?;
    let gateway = Housed::start(cluster, &rooms[0], [192, 0, 2, 1].into(), listen).await?;
    for variant in [Variant::Distinct, Variant::Same] {
        measure("ipam.gateway", cluster, listen, variant, Some(&gateway)).await?;
    }
    gateway.end().await;
    Ok(())
}

/// All figures of one variant.
async fn measure(
    name: &str,
    cluster: &Cluster,
    listen: SocketAddr,
    variant: Variant,
    gateway: Option<&Housed>,
) -> Result<()> {
    let name = format!("{name}.{}", variant.name());
    let mut call = Duration::ZERO;
    for count in COUNTS {
        let write = bare_write(&cluster.client).await?;
        let round = Round::start(&cluster.client, listen, gateway).await?;
        call = round.in_a_row(&name, variant, count, write).await?;
        round.end().await;
    }
    let write = bare_write(&cluster.client).await?;
    let round = Round::start(&cluster.client, listen, gateway).await?;
    round.many(&name, variant, write).await?;
    let behind = format!("{name}.after{}", MANY * 5);
    let late = round.in_a_row(&behind, variant, COUNTS[COUNTS.len() - 1], write).await?;
    println!("{name}.flat {:.2} times the call without them (goal 1)", late.div_duration_f64(call));
    round.end().await;
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

/// An address manager with nothing in it, and those who ask it.
struct Round {
    tasks: Tasks,
    metrics: Metrics,
    clients: Vec<IpamClient<Channel>>,
    /// None where a gateway follows.
    listener: Option<Listener>,
    /// From each answer to its rule, in milliseconds: less than nothing where the rule was first.
    windows: Mutex<Vec<f64>>,
}

impl Round {
    async fn start(admin: &Client, listen: SocketAddr, gateway: Option<&Housed>) -> Result<Self> {
        let (now, all) = (DeleteParams::default(), ListParams::default());
        Api::<IpamStorage>::all(admin.clone()).delete_collection(&now, &all).await?;
        Api::<NatMapping>::all(admin.clone()).delete_collection(&now, &all).await?;
        let (tasks, metrics) = (Tasks::default(), Metrics::default());
        let handle = start_counted(&tasks, admin.clone(), own()?, EXTERNAL, metrics.clone()).await?;
        tasks.spawn("ipam server", serve(admin.clone(), NAMESPACE.into(), listen, handle.clone()));
        let origin: http::Uri = format!("https://{listen}").parse()?;
        let mut clients = Vec::new();
        for (number, peer) in (1..).zip(PEERS) {
            meet(&handle, peer, number).await?;
            let identity = client::issue(admin, NAMESPACE, peer).await?;
            clients.push(client::ipam(&identity, origin.clone())?);
        }
        let listener = match gateway {
            Some(_) => None,
            None => Some(Listener::start(admin, NAMESPACE, &origin, Manner::Promptly, handle.watch()).await?),
        };
        if gateway.is_some() {
            await_gateway(admin, &handle).await?;
        }
        Ok(Self { tasks, metrics, clients, listener, windows: Mutex::default() })
    }

    /// So many requests of each client, one after the other; gives how long a call took.
    async fn in_a_row(&self, name: &str, variant: Variant, count: u32, write: Duration) -> Result<Duration> {
        let (_, before) = self.metrics.so_far();
        let begin = Instant::now();
        try_join_all((0..).zip(PEERS).map(|(number, peer)| async move {
            for n in 0..count {
                self.ask(number, peer, variant.endpoint(number, n)).await?;
            }
            anyhow::Ok(())
        }))
        .await?;
        let (took, writes) = (begin.elapsed(), self.metrics.so_far().1 - before);
        let requests = count * 5;
        let (each, call) = (took / requests, took / count);
        let paper = PAPER.iter().find(|(of, _)| *of == requests);
        let paper = paper.map(|(_, seconds)| format!(" (the paper: {seconds} s)")).unwrap_or_default();
        println!("{name}.{requests}.total {:.2} s{paper}", took.as_secs_f64());
        println!("{name}.{requests}.each {:.2} ms ({writes} writes)", millis(each));
        println!("{name}.{requests}.call {:.2} ms{}", millis(call), goal(write));
        self.print_windows(&format!("{name}.{requests}"));
        Ok(call)
    }

    /// Very many requests of each client, many at a time.
    async fn many(&self, name: &str, variant: Variant, write: Duration) -> Result<()> {
        let (_, before) = self.metrics.so_far();
        let begin = Instant::now();
        try_join_all((0..).zip(PEERS).map(|(number, peer)| {
            let asked = (0..MANY).map(move |n| variant.endpoint(number, IN_A_ROW + n));
            let asked = stream::iter(asked).map(move |endpoint| self.ask(number, peer, endpoint));
            asked.buffer_unordered(AT_ONCE).try_collect::<()>()
        }))
        .await?;
        let (took, writes) = (begin.elapsed(), self.metrics.so_far().1 - before);
        let name = format!("{name}.{}", MANY * 5);
        println!("{name}.total {:.2} s", took.as_secs_f64());
        let (each, shared) = (millis(took / (MANY * 5)), millis(write) * GOAL / 5.0);
        println!("{name}.each {each:.3} ms ({writes} writes; goal {shared:.2}, as if five shared a write)");
        self.print_windows(&name);
        Ok(())
    }

    async fn ask(&self, number: u32, peer: &str, endpoint: IpAddr) -> Result<()> {
        let mut client = self.clients.get(number as usize).context("no such client")?.clone();
        let request = MapRequest { cluster_id: peer.to_owned(), ip: endpoint.to_string() };
        let mut tries = 0;
        while let Err(status) = client.map_endpoint_ip(request.clone()).await {
            tries += 1;
            ensure!(status.code() == Code::Unavailable && tries < TRIES, "a request failed: {status}");
        }
        if let Some(listener) = &self.listener {
            let window = window(Instant::now(), listener, peer, &request.ip).await?;
            self.windows.lock().unwrap_or_else(PoisonError::into_inner).push(window);
        }
        Ok(())
    }

    /// Of a gateway nobody else sees its rules; that none comes late is for the suite `neverwrong` to show.
    fn print_windows(&self, name: &str) {
        let mut windows = std::mem::take(&mut *self.windows.lock().unwrap_or_else(PoisonError::into_inner));
        windows.sort_by(f64::total_cmp);
        let early = windows.iter().filter(|window| **window > 0.0).count();
        let part = |of_hundred: usize| windows.get(windows.len().saturating_sub(1) * of_hundred / 100);
        let (Some(median), Some(most)) = (part(50), part(99)) else { return };
        println!("{name}.early {early} answers before the rule (goal 0)");
        println!(
            "{name}.window.p50 {median:.3} ms from the answer to the rule (goal 0; below, the rule is first)"
        );
        println!("{name}.window.p99 {most:.3} ms (goal 0)");
    }

    async fn end(self) {
        self.tasks.end().await;
    }
}

/// How much later than the answer the rule came.
async fn window(answered: Instant, listener: &Listener, peer: &str, endpoint: &str) -> Result<f64> {
    let since =
        eventually("a rule comes", || async { listener.since(peer, endpoint).context("not yet") }).await?;
    Ok(millis(since.saturating_duration_since(answered)) - millis(answered.saturating_duration_since(since)))
}

/// Tells the gateway of a tunnel to each peer, and waits until it follows. Nobody is at the other ends.
async fn await_gateway(admin: &Client, handle: &Handle) -> Result<()> {
    let state = handle.watch().borrow().clone();
    for (number, peer) in (1..).zip(PEERS) {
        let endpoint = SocketAddr::new([192, 0, 2, 10 + number].into(), 51820);
        let key = PrivateKey::new([10 + number; 32]).public();
        connect(admin, &state, peer, number, endpoint, &key.0).await?;
    }
    let endpoint = Variant::Distinct.endpoint(5, 0);
    for peer in PEERS {
        eventually("the gateway follows", || async { Ok(handle.map(Asker::Caller, peer, endpoint).await?) })
            .await?;
        handle.unmap(Asker::Caller, peer, endpoint).await?;
    }
    Ok(())
}

fn goal(write: Duration) -> String {
    let write = millis(write);
    format!(" (goal {:.2}: {GOAL} of a bare write, {write:.2})", write * GOAL)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
