//! What all that is watched says about one peer.

use std::sync::Arc;

use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::{AuthState, ForeignCluster, NetworkStatus, ResourceRequest};
use ferro_api::names::{finalizers, labels, taints};
use ferro_api::sharing::{OfferPhase, ResourceOffer, ResourceOfferSpec};
use ferro_api::virtualkubelet::NamespaceMap;
use ferro_core::auth::enrolment::Conflict;
use ferro_core::keepalive::{Heartbeat, Timing};
use ferro_core::network::exchange;
use ferro_core::offer::{ResourceReader as _, Terms, compose, storage_classes};
use ferro_core::offloading::map_is_for;
use ferro_core::peering::{Access, IncomingFacts, NodeFacts, OutgoingFacts, Snapshot, Standing, Tenant};
use ferro_core::replication::inbound;
use ferro_core::virtual_node::lost_since;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt as _};

use super::Memory;
use super::books::Books;
use super::stock::Stock;
use crate::enrol;
use crate::home::Home;
use crate::identity::Own;
use crate::keepsake::{self, Keepsake};
use crate::networks::Parts;

/// What is known about one peer.
pub(super) struct Facts {
    pub(super) tenant: Option<Arc<Namespace>>,
    pub(super) keepsake: Option<Keepsake>,
    /// Whether the peer turns our credentials away.
    pub(super) rejected: bool,
    pub(super) admitted: bool,
    pub(super) request: Option<Arc<ResourceRequest>>,
    pub(super) offered: Option<Arc<ResourceOffer>>,
    pub(super) node: Option<Arc<Node>>,
    pub(super) movable: usize,
    mapped: bool,
    pub(super) asked: Option<Arc<ResourceRequest>>,
    pub(super) offer: Option<Arc<ResourceOffer>>,
    quote: Option<ResourceOfferSpec>,
    network: NetworkStatus,
    remaining: Vec<String>,
    answer: Option<AuthState>,
    others_offered: u32,
    others_served: u32,
    pub(super) delivered: Option<Timestamp>,
    heard: Option<Timestamp>,
    published: Option<Timestamp>,
    node_name: Option<String>,
}

impl Facts {
    pub(super) fn gather(
        peer: &ForeignCluster,
        own: &Own,
        settings: &ClusterConfigSpec,
        home: &Home,
        stock: &Stock,
        books: &Books,
    ) -> Self {
        let id = id_of(peer).filter(|_| stands_for_its_cluster(peer, own, home));
        let us = own.signer.identity().id().to_string();
        let tenant = id.and_then(|id| tenant_of(stock, id));
        let namespace = tenant.as_ref().map(|tenant| tenant.name_any());
        let secret = home.secrets.get(Some(&home.namespace), &keepsake::name(&peer.name_any()));
        let authentication = peer.status.as_ref().and_then(|status| status.authentication.as_ref());
        let (requests, offers) = (stock.requests.all(), stock.offers.all());
        let node = id.and_then(|id| node_of(stock, id));
        let parts = namespace.as_deref().zip(id).map(|(namespace, id)| stock.networks.of(namespace, &us, id));
        let parts = parts.unwrap_or_default();
        let map = namespace.as_deref().zip(id).and_then(|(namespace, id)| map_for(stock, namespace, &us, id));
        let mut facts = Self {
            keepsake: secret.as_deref().map(Keepsake::of).map(|keepsake| match id {
                Some(_) => keepsake,
                None => Keepsake { grant: None, ..keepsake },
            }),
            rejected: false,
            admitted: namespace.as_deref().is_some_and(|namespace| {
                stock.bindings.get(Some(namespace), crate::tenant::BINDING).is_some()
            }),
            request: original(&requests, namespace.as_deref(), id),
            offered: copy(&offers, namespace.as_deref(), &us, id),
            movable: node.as_ref().map_or(0, |node| books.movable(&node.name_any())),
            mapped: map.is_some(),
            node_name: node.as_ref().map(|node| node.name_any()),
            node,
            asked: copy(&requests, namespace.as_deref(), &us, id),
            offer: original(&offers, namespace.as_deref(), id),
            quote: None,
            network: network(peer, settings, &parts, stock),
            remaining: parts
                .remaining()
                .into_iter()
                .chain(map.as_deref().map(described))
                .chain(id.and_then(|id| tenant_left(peer, stock, id)))
                .collect(),
            answer: authentication.map(|authentication| authentication.state),
            others_offered: others(&offers, id, |offer| {
                labels::REPLICATED.is_on(&offer.metadata)
                    && offer.status.as_ref().and_then(|status| status.phase) == Some(OfferPhase::Accepted)
            }),
            others_served: others(&offers, id, |offer| {
                labels::REPLICATION.is_on(&offer.metadata)
                    && !labels::REPLICATED.is_on(&offer.metadata)
                    && offer.metadata.deletion_timestamp.is_none()
                    && offer.spec.withdrawal_timestamp.is_none()
            }),
            delivered: None,
            heard: None,
            published: None,
            tenant,
        };
        facts.quote = facts.asked.as_ref().zip(id).and_then(|(asked, id)| {
            let tenant = stock.tenants.get(None, id);
            let quota = tenant.as_ref().and_then(|tenant| tenant.spec.resource_quota.as_ref());
            let terms = Terms::for_peer(settings, peer.spec.policy.as_ref()).within(quota);
            let classes = storage_classes(stock.classes.all().iter().map(AsRef::as_ref));
            books.read(|ledger| {
                let terms = terms.with_architecture(ledger.architecture());
                compose(&us, ledger.read(id), &terms, classes, &asked.spec)
            })
        });
        facts
    }

    /// Adds what is only in memory: when the peer was last heard, and when it was last written to.
    pub(super) fn remember(&mut self, memory: &mut Memory, settings: &ClusterConfigSpec, now: Timestamp) {
        self.published = memory.published;
        let Some(offered) = &self.offered else {
            memory.heartbeat = None;
            return;
        };
        let timing = Timing::new(&settings.advertisement(), Some(&offered.spec));
        let confirmed = offered.spec.renew_time.as_ref();
        let heartbeat = memory.heartbeat.get_or_insert_with(|| {
            Heartbeat::begin(confirmed, self.node.as_deref().and_then(lost_since), &timing, now)
        });
        heartbeat.observe(confirmed, now);
        self.heard = Some(heartbeat.heard());
    }

    /// The name of the tenant namespace, while it is not going.
    pub(super) fn namespace(&self) -> Option<String> {
        let there = |tenant: &&Arc<Namespace>| tenant.metadata.deletion_timestamp.is_none();
        self.tenant.as_ref().filter(there).map(|tenant| tenant.name_any())
    }

    pub(super) fn snapshot<'a>(
        &'a self,
        peer: &'a ForeignCluster,
        settings: &'a ClusterConfigSpec,
        auth_url: Option<&'a str>,
        now: Timestamp,
    ) -> Snapshot<'a> {
        Snapshot {
            peer,
            config: settings,
            auth_url,
            access: self.access(now),
            tenant: self.tenant.as_deref().map_or(Tenant::Absent, tenant),
            outgoing: OutgoingFacts {
                request: self.request.as_deref(),
                offer: self.offered.as_deref(),
                node: self.node.as_deref().zip(self.node_name.as_deref()).map(|(node, name)| NodeFacts {
                    name,
                    going: node.metadata.deletion_timestamp.is_some(),
                    draining: is_draining(node),
                    pods: self.movable,
                }),
                mapped: self.mapped,
                heard: self.heard,
                accepted_elsewhere: self.others_offered,
            },
            incoming: IncomingFacts {
                request: self.asked.as_deref(),
                offer: self.offer.as_deref(),
                quote: self.quote.as_ref(),
                published: self.published,
                delivered: self.delivered,
                accepted_elsewhere: self.others_served,
            },
            network: &self.network,
            remaining: &self.remaining,
            now,
        }
    }

    fn access(&self, now: Timestamp) -> Access {
        let grant = self.keepsake.as_ref().and_then(|keepsake| keepsake.grant.as_ref());
        let standing = match (grant, self.answer) {
            (Some(_), _) if self.rejected => Standing::Rejected,
            (Some(grant), _) if grant.expires_at > now => Standing::Accepted,
            (_, Some(AuthState::Refused)) => Standing::Refused,
            (_, Some(AuthState::Pending | AuthState::Accepted) | None) => Standing::Pending,
        };
        Access { standing, peer_admitted: self.admitted, identity_kept: self.keepsake.is_some() }
    }
}

/// Whether this `ForeignCluster` is the one that stands for its cluster: what there is of a peering belongs to one of
/// them, and the others must not touch it.
fn stands_for_its_cluster(peer: &ForeignCluster, own: &Own, home: &Home) -> bool {
    let Some(Ok(id)) = id_of(peer).map(str::parse) else { return false };
    let claims = enrol::claims(&home.peers.all());
    Conflict::find(&peer.name_any(), &id, &own.signer.identity().id(), &claims).is_none()
}

/// The identifier of a peer, once it is known.
pub(super) fn id_of(peer: &ForeignCluster) -> Option<&str> {
    peer.spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.as_str())
}

/// Whether the node is marked to be emptied.
pub(super) fn is_draining(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == taints::draining().key)
}

fn tenant(namespace: &Namespace) -> Tenant<'_> {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    match namespace.metadata.deletion_timestamp {
        None => Tenant::Present(name),
        Some(_) => Tenant::Going(name),
    }
}

fn tenant_of(stock: &Stock, id: &str) -> Option<Arc<Namespace>> {
    stock.namespaces.all().into_iter().find(|namespace| labels::REMOTE_ID.of(&namespace.metadata) == Some(id))
}

/// The Tenant of a peer, as long as it is held for what the peer has here; by force that is not waited for.
fn tenant_left(peer: &ForeignCluster, stock: &Stock, id: &str) -> Option<String> {
    let tenant = stock.tenants.get(None, id).filter(|_| !exchange::is_forced(peer))?;
    let is_held = tenant.metadata.finalizers.iter().flatten().any(|name| name == finalizers::TENANT);
    is_held.then(|| format!("Tenant {id}"))
}

fn node_of(stock: &Stock, id: &str) -> Option<Arc<Node>> {
    let is_of_peer =
        |meta: &ObjectMeta| labels::TYPE_VIRTUAL_NODE.is_on(meta) && labels::REMOTE_ID.of(meta) == Some(id);
    stock.nodes.all().into_iter().find(|node| is_of_peer(&node.metadata))
}

/// What this peer is asked for by way of namespaces.
fn map_for(stock: &Stock, namespace: &str, us: &str, id: &str) -> Option<Arc<NamespaceMap>> {
    stock.maps.get(Some(namespace), us).filter(|map| map_is_for(map, us) == Some(id))
}

fn described(map: &NamespaceMap) -> String {
    format!("NamespaceMap {}/{}", map.namespace().unwrap_or_default(), map.name_any())
}

/// Our object for this peer.
fn original<K: Resource>(objects: &[Arc<K>], namespace: Option<&str>, id: Option<&str>) -> Option<Arc<K>> {
    let (namespace, id) = (namespace?, id?);
    let is_ours = |object: &&Arc<K>| {
        let meta = object.meta();
        meta.namespace.as_deref() == Some(namespace)
            && labels::REPLICATION.is_on(meta)
            && !labels::REPLICATED.is_on(meta)
            && labels::REMOTE_ID.of(meta) == Some(id)
    };
    objects.iter().find(is_ours).cloned()
}

/// The object that this peer has put here.
fn copy<K: Resource>(
    objects: &[Arc<K>],
    namespace: Option<&str>,
    us: &str,
    id: Option<&str>,
) -> Option<Arc<K>> {
    let (namespace, id) = (namespace?, id?);
    let here: Vec<&Arc<K>> =
        objects.iter().filter(|object| object.meta().namespace.as_deref() == Some(namespace)).collect();
    let sorted = inbound(us, id, 1, here.iter().copied().map(AsRef::as_ref));
    let taken = sorted.taken.first()?.meta().name.clone();
    here.into_iter().find(|object| object.meta().name == taken).cloned()
}

fn others(offers: &[Arc<ResourceOffer>], id: Option<&str>, counts: impl Fn(&ResourceOffer) -> bool) -> u32 {
    let of_another = |offer: &&Arc<ResourceOffer>| {
        let meta = &offer.metadata;
        let peer = if labels::REPLICATED.is_on(meta) {
            labels::ORIGIN_ID.of(meta)
        } else {
            labels::REMOTE_ID.of(meta)
        };
        peer != id
    };
    let count = offers.iter().filter(of_another).filter(|offer| counts(offer)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Whether the networks are joined, by us or by somebody else.
fn network(
    peer: &ForeignCluster,
    settings: &ClusterConfigSpec,
    parts: &Parts,
    stock: &Stock,
) -> NetworkStatus {
    let mode = settings.liqonet().mode();
    let hindrance = stock.networks.hindrance.borrow().clone();
    let wish = exchange::wish(peer, mode);
    exchange::shown(&peer.name_any(), mode, wish, parts.objects(), hindrance.as_deref())
}
