//! The network manager: tells each peer our networks, finds names for theirs, and writes the tunnel that comes of it.
//!
//! `ferro_core::network::exchange` decides, from watches that have seen all that was written before; [`hand`] writes. It
//! runs in the process that leads, beside the address manager, which [`addresses`] starts with the networks of this
//! cluster.

mod addresses;
mod hand;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_api::config::NetworkMode;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_core::identity::ClusterId;
use ferro_core::network::config::PUBLIC_KEY;
use ferro_core::network::exchange::{self, Snapshot, Write};
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
use tokio::time::Instant;
use tracing::{info, warn};

use addresses::Keeper;
pub use addresses::{Addresses, Served};
use hand::Hand;

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after something that failed.
const RETRY: Duration = Duration::from_secs(1);
/// When nothing happens, all is looked at again.
const AT_REST: Duration = Duration::from_mins(10);

/// Keeps the networks to all peers as they should be, for ever.
pub async fn run<A: Addresses>(tasks: Tasks, home: Home) -> Result<()> {
    let ours = watcher::Config::default().fields(&format!("metadata.name={}", gateway::CONFIG_MAP));
    let gateways =
        Watched::start(&tasks, "gateway", Api::namespaced(home.client.clone(), &home.namespace), ours);
    home.ready().await?;
    home.nodes.ready().await?;
    home.networks.ready().await?;
    gateways.ready().await?;
    let hand = Hand::new(&home);
    let keeper = Keeper::new(tasks, home.clone());
    Manager::<A> { home, gateways, hand, keeper }.run().await
}

struct Manager<A> {
    home: Home,
    gateways: Watched<ConfigMap>,
    hand: Hand,
    keeper: Keeper<A>,
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
        loop {
            let restarts = self.keeper.keep().await?;
            let again = self.round().await?;
            let wake = Instant::now() + if again { RETRY } else { restarts.unwrap_or(AT_REST) };
            let is_idle = !self.keeper.is_running();
            tokio::select! {
                changed = self.home.peers.changed() => changed?,
                changed = self.home.config.changed() => changed?,
                changed = self.home.networks.configs.changed() => changed?,
                changed = self.home.networks.tunnels.changed() => changed?,
                changed = self.home.nodes.changed(), if is_idle => changed?,
                changed = self.gateways.changed() => changed?,
                changed = self.keeper.changed() => changed?,
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
        let (gateway, mode) = (gateway.ok(), self.home.settings().liqonet().mode());
        let (mut again, mut known) = (false, BTreeSet::new());
        for peer in self.home.peers.all() {
            let Some(who) = Peer::of(&peer) else { continue };
            if !known.insert(who.text.clone()) {
                continue;
            }
            if let Err(error) = self.attend(&peer, &who, &own, gateway.as_ref(), mode).await {
                warn!(peer = peer.name_any(), error = format!("{error:#}"), "will be tried again");
                again = true;
            }
        }
        Ok(self.sweep(&known).await || again)
    }

    /// One peer: its parts, one decision, and the writes.
    async fn attend(
        &self,
        peer: &ForeignCluster,
        who: &Peer,
        own: &Arc<Own>,
        gateway: Option<&Gateway>,
        mode: NetworkMode,
    ) -> Result<()> {
        let us = own.signer.identity().id().to_string();
        let (wish, lost) = (exchange::wish(peer, mode), exchange::is_lost(peer));
        let parts = self.home.networks.of(&who.namespace, &us, &who.text);
        let Some((handle, ipam)) = self.keeper.state() else {
            let objects = parts.objects();
            let writes = exchange::plan_without_addresses(wish, lost, objects.ours, objects.tunnel);
            return self.perform(peer, who, &us, &parts, writes, None).await;
        };
        let writes = exchange::plan(&Snapshot {
            us: &own.signer,
            peer: who.id,
            peer_name: who.name.as_deref(),
            wish,
            lost,
            gateway,
            ipam: &ipam,
            ours: parts.ours.as_deref(),
            theirs: parts.theirs.as_deref(),
            tunnel: parts.tunnel.as_deref(),
            holder_of: &|key| self.holder_of(key, &who.text),
            now: Timestamp::now(),
        });
        self.perform(peer, who, &us, &parts, writes, Some(handle)).await
    }

    async fn perform(
        &self,
        peer: &ForeignCluster,
        who: &Peer,
        us: &str,
        parts: &Parts,
        writes: Vec<Write>,
        handle: Option<&A>,
    ) -> Result<()> {
        for write in writes {
            info!(peer = peer.name_any(), write = hand::word(&write), "writes");
            match (write, handle) {
                (Write::Acquire(offered), Some(handle)) => handle.acquire(&who.text, offered).await?,
                (Write::Agree(answer), Some(handle)) => handle.agree(&who.text, answer).await?,
                (Write::Release, Some(handle)) => handle.release(&who.text).await?,
                (write, _) => self.hand.perform(who, us, parts, write).await?,
            }
        }
        Ok(())
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

    /// Which other peer has a tunnel with this key.
    fn holder_of(&self, key: &str, peer: &str) -> Option<String> {
        let tunnels = self.home.networks.tunnels.all();
        let mut others = tunnels.iter().filter(|tunnel| {
            let spec = &tunnel.spec;
            spec.cluster_id != peer
                && labels::PART_OF.is_on(&tunnel.metadata)
                && spec.backend_config.get(PUBLIC_KEY).is_some_and(|present| present == key)
        });
        others.next().map(|tunnel| tunnel.spec.cluster_id.clone())
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
