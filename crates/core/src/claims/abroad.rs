//! A claim whose pod runs on a peer.

use ferro_api::names::{annotations, finalizers, labels};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::read::{self, STORAGE, amount, asked, capacity, given, is_going, to_delete};
use super::{Handle, Peer, Snapshot, Write, made, shown};
use crate::pods::Refusal;

/// Whose the claim of that name over there is.
enum There<'a> {
    Absent,
    /// Not made for this claim; and whether it is going.
    Other {
        is_going: bool,
    },
    /// Made for this claim.
    Own(&'a PersistentVolumeClaim),
}

impl<'a> Snapshot<'a> {
    fn there(&self, peer: &Peer<'a>, claim: &PersistentVolumeClaim) -> There<'a> {
        let Some(there) = peer.claim else { return There::Absent };
        let is_from_here = labels::ORIGIN_ID.of(&there.metadata) == Some(self.home);
        let uid = claim.metadata.uid.as_deref();
        if is_from_here && uid.is_some() && annotations::ORIGIN_UID.of(&there.metadata) == uid {
            There::Own(there)
        } else {
            There::Other { is_going: is_going(&there.metadata) }
        }
    }

    /// Makes the claim over there, and the volume here. It is held before, so that it does not go without what was made.
    pub(super) fn settle_there(&self, claim: &PersistentVolumeClaim) -> Vec<Write> {
        let Some(peer) = &self.peer else { return Vec::new() };
        if let Err(refusal) = made::can_be_had(claim) {
            return shown::turn_back(&refusal);
        }
        let Some(namespace) = peer.namespace else {
            return shown::turn_back(&Refusal::new(
                "NoNamespace",
                "the cluster of the chosen node has no namespace for this one yet; see 'ferro explain'",
            ));
        };
        if !peer.is_near {
            // The scheduler waits for some minutes, and then chooses again by itself.
            return Vec::new();
        }
        match self.there(peer, claim) {
            There::Absent => {
                let hold = read::held_for(claim).is_none();
                let hold = hold.then(|| Write::Hold { peer: peer.id.to_owned() });
                let wanted = made::there(self, claim, namespace);
                hold.into_iter().chain([Write::CreateThere(Box::new(wanted))]).collect()
            }
            There::Other { is_going: true } => Vec::new(),
            There::Other { is_going: false } => shown::turn_back(&Refusal::new(
                "NameTaken",
                format!(
                    "the cluster of the chosen node has a claim of this name in {namespace} that was not made for this \
                     one; have it removed there, or use another name"
                ),
            )),
            There::Own(there) if is_going(&there.metadata) => Vec::new(),
            There::Own(there) => made::volume(self, claim, peer, there)
                .map(Box::new)
                .map(Write::CreateVolume)
                .into_iter()
                .collect(),
        }
    }

    /// Takes back what was made over there for a claim that is not wanted there any more. No pod can have used it.
    pub(super) fn retreat(&self, claim: &PersistentVolumeClaim) -> Vec<Write> {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.namespace.is_some()) else {
            return vec![Write::LetGo];
        };
        if !peer.is_near {
            return Vec::new();
        }
        match self.there(peer, claim) {
            There::Own(there) => {
                to_delete(&there.metadata).map(|uid| Write::DeleteThere { uid }).into_iter().collect()
            }
            There::Absent | There::Other { .. } => vec![Write::LetGo],
        }
    }

    /// What to do about a volume that stands for a claim over there.
    pub(super) fn keep(&self, volume: &PersistentVolume) -> Vec<Write> {
        let Some(handle) = Handle::of(volume) else { return Vec::new() };
        let is_known = self.peer.as_ref().is_some_and(|peer| peer.is_near || peer.namespace.is_none());
        let there = self
            .peer
            .as_ref()
            .and_then(|peer| peer.claim)
            .filter(|there| there.metadata.uid.as_ref() == Some(&handle.uid));
        match self.claim {
            None => Self::reclaim(volume, there, is_known),
            Some(claim) => {
                let let_go = read::held_for(claim).map(|_| Write::LetGo);
                let rest = match there {
                    _ if !is_known => Vec::new(),
                    None => shown::lost(claim, &handle, self.now),
                    Some(there) => Self::grow(claim, volume, there),
                };
                let_go.into_iter().chain(rest).collect()
            }
        }
    }

    /// The claim is gone. Kubernetes says so itself by the phase of the volume, and has asked its API server once more.
    fn reclaim(
        volume: &PersistentVolume,
        there: Option<&PersistentVolumeClaim>,
        is_known: bool,
    ) -> Vec<Write> {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Released") {
            return Vec::new();
        }
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let meta = &volume.metadata;
        let is_held = meta.finalizers.iter().flatten().any(|name| name == finalizers::VOLUME);
        let release = is_held.then_some(Write::ReleaseVolume);
        if policy != Some("Delete") {
            // What is over there stays; who deletes the volume knows.
            return release.filter(|_| is_going(meta)).into_iter().collect();
        }
        match there {
            _ if !is_known => Vec::new(),
            Some(there) => {
                to_delete(&there.metadata).map(|uid| Write::DeleteThere { uid }).into_iter().collect()
            }
            None => {
                let delete = to_delete(meta).map(|uid| Write::DeleteVolume { uid });
                delete.into_iter().chain(release).collect()
            }
        }
    }

    /// A larger wish goes over there, and what comes of it comes back.
    fn grow(
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        there: &PersistentVolumeClaim,
    ) -> Vec<Write> {
        let mut writes = shown::found(claim);
        let wish = amount(asked(claim));
        let is_wished = wish <= amount(asked(there));
        if is_wished {
            writes.extend(shown::resize_settled(claim));
        } else if !shown::was_refused(claim) {
            let patch = json!({"spec": {"resources": {"requests": {(STORAGE): asked(claim)}}}});
            let grow = there.metadata.uid.clone().map(|uid| Write::GrowThere { uid, patch });
            writes.extend(grow);
        }
        let has = given(there).filter(|has| amount(Some(has)) > amount(capacity(volume)));
        if let Some(has) = has {
            writes.push(Write::GrowVolume(json!({"spec": {"capacity": {(STORAGE): has}}})));
            return writes;
        }
        let shows = given(claim).filter(|given| amount(Some(given)) < amount(capacity(volume)));
        writes.extend(shows.map(|_| shown::grown(volume)));
        writes
    }
}
