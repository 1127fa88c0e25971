//! All about one claim at one moment.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::claims::{Peer, Place, Snapshot, bound_to, peer_of, selected_node, stand_in_name};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use super::branch::Branch;
use super::room::Room;
use super::{Key, Shop};
use crate::pods;

/// A node that the scheduler has chosen and that is not known is looked for again after so long.
const UNKNOWN_NODE: Duration = Duration::from_secs(5);

/// All about one claim at one moment.
pub(super) struct View {
    pub(super) claim: Option<Arc<PersistentVolumeClaim>>,
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) stand_in: Option<Arc<PersistentVolumeClaim>>,
    class: Option<Arc<StorageClass>>,
    real: Option<PersistentVolume>,
    place: Option<Seat>,
    is_lost_in_space: bool,
    peer: Option<String>,
    /// The namespace over there, whether or not its cluster answers.
    namespace: Option<String>,
    pub(super) room: Option<Arc<Room>>,
    there: Option<Arc<PersistentVolumeClaim>>,
}

/// [`Place`], owned.
enum Seat {
    Here(String),
    There(String),
}

impl Seat {
    fn place(&self) -> Place<'_> {
        match self {
            Self::Here(node) => Place::Here(node),
            Self::There(peer) => Place::There(peer),
        }
    }
}

impl View {
    pub(super) async fn of(branch: &Branch, key: &Key) -> Result<Self> {
        let shop = &branch.shop;
        let (claim, volume) = (shop.claim(key), shop.volume(key));
        let stand_in = shop.stand_ins.get(Some(&shop.home.namespace), &stand_in_name(&key.uid));
        let node = claim.as_deref().and_then(selected_node);
        let place = node.and_then(|node| seat(shop, node));
        let is_lost_in_space = node.is_some() && place.is_none();
        let peer = peer_of(claim.as_deref(), volume.as_deref(), place.as_ref().map(Seat::place));
        let counterpart = |peer: &String| pods::counterpart(&shop.home, &shop.own, peer, &key.namespace);
        let namespace = peer.as_ref().and_then(counterpart);
        let room = peer.as_deref().zip(namespace.as_deref());
        let room = room.and_then(|(peer, there)| branch.room(peer, &key.namespace, there));
        let there = room.as_ref().and_then(|room| room.claims.get(Some(&room.there), &key.name));
        let class = claim.as_deref().and_then(|claim| claim.spec.as_ref()?.storage_class_name.clone());
        let class = class.and_then(|class| shop.classes.get(None, &class));
        let real = real(shop, claim.as_deref(), stand_in.as_deref()).await?;
        Ok(Self {
            claim,
            volume,
            stand_in,
            class,
            real,
            place,
            is_lost_in_space,
            peer,
            namespace,
            room,
            there,
        })
    }

    pub(super) fn snapshot<'a>(&'a self, branch: &'a Branch) -> Snapshot<'a> {
        let is_near = self.room.as_ref().is_some_and(|room| room.claims.is_ready());
        let peer = self.peer.as_deref().map(|id| Peer {
            id,
            namespace: self.namespace.as_deref(),
            is_near,
            claim: self.there.as_deref(),
        });
        Snapshot {
            home: &branch.shop.own,
            own_namespace: &branch.shop.home.namespace,
            claim: self.claim.as_deref(),
            class: self.class.as_deref(),
            volume: self.volume.as_deref(),
            stand_in: self.stand_in.as_deref(),
            real: self.real.as_ref(),
            place: self.place.as_ref().map(Seat::place),
            peer,
            now: Timestamp::now(),
        }
    }

    /// The peer that the claim has to do with.
    pub(super) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Whether nothing of the claim is left here.
    pub(super) fn is_over(&self) -> bool {
        self.claim.is_none() && self.volume.is_none() && self.stand_in.is_none()
    }

    /// When to look again although nothing has changed.
    pub(super) fn again(&self) -> Option<Duration> {
        self.is_lost_in_space.then_some(UNKNOWN_NODE)
    }
}

fn seat(shop: &Shop, node: &str) -> Option<Seat> {
    if let Some(peer) = shop.peer_behind(node) {
        return Some(Seat::There(peer));
    }
    shop.home.nodes.get(None, node).map(|_| Seat::Here(node.to_owned()))
}

/// The volume that the stand-in has, while the claim has none: it is not watched, since it is not ours.
async fn real(
    shop: &Shop,
    claim: Option<&PersistentVolumeClaim>,
    stand_in: Option<&PersistentVolumeClaim>,
) -> Result<Option<PersistentVolume>> {
    let is_open = claim.is_some_and(|claim| bound_to(claim).is_none());
    let Some(name) = stand_in.filter(|_| is_open).and_then(bound_to) else { return Ok(None) };
    let volumes: Api<PersistentVolume> = Api::all(shop.home.client.clone());
    volumes.get_opt(name).await.with_context(|| format!("cannot read the volume {name}"))
}
