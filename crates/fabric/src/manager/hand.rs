//! The one place that writes for the network manager. Each write is waited for until the watches have seen it, so that
//! the next decision knows of it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::names::{annotations, finalizers, labels};
use ferro_api::net::{NetworkConfig, NetworkConfigSpec, TunnelEndpoint, TunnelEndpointSpec};
use ferro_core::network::exchange::Write;
use ferro_core::replication::mark;
use ferro_peering::home::Home;
use ferro_peering::networks::{Networks, Parts};
use ferro_runtime::finalizer::without;
use ferro_runtime::watch::Watched;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::Peer;

const MANAGER: &str = "ferro-network";
/// A watch that has not seen a write after this long never will: somebody else was faster.
const PATIENCE: Duration = Duration::from_secs(5);

/// A kind that the network manager writes.
trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl Kind for NetworkConfig {}
impl Kind for TunnelEndpoint {}

/// Writes.
pub(super) struct Hand {
    client: Client,
    networks: Networks,
}

impl Hand {
    pub(super) fn new(home: &Home) -> Self {
        Self { client: home.client.clone(), networks: home.networks.clone() }
    }

    /// Performs one write, but for those of the address manager.
    pub(super) async fn perform(&self, peer: &Peer, us: &str, parts: &Parts, write: Write) -> Result<()> {
        let (configs, tunnels) = (&self.networks.configs, &self.networks.tunnels);
        let (ours, theirs) = (parts.ours.as_deref(), parts.theirs.as_deref());
        let tunnel = parts.tunnel.as_deref();
        match write {
            Write::CreateConfig(spec) => self.create(&config(peer, us, *spec), configs).await,
            Write::PatchConfig(patch) => self.patch(ours, Patch::Merge(patch), configs).await,
            Write::DeleteConfig => self.delete(ours, configs).await,
            Write::HoldConfig => {
                let Some(ours) = ours else { return Ok(()) };
                self.patch(Some(ours), Patch::Merge(held(ours)), configs).await
            }
            Write::LetGoConfig => self.let_go(ours, finalizers::ADDRESSES, configs).await,
            Write::AbandonConfig => self.let_go(ours, finalizers::REPLICATION, configs).await,
            Write::Answer(patch) => self.patch_status(theirs, patch, configs).await,
            Write::CreateTunnel(spec) => self.create(&tunnel_to(peer, *spec), tunnels).await,
            Write::PatchTunnel(patch) => self.patch(tunnel, Patch::Merge(patch), tunnels).await,
            Write::ShowTunnel(patch) => self.patch_status(tunnel, patch, tunnels).await,
            Write::DeleteTunnel => self.delete(tunnel, tunnels).await,
            Write::AbandonTunnel => self.let_go(tunnel, finalizers::TUNNEL, tunnels).await,
            Write::Acquire(_) | Write::Agree(_) | Write::Release => bail!("the address manager is not there"),
        }
    }

    fn api<K: Kind>(&self, meta: &ObjectMeta) -> Api<K> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    async fn create<K: Kind>(&self, object: &K, watched: &Watched<K>) -> Result<()> {
        let api = self.api::<K>(object.meta());
        let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        match api.create(&how, object).await {
            Ok(created) => {
                seen(watched, &created).await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let present = api.get_metadata_opt(&object.name_any()).await;
                let present = present.with_context(|| format!("cannot read the {}", described(object)))?;
                match present {
                    Some(present) if !labels::PART_OF.is_on(&present.metadata) => {
                        bail!("somebody else has made the {}; delete it", described(object))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            Err(error) => Err(error).with_context(|| format!("cannot create the {}", described(object))),
        }
    }

    async fn patch<K: Kind>(
        &self,
        object: Option<&K>,
        patch: Patch<Value>,
        watched: &Watched<K>,
    ) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let patched = self.api::<K>(object.meta()).patch(&object.name_any(), &how(), &patch).await;
        let patched =
            unless_gone(patched).with_context(|| format!("cannot change the {}", described(object)))?;
        if let Some(patched) = patched {
            seen(watched, &patched).await;
        }
        Ok(())
    }

    async fn patch_status<K: Kind>(
        &self,
        object: Option<&K>,
        patch: Value,
        watched: &Watched<K>,
    ) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let api = self.api::<K>(object.meta());
        let patched = api.patch_status(&object.name_any(), &how(), &Patch::Merge(patch)).await;
        let cannot = || format!("cannot write the status of the {}", described(object));
        if let Some(patched) = unless_gone(patched).with_context(cannot)? {
            seen(watched, &patched).await;
        }
        Ok(())
    }

    async fn delete<K: Kind>(&self, object: Option<&K>, watched: &Watched<K>) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let preconditions = Some(Preconditions { uid: object.meta().uid.clone(), resource_version: None });
        let how = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = self.api::<K>(object.meta()).delete(&object.name_any(), &how).await;
        unless_gone(deleted).with_context(|| format!("cannot delete the {}", described(object)))?;
        let (namespace, name) = (object.namespace(), object.name_any());
        until(watched, |watched| {
            watched
                .get(namespace.as_deref(), &name)
                .is_none_or(|present| present.meta().deletion_timestamp.is_some())
        })
        .await;
        Ok(())
    }

    async fn let_go<K: Kind>(&self, object: Option<&K>, finalizer: &str, watched: &Watched<K>) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        self.patch(Some(object), without(object.meta(), finalizer)?, watched).await
    }
}

/// Our `NetworkConfig` for a peer, to be copied to it.
fn config(peer: &Peer, us: &str, spec: NetworkConfigSpec) -> NetworkConfig {
    let mut metadata = ObjectMeta {
        // The one name that the other side lets us use.
        name: Some(us.to_owned()),
        namespace: Some(peer.namespace.clone()),
        finalizers: Some(vec![finalizers::ADDRESSES.to_owned()]),
        ..ObjectMeta::default()
    };
    mark(&mut metadata, &peer.text);
    labels::PART_OF.put_on(&mut metadata);
    labels::ORIGIN_ID.put_on(&mut metadata, us);
    annotations::ORIGIN_ID.put_on(&mut metadata, us);
    NetworkConfig { metadata, spec, status: None }
}

fn tunnel_to(peer: &Peer, spec: TunnelEndpointSpec) -> TunnelEndpoint {
    let mut metadata = ObjectMeta {
        name: Some(peer.text.clone()),
        namespace: Some(peer.namespace.clone()),
        finalizers: Some(vec![finalizers::TUNNEL.to_owned()]),
        ..ObjectMeta::default()
    };
    labels::PART_OF.put_on(&mut metadata);
    labels::REMOTE_ID.put_on(&mut metadata, &peer.text);
    TunnelEndpoint { metadata, spec, status: None }
}

/// One finalizer more, for this version of the object: finalizers are one list that several write.
fn held(ours: &NetworkConfig) -> Value {
    let meta = &ours.metadata;
    let others = meta.finalizers.iter().flatten().map(String::as_str);
    let finalizers: Vec<&str> = others.chain([finalizers::ADDRESSES]).collect();
    json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}})
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// What is gone needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Waits until the watch has this version of an object, or a later one, or has seen it go.
async fn seen<K: Kind>(watched: &Watched<K>, written: &K) {
    let (namespace, name, version) = (written.namespace(), written.name_any(), number(written));
    let is_new = watched.get(namespace.as_deref(), &name).is_none();
    until(watched, |watched| match watched.get(namespace.as_deref(), &name) {
        Some(present) => number(present.as_ref()) >= version,
        None => !is_new,
    })
    .await;
}

async fn until<K: Kind>(watched: &Watched<K>, check: impl Fn(&Watched<K>) -> bool) {
    let mut watched = watched.clone();
    let wait = async {
        while !check(&watched) {
            if watched.changed().await.is_err() {
                return;
            }
        }
    };
    // What it has not seen by then is found out by the next decision.
    _ = tokio::time::timeout(PATIENCE, wait).await;
}

/// Versions are numbers that grow, which Kubernetes has come to promise.
fn number<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn described<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or("-"), meta.name.as_deref().unwrap_or("-"));
    format!("{} {namespace}/{name}", K::kind(&()))
}

/// What a write is called in the log; its content may be long.
pub(super) fn word(write: &Write) -> String {
    let text = format!("{write:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
