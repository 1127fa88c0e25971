//! The one place that writes for the controller of namespaces on other clusters.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ferro_api::names::{finalizers, labels};
use ferro_api::offloading::NamespaceOffloading;
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::offloading::{Index, Notice, OFFLOADING, Write, map_is_for};
use ferro_runtime::events::Teller;
use ferro_runtime::finalizer;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tracing::info;

const MANAGER: &str = "ferro-offloading";

/// What the API server answered: how something is now.
pub(super) enum Seen {
    /// It was gone already, or somebody else was faster: the watches will tell.
    Nothing,
    Namespace(String, Box<Namespace>),
    /// The offloading of a namespace.
    Offloading(String, Option<Arc<NamespaceOffloading>>),
    /// The map in a namespace.
    Map(String, Option<Arc<NamespaceMap>>),
}

/// Writes.
pub(super) struct Hand {
    client: Client,
    own: String,
    teller: Teller,
}

impl Hand {
    pub(super) fn new(client: &Client, own: &str) -> Self {
        let teller = Teller::new(client.clone(), MANAGER, "Reconcile");
        Self { client: client.clone(), own: own.to_owned(), teller }
    }

    /// Performs one write.
    pub(super) async fn perform(&self, index: &Index, write: &Write) -> Result<Seen> {
        info!(subject = ?write.subject(), write = word(write), "writes");
        match write {
            Write::Hold(namespace) => {
                let Some(offloading) = index.offloading(namespace) else { return Ok(Seen::Nothing) };
                self.change(namespace, Patch::Merge(held(&offloading.metadata))).await
            }
            Write::LetGo(namespace) => {
                let Some(offloading) = index.offloading(namespace) else { return Ok(Seen::Nothing) };
                self.change(namespace, finalizer::without(&offloading.metadata, finalizers::OFFLOADING)?)
                    .await
            }
            Write::Create(offloading) => self.create(offloading).await,
            Write::Delete(namespace) => self.delete(namespace, index.offloading(namespace)).await,
            Write::Admit(namespace, notice) => {
                let seen = self.mark(namespace, true).await?;
                self.tell(index.offloading(namespace).map(|object| object.object_ref(&())), notice.as_ref())
                    .await;
                Ok(seen)
            }
            Write::Dismiss(namespace) => self.mark(namespace, false).await,
            Write::Refuse(namespace, patch, notice) => self.refuse(namespace, patch, notice.as_ref()).await,
            Write::Show(namespace, patch, notice) => {
                let shown = self.show(namespace, patch).await?;
                self.tell(index.offloading(namespace).map(|object| object.object_ref(&())), notice.as_ref())
                    .await;
                Ok(shown)
            }
            Write::CreateMap(map) => self.create_map(map).await,
            Write::PatchMap(cluster, patch) => {
                self.change_map(index.map(cluster), Patch::Merge(patch.clone())).await
            }
            Write::DeleteMap(cluster) => self.delete_map(index.map(cluster)).await,
            Write::LetGoMap(cluster) => self.let_go_map(index.map(cluster), finalizers::NAMESPACE_MAP).await,
            Write::AbandonMap(cluster) => self.let_go_map(index.map(cluster), finalizers::REPLICATION).await,
        }
    }

    fn offloadings(&self, namespace: &str) -> Api<NamespaceOffloading> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&self, offloading: &NamespaceOffloading) -> Result<Seen> {
        let namespace = offloading.namespace().unwrap_or_default();
        match self.offloadings(&namespace).create(&creating(), offloading).await {
            Ok(created) => Ok(Seen::Offloading(namespace, Some(Arc::new(created)))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Seen::Nothing),
            Err(error) => Err(error).with_context(|| {
                format!("cannot create the NamespaceOffloading that the label on {namespace} asks for")
            }),
        }
    }

    async fn change(&self, namespace: &str, patch: Patch<Value>) -> Result<Seen> {
        let changed = self.offloadings(namespace).patch(OFFLOADING, &how(), &patch).await;
        let changed = unless_gone(changed)
            .with_context(|| format!("cannot change the NamespaceOffloading of {namespace}"))?;
        Ok(of_offloading(namespace, changed))
    }

    async fn show(&self, namespace: &str, patch: &Value) -> Result<Seen> {
        let shown = self.offloadings(namespace).patch_status(OFFLOADING, &how(), &Patch::Merge(patch)).await;
        let shown = unless_gone(shown)
            .with_context(|| format!("cannot write the status of the NamespaceOffloading of {namespace}"))?;
        Ok(of_offloading(namespace, shown))
    }

    async fn delete(&self, namespace: &str, offloading: Option<&NamespaceOffloading>) -> Result<Seen> {
        let Some(offloading) = offloading else { return Ok(Seen::Nothing) };
        let deleted = self.offloadings(namespace).delete(OFFLOADING, &only(&offloading.metadata)).await;
        let deleted = unless_gone(deleted)
            .with_context(|| format!("cannot delete the NamespaceOffloading of {namespace}"))?;
        let going = deleted.and_then(|deleted| deleted.left().map(Arc::new));
        Ok(Seen::Offloading(namespace.to_owned(), going))
    }

    /// Whether pods of the namespace are shown to the webhook.
    async fn mark(&self, namespace: &str, on: bool) -> Result<Seen> {
        let label = on.then(|| labels::OFFLOADED.value());
        let patch = json!({"metadata": {"labels": {labels::OFFLOADED.key(): label}}});
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let marked = namespaces.patch(namespace, &how(), &Patch::Merge(patch)).await;
        let marked = unless_gone(marked)
            .with_context(|| format!("cannot change the labels of the Namespace {namespace}"))?;
        Ok(of_namespace(namespace, marked))
    }

    async fn refuse(&self, namespace: &str, patch: &Value, notice: Option<&Notice>) -> Result<Seen> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let told = namespaces.patch_status(namespace, &how(), &Patch::Strategic(patch)).await;
        let told = unless_gone(told)
            .with_context(|| format!("cannot write the status of the Namespace {namespace}"))?;
        self.tell(told.as_ref().map(|namespace| namespace.object_ref(&())), notice).await;
        Ok(of_namespace(namespace, told))
    }

    fn maps(&self, meta: &ObjectMeta) -> Api<NamespaceMap> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    async fn create_map(&self, map: &NamespaceMap) -> Result<Seen> {
        let (maps, place) = (self.maps(&map.metadata), described(&map.metadata));
        match maps.create(&creating(), map).await {
            Ok(created) => Ok(of_map(Some(created))),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let present =
                    maps.get_opt(&self.own).await.with_context(|| format!("cannot read the {place}"))?;
                if present.is_some_and(|present| map_is_for(&present, &self.own).is_none()) {
                    bail!("the {place} was made by somebody else, and is left alone; delete it");
                }
                Ok(Seen::Nothing)
            }
            Err(error) => Err(error).with_context(|| format!("cannot create the {place}")),
        }
    }

    async fn change_map(&self, map: Option<&NamespaceMap>, patch: Patch<Value>) -> Result<Seen> {
        let Some(map) = map else { return Ok(Seen::Nothing) };
        let changed = self.maps(&map.metadata).patch(&self.own, &how(), &patch).await;
        let changed = unless_gone(changed)
            .with_context(|| format!("cannot change the {}", described(&map.metadata)))?;
        Ok(of_map(changed))
    }

    async fn let_go_map(&self, map: Option<&NamespaceMap>, finalizer: &str) -> Result<Seen> {
        let Some(map) = map else { return Ok(Seen::Nothing) };
        self.change_map(Some(map), finalizer::without(&map.metadata, finalizer)?).await
    }

    async fn delete_map(&self, map: Option<&NamespaceMap>) -> Result<Seen> {
        let Some(map) = map else { return Ok(Seen::Nothing) };
        let deleted = self.maps(&map.metadata).delete(&self.own, &only(&map.metadata)).await;
        let deleted = unless_gone(deleted)
            .with_context(|| format!("cannot delete the {}", described(&map.metadata)))?;
        let going = deleted.and_then(|deleted| deleted.left().map(Arc::new));
        Ok(Seen::Map(map.namespace().unwrap_or_default(), going))
    }

    /// An Event; one that cannot be written is not worth stopping for.
    async fn tell(&self, about: Option<ObjectReference>, notice: Option<&Notice>) {
        let (Some(about), Some(notice)) = (about, notice) else { return };
        self.teller.tell(&about, notice.warning, &notice.reason, &notice.note).await;
    }
}

fn of_namespace(name: &str, namespace: Option<Namespace>) -> Seen {
    namespace.map_or(Seen::Nothing, |namespace| Seen::Namespace(name.to_owned(), Box::new(namespace)))
}

fn of_offloading(namespace: &str, offloading: Option<NamespaceOffloading>) -> Seen {
    offloading.map_or(Seen::Nothing, |object| Seen::Offloading(namespace.to_owned(), Some(Arc::new(object))))
}

fn of_map(map: Option<NamespaceMap>) -> Seen {
    map.map_or(Seen::Nothing, |map| Seen::Map(map.namespace().unwrap_or_default(), Some(Arc::new(map))))
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

fn creating() -> PostParams {
    PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }
}

/// Deletes this object, and no later one of the same name.
fn only(meta: &ObjectMeta) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: meta.uid.clone(), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// One finalizer more, for this version of the object: finalizers are one list that several write.
fn held(meta: &ObjectMeta) -> Value {
    let others = meta.finalizers.iter().flatten().map(String::as_str);
    let finalizers: Vec<&str> = others.chain([finalizers::OFFLOADING]).collect();
    json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}})
}

/// What is gone needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

fn described(meta: &ObjectMeta) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("NamespaceMap {}/{}", part(&meta.namespace), part(&meta.name))
}

/// What a write is called in the log; its content may be long.
fn word(write: &Write) -> String {
    let text = format!("{write:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
