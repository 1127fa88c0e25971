//! The one place that writes for the controller of peers: each write of a plan, and what people are shown.

use std::sync::Arc;

use anyhow::{Context, Result};
use ferro_api::discovery::{ForeignCluster, ResourceRequest};
use ferro_api::names::{annotations, finalizers, labels, taints};
use ferro_api::sharing::ResourceOffer;
use ferro_core::keepalive::{Signal, Timing};
use ferro_core::names;
use ferro_core::peering::{Notice, Plan, Snapshot, Write, outgoing};
use ferro_core::replication::mark;
use ferro_core::virtual_node::{Health, VirtualNode, farewell};
use ferro_runtime::events::Teller;
use ferro_runtime::watch::Watched;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::Serialize;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::info;

use super::books::is_movable;
use super::facts::{Facts, id_of, is_draining};
use super::stock::{Check, Kind, Stock, has, has_new, lacks};
use crate::home::{Agent, Home};
use crate::identity::Own;
use crate::{keepsake, tenant};

const MANAGER: &str = "ferro-controller";
/// What the nodes that stand for peers report as their version.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"), "-ferro");

/// Writes.
pub(super) struct Hand {
    client: Client,
    installation: String,
    peers: Watched<ForeignCluster>,
    secrets: Watched<Secret>,
    stock: Stock,
    agent: watch::Receiver<Option<Agent>>,
    teller: Teller,
}

impl Hand {
    pub(super) fn new(home: &Home, stock: Stock) -> Self {
        Self {
            client: home.client.clone(),
            installation: home.namespace.clone(),
            peers: home.peers.clone(),
            secrets: home.secrets.clone(),
            stock,
            agent: home.agent.subscribe(),
            teller: Teller::new(home.client.clone(), MANAGER, "Reconcile"),
        }
    }

    /// Whether a peer that goes is not gone yet. A watch that broke may show it for long: what has its name by then is of
    /// the next one, and not to be taken away.
    pub(super) async fn still_knows(&self, peer: &ForeignCluster) -> Result<bool> {
        is_there(&self.client, peer).await
    }

    /// How many pods a drain of this node has yet to move, by the server's own word.
    pub(super) async fn movable(&self, node: &str) -> Result<usize> {
        movable(&self.client, node).await
    }

    /// Performs one write, and says how to tell that the watches have seen it.
    pub(super) async fn perform(
        &self,
        peer: &ForeignCluster,
        own: &Arc<Own>,
        facts: &Facts,
        snapshot: &Snapshot<'_>,
        write: &Write,
    ) -> Result<Option<Check>> {
        info!(peer = peer.name_any(), write = word(write), "writes");
        match write {
            Write::AddFinalizer => self.change(peer, Patch::Merge(held_by(peer, finalizers::PEERING))).await,
            Write::DropFinalizer => self.change(peer, let_go(peer, finalizers::PEERING)?).await,
            Write::Join => self.change(peer, Patch::Merge(joined())).await,
            Write::ClearForce => self.change(peer, Patch::Merge(not_forced())).await,
            Write::CreateNamespace => self.create_namespace(peer).await,
            Write::DeleteNamespace => self.delete_namespace(facts).await,
            Write::RevokePeer => self.revoke(peer, facts).await,
            Write::ForgetIdentity => {
                keepsake::forget(&self.client, &self.installation, peer).await?;
                let name = keepsake::name(&peer.name_any());
                Ok(Some(lacks(&self.secrets, Some(&self.installation), &name)))
            }
            Write::CreateRequest(spec) => {
                let request = ResourceRequest {
                    metadata: ours(peer, own, facts)?,
                    spec: (**spec).clone(),
                    status: None,
                };
                self.create(&request, &self.stock.requests).await
            }
            Write::DeleteRequest => self.delete(facts.request.as_deref(), &self.stock.requests).await,
            Write::ReleaseRequest => self.release(facts.request.as_deref(), finalizers::REPLICATION).await,
            Write::AnswerOffer(status) => self.answer(facts.offered.as_deref(), json!(status)).await,
            Write::HoldOffer => self.hold(facts.offered.as_deref()).await,
            Write::LetGoOffer => self.release(facts.offered.as_deref(), finalizers::VIRTUAL_NODE).await,
            Write::DiscardOffer => self.delete(facts.offered.as_deref(), &self.stock.offers).await,
            Write::CreateNode => self.create_node(peer, facts, snapshot).await,
            Write::DrainNode => self.drain(facts, true).await,
            Write::RestoreNode => self.drain(facts, false).await,
            Write::DeleteNode => self.delete_node(facts).await,
            Write::AnswerRequest(status) => self.answer(facts.asked.as_deref(), json!(status)).await,
            Write::CreateOffer(spec) => {
                let offer =
                    ResourceOffer { metadata: ours(peer, own, facts)?, spec: (**spec).clone(), status: None };
                self.create(&offer, &self.stock.offers).await
            }
            Write::PatchOffer(patch) => self.patch(facts.offer.as_deref(), Patch::Merge(patch.clone())).await,
            Write::WithdrawOffer => {
                let now = json!({"spec": {"withdrawalTimestamp": format!("{:.0}", snapshot.now)}});
                self.patch(facts.offer.as_deref(), Patch::Merge(now)).await
            }
            Write::DeleteOffer => self.delete(facts.offer.as_deref(), &self.stock.offers).await,
            Write::ReleaseOffer => self.release(facts.offer.as_deref(), finalizers::REPLICATION).await,
        }
    }

    /// Brings the status up to date, and tells what is new.
    pub(super) async fn show(&self, peer: &ForeignCluster, plan: &Plan) -> Result<Option<Check>> {
        let Some(status) = &plan.status else { return Ok(None) };
        let peers: Api<ForeignCluster> = Api::all(self.client.clone());
        let patched = peers.patch_status(&peer.name_any(), &how(), &Patch::Merge(status)).await;
        let cannot = "cannot write the status of the ForeignCluster";
        let Some(shown) = unless_gone(patched).context(cannot)? else { return Ok(None) };
        for notice in &plan.notices {
            self.tell(peer, notice).await;
        }
        Ok(Some(has(&self.peers, &shown)))
    }

    /// Brings the node that stands for the peer up to date.
    pub(super) async fn keep_node(
        &self,
        peer: &ForeignCluster,
        facts: &Facts,
        snapshot: &Snapshot<'_>,
        state: outgoing::State,
    ) -> Result<Option<Check>> {
        let (Some(node), Some(offered), Some(id)) = (&facts.node, &facts.offered, id_of(peer)) else {
            return Ok(None);
        };
        let name = node.name_any();
        let kept = self.virtual_node(&name, id, peer, offered);
        let upkeep = kept.upkeep(node, &health(facts, snapshot, state), snapshot.now);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let cannot = || format!("cannot bring the Node {name} up to date");
        if let Some(patch) = upkeep.object {
            let patched = nodes.patch(&name, &how(), &Patch::Merge(patch)).await.with_context(cannot)?;
            return Ok(Some(has(&self.stock.nodes, &patched)));
        }
        if let Some(patch) = upkeep.status {
            let patched =
                nodes.patch_status(&name, &how(), &Patch::Merge(patch)).await.with_context(cannot)?;
            return Ok(Some(has(&self.stock.nodes, &patched)));
        }
        Ok(None)
    }

    /// An Event; one that cannot be written is not worth stopping for.
    async fn tell(&self, peer: &ForeignCluster, notice: &Notice) {
        self.teller.tell(&peer.object_ref(&()), notice.warning, &notice.reason, &notice.note).await;
    }

    async fn change(&self, peer: &ForeignCluster, patch: Patch<Value>) -> Result<Option<Check>> {
        let peers: Api<ForeignCluster> = Api::all(self.client.clone());
        let changed = unless_gone(peers.patch(&peer.name_any(), &how(), &patch).await)
            .context("cannot change the ForeignCluster")?;
        Ok(changed.map(|changed| has(&self.peers, &changed)))
    }

    async fn create_namespace(&self, peer: &ForeignCluster) -> Result<Option<Check>> {
        let id = id_of(peer).context("it is not known yet who the peer is")?;
        let name = peer.spec.cluster_identity.as_ref().and_then(|identity| identity.cluster_name.clone());
        let name = tenant::ensure_namespace(&self.client, name.as_deref().unwrap_or_default(), id).await?;
        let watched = self.stock.namespaces.clone();
        Ok(Some(Box::new(move || watched.get(None, &name).is_some())))
    }

    async fn delete_namespace(&self, facts: &Facts) -> Result<Option<Check>> {
        let Some(tenant) = &facts.tenant else { return Ok(None) };
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let deleted = namespaces.delete(&tenant.name_any(), &only(tenant.as_ref())).await;
        unless_gone(deleted).with_context(|| format!("cannot delete the Namespace {}", tenant.name_any()))?;
        Ok(Some(lacks(&self.stock.namespaces, None, &tenant.name_any())))
    }

    async fn revoke(&self, peer: &ForeignCluster, facts: &Facts) -> Result<Option<Check>> {
        let (Some(tenant), Some(id)) = (&facts.tenant, id_of(peer)) else { return Ok(None) };
        let id = id.parse().context("the clusterID is not one")?;
        tenant::revoke(&self.client, &self.installation, &tenant.name_any(), &id).await?;
        Ok(Some(lacks(&self.stock.bindings, Some(&tenant.name_any()), tenant::BINDING)))
    }

    fn api<K>(&self, meta: &ObjectMeta) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    async fn create<K>(&self, object: &K, watched: &Watched<K>) -> Result<Option<Check>>
    where
        K: Kept,
    {
        match self.api::<K>(object.meta()).create(&PostParams::default(), object).await {
            Ok(created) => Ok(Some(has_new(watched, &created))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot create the {}", described(object))),
        }
    }

    async fn delete<K: Kept>(&self, object: Option<&K>, watched: &Watched<K>) -> Result<Option<Check>> {
        let Some(object) = object else { return Ok(None) };
        let deleted = self.api::<K>(object.meta()).delete(&object.name_any(), &only(object)).await;
        unless_gone(deleted).with_context(|| format!("cannot delete the {}", described(object)))?;
        Ok(Some(lacks(watched, object.meta().namespace.as_deref(), &object.name_any())))
    }

    async fn patch<K: Kept>(&self, object: Option<&K>, patch: Patch<Value>) -> Result<Option<Check>> {
        let Some(object) = object else { return Ok(None) };
        let patched = self.api::<K>(object.meta()).patch(&object.name_any(), &how(), &patch).await;
        let patched =
            unless_gone(patched).with_context(|| format!("cannot change the {}", described(object)))?;
        Ok(patched.map(|patched| K::seen(&self.stock, &patched)))
    }

    async fn answer<K: Kept>(&self, object: Option<&K>, status: Value) -> Result<Option<Check>> {
        let Some(object) = object else { return Ok(None) };
        let patch = json!({"status": status});
        let patched =
            self.api::<K>(object.meta()).patch_status(&object.name_any(), &how(), &Patch::Merge(patch)).await;
        let patched =
            unless_gone(patched).with_context(|| format!("cannot answer the {}", described(object)))?;
        Ok(patched.map(|patched| K::seen(&self.stock, &patched)))
    }

    async fn hold(&self, offer: Option<&ResourceOffer>) -> Result<Option<Check>> {
        let Some(offer) = offer else { return Ok(None) };
        self.patch(Some(offer), Patch::Merge(held_by(offer, finalizers::VIRTUAL_NODE))).await
    }

    async fn release<K: Kept>(&self, object: Option<&K>, finalizer: &str) -> Result<Option<Check>> {
        let Some(object) = object else { return Ok(None) };
        self.patch(Some(object), let_go(object, finalizer)?).await
    }

    async fn create_node(
        &self,
        peer: &ForeignCluster,
        facts: &Facts,
        snapshot: &Snapshot<'_>,
    ) -> Result<Option<Check>> {
        let (Some(offered), Some(id)) = (&facts.offered, id_of(peer)) else { return Ok(None) };
        let called = peer.spec.cluster_identity.as_ref().and_then(|identity| identity.cluster_name.clone());
        let name = names::virtual_node(called.as_deref().unwrap_or_default(), id);
        let health = health(facts, snapshot, outgoing::State::Accepted);
        let node = self.virtual_node(&name, id, peer, offered).register(&health, snapshot.now);
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.create(&PostParams::default(), &node).await {
            Ok(created) => Ok(Some(has_new(&self.stock.nodes, &created))),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let present = nodes.get_metadata(&name).await.context("cannot read the Node")?;
                names::adopt(&format!("the Node {name}"), labels::REMOTE_ID.of(&present.metadata), id)?;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("cannot register the Node {name}")),
        }
    }

    fn virtual_node<'a>(
        &self,
        name: &'a str,
        cluster_id: &'a str,
        peer: &'a ForeignCluster,
        offered: &'a ResourceOffer,
    ) -> VirtualNode<'a> {
        VirtualNode {
            name,
            cluster_id,
            offer: &offered.spec,
            corrections: peer.spec.node_labels.as_ref(),
            version: VERSION,
            agent: self.agent.borrow().as_ref().and_then(|agent| agent.of(name)),
        }
    }

    async fn drain(&self, facts: &Facts, drain: bool) -> Result<Option<Check>> {
        let Some(node) = &facts.node else { return Ok(None) };
        if is_draining(node) == drain {
            return Ok(None);
        }
        let spec = node.spec.clone().unwrap_or_default();
        let mut kept = spec.taints.unwrap_or_default();
        kept.retain(|taint| taint.key != taints::draining().key);
        if drain {
            kept.push(taints::draining());
        }
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": kept, "unschedulable": drain.then_some(true)},
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patched = nodes.patch(&node.name_any(), &how(), &Patch::Merge(patch)).await;
        let patched =
            unless_gone(patched).with_context(|| format!("cannot drain the Node {}", node.name_any()))?;
        Ok(patched.map(|patched| has(&self.stock.nodes, &patched)))
    }

    async fn delete_node(&self, facts: &Facts) -> Result<Option<Check>> {
        let Some(node) = &facts.node else { return Ok(None) };
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Some(farewell) = farewell(node) {
            let patched = nodes.patch(&node.name_any(), &how(), &Patch::Merge(farewell)).await;
            unless_gone(patched).with_context(|| format!("cannot change the Node {}", node.name_any()))?;
        }
        let deleted = nodes.delete(&node.name_any(), &only(node.as_ref())).await;
        unless_gone(deleted).with_context(|| format!("cannot delete the Node {}", node.name_any()))?;
        Ok(Some(lacks(&self.stock.nodes, None, &node.name_any())))
    }
}

/// Whether just this object exists, by the server's own word.
async fn is_there(client: &Client, peer: &ForeignCluster) -> Result<bool> {
    let peers: Api<ForeignCluster> = Api::all(client.clone());
    let present = peers.get_metadata_opt(&peer.name_any()).await;
    let present = present.context("cannot read the ForeignCluster")?;
    Ok(present.is_some_and(|present| present.metadata.uid == peer.metadata.uid))
}

async fn movable(client: &Client, node: &str) -> Result<usize> {
    let pods: Api<Pod> = Api::all(client.clone());
    let bound = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await;
    let bound = bound.with_context(|| format!("cannot list the pods of the Node {node}"))?;
    Ok(bound.items.iter().filter(|pod| is_movable(pod)).count())
}

/// A kind of object that the two clusters exchange.
trait Kept: Kind + Resource<Scope = NamespaceResourceScope> + Serialize {
    /// How to tell that the watch has seen this version.
    fn seen(stock: &Stock, written: &Self) -> Check;
}

impl Kept for ResourceRequest {
    fn seen(stock: &Stock, written: &Self) -> Check {
        has(&stock.requests, written)
    }
}

impl Kept for ResourceOffer {
    fn seen(stock: &Stock, written: &Self) -> Check {
        has(&stock.offers, written)
    }
}

/// The metadata of an object of ours for this peer, which is copied to it.
fn ours(peer: &ForeignCluster, own: &Own, facts: &Facts) -> Result<ObjectMeta> {
    let namespace = facts.namespace().context("there is no namespace for the peer yet")?;
    let id = id_of(peer).context("it is not known yet who the peer is")?;
    let us = own.signer.identity();
    let mut meta = ObjectMeta {
        // The one name that the other side lets us use.
        name: Some(us.id().to_string()),
        namespace: Some(namespace),
        ..ObjectMeta::default()
    };
    mark(&mut meta, id);
    labels::PART_OF.put_on(&mut meta);
    Ok(meta)
}

/// A node is also drained when its peer is silent for long; that is no end of the peering.
fn health<'a>(facts: &Facts, snapshot: &Snapshot<'a>, state: outgoing::State) -> Health<'a> {
    let offer = facts.offered.as_ref().map(|offered| &offered.spec);
    let timing = Timing::new(&snapshot.config.advertisement(), offer);
    let heard = snapshot.outgoing.heard.unwrap_or(snapshot.now);
    Health {
        signal: Signal::judge(heard, &timing, snapshot.now),
        network: snapshot.network,
        ending: matches!(state, outgoing::State::Draining | outgoing::State::Emptied),
    }
}

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// Deletes this object, and no later one of the same name.
fn only<K: Resource>(object: &K) -> DeleteParams {
    let preconditions = Some(Preconditions { uid: object.meta().uid.clone(), resource_version: None });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// What is gone needs no more change.
fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// One finalizer more, for this version of the object: finalizers are one list that several write.
fn held_by<K: Resource>(object: &K, finalizer: &str) -> Value {
    let meta = object.meta();
    let others = meta.finalizers.iter().flatten().map(String::as_str).filter(|name| *name != finalizer);
    let finalizers: Vec<&str> = others.chain([finalizer]).collect();
    json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}})
}

/// One finalizer less, whatever else has changed on the object, as long as the list is still the same.
fn let_go<K: Resource>(object: &K, finalizer: &str) -> Result<Patch<Value>> {
    let present: Vec<&String> = object.meta().finalizers.iter().flatten().collect();
    let others: Vec<&&String> = present.iter().filter(|name| **name != finalizer).collect();
    let operations = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "replace", "path": "/metadata/finalizers", "value": others},
    ]);
    Ok(Patch::Json(serde_json::from_value(operations).context("not a patch")?))
}

fn joined() -> Value {
    json!({"metadata": {"annotations": {annotations::AUTO_JOINED.key(): "true"}}, "spec": {"join": true}})
}

fn not_forced() -> Value {
    json!({"metadata": {"annotations": {annotations::FORCE.key(): null}}})
}

fn described<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or("-"), meta.name.as_deref().unwrap_or("-"));
    format!("{} {namespace}/{name}", K::kind(&()))
}

/// What a write is called in the log; its content may be long.
fn word(write: &Write) -> String {
    let text = format!("{write:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};

    use super::*;

    /// A server that answers every question with this.
    fn server(code: u16, answer: Value) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Response::builder().status(code).body(body))
        });
        ClientBuilder::new(service, "liqo").build()
    }

    fn milan(uid: &str) -> ForeignCluster {
        let mut peer = ForeignCluster::new("milan", serde_json::from_value(json!({})).unwrap());
        peer.metadata.uid = Some(uid.into());
        peer
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_not_taken_for_the_next_of_its_name() {
        let next = server(200, json!({"metadata": {"name": "milan", "uid": "2"}}));
        assert!(is_there(&next, &milan("2")).await.unwrap());
        assert!(!is_there(&next, &milan("1")).await.unwrap());
        let nobody = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        assert!(!is_there(&server(404, nobody), &milan("1")).await.unwrap());
    }

    #[tokio::test]
    async fn a_node_is_empty_when_the_server_says_so() {
        let pod = |phase| json!({"metadata": {"name": phase}, "spec": {"containers": []}, "status": {"phase": phase}});
        let bound = server(200, json!({"metadata": {}, "items": [pod("Running"), pod("Succeeded")]}));
        assert_eq!(movable(&bound, "liqo-milan").await.unwrap(), 1);
        assert_eq!(
            movable(&server(200, json!({"metadata": {}, "items": []})), "liqo-milan").await.unwrap(),
            0
        );
        let down = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500});
        assert!(movable(&server(500, down), "liqo-milan").await.is_err(), "who does not know does not go on");
    }
}
