//! The gateway of a cluster: all tunnels to its peers, kept as the resources say, with a word on how they fare.
//!
//! - Flow: resources and the address manager say what is wanted; the engine is told; then the address manager hears
//!   that it is so. What the engine measures goes back into the status of each TunnelEndpoint.
//! - Guarantees: whatever is lost, the API or the address manager, forwarding goes on by the last that was known. A
//!   TunnelEndpoint is held until nothing is forwarded by it.
//! - Assumptions: it is the only one with its key.

pub mod figures;
mod follow;
mod house;
mod key;
mod leave;
mod notice;
mod pulse;
mod status;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::config::{ClusterConfig, LiqonetConfig};
use ferro_api::net::{NatMapping, TunnelEndpoint};
use ferro_core::network::Problem;
use ferro_runtime::health::Pending;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use self::figures::Figures;
use self::follow::Follower;
use self::house::House;
use self::leave::Leaver;
use self::notice::Notice;
use self::pulse::Pulse;
use self::status::Reporter;
use self::wanted::{Source, Wanted};
use crate::dataplane::{Engine, Statistics, Wire};
use crate::wireguard::PublicKey;

/// How often it is looked at how the tunnels fare.
const TICK: Duration = Duration::from_millis(500);

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
    /// The address at which peers reach it, where that is not one of the node's.
    pub endpoint: Option<IpAddr>,
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
    let handshakes = pulse::handshakes(&client, &settings.namespace).await?;
    let place = notice::place(&client, &settings.node, settings.endpoint).await?;
    let sources = Sources::start(&tasks, &client);
    sources.ready().await?;
    let config = sources.config().unwrap_or_default();
    let (mtu, link) = house::mtus(place.internal, config.mtu)?;
    // First of all: whoever has the port is the gateway of this node, and nobody else touches its link.
    let wire = Wire::open(settings.port).with_context(|| {
        format!("cannot listen on the UDP port {}; is another gateway here?", settings.port)
    })?;
    let (house, tun) = House::build(mtu, link)?;
    let (public, port) = (key.public(), wire.port());
    let engine = Engine::start(tun, wire, key, mtu).context("cannot start the tunnels")?;
    if let Some(until) = handshakes {
        engine.go_on_after(until.into());
    }
    let notice = Notice::new(client.clone(), &settings.namespace, &place, &public, port);
    notice.publish().await?;
    tasks.spawn("notice", notice.keep());
    let (pulse, heard) = Pulse::new(client.clone(), &settings.namespace, &place.node, handshakes);
    tasks.spawn("pulse", pulse.keep());
    info!(node = place.node, endpoint = %place.endpoint, port, mtu, "the gateway is here");
    let follower = follow::start(&tasks, client.clone(), settings.namespace);
    let leaver = leave::start(&tasks, client.clone());
    let (looks, looked) = watch::channel(Look::default());
    let reports = Reporter::new(client, &house, heard).keep(sources.endpoints.clone(), looked);
    tasks.spawn("tunnel reports", reports);
    let keeper = Keeper {
        engine: Arc::new(engine),
        leaver,
        key: public,
        _house: house,
        looks,
        figures,
        follower,
        sources,
        config,
        wanted: None,
        told: Arc::default(),
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

    fn config(&self) -> Option<LiqonetConfig> {
        self.config.all().first().map(|config| config.spec.liqonet())
    }
}

/// What is seen of the tunnels. Packets wait while one looks, so that one look serves all.
#[derive(Clone, Debug, Default)]
struct Look {
    /// By peer.
    statistics: BTreeMap<String, Statistics>,
    /// The peers whose tunnels are probed.
    probed: BTreeSet<String>,
    /// Why there are no others.
    problems: Arc<[Problem]>,
}

/// Keeps the engine as it should be.
struct Keeper {
    engine: Arc<Engine>,
    leaver: Leaver,
    key: PublicKey,
    figures: Figures,
    follower: Follower,
    sources: Sources,
    config: LiqonetConfig,
    /// What was made of the resources and of what was heard; nothing where they have to be read again.
    wanted: Option<Wanted>,
    /// What was logged of the resources that are not used.
    told: Arc<[Problem]>,
    /// What was seen last of the tunnels, for who writes it down.
    looks: watch::Sender<Look>,
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
                    changed = self.sources.endpoints.changed() => {
                        changed?;
                        self.wanted = None;
                        break;
                    }
                    // What is written down trails behind what was heard, and says nothing new.
                    changed = self.sources.mappings.changed(), if !self.follower.has_heard() => {
                        changed?;
                        self.wanted = None;
                        break;
                    }
                    changed = self.follower.changed() => { changed?; break }
                    changed = self.sources.config.changed() => {
                        changed?;
                        self.configure()?;
                        self.wanted = None;
                        break;
                    }
                    _ = tick.tick() => self.look()?,
                }
            }
        }
    }

    /// Takes over another configuration. What is made for one size of packets is made anew by the next process.
    fn configure(&mut self) -> Result<()> {
        let Some(config) = self.sources.config() else { return Ok(()) };
        if config.mtu != self.config.mtu {
            bail!("the MTU is now {:?} in liqonetConfig; the gateway starts again with it", config.mtu);
        }
        self.config = config;
        Ok(())
    }

    /// Tells the engine what is wanted, and then the address manager that it is so.
    async fn set(&mut self) -> Result<()> {
        let (heard, endpoints) = (self.follower.heard(), self.sources.endpoints.all());
        // As the address manager says, which knows them first; until it can be asked, as it has written them down.
        let source = match &heard {
            Some(heard) => Source::Heard(heard.published()),
            None => Source::Written(self.sources.mappings.all()),
        };
        let (engine, key, reach) = (Arc::clone(&self.engine), self.key, self.config.reach());
        let known = self.wanted.take();
        // There may be much to read; and it waits until no packet is handled by the rules before.
        let set = move || {
            let wanted = match (known, &source) {
                (Some(mut known), Source::Heard(published)) => {
                    known.publish(published);
                    known
                }
                (_, source) => Wanted::read(endpoints, source, &key, reach),
            };
            let result = engine.set(wanted.plans());
            (wanted, result)
        };
        let (wanted, result) = tokio::task::spawn_blocking(set).await.context("the engine died")?;
        self.tell(&wanted.problems);
        if let Err(unfit) = result {
            warn!(%unfit, "the tunnels are not as they should be");
            return Ok(());
        }
        self.follower.acknowledge(heard.as_deref(), Arc::clone(&wanted.told));
        self.leaver.let_go(wanted.going.clone());
        self.wanted = Some(wanted);
        Ok(())
    }

    fn tell(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| !self.told.contains(problem)) {
            warn!(peer = problem.peer, %problem, "something in the resources is not used");
        }
        self.told = problems.into();
    }

    fn look(&mut self) -> Result<()> {
        if let Some(failure) = self.engine.failure() {
            bail!("the tunnels have ended: {failure}");
        }
        // Before the first peers there is nothing to be seen; and when peers could not be set, they are as before.
        let before = || self.looks.borrow().probed.clone();
        let probed = self.wanted.as_ref().map_or_else(before, Wanted::probed);
        let look = Look { statistics: self.engine.statistics(), probed, problems: Arc::clone(&self.told) };
        self.figures.set(&look.statistics, &look.probed, self.engine.drops());
        self.looks.send_replace(look);
        Ok(())
    }
}
