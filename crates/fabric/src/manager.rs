//! The network manager: tells each peer our networks, finds names for theirs, and writes the tunnel that comes of it.
//!
//! `ferro_core::network::exchange` decides, from watches that have seen all that was written before; [`hand`] writes. It
//! runs in the process that leads, beside the address manager, which [`addresses`] starts with the networks of this
//! cluster.

mod addresses;
mod guests;
mod hand;
mod pulse;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::config::NetworkMode;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_core::auth::{Meter, Pace};
use ferro_core::identity::ClusterId;
use ferro_core::network::Ipam;
use ferro_core::network::exchange::{self, Snapshot, Wish, Write};
use ferro_core::network::gateway::{self, Gateway};
use ferro_peering::home::Home;
use ferro_peering::identity::Own;
use ferro_peering::networks::Parts;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use addresses::Keeper;
pub use addresses::{Addresses, Served};
use guests::Guests;
use hand::Hand;

use crate::ipam::{Handle, Metrics};

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after something that failed; longer and longer, as long as it fails.
const RETRY: Duration = Duration::from_secs(1);
/// When nothing happens, all is looked at again: names rest, and claims to a key count, only for a while.
const AT_REST: Duration = Duration::from_mins(1);

/// How often something is written for one peer: one that changes its mind all the time must not keep us from others.
const PACE: Pace = Pace { burst: 30, every: Duration::from_secs(1) };

/// How long to wait after so many failures in a row.
fn pause(first: Duration, failures: u32) -> Duration {
    first * 2_u32.pow(failures.saturating_sub(1).min(5))
}

/// Keeps the networks to all peers as they should be, for ever; `asked` is told whom to ask for addresses.
pub async fn run<A: Addresses>(
    tasks: Tasks,
    home: Home,
    metrics: Metrics,
    asked: watch::Sender<Option<Handle>>,
) -> Result<()> {
    let ours = watcher::Config::default().fields(&format!("metadata.name={}", gateway::CONFIG_MAP));
    let gateways =
        Watched::start(&tasks, "gateway", Api::namespaced(home.client.clone(), &home.namespace), ours);
    home.ready().await?;
    home.nodes.ready().await?;
    home.networks.ready().await?;
    home.namespaces.ready().await?;
    gateways.ready().await?;
    let (hand, silent) = (Hand::new(&home), pulse::listen(&tasks, &home));
    let guests = Guests::new(tasks.clone(), home.clone());
    let keeper = Keeper::new(tasks, home.clone(), metrics, asked);
    Manager::<A> { home, gateways, silent, hand, keeper, guests, meters: BTreeMap::new() }.run().await
}

struct Manager<A> {
    home: Home,
    gateways: Watched<ConfigMap>,
    /// Whether the gateway is silent.
    silent: watch::Receiver<bool>,
    hand: Hand,
    keeper: Keeper<A>,
    guests: Guests,
    /// How often something was written for each peer.
    meters: BTreeMap<String, Meter>,
}

/// This cluster, as it is in one round.
struct Us {
    own: Arc<Own>,
    gateway: Option<Gateway>,
    mode: NetworkMode,
}

impl Us {
    /// Its identifier, as it is written.
    fn id(&self) -> String {
        self.own.signer.identity().id().to_string()
    }
}

/// A peer that has a namespace here.
struct Peer {
    id: ClusterId,
    /// The identifier, as it is written.
    text: String,
    name: Option<String>,
    namespace: String,
}

impl Peer {
    fn of(peer: &ForeignCluster) -> Option<Self> {
        let identity = peer.spec.cluster_identity.as_ref()?;
        let namespaces = peer.status.as_ref()?.tenant_namespaces.as_ref()?;
        Some(Self {
            id: identity.cluster_id.parse().ok()?,
            text: identity.cluster_id.clone(),
            name: identity.cluster_name.clone(),
            namespace: namespaces.local.clone()?,
        })
    }
}

impl<A: Addresses> Manager<A> {
    async fn run(mut self) -> Result<()> {
        let mut failures: u32 = 0;
        loop {
            let restarts = self.keeper.keep().await?;
            failures = if self.round().await? { failures.saturating_add(1) } else { 0 };
            let rest = if failures > 0 { pause(RETRY, failures) } else { AT_REST };
            let wake = Instant::now() + restarts.map_or(rest, |restarts| restarts.min(rest));
            tokio::select! {
                changed = self.home.peers.changed() => changed?,
                changed = self.home.config.changed() => changed?,
                changed = self.home.networks.configs.changed() => changed?,
                changed = self.home.networks.tunnels.changed() => changed?,
                changed = self.home.nodes.changed() => changed?,
                changed = self.gateways.changed() => changed?,
                changed = self.silent.changed() => changed?,
                changed = self.keeper.changed() => changed?,
                changed = self.guests.changed() => changed?,
                () = tokio::time::sleep_until(wake) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Looks at all peers once; says whether something is to be tried again.
    async fn round(&mut self) -> Result<bool> {
        let own = self.home.own()?;
        let gateway = self.gateway();
        self.say(gateway.as_ref().err());
        let us = Us { own, gateway: gateway.ok(), mode: self.home.settings().liqonet().mode() };
        let (mut again, peers) = (false, self.peers());
        // Before anything is decided: a peer must not be given the place of another one's gateway.
        let ends = self.ends(&us, &peers);
        if let Err(error) = self.keeper.reserve(&ends).await {
            warn!(
                error = format!("{error:#}"),
                "what must be kept free is not known anew; will be tried again"
            );
            again = true;
        }
        if let Err(error) = self.open().await {
            warn!(
                error = format!("{error:#}"),
                "peers do not reach what they should yet; will be tried again"
            );
            again = true;
        }
        for (peer, who) in &peers {
            let now = Timestamp::now();
            if self.meters.get_mut(&who.text).is_some_and(|meter| !meter.wait(&PACE, now).is_zero()) {
                again = true;
                continue;
            }
            let attended = self.attend(peer, who, &us).await;
            if !matches!(attended, Ok(false)) {
                self.meters.entry(who.text.clone()).or_default().count(&PACE, now);
            }
            if let Err(error) = attended {
                warn!(peer = peer.name_any(), error = format!("{error:#}"), "will be tried again");
                again = true;
            }
        }
        let known: BTreeSet<String> = peers.into_iter().map(|(_, who)| who.text).collect();
        self.meters.retain(|peer, _| known.contains(peer));
        again |= self.sweep_vanished(&us.id()).await;
        Ok(self.sweep(&known).await || again)
    }

    /// Lets peers reach what they should.
    async fn open(&mut self) -> Result<()> {
        self.keeper.reach().await?;
        match self.guests.present().await {
            Some(guests) => self.keeper.host(guests).await,
            None => Ok(()),
        }
    }

    /// Those that have a namespace here. Of two that claim to be the same cluster, the older one is.
    fn peers(&self) -> Vec<(Arc<ForeignCluster>, Peer)> {
        let (mut peers, mut known) = (self.home.peers.all(), BTreeSet::new());
        peers.sort_by_key(|peer| (peer.creation_timestamp(), peer.name_any()));
        let peers = peers.into_iter().filter_map(|peer| Peer::of(&peer).map(|who| (peer, who)));
        peers.filter(|(_, who)| known.insert(who.text.clone())).collect()
    }

    /// One peer: its parts, one decision, and the writes. Says whether there were any.
    async fn attend(&self, peer: &ForeignCluster, who: &Peer, us: &Us) -> Result<bool> {
        let (id, name) = (us.id(), peer.name_any());
        let parts = self.home.networks.of(&who.namespace, &id, &who.text);
        let Some((handle, ipam)) = self.keeper.state() else {
            let (wish, objects) = (exchange::wish(peer, us.mode), parts.objects());
            let (lost, forced) = (exchange::is_lost(peer), exchange::is_forced(peer));
            let writes = exchange::plan_without_addresses(wish, lost, forced, objects.ours, objects.tunnel);
            return self.perform(&name, who, &id, &parts, writes, None).await;
        };
        let writes = self.look(peer, who, us, &parts, &ipam, exchange::plan);
        self.perform(&name, who, &id, &parts, writes, Some(handle)).await
    }

    /// What follows from everything that is known about the network to one peer.
    fn look<T>(
        &self,
        peer: &ForeignCluster,
        who: &Peer,
        us: &Us,
        parts: &Parts,
        ipam: &Ipam,
        decide: impl Fn(&Snapshot<'_>) -> T,
    ) -> T {
        let now = Timestamp::now();
        decide(&Snapshot {
            us: &us.own.signer,
            peer: who.id,
            peer_name: who.name.as_deref(),
            wish: exchange::wish(peer, us.mode),
            lost: exchange::is_lost(peer),
            forced: exchange::is_forced(peer),
            gateway: us.gateway.as_ref(),
            is_gateway_silent: *self.silent.borrow(),
            ipam,
            ours: parts.ours.as_deref(),
            theirs: parts.theirs.as_deref(),
            tunnel: parts.tunnel.as_deref(),
            holder_of: &|key| {
                let tunnels = self.home.networks.tunnels.all();
                exchange::holder_of(tunnels.iter().map(AsRef::as_ref), &who.text, key, now).map(str::to_owned)
            },
            now,
        })
    }

    async fn perform(
        &self,
        name: &str,
        who: &Peer,
        us: &str,
        parts: &Parts,
        writes: Vec<Write>,
        handle: Option<&A>,
    ) -> Result<bool> {
        let is_written = !writes.is_empty();
        for write in writes {
            info!(peer = name, write = hand::word(&write), "writes");
            match (write, handle) {
                (Write::Acquire(offered), Some(handle)) => handle.acquire(&who.text, offered).await?,
                (Write::Agree(answer), Some(handle)) => handle.agree(&who.text, answer).await?,
                (Write::Release, Some(handle)) => handle.release(&who.text).await?,
                (write, _) => self.hand.perform(who, us, parts, write).await?,
            }
        }
        Ok(is_written)
    }

    /// Takes away what is left of those whose `ForeignCluster` is gone, though it should have waited for that; says
    /// whether it is to be tried again.
    async fn sweep_vanished(&self, us: &str) -> bool {
        let (peers, mut again) = (self.home.peers.all(), false);
        let identities = peers.iter().filter_map(|peer| peer.spec.cluster_identity.as_ref());
        let present: BTreeSet<&str> = identities.map(|identity| identity.cluster_id.as_str()).collect();
        for who in self.remains(us).iter().filter(|who| !present.contains(who.text.as_str())) {
            let named = self.keeper.state().is_some_and(|(_, ipam)| ipam.peers().contains_key(&who.text));
            let parts = self.home.networks.of(&who.namespace, us, &who.text);
            let objects = parts.objects();
            // The names go with the tunnel, and what stands for them last.
            let writes =
                exchange::plan_without_addresses(Wish::Part, !named, false, objects.ours, objects.tunnel);
            if let Err(error) = self.perform(&who.text, who, us, &parts, writes, None).await {
                warn!(peer = who.text, error = format!("{error:#}"), "will be tried again");
                again = true;
            }
        }
        again
    }

    /// Whoever we have a tunnel or a `NetworkConfig` for.
    fn remains(&self, us: &str) -> Vec<Peer> {
        let (configs, tunnels) = (self.home.networks.configs.all(), self.home.networks.tunnels.all());
        let tunnels = tunnels.iter().filter(|tunnel| labels::PART_OF.is_on(&tunnel.metadata));
        let tunnels = tunnels.map(|tunnel| (tunnel.namespace(), tunnel.spec.cluster_id.clone()));
        let configs = configs.iter().filter(|config| config.name_any() == us);
        let configs = configs.filter_map(|config| {
            Some((config.namespace(), labels::REMOTE_ID.of(&config.metadata)?.to_owned()))
        });
        let remains: BTreeSet<(Option<String>, String)> = tunnels.chain(configs).collect();
        let peer = |(namespace, text): (Option<String>, String)| {
            Some(Peer { id: text.parse().ok()?, text, name: None, namespace: namespace? })
        };
        remains.into_iter().filter_map(peer).collect()
    }

    /// Forgets those of whom nothing is left but their names; says whether it is to be tried again.
    async fn sweep(&self, known: &BTreeSet<String>) -> bool {
        let Some((handle, ipam)) = self.keeper.state() else { return false };
        let mut again = false;
        for peer in ipam.peers().keys().filter(|peer| !known.contains(*peer)) {
            if self.home.networks.tunnels.all().iter().any(|tunnel| tunnel.spec.cluster_id == *peer) {
                continue;
            }
            info!(peer, "is gone, and its addresses are free again");
            if let Err(error) = handle.release(peer).await {
                warn!(peer, error = format!("{error:#}"), "will be tried again");
                again = true;
            }
        }
        again
    }

    /// Where tunnels end, here and at peers, or will: it is reached beside all tunnels.
    fn ends(&self, us: &Us, peers: &[(Arc<ForeignCluster>, Peer)]) -> BTreeSet<IpAddr> {
        let (id, tunnels, state) = (us.id(), self.home.networks.tunnels.all(), self.keeper.state());
        let used = tunnels.iter().filter_map(|tunnel| tunnel.spec.endpoint_ip.parse().ok());
        let ours = us.gateway.as_ref().map(|gateway| gateway.endpoint.ip());
        let told = peers.iter().filter_map(|(peer, who)| {
            let parts = self.home.networks.of(&who.namespace, &id, &who.text);
            self.look(peer, who, us, &parts, &state.as_ref()?.1, exchange::end)
        });
        told.chain(used).chain(ours).collect()
    }

    fn gateway(&self) -> Result<Gateway, String> {
        let map = self.gateways.get(Some(&self.home.namespace), gateway::CONFIG_MAP);
        let Some(map) = map else {
            return Err(
                "the gateway of this cluster has not said yet where it is; is ferro-gateway running?"
                    .to_owned(),
            );
        };
        let nothing = BTreeMap::new();
        Gateway::read(map.data.as_ref().unwrap_or(&nothing)).map_err(|error| error.to_string())
    }

    /// Lets the controller of peers show what is missing.
    fn say(&self, gateway: Option<&String>) {
        let hindrance = self.keeper.trouble().or(gateway).cloned();
        self.home.networks.hindrance.send_if_modified(|present| {
            let changed = *present != hindrance;
            *present = hindrance;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_less_and_less_often() {
        let pauses = [1, 2, 3, 6, 7, u32::MAX].map(|failures| pause(RETRY, failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 32, 32, 32]);
    }
}
