//! The one place that writes for claims: here, and over there.

use anyhow::{Context, Result};
use ferro_api::names::{annotations, finalizers};
use ferro_core::claims::{Notice, SELECTED_NODE, Write, selected_node, volume_name};
use ferro_peering::home::Home;
use ferro_runtime::events::Teller;
use ferro_runtime::finalizer;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::view::View;
use super::{Key, Shop};
use crate::pods::hand::{number, only, seen, unless_gone};

const MANAGER: &str = "ferro-storage";

/// What became of a write.
pub(super) enum Answer {
    /// It was done, or there was nothing left to do it to.
    Done,
    /// An API server does not take it.
    Refused(Box<Status>),
}

/// Writes.
pub(super) struct Hand {
    client: Client,
    namespace: String,
    teller: Teller,
}

/// The claim that is written about, and all that is known of it.
pub(super) struct Desk<'a> {
    pub(super) key: &'a Key,
    pub(super) shop: &'a Shop,
    pub(super) view: &'a View,
}

impl Hand {
    pub(super) fn new(home: &Home) -> Self {
        let (client, namespace) = (home.client.clone(), home.namespace.clone());
        Self { teller: Teller::new(client.clone(), MANAGER, "Provision"), client, namespace }
    }

    /// Performs a write, and waits until the watches have seen it.
    pub(super) async fn perform(&self, desk: &Desk<'_>, write: &Write) -> Result<Answer> {
        let done = match write {
            Write::Hold { peer } => self.change(desk, |claim| held(claim, Some(peer))).await,
            Write::LetGo => self.change(desk, |claim| held(claim, None)).await,
            Write::GiveBack => self.give_back(desk).await,
            Write::Show(patch) => self.show(desk, patch).await,
            Write::CreateThere(claim) => desk.create_there(claim).await,
            Write::GrowThere { uid, patch } => desk.grow_there(uid, patch).await,
            Write::DeleteThere { uid } => desk.delete_there(uid).await,
            Write::CreateVolume(volume) => self.create_volume(desk, volume).await,
            Write::GrowVolume(patch) => self.change_volume(desk, &Patch::Merge(patch.clone())).await,
            Write::DeleteVolume { uid } => self.delete_volume(desk, uid).await,
            Write::ReleaseVolume => self.release_volume(desk).await,
            Write::CreateStandIn(claim) => self.create_stand_in(desk, claim).await,
            Write::DeleteStandIn { uid } => self.delete_stand_in(desk, uid).await,
            Write::HandOver { volume, patch } => self.hand_over(volume, patch).await,
            Write::Tell(notice) => {
                self.tell(desk, notice).await;
                Ok(())
            }
        };
        match done {
            Ok(()) => Ok(Answer::Done),
            Err(kube::Error::Api(status)) => Ok(Answer::Refused(status)),
            Err(other) => Err(other).with_context(|| format!("cannot {}", doing(write))),
        }
    }

    fn claims(&self, desk: &Desk<'_>) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &desk.key.namespace)
    }

    fn stand_ins(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Changes the claim as it is now: by the plan that this is part of, it may have been written before.
    async fn change(
        &self,
        desk: &Desk<'_>,
        patch: impl FnOnce(&PersistentVolumeClaim) -> Value,
    ) -> kube::Result<()> {
        let Some(claim) = desk.shop.claim(desk.key) else { return Ok(()) };
        let patch = Patch::Merge(patch(&claim));
        let patched = self.claims(desk).patch(&desk.key.name, &how(), &patch).await;
        if let Some(patched) = unless_gone(patched)? {
            see(&desk.shop.ledger.claims, &patched).await;
        }
        Ok(())
    }

    /// What the scheduler has chosen since is not taken back.
    async fn give_back(&self, desk: &Desk<'_>) -> kube::Result<()> {
        let chosen = desk.shop.claim(desk.key);
        let (chosen, seen) = (chosen.as_deref().and_then(selected_node), desk.view.claim.as_deref());
        if chosen != seen.and_then(selected_node) {
            return Ok(());
        }
        self.change(desk, given_back).await
    }

    async fn show(&self, desk: &Desk<'_>, patch: &Value) -> kube::Result<()> {
        let claims = self.claims(desk);
        let patched = claims.patch_status(&desk.key.name, &how(), &Patch::Strategic(patch)).await;
        if let Some(patched) = unless_gone(patched)? {
            see(&desk.shop.ledger.claims, &patched).await;
        }
        Ok(())
    }

    async fn create_volume(&self, desk: &Desk<'_>, volume: &PersistentVolume) -> kube::Result<()> {
        unless_gone(self.volumes().create(&PostParams::default(), volume).await)?;
        seen(&desk.shop.ledger.volumes, |volumes| volumes.get(None, &volume.name_any()).is_some()).await;
        Ok(())
    }

    async fn change_volume(&self, desk: &Desk<'_>, patch: &Patch<Value>) -> kube::Result<()> {
        let name = volume_name(&desk.key.uid);
        let Some(patched) = unless_gone(self.volumes().patch(&name, &how(), patch).await)? else {
            return Ok(());
        };
        let version = number(patched.resource_version());
        seen(&desk.shop.ledger.volumes, |volumes| {
            let present = volumes.get(None, &name);
            present.is_none_or(|volume| number(volume.resource_version()) >= version)
        })
        .await;
        Ok(())
    }

    async fn delete_volume(&self, desk: &Desk<'_>, uid: &str) -> kube::Result<()> {
        let name = volume_name(&desk.key.uid);
        unless_gone(self.volumes().delete(&name, &only(uid, None)).await)?;
        let is_going = |volume: &PersistentVolume| volume.metadata.deletion_timestamp.is_some();
        seen(&desk.shop.ledger.volumes, |volumes| {
            volumes.get(None, &name).is_none_or(|volume| is_going(&volume))
        })
        .await;
        Ok(())
    }

    async fn release_volume(&self, desk: &Desk<'_>) -> kube::Result<()> {
        let name = volume_name(&desk.key.uid);
        let Some(present) = desk.shop.ledger.volumes.get(None, &name) else { return Ok(()) };
        // A list of finalizers that has changed meanwhile is looked at again.
        let Ok(patch) = finalizer::without(&present.metadata, finalizers::VOLUME) else { return Ok(()) };
        match self.volumes().patch(&name, &how(), &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {}
            patched => drop(patched?),
        }
        let is_held =
            |volume: &PersistentVolume| volume.finalizers().iter().any(|held| held == finalizers::VOLUME);
        seen(&desk.shop.ledger.volumes, |volumes| {
            volumes.get(None, &name).is_none_or(|volume| !is_held(&volume))
        })
        .await;
        Ok(())
    }

    async fn create_stand_in(&self, desk: &Desk<'_>, claim: &PersistentVolumeClaim) -> kube::Result<()> {
        unless_gone(self.stand_ins().create(&PostParams::default(), claim).await)?;
        seen(&desk.shop.stand_ins, |stand_ins| {
            stand_ins.get(Some(&self.namespace), &claim.name_any()).is_some()
        })
        .await;
        Ok(())
    }

    async fn delete_stand_in(&self, desk: &Desk<'_>, uid: &str) -> kube::Result<()> {
        let Some(stand_in) = &desk.view.stand_in else { return Ok(()) };
        unless_gone(self.stand_ins().delete(&stand_in.name_any(), &only(uid, None)).await)?;
        see_gone(&desk.shop.stand_ins, &self.namespace, &stand_in.name_any(), uid).await;
        Ok(())
    }

    /// It is not watched: the next look reads it anew.
    async fn hand_over(&self, volume: &str, patch: &Value) -> kube::Result<()> {
        unless_gone(self.volumes().patch(volume, &how(), &Patch::Merge(patch)).await).map(drop)
    }

    /// An Event; one that cannot be written is not worth stopping for.
    async fn tell(&self, desk: &Desk<'_>, notice: &Notice) {
        let Some(claim) = &desk.view.claim else { return };
        self.teller.tell(&claim.object_ref(&()), notice.warning, &notice.reason, &notice.note).await;
    }
}

impl Desk<'_> {
    /// The claims of the namespace over there, and who watches them.
    fn there(&self) -> Option<(Api<PersistentVolumeClaim>, &Watched<PersistentVolumeClaim>, &str)> {
        let room = self.view.room.as_ref()?;
        Some((Api::namespaced(room.client(), &room.there), &room.claims, &room.there))
    }

    async fn create_there(&self, claim: &PersistentVolumeClaim) -> kube::Result<()> {
        let Some((api, claims, namespace)) = self.there() else { return Ok(()) };
        match api.create(&PostParams::default(), claim).await {
            // Somebody was faster, or a former one is still there: the watch will show it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
        seen(claims, |claims| claims.get(Some(namespace), &self.key.name).is_some()).await;
        Ok(())
    }

    async fn grow_there(&self, uid: &str, patch: &Value) -> kube::Result<()> {
        let Some((api, claims, _)) = self.there() else { return Ok(()) };
        let mut patch = patch.clone();
        // The API server refuses a patch for an object of another UID.
        patch["metadata"]["uid"] = json!(uid);
        if let Some(patched) = unless_gone(api.patch(&self.key.name, &how(), &Patch::Merge(patch)).await)? {
            see(claims, &patched).await;
        }
        Ok(())
    }

    async fn delete_there(&self, uid: &str) -> kube::Result<()> {
        let Some((api, claims, namespace)) = self.there() else { return Ok(()) };
        unless_gone(api.delete(&self.key.name, &only(uid, None)).await)?;
        see_gone(claims, namespace, &self.key.name, uid).await;
        Ok(())
    }
}

/// Waits until a claim is seen as it was written.
async fn see(claims: &Watched<PersistentVolumeClaim>, written: &PersistentVolumeClaim) {
    let (namespace, name) = (written.namespace(), written.name_any());
    let version = number(written.resource_version());
    seen(claims, |claims| {
        let present = claims.get(namespace.as_deref(), &name);
        present.is_none_or(|claim| number(claim.resource_version()) >= version)
    })
    .await;
}

/// Waits until a claim is seen to go.
async fn see_gone(claims: &Watched<PersistentVolumeClaim>, namespace: &str, name: &str, uid: &str) {
    let is_over = |claim: &PersistentVolumeClaim| {
        claim.uid().as_deref() != Some(uid) || claim.metadata.deletion_timestamp.is_some()
    };
    seen(claims, |claims| claims.get(Some(namespace), name).is_none_or(|claim| is_over(&claim))).await;
}

/// The claim held for a peer, or for none. It carries its version: a list of finalizers is replaced as a whole.
fn held(claim: &PersistentVolumeClaim, peer: Option<&str>) -> Value {
    let others = claim.finalizers().iter().filter(|name| *name != finalizers::CLAIM);
    let held: Vec<&str> = others.map(String::as_str).chain(peer.map(|_| finalizers::CLAIM)).collect();
    json!({"metadata": {
        "uid": claim.uid(), "resourceVersion": claim.resource_version(), "finalizers": held,
        "annotations": {(annotations::HELD_FOR.key()): peer},
    }})
}

fn given_back(claim: &PersistentVolumeClaim) -> Value {
    json!({"metadata": {"uid": claim.uid(), "resourceVersion": claim.resource_version(),
        "annotations": {(SELECTED_NODE): null}}})
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// What a write does, in the words of an error.
fn doing(write: &Write) -> &'static str {
    match write {
        Write::Hold { .. } | Write::LetGo | Write::GiveBack => "change the claim",
        Write::Show(_) | Write::Tell(_) => "show how the claim fares",
        Write::CreateThere(_) => "create the claim over there",
        Write::GrowThere { .. } => "change the claim over there",
        Write::DeleteThere { .. } => "delete the claim over there",
        Write::CreateVolume(_) => "create the volume",
        Write::GrowVolume(_) | Write::ReleaseVolume => "change the volume",
        Write::DeleteVolume { .. } => "delete the volume",
        Write::CreateStandIn(_) => "ask for a volume of this cluster",
        Write::DeleteStandIn { .. } => "delete the stand-in",
        Write::HandOver { .. } => "hand over the volume",
    }
}
