//! The one place that writes for reflection: copies over there, and what people are told here.

use anyhow::{Context, Result};
use ferro_core::reflection::{Holder, Step, Wish, holder};
use ferro_runtime::events::Teller;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use tracing::debug;

use super::Key;
use super::notices::Notice;

pub(super) const MANAGER: &str = "ferro-reflection";

/// Writes.
pub(super) struct Hand {
    client: Client,
    remote: Client,
    /// This cluster's identifier.
    own: String,
    teller: Teller,
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
    pub(super) fn new(client: Client, remote: Client, own: &str) -> Self {
        Self { teller: Teller::new(client.clone(), MANAGER, "Reflect"), client, remote, own: own.to_owned() }
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
        let former = match step {
            Step::Rest => return Ok(Done::Nothing),
            Step::Taken => return Ok(Done::Taken),
            Step::Delete(uid) => return clear(key, &copies, &uid).await,
            Step::Create => None,
            Step::Replace(former) => Some(former),
        };
        let Some(wish) = wish else { return Ok(Done::Nothing) };
        if !wish.is_complete() && !self.read(key, wish).await? {
            return Ok(Done::Nothing);
        }
        let object = wish.object(there, former.as_ref());
        debug!(?key, there, is_new = former.is_none(), "writes a copy");
        let Some(former) = former else { return self.create(key, &copies, wish, &object).await };
        match unless_gone(copies.replace(&key.2, &creating(), &object).await) {
            // Somebody has made it immutable: another one takes its place.
            Err(kube::Error::Api(status)) if status.code == 422 && key.1.is_bulky() => {
                clear(key, &copies, former.uid()).await
            }
            replaced => {
                let replaced = replaced.context("cannot change the copy")?;
                Ok(replaced.map_or(Done::Nothing, |replaced| Done::Put(Box::new(replaced))))
            }
        }
    }

    /// Creates a copy, unless its name is taken. Whatever else is in the way passes: a quota that somebody else was counted
    /// in meanwhile, or a copy of ours that the watch does not show yet.
    async fn create(
        &self,
        key: &Key,
        copies: &Api<DynamicObject>,
        wish: &Wish,
        object: &DynamicObject,
    ) -> Result<Done> {
        let error = match copies.create(&creating(), object).await {
            Ok(created) => return Ok(Done::Put(Box::new(created))),
            Err(error) => error,
        };
        if is_there_already(&error) {
            let present = copies.get_metadata_opt(&key.2).await.context("cannot read who has its name")?;
            match present.map(|present| holder(&key.1, &self.own, wish, &present.metadata)) {
                Some(Holder::Another) => return Ok(Done::Taken),
                Some(Holder::Stray(uid)) => return clear(key, copies, &uid).await,
                Some(Holder::Ours) | None => {}
            }
        }
        Err(error).context("cannot create the copy")
    }

    /// Reads the content that is to be written. Whether it is the one that was wished for: another one has been seen, or
    /// will be.
    async fn read(&self, key: &Key, wish: &mut Wish) -> Result<bool> {
        let originals: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.0, &key.1.resource());
        let original = originals.get_opt(&key.2).await.context("cannot read the original")?;
        Ok(original.is_some_and(|original| wish.complete(&key.1, &original)))
    }

    /// An Event about an original, and whether it could be written.
    pub(super) async fn tell(&self, key: &Key, original: &DynamicObject, notice: &Notice) -> bool {
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
        self.teller.tell(&about, true, notice.reason, &notice.note).await
    }
}

/// Deletes the copy of this UID.
async fn clear(key: &Key, copies: &Api<DynamicObject>, uid: &str) -> Result<Done> {
    debug!(?key, uid, "deletes a copy");
    unless_gone(copies.delete(&key.2, &only(uid)).await).context("cannot delete the copy")?;
    Ok(Done::Deleted(uid.to_owned()))
}

fn creating() -> PostParams {
    PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }
}

/// Deletes the object of this UID, and no later one of the same name.
fn only(uid: &str) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// Whether there is an object of that name. Not every conflict says so.
fn is_there_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// What is gone, or is another one by now, needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_quota_that_somebody_else_changed_takes_no_name() {
        let conflict = |reason: &str| {
            let status = Status::failure("cannot be fulfilled", reason).with_code(409);
            kube::Error::Api(status.boxed())
        };
        assert!(is_there_already(&conflict("AlreadyExists")));
        assert!(!is_there_already(&conflict("Conflict")));
    }
}
