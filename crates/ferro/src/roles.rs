//! The roles that run inside a cluster: each a process with its own rights, wired here and decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::config::ClusterConfig;
use ferro_api::offloading::NamespaceOffloading;
use ferro_fabric::door;
use ferro_fabric::gateway::figures::Figures;
use ferro_fabric::gateway::{self, Settings};
use ferro_fabric::ipam;
use ferro_fabric::manager::{self, Served};
use ferro_fabric::routes;
use ferro_offload::claims::{self, Ledger};
use ferro_offload::occupancy::Occupancy;
use ferro_offload::pods::Around;
use ferro_offload::reflection::{self, Reflection};
use ferro_offload::tokens::Issuer;
use ferro_offload::{kubelet, namespaces, pods, shadows, tenants, webhook};
use ferro_peering::home::Home;
use ferro_peering::metrics::Metrics;
use ferro_runtime::health::{self, Readiness};
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use ferro_runtime::{api_server, leader, logs, memory};
use kube::runtime::watcher;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// What a role learns from its pod.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The namespace that the role runs in
    #[arg(long, env = "POD_NAMESPACE", default_value = "liqo")]
    namespace: String,
    /// The name of the pod, which is also its name in elections
    #[arg(long, env = "POD_NAME", default_value = "ferro")]
    pod: String,
    /// The address of the pod
    #[arg(long, env = "POD_IP")]
    address: Option<IpAddr>,
    /// The node that the pod runs on
    #[arg(long, env = "NODE_NAME", default_value = "")]
    node: String,
    /// How much to log: error, warn, info, debug, or directives
    #[arg(long, env = "FERRO_LOG", default_value = "info")]
    log: String,
    /// The port for /livez, /readyz and /metrics
    #[arg(long, env = "FERRO_HEALTH_PORT")]
    health_port: Option<u16>,
}

/// Which role.
pub(crate) enum Role {
    /// Peering, leader-elected.
    Controller,
    /// The one that strangers reach.
    Auth,
    /// One on each node, in the node's own network.
    Node,
    /// The one with the tunnels.
    Gateway(GatewayArgs),
}

/// What the gateway learns beside that.
#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    /// The UDP port for tunnels
    #[arg(long, env = "FERRO_GATEWAY_PORT", default_value_t = 5871)]
    port: u16,
    /// The namespace with the key of the tunnels
    #[arg(long, env = "FERRO_KEY_NAMESPACE", default_value = "liqo-keys")]
    key_namespace: String,
    /// The address at which peers reach it, where that is not one of the node's
    #[arg(long, env = "FERRO_GATEWAY_ENDPOINT")]
    endpoint: Option<IpAddr>,
}

impl Role {
    fn health_port(&self) -> u16 {
        match self {
            Self::Controller | Self::Auth => 9440,
            Self::Node => 9441,
            Self::Gateway(_) => 9442,
        }
    }
}

/// Runs a role until the process is told to end or a task fails.
pub(crate) fn run(role: Role, args: Args) -> Result<()> {
    logs::start(&args.log);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let tasks = Tasks::until_signal()?;
        let readiness = Readiness::default();
        let listen =
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.health_port.unwrap_or(role.health_port())));
        let mut metrics = Registry::with_prefix("ferro");
        let client = api_server::connect(&mut metrics).await?;
        let (to_end, namespace) = (client.clone(), args.namespace.clone());
        let is_node = matches!(role, Role::Node);
        match role {
            Role::Controller => {
                let figures = ControllerFigures {
                    peering: Metrics::register(&mut metrics),
                    addresses: ipam::Metrics::register(&mut metrics),
                    webhook: webhook::Metrics::register(&mut metrics),
                };
                controller(&tasks, &readiness, client, args, figures);
            }
            Role::Auth => auth(&tasks, &readiness, client, args),
            Role::Node => node(&tasks, &readiness, client, args, routes::Metrics::register(&mut metrics)),
            Role::Gateway(own) => {
                gateway(&tasks, &readiness, client, args, own, Figures::register(&mut metrics));
            }
        }
        tasks.spawn("health", health::serve(listen, readiness, metrics));
        tasks.spawn("memory", memory::give_back());
        tasks.ended().await;
        tasks.end().await;
        if is_node {
            routes::farewell(to_end, &namespace).await;
        }
        Ok(())
    })
}

/// What the controller counts.
struct ControllerFigures {
    peering: Metrics,
    addresses: ipam::Metrics,
    webhook: webhook::Metrics,
}

/// A replica that waits for the Lease is ready as well: it does all that is asked of it, and answers the webhook.
fn controller(tasks: &Tasks, readiness: &Readiness, client: Client, args: Args, figures: ControllerFigures) {
    let offloadings = Api::<NamespaceOffloading>::all(client.clone());
    let offloadings = Watched::start(tasks, "offloadings", offloadings, watcher::Config::default());
    let pending = readiness.pending("webhook");
    let (api, namespace) = (client.clone(), args.namespace.clone());
    let (policies, metrics) = (offloadings.clone(), figures.webhook);
    let answers = webhook::serve(tasks.clone(), api, namespace, policies, metrics, pending);
    tasks.spawn("webhook", answers);
    let pending = readiness.pending("configuration");
    let configs = Api::<ClusterConfig>::all(client.clone());
    let config = Watched::start(tasks, "configuration", configs, watcher::Config::default());
    let theirs = tasks.clone();
    tasks.spawn("controller", async move {
        config.ready().await?;
        drop(pending);
        let (api, namespace) = (client.clone(), args.namespace.clone());
        let work = async move {
            let home = ferro_peering::controller::home(&theirs, api, namespace, config);
            let (told, asked) = watch::channel(None);
            let network = manager::run::<Served>(theirs.clone(), home.clone(), figures.addresses, told);
            theirs.spawn("network", network);
            let occupancy = Occupancy::awaited();
            let namespaces = namespaces::run(theirs.clone(), home.clone(), occupancy.clone());
            theirs.spawn("namespaces", namespaces);
            theirs.spawn("tenants", tenants::run(theirs.clone(), home.clone()));
            theirs.spawn("shadows", shadows::run(theirs.clone(), home.clone()));
            theirs.spawn("rights of reflection", reflection::rights::keep(theirs.clone(), home.clone()));
            theirs.spawn("silence", reflection::silence::run(theirs.clone(), home.clone()));
            let issuer = Issuer::start(&theirs, &home, asked.clone());
            let around = Around {
                offloadings,
                occupancy,
                reflection: Reflection::new(&theirs, &home, asked),
                ledger: Ledger::start(&theirs, &home.client),
                issuer,
            };
            run_pods(&theirs, &home, around, args.address);
            let certificates = webhook::keep(theirs.clone(), home.client.clone(), home.namespace.clone());
            theirs.spawn("webhook certificates", certificates);
            if let Some(address) = args.address {
                theirs.spawn("door", door::keep(home.client.clone(), home.namespace.clone(), address));
            }
            ferro_peering::controller::run(theirs, home, figures.peering).await
        };
        // The work holds the state of all controllers.
        Box::pin(leader::lead(client, &args.namespace, "ferro-controller", &args.pod, work)).await
    });
}

/// The agent of virtual nodes; with an address of its own it can be asked for logs, commands and usage.
fn run_pods(tasks: &Tasks, home: &Home, around: Around, address: Option<IpAddr>) {
    let stations = pods::Stations::default();
    let claims = claims::run(tasks.clone(), home.clone(), around.ledger.clone(), stations.clone());
    tasks.spawn("claims", claims);
    tasks.spawn("pods", pods::run(tasks.clone(), home.clone(), around, stations.clone()));
    let Some(address) = address else { return };
    let (nodes, agent) = (home.nodes.clone(), Arc::clone(&home.agent));
    let serve = kubelet::serve(tasks.clone(), home.client.clone(), address, Arc::new(stations), nodes, agent);
    tasks.spawn("kubelet", serve);
}

fn auth(tasks: &Tasks, readiness: &Readiness, client: Client, args: Args) {
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8443));
    let pending = readiness.pending("certificate");
    tasks.spawn("auth", ferro_peering::auth::serve(tasks.clone(), client, args.namespace, listen, pending));
}

fn node(tasks: &Tasks, readiness: &Readiness, client: Client, args: Args, metrics: routes::Metrics) {
    let pending = readiness.pending("routes");
    let run = routes::run(tasks.clone(), client.clone(), args.node.clone(), metrics, pending);
    tasks.spawn("routes", run);
    let pending = readiness.pending("watches");
    tasks.spawn("lan", ferro_peering::lan::run(tasks.clone(), client, args.namespace, args.node, pending));
}

fn gateway(
    tasks: &Tasks,
    readiness: &Readiness,
    client: Client,
    args: Args,
    own: GatewayArgs,
    figures: Figures,
) {
    let pending = readiness.pending("tunnels");
    let GatewayArgs { port, key_namespace, endpoint } = own;
    let settings = Settings { namespace: args.namespace, key_namespace, node: args.node, port, endpoint };
    tasks.spawn("gateway", gateway::run(tasks.clone(), client, settings, figures, pending));
}
