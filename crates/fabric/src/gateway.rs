//! The gateway of a cluster: all tunnels to its peers, kept as the resources say, with a word on how they fare.
//!
//! - Flow: resources and the address manager say what is wanted; the engine is told; then the address manager hears
//!   that it is so. What the engine measures goes back into the status of each TunnelEndpoint.
//! - Guarantees: whatever is lost, the API or the address manager, forwarding goes on by the last that was known.
//! - Assumptions: it is the only one with its key.

pub mod figures;
mod follow;
mod house;
mod key;
mod notice;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::config::ClusterConfig;
use ferro_api::net::{NatMapping, TunnelEndpoint};
use ferro_core::network::{Problem, Tunnel, tunnels};
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use self::figures::Figures;
use self::follow::Follower;
use self::house::House;
use self::status::Reporter;
use crate::dataplane::{Engine, PeerPlan, ProbePair, Wire};
use crate::wireguard::PublicKey;

/// How often it is looked at how the tunnels fare.
const TICK: Duration = Duration::from_millis(500);
/// Sessions are kept through whatever stands between the gateways and forgets who talks to whom.
const KEEPALIVE: Duration = Duration::from_secs(25);

/// Where a gateway is, and where it finds what it needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the installation.
    pub namespace: String,
    /// The namespace with its key.
    pub key_namespace: String,
    /// The node that it runs on.
    pub node: String,
    /// The UDP port that it listens on.
    pub port: u16,
}

/// Runs the gateway until the tasks end.
pub async fn run(
    tasks: Tasks,
    client: Client,
    settings: Settings,
    figures: Figures,
    pending: Pending,
) -> Result<()> {
    let key = key::ensure(&client, &settings.key_namespace).await?;
    let place = notice::place(&client, &settings.node).await?;
    let sources = Sources::start(&tasks, &client);
    sources.ready().await?;
    let (found, link) = house::mtus(place.internal)?;
    let mtu = sources.mtu().unwrap_or(found);
    let (house, tun) = House::build(mtu, link)?;
    let wire = Wire::open(settings.port).with_context(|| {
        format!("cannot listen on the UDP port {}; is another gateway here?", settings.port)
    })?;
    let (public, port) = (key.public(), wire.port());
    let engine = Engine::start(tun, wire, key, mtu).context("cannot start the tunnels")?;
    notice::publish(&client, &settings.namespace, &place, &public, port).await?;
    info!(node = place.node, endpoint = %place.endpoint, port, mtu, "the gateway is here");
    let follower = follow::start(&tasks, client.clone(), settings.namespace);
    let keeper = Keeper {
        engine: Arc::new(engine),
        reporter: Reporter::new(client, &house),
        _house: house,
        probed: BTreeSet::new(),
        figures,
        follower,
        sources,
        told: Vec::new(),
    };
    drop(pending);
    keeper.keep().await
}

/// What says which tunnels there are.
struct Sources {
    endpoints: Watched<TunnelEndpoint>,
    mappings: Watched<NatMapping>,
    config: Watched<ClusterConfig>,
}

impl Sources {
    fn start(tasks: &Tasks, client: &Client) -> Self {
        let all = watcher::Config::default;
        Self {
            endpoints: Watched::start(tasks, "tunnels", Api::all(client.clone()), all()),
            mappings: Watched::start(tasks, "redirections", Api::all(client.clone()), all()),
            config: Watched::start(tasks, "configuration", Api::all(client.clone()), all()),
        }
    }

    async fn ready(&self) -> Result<()> {
        tokio::try_join!(self.endpoints.ready(), self.mappings.ready(), self.config.ready()).map(drop)
    }

    fn mtu(&self) -> Option<u16> {
        self.config.all().first().and_then(|config| config.spec.liqonet().mtu)
    }

    fn endpoints(&self) -> Vec<TunnelEndpoint> {
        self.endpoints.all().iter().map(|endpoint| TunnelEndpoint::clone(endpoint)).collect()
    }

    /// As the address manager says, which knows them first; as far as it cannot be asked, as it has written them down.
    fn mappings(&self, followed: Option<Vec<NatMapping>>) -> Vec<NatMapping> {
        let written = || self.mappings.all().iter().map(|mapping| NatMapping::clone(mapping)).collect();
        followed.unwrap_or_else(written)
    }
}

/// Keeps the engine as it should be.
struct Keeper {
    engine: Arc<Engine>,
    reporter: Reporter,
    figures: Figures,
    follower: Follower,
    sources: Sources,
    /// What was logged of the resources that are not used.
    told: Vec<Problem>,
    /// The peers whose tunnels are probed.
    probed: BTreeSet<String>,
    /// The network of the gateway goes with it.
    _house: House,
}

impl Keeper {
    async fn keep(mut self) -> Result<()> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.set().await?;
            loop {
                tokio::select! {
                    changed = self.sources.endpoints.changed() => { changed?; break }
                    changed = self.sources.mappings.changed() => { changed?; break }
                    changed = self.follower.changed() => { changed?; break }
                    _ = tick.tick() => self.look().await?,
                }
            }
        }
    }

    /// Tells the engine what is wanted, and then the address manager that it is so.
    async fn set(&mut self) -> Result<()> {
        let heard = self.follower.heard();
        let mappings = self.sources.mappings(heard.as_ref().map(|heard| heard.mappings()));
        let (wanted, problems) = tunnels(&self.sources.endpoints(), &mappings);
        self.tell(problems);
        let is_probed = |(_, tunnel): &(&String, &Tunnel)| tunnel.probe.is_some();
        self.probed = wanted.iter().filter(is_probed).map(|(peer, _)| peer.clone()).collect();
        let plans: BTreeMap<String, PeerPlan> =
            wanted.into_iter().map(|(peer, tunnel)| (peer, plan(tunnel))).collect();
        let engine = Arc::clone(&self.engine);
        // It waits until no packet is handled by the rules before.
        let set = tokio::task::spawn_blocking(move || engine.set(plans)).await.context("the engine died")?;
        if let Err(unfit) = set {
            warn!(%unfit, "the tunnels are not as they should be");
            return Ok(());
        }
        if let Some(heard) = heard {
            self.follower.acknowledge(&heard);
        }
        Ok(())
    }

    fn tell(&mut self, problems: Vec<Problem>) {
        for problem in problems.iter().filter(|problem| !self.told.contains(problem)) {
            warn!(peer = problem.peer, %problem, "something in the resources is not used");
        }
        self.told = problems;
    }

    async fn look(&mut self) -> Result<()> {
        if let Some(failure) = self.engine.failure() {
            bail!("the tunnels have ended: {failure}");
        }
        let statistics = self.engine.statistics();
        self.figures.set(&statistics, self.engine.drops());
        self.reporter.report(&self.sources.endpoints.all(), &statistics, &self.probed).await;
        Ok(())
    }
}

fn plan(tunnel: Tunnel) -> PeerPlan {
    PeerPlan {
        key: PublicKey(tunnel.public_key),
        endpoint: Some(tunnel.endpoint),
        keepalive: Some(KEEPALIVE),
        table: tunnel.table,
        probe: tunnel.probe.map(|pair| ProbePair { ours: pair.ours, theirs: pair.theirs }),
    }
}
