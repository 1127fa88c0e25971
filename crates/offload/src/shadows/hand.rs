//! The one place that writes for the controller of `ShadowPods`: create, patch and delete, and never an apply.

use anyhow::{Context, Result};
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodStatus};
use ferro_core::pods::provider::{Change, MANAGER, opening};
use ferro_runtime::events::Teller;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use super::Key;

/// What became of a request about a pod.
pub(super) enum Answer<T> {
    /// It was done.
    Done(T),
    /// The API server has refused it.
    Refused(Box<Status>),
}

/// Writes.
pub(super) struct Hand {
    client: Client,
    teller: Teller,
}

impl Hand {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone(), teller: Teller::new(client.clone(), MANAGER, "Run") }
    }

    fn pods(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    /// Creates a pod.
    pub(super) async fn create(&self, key: &Key, pod: &Pod) -> Result<Answer<Pod>> {
        let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        let created = self.pods(key).create(&how, pod).await;
        answer(created).with_context(|| format!("cannot create the pod {}/{}", key.0, key.1))
    }

    /// The pod as it is, whole.
    pub(super) async fn pod(&self, key: &Key) -> Result<Option<Pod>> {
        let pod = self.pods(key).get_opt(&key.1).await;
        pod.with_context(|| format!("cannot read the pod {}/{}", key.0, key.1))
    }

    /// Changes a pod in place.
    pub(super) async fn change(&self, key: &Key, change: &Change) -> Result<Answer<Pod>> {
        let (pods, name, how) = (self.pods(key), key.1.as_str(), how());
        let changed = match change {
            Change::Spec(patch) => pods.patch(name, &how, &Patch::Strategic(patch)).await,
            Change::Resize(patch) => pods.patch_resize(name, &how, &Patch::Strategic(patch)).await,
            Change::Debug(patch) => {
                pods.patch_ephemeral_containers(name, &how, &Patch::Strategic(patch)).await
            }
        };
        answer(changed).with_context(|| format!("cannot change the pod {}/{}", key.0, key.1))
    }

    /// Changes labels and annotations of a pod.
    pub(super) async fn mark(&self, key: &Key, metadata: &Value) -> Result<Option<Pod>> {
        let marked = self.pods(key).patch(&key.1, &how(), &Patch::Merge(metadata)).await;
        let marked = unless_gone(marked);
        marked.with_context(|| format!("cannot change the labels of the pod {}/{}", key.0, key.1))
    }

    /// Opens our gate of this pod, and of no other of its name: a scheduler may find a node for it.
    pub(super) async fn open(&self, key: &Key, uid: &str) -> Result<Option<Pod>> {
        let opened = match self.pods(key).patch(&key.1, &how(), &Patch::Strategic(opening(uid))).await {
            // Another one has its place.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            other => unless_gone(other),
        };
        opened.with_context(|| format!("cannot open the gate of the pod {}/{}", key.0, key.1))
    }

    /// Deletes this pod, and no other of its name, with its own grace. What is left of it is returned.
    pub(super) async fn delete(&self, key: &Key, uid: &str) -> Result<Option<Pod>> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let only = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = match self.pods(key).delete(&key.1, &only).await {
            // Another one has its place.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            other => unless_gone(other),
        };
        let deleted = deleted.with_context(|| format!("cannot delete the pod {}/{}", key.0, key.1))?;
        let is_left = |pod: &Pod| pod.metadata.deletion_grace_period_seconds != Some(0);
        Ok(deleted.and_then(|deleted| deleted.left().filter(is_left)))
    }

    /// Writes the status of this ShadowPod, and of no other of its name. Nobody else writes it, so that it is whole.
    pub(super) async fn show(
        &self,
        key: &Key,
        shadow: &ShadowPod,
        status: &ShadowPodStatus,
    ) -> Result<Option<ShadowPod>> {
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": shadow.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let patch: Patch<Value> = Patch::Json(serde_json::from_value(patch).context("not a patch")?);
        let shadows: Api<ShadowPod> = Api::namespaced(self.client.clone(), &key.0);
        let shown = unless_gone(shadows.patch_status(&key.1, &how(), &patch).await);
        shown.with_context(|| format!("cannot write the status of the ShadowPod {}/{}", key.0, key.1))
    }

    /// An Event on a ShadowPod; one that cannot be written is not worth stopping for.
    pub(super) async fn tell(&self, shadow: &ShadowPod, status: &ShadowPodStatus) {
        let [reason, note] =
            [&status.reason, &status.message].map(|word| word.as_deref().unwrap_or_default());
        self.teller.tell(&shadow.object_ref(&()), true, reason, note).await;
    }
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// What the API server says about the pod is an answer; all else is a failure.
fn answer<T>(result: kube::Result<T>) -> kube::Result<Answer<T>> {
    match result {
        Ok(done) => Ok(Answer::Done(done)),
        Err(kube::Error::Api(status)) => Ok(Answer::Refused(status)),
        Err(other) => Err(other),
    }
}

/// What is gone needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}
