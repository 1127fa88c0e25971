//! The tables row by row, where the model of two clusters does not look closely.

use ferro_api::config::ClusterConfigSpec;
use ferro_api::discovery::{ForeignCluster, NetworkStatus, ResourceRequest};
use ferro_api::sharing::{ResourceOffer, ResourceOfferSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Access, IncomingFacts, NodeFacts, OutgoingFacts, Plan, Snapshot, Standing, Tenant, Write, decide,
    incoming, outgoing,
};
use crate::replication::apply;

/// The parts of a snapshot, as values that a test can change.
struct Scene {
    peer: ForeignCluster,
    config: ClusterConfigSpec,
    access: Access,
    tenant: Tenant<'static>,
    request: Option<ResourceRequest>,
    offer: Option<ResourceOffer>,
    node: Option<NodeFacts<'static>>,
    mapped: bool,
    asked: Option<ResourceRequest>,
    offered: Option<ResourceOffer>,
    quote: Option<ResourceOfferSpec>,
    published: Option<Timestamp>,
    remaining: Vec<String>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn object<K: serde::de::DeserializeOwned>(kind: &str, group: &str, spec: &Value, status: &Value) -> K {
    let value = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": kind,
        "metadata": {"name": "x", "namespace": "liqo-tenant-milan"},
        "spec": spec,
        "status": status,
    });
    serde_json::from_value(value).unwrap()
}

fn request(status: &Value) -> ResourceRequest {
    object("ResourceRequest", "discovery.liqo.io", &json!({}), status)
}

fn offer(cpu: &str, status: &Value) -> ResourceOffer {
    let spec = json!({"clusterId": "b", "resourceQuota": {"hard": {"cpu": cpu}}});
    object("ResourceOffer", "sharing.liqo.io", &spec, status)
}

/// A peer that is known and has let us in; nothing else.
fn scene(spec: &Value) -> Scene {
    let mut peer: ForeignCluster = object("ForeignCluster", "discovery.liqo.io", spec, &json!({}));
    peer.metadata.name = Some("milan".into());
    peer.metadata.finalizers = Some(vec!["discovery.liqo.io/peering".into()]);
    Scene {
        peer,
        config: ClusterConfigSpec::default(),
        access: Access { standing: Standing::Accepted, peer_admitted: true, identity_kept: true },
        tenant: Tenant::Present("liqo-tenant-milan"),
        request: None,
        offer: None,
        node: None,
        mapped: false,
        asked: None,
        offered: None,
        quote: Some(offer("4", &json!({})).spec),
        published: None,
        remaining: Vec::new(),
    }
}

impl Scene {
    fn plan(&self) -> Plan {
        decide(&Snapshot {
            peer: &self.peer,
            config: &self.config,
            auth_url: Some("https://us:31466"),
            access: self.access,
            tenant: self.tenant,
            outgoing: OutgoingFacts {
                request: self.request.as_ref(),
                offer: self.offer.as_ref(),
                node: self.node,
                mapped: self.mapped,
                heard: None,
                accepted_elsewhere: 0,
            },
            incoming: IncomingFacts {
                request: self.asked.as_ref(),
                offer: self.offered.as_ref(),
                quote: self.quote.as_ref(),
                published: self.published,
                delivered: None,
                accepted_elsewhere: 0,
            },
            network: &NetworkStatus::default(),
            remaining: &self.remaining,
            now: at(0),
        })
    }

    fn delete(&mut self) {
        self.peer.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
    }

    /// Writes the status as the plan says.
    fn settle_status(&mut self) -> Plan {
        let plan = self.plan();
        let mut value = json!(self.peer);
        plan.status.iter().for_each(|patch| apply(&mut value, patch));
        self.peer = serde_json::from_value(value).unwrap();
        plan
    }

    /// Status, reason and message of a condition, as the plan writes it.
    fn condition(&mut self, type_: &str) -> (String, String, String) {
        self.settle_status();
        let conditions = &self.peer.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == type_).unwrap().clone();
        (found.status, found.reason, found.message)
    }
}

#[test]
fn the_finalizer_comes_before_anything_else() {
    let mut scene = scene(&json!({"join": true}));
    scene.peer.metadata.finalizers = None;
    scene.tenant = Tenant::Absent;
    let writes = scene.plan().writes;
    assert_eq!(writes[..2], [Write::AddFinalizer, Write::CreateNamespace]);
    let Write::CreateRequest(spec) = &writes[2] else { panic!("{writes:?}") };
    assert_eq!(spec.auth_url.as_deref(), Some("https://us:31466"));
}

#[test]
fn the_namespace_is_made_when_either_has_let_the_other_in() {
    for (standing, peer_admitted, made) in [
        (Standing::Pending, true, true),
        (Standing::Accepted, false, true),
        (Standing::Refused, false, false),
    ] {
        let mut scene = scene(&json!({}));
        scene.tenant = Tenant::Absent;
        scene.access = Access { standing, peer_admitted, identity_kept: false };
        assert_eq!(scene.plan().writes.contains(&Write::CreateNamespace), made);
    }
}

#[test]
fn a_cluster_of_the_right_kind_is_joined_once_and_not_against_a_persons_will() {
    let mut scene = scene(&json!({"discoveryType": "LAN"}));
    assert_eq!(scene.plan().writes, []);
    scene.config = serde_json::from_value(json!({"advertisementConfig": {"outgoingConfig": {"autoJoin": {
        "discoveryTypes": ["LAN"], "trustModes": ["Unknown"],
    }}}}))
    .unwrap();
    assert_eq!(scene.plan().writes, [Write::Join]);
    scene.access.standing = Standing::Pending;
    assert_eq!(scene.plan().writes, []);
    scene.access.standing = Standing::Accepted;
    scene.peer.metadata.annotations = Some([("liqo.io/auto-joined".to_owned(), "true".to_owned())].into());
    assert_eq!(scene.plan().writes, []);
}

#[test]
fn who_is_not_let_in_is_told_where_to_look() {
    let mut scene = scene(&json!({"join": true}));
    scene.access.standing = Standing::Refused;
    let plan = scene.plan();
    assert_eq!((plan.outgoing, plan.writes), (outgoing::State::LockedOut, vec![]));
    let (status, reason, message) = scene.condition("OutgoingPeering");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotAuthenticated"));
    assert!(message.contains("condition Authenticated"), "{message}");
}

#[test]
fn an_offer_that_waits_for_a_person_says_what_to_type() {
    let mut scene = scene(&json!({"join": true, "policy": {"offers": "Manual"}}));
    (scene.request, scene.offer) = (Some(request(&json!({}))), Some(offer("4", &json!({}))));
    let plan = scene.plan();
    assert_eq!(plan.outgoing, outgoing::State::Undecided);
    let [Write::AnswerOffer(answer)] = plan.writes.as_slice() else { panic!("{:?}", plan.writes) };
    assert_eq!(json!(answer.phase), json!("Pending"));
    let (_, reason, message) = scene.condition("OutgoingPeering");
    assert_eq!(reason, "WaitsForDecision");
    assert!(message.contains("ferro accept milan"), "{message}");
}

#[test]
fn an_accepted_offer_is_held_answered_and_then_becomes_a_node() {
    let mut scene = scene(&json!({"join": true}));
    (scene.request, scene.offer) = (Some(request(&json!({}))), Some(offer("4", &json!({}))));
    let plan = scene.plan();
    assert_eq!(plan.outgoing, outgoing::State::Accepted);
    let [Write::HoldOffer, Write::AnswerOffer(answer), Write::CreateNode] = plan.writes.as_slice() else {
        panic!("{:?}", plan.writes)
    };
    assert_eq!(json!([answer.phase, answer.virtual_kubelet_status]), json!(["Accepted", "None"]));
}

#[test]
fn the_words_of_a_peer_are_shown_cut_short_and_harmless() {
    let said = format!("no\u{1b}[2J {}", "!".repeat(30_000));
    let condition = json!({"type": "Accepted", "status": "False", "reason": "No", "message": said,
        "lastTransitionTime": "2025-01-01T00:00:00Z"});
    let mut scene = scene(&json!({"join": true}));
    scene.request = Some(request(&json!({"offerState": "Refused", "conditions": [condition]})));
    assert_eq!(scene.plan().outgoing, outgoing::State::Denied);
    let (_, reason, message) = scene.condition("OutgoingPeering");
    assert_eq!(reason, "RefusedByPeer");
    assert!(
        message.starts_with("milan gives nothing; it says: no [2J !") && message.len() < 500,
        "{message}"
    );
}

#[test]
fn a_request_that_goes_is_not_asked_again_before_it_is_gone() {
    let mut scene = scene(&json!({"join": true}));
    let mut going = request(&json!({}));
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
    going.metadata.finalizers = Some(vec!["liqo.io/replication".into()]);
    (scene.request, scene.offer) = (Some(going), Some(offer("4", &json!({}))));
    scene.node = Some(NodeFacts { name: "liqo-milan", going: false, draining: true, pods: 2 });
    assert_eq!(scene.plan().outgoing, outgoing::State::Draining);
    assert!(!scene.plan().writes.contains(&Write::RestoreNode));
}

#[test]
fn an_empty_node_stays_until_the_namespaces_on_the_peer_are_gone() {
    let mut scene = scene(&json!({"join": false}));
    scene.offer = Some(offer("4", &json!({})));
    scene.node = Some(NodeFacts { name: "liqo-milan", going: false, draining: true, pods: 1 });
    scene.mapped = true;
    assert_eq!(scene.plan().outgoing, outgoing::State::Draining);
    scene.node = scene.node.map(|node| NodeFacts { pods: 0, ..node });
    assert_eq!(scene.plan().outgoing, outgoing::State::Unmapping);
    let (_, reason, message) = scene.condition("OutgoingPeering");
    assert!(reason == "NamespacesEnd" && message.contains("ferro unpeer milan --force"), "{message}");
    scene.mapped = false;
    assert_eq!(scene.plan().writes, [Write::DeleteNode]);
}

#[test]
fn an_offer_is_held_until_the_namespaces_on_the_peer_are_gone_unless_nobody_can_remove_them() {
    let mut scene = scene(&json!({"join": false}));
    let mut held = offer("4", &json!({}));
    held.metadata.finalizers = Some(vec!["virtualkubelet.liqo.io/virtual-node".into()]);
    (scene.offer, scene.mapped) = (Some(held), true);
    assert_eq!(scene.plan().outgoing, outgoing::State::Leaving);
    assert!(!scene.plan().writes.contains(&Write::LetGoOffer));
    assert_eq!(scene.condition("OutgoingPeering").1, "NamespacesEnd");
    scene.access.standing = Standing::Rejected;
    assert!(scene.plan().writes.contains(&Write::LetGoOffer));
    (scene.access.standing, scene.mapped) = (Standing::Accepted, false);
    assert!(scene.plan().writes.contains(&Write::LetGoOffer));
}

#[test]
fn a_peering_is_not_over_as_long_as_its_map_is_there() {
    let mut scene = scene(&json!({"join": false}));
    scene.mapped = true;
    assert_eq!(scene.plan().outgoing, outgoing::State::Leaving);
    scene.mapped = false;
    assert_eq!(scene.plan().outgoing, outgoing::State::Idle);
}

#[test]
fn the_provider_says_what_holds_up_its_answer() {
    let mut scene = scene(&json!({}));
    scene.asked = Some(request(&json!({})));
    scene.quote = None;
    assert_eq!(scene.plan().incoming, incoming::State::Unmeasured);
    scene.access.standing = Standing::Pending;
    assert_eq!(scene.plan().incoming, incoming::State::LockedOut);
    scene.peer.spec = serde_json::from_value(json!({"policy": {"requests": "Manual"}})).unwrap();
    let plan = scene.plan();
    assert_eq!(plan.incoming, incoming::State::Undecided);
    let [Write::AnswerRequest(answer)] = plan.writes.as_slice() else { panic!("{:?}", plan.writes) };
    assert_eq!(json!(answer.offer_state), json!("Pending"));
    assert_eq!(answer.conditions[0].reason, "WaitsForDecision");
}

#[test]
fn a_request_that_insists_on_what_is_not_there_is_refused() {
    let mut scene = scene(&json!({}));
    scene.asked = Some(request(&json!({})));
    scene.asked.as_mut().unwrap().spec.properties.insert("sla".into(), "gold".into());
    assert_eq!(scene.plan().incoming, incoming::State::Refused);
    assert_eq!(scene.condition("IncomingPeering").1, "PropertyMissing");
}

#[test]
fn the_offer_follows_what_is_free_but_not_in_haste() {
    let mut scene = scene(&json!({}));
    let answered = json!({"offerState": "Created", "conditions": [{
        "type": "Accepted", "status": "True", "reason": "OfferMade", "message": "an offer was made",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }]});
    scene.asked = Some(request(&answered));
    scene.offered = Some(offer("8", &json!({"phase": "Accepted", "virtualKubeletStatus": "Created"})));
    let patch = json!({"spec": {"resourceQuota": {"hard": {"cpu": "4"}}}});
    assert_eq!(scene.plan().writes, [Write::PatchOffer(patch)]);
    scene.published = Some(at(0));
    let plan = scene.plan();
    assert_eq!((plan.writes, plan.wake), (vec![], Some(at(1))));
}

#[test]
fn rights_end_before_the_namespace_and_the_finalizer_goes_last() {
    let mut scene = scene(&json!({}));
    scene.delete();
    scene.remaining = vec!["NetworkConfig milan".into()];
    assert_eq!(scene.plan().writes, []);
    assert!(scene.condition("Removed").2.contains("NetworkConfig milan"));
    scene.remaining.clear();
    assert_eq!(scene.plan().writes, [Write::RevokePeer, Write::ForgetIdentity]);
    scene.access = Access { standing: Standing::Pending, peer_admitted: false, identity_kept: false };
    assert_eq!(scene.plan().writes, [Write::DeleteNamespace]);
    scene.tenant = Tenant::Going("liqo-tenant-milan");
    assert_eq!(scene.plan().writes, []);
    scene.tenant = Tenant::Absent;
    assert_eq!(scene.plan().writes, [Write::DropFinalizer]);
}

#[test]
fn an_event_tells_of_each_change_once() {
    let mut scene = scene(&json!({"join": true}));
    let first = scene.settle_status();
    let reasons: Vec<_> = first.notices.iter().map(|notice| notice.reason.as_str()).collect();
    assert_eq!(reasons, ["LetIn", "Asking"]);
    scene.request = Some(request(&json!({"offerState": "Refused"})));
    let second = scene.settle_status();
    assert_eq!(second.notices.len(), 1);
    assert!(second.notices[0].warning && second.notices[0].reason == "RefusedByPeer");
    let third = scene.plan();
    assert_eq!((third.notices, third.status), (vec![], None));
}

#[test]
fn the_status_keeps_what_others_wrote_into_it() {
    let mut scene = scene(&json!({}));
    scene.peer.status = serde_json::from_value(json!({
        "apiServerUrl": "https://milan:6443",
        "authentication": {"state": "ACCEPTED"},
        "tenantNamespaces": {"remote": "liqo-tenant-us"},
        "conditions": [{"type": "Theirs", "status": "True", "reason": "X", "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z"}],
    }))
    .unwrap();
    scene.settle_status();
    let status = scene.peer.status.unwrap();
    assert_eq!(status.api_server_url.as_deref(), Some("https://milan:6443"));
    let namespaces = status.tenant_namespaces.unwrap();
    assert_eq!(namespaces.remote.as_deref(), Some("liqo-tenant-us"));
    assert_eq!(namespaces.local.as_deref(), Some("liqo-tenant-milan"));
    assert!(status.conditions.iter().any(|condition| condition.type_ == "Theirs"));
}

#[test]
fn a_peer_is_told_the_answer_and_not_how_to_change_it() {
    let mut scene = scene(&json!({"join": true, "policy": {"offers": "Manual", "requests": "Manual"}}));
    (scene.request, scene.offer) = (Some(request(&json!({}))), Some(offer("4", &json!({}))));
    scene.asked = Some(request(&json!({})));
    let writes = scene.plan().writes;
    let [Write::AnswerOffer(to_offer), Write::AnswerRequest(to_request)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    for told in [&to_offer.conditions[0], &to_request.conditions[0]] {
        assert_eq!(
            (told.reason.as_str(), told.message.as_str()),
            ("WaitsForDecision", "a person has to decide")
        );
    }
}
