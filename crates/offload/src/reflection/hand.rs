//! The one place that writes for reflection: copies over there, and what people are told here.

use anyhow::{Context, Result};
use ferro_core::reflection::{Step, Wish};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, ResourceExt as _};
use tracing::{debug, warn};

use super::Key;
use super::notices::Notice;

pub(super) const MANAGER: &str = "ferro-reflection";

/// Writes.
pub(super) struct Hand {
    client: Client,
    remote: Client,
    recorder: Recorder,
}

/// What came of it.
pub(super) enum Done {
    /// Nothing was to be done, or somebody was faster: the watches will tell.
    Nothing,
    /// A copy was written, and answered as this.
    Put(Box<DynamicObject>),
    /// The copy of this UID is gone, or goes.
    Deleted(String),
    /// Somebody else has an object of that name.
    Taken,
}

impl Hand {
    pub(super) fn new(client: Client, remote: Client) -> Self {
        let reporter = Reporter { controller: MANAGER.into(), instance: None };
        Self { recorder: Recorder::new(client.clone(), reporter), client, remote }
    }

    /// Takes a step about a copy in this namespace over there.
    pub(super) async fn perform(
        &self,
        key: &Key,
        there: &str,
        step: Step,
        wish: Option<&mut Wish>,
    ) -> Result<Done> {
        let copies: Api<DynamicObject> = Api::namespaced_with(self.remote.clone(), there, &key.1.resource());
        let version = match step {
            Step::Rest => return Ok(Done::Nothing),
            Step::Taken => return Ok(Done::Taken),
            Step::Delete(uid) => {
                debug!(?key, there, "deletes a copy");
                unless_gone(copies.delete(&key.2, &only(&uid)).await).context("cannot delete the copy")?;
                return Ok(Done::Deleted(uid));
            }
            Step::Create => None,
            Step::Replace(version) => Some(version),
        };
        let Some(wish) = wish else { return Ok(Done::Nothing) };
        if !wish.is_complete() && !self.read(key, wish).await? {
            return Ok(Done::Nothing);
        }
        let object = wish.object(there, version.as_deref());
        debug!(?key, there, is_new = version.is_none(), "writes a copy");
        if version.is_none() {
            return match copies.create(&creating(), &object).await {
                Ok(created) => Ok(Done::Put(Box::new(created))),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Done::Taken),
                Err(error) => Err(error).context("cannot create the copy"),
            };
        }
        let replaced = unless_gone(copies.replace(&key.2, &creating(), &object).await);
        let replaced = replaced.context("cannot change the copy")?;
        Ok(replaced.map_or(Done::Nothing, |replaced| Done::Put(Box::new(replaced))))
    }

    /// Reads the content that is to be written. Whether it is the one that was wished for: another one has been seen, or
    /// will be.
    async fn read(&self, key: &Key, wish: &mut Wish) -> Result<bool> {
        let originals: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.0, &key.1.resource());
        let original = originals.get_opt(&key.2).await.context("cannot read the original")?;
        Ok(original.is_some_and(|original| wish.complete(&key.1, &original)))
    }

    /// An Event about an original; one that cannot be written is not worth stopping for.
    pub(super) async fn tell(&self, key: &Key, original: &DynamicObject, notice: Notice) {
        let resource = key.1.resource();
        let kind = original.types.as_ref().map_or(resource.kind, |types| types.kind.clone());
        let about = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(kind),
            name: original.metadata.name.clone(),
            namespace: original.metadata.namespace.clone(),
            uid: original.uid(),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: notice.reason.to_owned(),
            note: Some(notice.note),
            action: "Reflect".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            warn!(?key, %error, "an Event could not be written");
        }
    }
}

fn creating() -> PostParams {
    PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }
}

/// Deletes the object of this UID, and no later one of the same name.
fn only(uid: &str) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// What is gone, or is another one by now, needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        other => other.map(Some),
    }
}
