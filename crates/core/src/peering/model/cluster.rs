//! One cluster of the model: its API server's objects about the other one, and what its controllers do.

use std::collections::BTreeMap;

use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::{ForeignCluster, NetworkStatus, ResourceRequest};
use ferro_api::names::{annotations, finalizers};
use ferro_api::sharing::{ResourceOffer, ResourceOfferSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::json;

use crate::peering::{
    Access, IncomingFacts, NodeFacts, OutgoingFacts, Plan, Snapshot, Standing, Tenant, Write, decide,
};
use crate::replication::{self, apply, inbound};

/// Objects of one kind in the namespace for the other cluster.
pub(super) type Objects<K> = BTreeMap<String, K>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cluster {
    pub(super) id: &'static str,
    pub(super) other: &'static str,
    pub(super) peer: Option<ForeignCluster>,
    pub(super) namespace: Option<Namespace>,
    pub(super) requests: Objects<ResourceRequest>,
    pub(super) offers: Objects<ResourceOffer>,
    pub(super) node: Option<NodeFacts<'static>>,
    /// Whether there is a map, as long as something is offloaded.
    pub(super) mapped: bool,
    pub(super) standing: Standing,
    pub(super) identity_kept: bool,
    pub(super) peer_admitted: bool,
    pub(super) heard: Option<Timestamp>,
    pub(super) made: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    Present,
    Going,
}

impl Cluster {
    pub(super) fn new(id: &'static str, other: &'static str) -> Self {
        Self {
            id,
            other,
            peer: None,
            namespace: None,
            requests: Objects::new(),
            offers: Objects::new(),
            node: None,
            mapped: false,
            standing: Standing::Pending,
            identity_kept: false,
            peer_admitted: false,
            heard: None,
            made: 0,
        }
    }

    /// What is left of the other cluster here.
    pub(super) fn is_bare(&self) -> bool {
        let bare = Self { made: self.made, heard: self.heard, ..Self::new(self.id, self.other) };
        *self == bare
    }

    pub(super) fn is_forced(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| annotations::FORCE.of(&peer.metadata).is_some())
    }

    /// What holds at any time, in whatever state.
    pub(super) fn assert_sound(&self) {
        let offered = self.received(&self.offers).is_some();
        assert!(self.node.is_none() || offered, "the node outlives its offer: {self:#?}");
    }

    pub(super) fn request_name(&self) -> String {
        format!("request-of-{}", self.id)
    }

    pub(super) fn offer_name(&self) -> String {
        format!("offer-of-{}", self.id)
    }

    pub(super) fn plan(&self, now: Timestamp) -> Option<Plan> {
        let peer = self.peer.as_ref()?;
        let quote = ResourceOfferSpec { cluster_id: self.id.into(), ..ResourceOfferSpec::default() };
        let namespace = format!("liqo-tenant-{}", self.other);
        let remaining = ["NamespaceMap".to_owned()];
        Some(decide(&Snapshot {
            peer,
            config: &ClusterConfigSpec::default(),
            auth_url: None,
            access: Access {
                standing: self.standing,
                peer_admitted: self.peer_admitted,
                identity_kept: self.identity_kept,
            },
            tenant: match self.namespace {
                None => Tenant::Absent,
                Some(Namespace::Present) => Tenant::Present(&namespace),
                Some(Namespace::Going) => Tenant::Going(&namespace),
            },
            outgoing: OutgoingFacts {
                request: self.requests.get(&self.request_name()),
                offer: self.received(&self.offers),
                node: self.node,
                mapped: self.mapped,
                heard: self.heard,
                accepted_elsewhere: 0,
            },
            incoming: IncomingFacts {
                request: self.received(&self.requests),
                offer: self.offers.get(&self.offer_name()),
                quote: Some(&quote),
                published: None,
                delivered: None,
                accepted_elsewhere: 0,
            },
            network: &NetworkStatus::default(),
            remaining: if self.mapped { &remaining } else { &[] },
            now,
        }))
    }

    fn received<'a, K: Resource>(&self, objects: &'a Objects<K>) -> Option<&'a K> {
        inbound(self.id, self.other, 1, objects.values()).taken.first().copied()
    }

    pub(super) fn write_status(&mut self, plan: &Plan) {
        if let (Some(peer), Some(patch)) = (&mut self.peer, &plan.status) {
            let mut value = json!(peer);
            apply(&mut value, patch);
            *peer = serde_json::from_value(value).unwrap();
        }
    }

    pub(super) fn perform(&mut self, write: Write, now: Timestamp) {
        let (request, offer) = (self.request_name(), self.offer_name());
        match write {
            Write::AddFinalizer => {
                self.change_peer(|meta| meta.finalizers = Some(vec![finalizers::PEERING.into()]));
            }
            Write::DropFinalizer => {
                let peer = self.peer.take().unwrap();
                assert!(peer.metadata.deletion_timestamp.is_some());
            }
            Write::Join => self.peer.as_mut().unwrap().spec.join = Some(true),
            Write::ClearForce => self.change_peer(|meta| annotations::FORCE.take_off(meta)),
            Write::CreateNamespace => assert_eq!(self.namespace.replace(Namespace::Present), None),
            Write::DeleteNamespace => self.namespace = Some(Namespace::Going),
            Write::RevokePeer => self.peer_admitted = false,
            Write::ForgetIdentity => {
                assert!(!self.mapped, "nobody can remove the namespaces any more");
                self.identity_kept = false;
                self.standing = Standing::Pending;
            }
            Write::CreateRequest(spec) => {
                let object = ResourceRequest { metadata: self.new_meta(&request), spec: *spec, status: None };
                create(&mut self.requests, object);
            }
            Write::DeleteRequest => delete(&mut self.requests, &request, now),
            Write::ReleaseRequest => finalize(&mut self.requests, &request, finalizers::REPLICATION),
            Write::AnswerRequest(status) => self.received_request().status = Some(*status),
            Write::CreateOffer(spec) => {
                let object = ResourceOffer { metadata: self.new_meta(&offer), spec: *spec, status: None };
                create(&mut self.offers, object);
            }
            Write::PatchOffer(patch) => panic!("the quote never changes: {patch}"),
            Write::WithdrawOffer => {
                let offer = self.offers.get_mut(&offer).unwrap();
                offer.spec.withdrawal_timestamp = Some(Time(now));
                offer.metadata.generation = Some(2);
            }
            Write::DeleteOffer => delete(&mut self.offers, &offer, now),
            Write::ReleaseOffer => finalize(&mut self.offers, &offer, finalizers::REPLICATION),
            Write::AnswerOffer(status) => self.received_offer().status = Some(*status),
            Write::HoldOffer => {
                let held = &mut self.received_offer().metadata.finalizers;
                held.get_or_insert_default().push(finalizers::VIRTUAL_NODE.into());
            }
            Write::LetGoOffer => {
                assert_eq!(self.node, None, "the offer is let go before its node is gone");
                let lost = self.is_forced() || self.standing == Standing::Rejected;
                assert!(!self.mapped || lost, "the offer is let go before the namespaces are gone");
                let name = self.received_offer().metadata.name.clone().unwrap();
                finalize(&mut self.offers, &name, finalizers::VIRTUAL_NODE);
            }
            Write::DiscardOffer => {
                let name = self.received_offer().metadata.name.clone().unwrap();
                delete(&mut self.offers, &name, now);
            }
            Write::CreateNode => {
                let node = NodeFacts { name: "liqo-node", going: false, draining: false, pods: 0 };
                assert_eq!(self.node.replace(node), None);
            }
            Write::DrainNode => self.node.as_mut().unwrap().draining = true,
            Write::RestoreNode => self.node.as_mut().unwrap().draining = false,
            Write::DeleteNode => {
                assert!(self.node.unwrap().pods == 0 || self.is_forced(), "pods are lost");
                self.node = None;
            }
        }
    }

    fn change_peer(&mut self, change: impl FnOnce(&mut ObjectMeta)) {
        change(&mut self.peer.as_mut().unwrap().metadata);
    }

    fn received_request(&mut self) -> &mut ResourceRequest {
        let name = self.received(&self.requests).unwrap().metadata.name.clone().unwrap();
        self.requests.get_mut(&name).unwrap()
    }

    fn received_offer(&mut self) -> &mut ResourceOffer {
        let name = self.received(&self.offers).unwrap().metadata.name.clone().unwrap();
        self.offers.get_mut(&name).unwrap()
    }

    fn new_meta(&mut self, name: &str) -> ObjectMeta {
        assert_eq!(self.namespace, Some(Namespace::Present), "nothing can be created without a namespace");
        let mut meta = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        replication::mark(&mut meta, self.other);
        meta.uid = Some(self.new_uid());
        meta.generation = Some(1);
        meta
    }

    pub(super) fn new_uid(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.id, self.made)
    }

    /// The namespace controller: deletes everything, then the namespace.
    pub(super) fn empty_namespace(&mut self, now: Timestamp) {
        if self.namespace == Some(Namespace::Going) {
            for name in self.requests.clone().keys() {
                delete(&mut self.requests, name, now);
            }
            for name in self.offers.clone().keys() {
                delete(&mut self.offers, name, now);
            }
            if self.requests.is_empty() && self.offers.is_empty() {
                self.namespace = None;
            }
        }
    }
}

pub(super) fn create<K: Resource>(objects: &mut Objects<K>, object: K) {
    let taken = objects.insert(object.meta().name.clone().unwrap(), object);
    assert!(taken.is_none(), "created twice");
}

/// Deletes an object, or marks it as deleted as long as it has finalizers.
pub(super) fn delete<K: Resource>(objects: &mut Objects<K>, name: &str, now: Timestamp) {
    let meta = objects.get_mut(name).unwrap().meta_mut();
    if meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
        objects.remove(name);
    } else {
        meta.deletion_timestamp.get_or_insert(Time(now));
    }
}

/// Takes a finalizer off.
pub(super) fn finalize<K: Resource>(objects: &mut Objects<K>, name: &str, finalizer: &str) {
    let meta = objects.get_mut(name).unwrap().meta_mut();
    let held = meta.finalizers.get_or_insert_default();
    held.retain(|present| present != finalizer);
    if held.is_empty() && meta.deletion_timestamp.is_some() {
        objects.remove(name);
    }
}
