//! The one place that writes for the agent: at home, and over there.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::virtualkubelet::ShadowPod;
use ferro_core::pods::home::{Look, Notice, Write, is_left, marking};
use ferro_runtime::events::Teller;
use ferro_runtime::watch::Watched;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::Value;
use tracing::warn;

use super::room::Room;
use super::station::Key;

const MANAGER: &str = "ferro-agent";
/// How long a watch may take to show what was written; after that it is looked at anyway.
const SEEN: Duration = Duration::from_secs(5);

/// Writes.
pub(super) struct Hand {
    client: Client,
    teller: Teller,
}

/// The pod that is written about, and where.
pub(super) struct Desk<'a> {
    /// The identifier of this cluster.
    pub(super) own: &'a str,
    pub(super) key: &'a Key,
    pub(super) pod: Option<&'a Pod>,
    pub(super) pods: &'a Watched<Pod>,
    pub(super) room: Option<&'a Room>,
    pub(super) remote: Option<&'a Client>,
}

impl Hand {
    pub(super) fn new(client: Client) -> Self {
        Self { teller: Teller::new(client.clone(), MANAGER, "Offload"), client }
    }

    /// Performs a write, and waits until the watches have seen it.
    pub(super) async fn perform(&self, desk: &Desk<'_>, write: &Write) -> Result<()> {
        match write {
            Write::CreateShadow(shadow) => desk.create(shadow).await,
            Write::ChangeShadow { uid, patch } => desk.change(uid, patch).await,
            Write::DeleteShadow { uid } => desk.delete(uid).await,
            Write::MarkEnding { uid } => desk.unless_refused(desk.change(uid, &marking()).await),
            Write::EndRemote { uid, grace } => desk.end(uid, *grace).await,
            Write::Ask => desk.ask().await,
            Write::Tolerate(patch) => self.change(desk, patch).await,
            Write::Show(patch) => self.show(desk, patch).await,
            Write::Delete { uid } => self.delete(desk, uid).await,
            Write::Finish { uid, look } => self.finish(desk, uid, *look).await,
            Write::Tell(notice) => {
                self.tell(desk, notice).await;
                Ok(())
            }
        }
    }

    fn local(&self, desk: &Desk<'_>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &desk.key.0)
    }

    async fn change(&self, desk: &Desk<'_>, patch: &Value) -> Result<()> {
        let patched = self.local(desk).patch(&desk.key.1, &how(), &Patch::Merge(patch)).await;
        let patched = unless_gone(patched).context("cannot change the pod")?;
        desk.see(patched.as_ref()).await;
        Ok(())
    }

    async fn show(&self, desk: &Desk<'_>, patch: &Value) -> Result<()> {
        let patched = self.local(desk).patch_status(&desk.key.1, &how(), &Patch::Strategic(patch)).await;
        let patched = unless_gone(patched).context("cannot show how the pod fares")?;
        desk.see(patched.as_ref()).await;
        Ok(())
    }

    async fn delete(&self, desk: &Desk<'_>, uid: &str) -> Result<()> {
        let deleted = self.local(desk).delete(&desk.key.1, &only(uid, None)).await;
        unless_gone(deleted).context("cannot delete the pod")?;
        let goes = |pod: &Pod| pod.uid().as_deref() != Some(uid) || pod.metadata.deletion_timestamp.is_some();
        seen(desk.pods, |pods| pods.get(Some(&desk.key.0), &desk.key.1).is_none_or(|pod| goes(&pod))).await;
        Ok(())
    }

    async fn finish(&self, desk: &Desk<'_>, uid: &str, look: Look) -> Result<()> {
        let is_left = match look {
            Look::Spared => false,
            Look::Tried => desk.is_anything_left().await.unwrap_or(false),
            Look::Needed => desk.is_anything_left().await?,
        };
        ensure!(!is_left, "something of the pod is left over there, which is not seen yet");
        let deleted = self.local(desk).delete(&desk.key.1, &only(uid, Some(0))).await;
        unless_gone(deleted).context("cannot let the pod go")?;
        // Who has finalizers of others stays for these.
        let is_let_go = |pod: &Pod| {
            pod.uid().as_deref() != Some(uid) || pod.metadata.deletion_grace_period_seconds == Some(0)
        };
        seen(desk.pods, |pods| pods.get(Some(&desk.key.0), &desk.key.1).is_none_or(|pod| is_let_go(&pod)))
            .await;
        Ok(())
    }

    /// An Event; one that cannot be written is not worth stopping for.
    async fn tell(&self, desk: &Desk<'_>, notice: &Notice) {
        let Some(pod) = desk.pod else { return };
        self.teller.tell(&pod.object_ref(&()), notice.warning, &notice.reason, &notice.note).await;
    }
}

impl Desk<'_> {
    /// The namespace over there, and a client to its API server.
    fn there(&self) -> Result<(&Room, Client)> {
        let room = self.room.context("there is no namespace for the pod over there")?;
        Ok((room, self.remote.context("the peer does not let us in")?.clone()))
    }

    /// Whether there is such a ShadowPod does not matter, only that somebody says so.
    async fn ask(&self) -> Result<()> {
        self.found::<ShadowPod>().await?;
        Ok(())
    }

    /// Whether anything of the pod is there: watches may be behind, and who lets a pod go cannot take it back. The ShadowPod
    /// comes first, since of that pods are made.
    async fn is_anything_left(&self) -> Result<bool> {
        let shadow = self.found::<ShadowPod>().await?;
        let pod = self.found::<Pod>().await?;
        Ok(is_left(self.own, shadow.as_ref(), pod.as_ref()))
    }

    /// Who has the name of the pod over there, as its API server says now.
    async fn found<K>(&self) -> Result<Option<ObjectMeta>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let (room, client) = self.there()?;
        let api: Api<K> = Api::namespaced(client, &room.there);
        let found = api.get_metadata_opt(&self.key.1).await;
        Ok(found.context("cannot look at what is over there")?.map(|found| found.metadata))
    }

    async fn create(&self, shadow: &ShadowPod) -> Result<()> {
        let (room, client) = self.there()?;
        let api: Api<ShadowPod> = Api::namespaced(client, &room.there);
        match api.create(&PostParams::default(), shadow).await {
            // Somebody was faster, or a former one is still there: the watch will show it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.context("cannot create the ShadowPod")?),
        }
        seen(&room.shadows, |shadows| shadows.get(Some(&room.there), &self.key.1).is_some()).await;
        Ok(())
    }

    async fn change(&self, uid: &str, patch: &Value) -> Result<()> {
        let (room, client) = self.there()?;
        let api: Api<ShadowPod> = Api::namespaced(client, &room.there);
        let mut patch = patch.clone();
        // The API server refuses a patch for an object of another UID.
        patch["metadata"]["uid"] = Value::String(uid.to_owned());
        let patched = unless_gone(api.patch(&self.key.1, &how(), &Patch::Merge(patch)).await);
        let Some(patched) = patched.context("cannot change the ShadowPod")? else { return Ok(()) };
        let version = number(patched.resource_version());
        seen(&room.shadows, |shadows| {
            let present = shadows.get(Some(&room.there), &self.key.1);
            present.is_none_or(|shadow| number(shadow.resource_version()) >= version)
        })
        .await;
        Ok(())
    }

    async fn delete(&self, uid: &str) -> Result<()> {
        let (room, client) = self.there()?;
        let api: Api<ShadowPod> = Api::namespaced(client, &room.there);
        unless_gone(api.delete(&self.key.1, &only(uid, None)).await)
            .context("cannot delete the ShadowPod")?;
        seen(&room.shadows, |shadows| {
            let present = shadows.get(Some(&room.there), &self.key.1);
            present.is_none_or(|shadow| shadow.uid().as_deref() != Some(uid))
        })
        .await;
        Ok(())
    }

    async fn end(&self, uid: &str, grace: u32) -> Result<()> {
        let (room, client) = self.there()?;
        let api: Api<Pod> = Api::namespaced(client, &room.there);
        let ended = unless_gone(api.delete(&self.key.1, &only(uid, Some(grace))).await);
        if let Err(error) = ended.context("cannot end the pod over there") {
            let has_shadow = room.shadows.get(Some(&room.there), &self.key.1).is_some();
            return if has_shadow { self.unless_refused(Err(error)) } else { Err(error) };
        }
        let Some(pods) = room.pods() else { return Ok(()) };
        seen(pods, |pods| {
            let present = pods.get(Some(&room.there), &self.key.1);
            let given = |pod: &Pod| pod.metadata.deletion_grace_period_seconds;
            present.is_none_or(|pod| given(&pod).is_some_and(|given| given <= i64::from(grace)))
        })
        .await;
        Ok(())
    }

    /// Of what makes the end of a pod sooner, nothing is worth staying for: the end of its ShadowPod comes after it.
    fn unless_refused(&self, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        let is_refused = |status: &kube::core::Status| matches!(status.code, 400 | 403 | 422);
        match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if is_refused(status) => {
                let (namespace, pod) = self.key;
                let error = format!("{error:#}");
                warn!(namespace, pod, error, "the pod may take longer to end than it was given");
                Ok(())
            }
            Some(_) | None => Err(error),
        }
    }

    /// Waits until the pod at home is seen as it was written.
    async fn see(&self, written: Option<&Pod>) {
        let Some(written) = written else { return };
        let version = number(written.resource_version());
        seen(self.pods, |pods| {
            let present = pods.get(Some(&self.key.0), &self.key.1);
            present.is_none_or(|pod| number(pod.resource_version()) >= version)
        })
        .await;
    }
}

/// Waits until a watch shows that it is so, and not for ever.
pub(crate) async fn seen<K>(watched: &Watched<K>, is_so: impl Fn(&Watched<K>) -> bool)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut watched = watched.clone();
    let wait = async {
        while !is_so(&watched) {
            watched.changed().await?;
        }
        anyhow::Ok(())
    };
    _ = tokio::time::timeout(SEEN, wait).await;
}

/// Versions are numbers that grow, which Kubernetes has come to promise.
pub(crate) fn number(version: Option<String>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// Deletes the object of this UID, and no later one of the same name.
pub(crate) fn only(uid: &str, grace: Option<u32>) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    DeleteParams { preconditions, grace_period_seconds: grace, ..DeleteParams::default() }
}

/// What is gone, or is another one by now, needs no more change.
pub(crate) fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        other => other.map(Some),
    }
}
