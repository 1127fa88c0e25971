//! Whole enrolments: the controller against an API server in memory and auth services in the same process.

mod api;
mod provider;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferro_api::names::labels;
use ferro_core::auth::TokenSecret;
use ferro_core::identity::SigningIdentity;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::home::Home;
use crate::identity::Own;
use crate::keepsake;
use crate::reach::Reach;
use api::FakeApi;
use provider::{Provider, cluster, twins};

const SECRETS: &str = "/api/v1/namespaces/liqo/secrets";

/// This cluster, with its requester at work.
struct Requester {
    api: FakeApi,
    own: Arc<Own>,
    _rejected: watch::Sender<BTreeSet<String>>,
    tasks: Tasks,
}

fn path(peer: &str) -> String {
    format!("/apis/discovery.liqo.io/v1alpha1/foreignclusters/{peer}")
}

fn secret_path(peer: &str) -> String {
    format!("{SECRETS}/{}", keepsake::name(peer))
}

impl Requester {
    fn start() -> Self {
        Self::start_with(FakeApi::new(), cluster("home"))
    }

    fn start_with(api: FakeApi, signer: SigningIdentity) -> Self {
        let (client, tasks) = (api.client(), Tasks::default());
        let reach = Reach {
            api_server: None,
            api_server_ca: String::new(),
            auth: Some("https://192.0.2.1:30443".parse().unwrap()),
        };
        let own = Arc::new(Own { signer, reach });
        let configs = Api::all(client.clone());
        let config = Watched::start(&tasks, "configuration", configs, watcher::Config::default());
        let (_, told) = watch::channel(Some(Arc::clone(&own)));
        let home = Home::start(&tasks, client, "liqo".into(), config, told);
        let (rejected, receiver) = watch::channel(BTreeSet::new());
        tasks.spawn("enrol", super::run(tasks.clone(), home, receiver));
        Self { api, own, _rejected: rejected, tasks }
    }

    /// Adds a peer as a person does, and as the peers controller holds it.
    fn add(&self, peer: &str, url: &str) {
        let object = json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
            "metadata": {"finalizers": [ferro_api::names::finalizers::PEERING]},
            "spec": {"authUrl": url},
        });
        self.api.put(&path(peer), object);
    }

    fn give(&self, peer: &str, token: &TokenSecret) {
        let data = json!({keepsake::TOKEN: ByteString(keepsake::token_text(token).unwrap().into_bytes())});
        match self.api.get(&secret_path(peer)) {
            Some(_) => self.api.merge(&secret_path(peer), &json!({"data": data})),
            None => {
                self.api.put(&secret_path(peer), json!({"metadata": {"namespace": "liqo"}, "data": data}))
            }
        };
    }

    /// Gives the peer rights here, as the approver does.
    fn let_in(&self, peer: &Provider) {
        let identity = peer.signer.identity();
        let (name, id) = (identity.name().to_string(), identity.id().to_string());
        let namespace = ferro_core::names::tenant_namespace(&name, &id);
        let path =
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/ferro-peer");
        let mut meta = ObjectMeta::default();
        labels::REMOTE_ID.put_on(&mut meta, id);
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ferro-peer"});
        self.api.put(&path, json!({"metadata": meta, "roleRef": role}));
    }

    async fn until_state(&self, peer: &str, state: &str) -> Value {
        self.api.until(&path(peer), |object| object["status"]["authentication"]["state"] == state).await
    }

    async fn until_reason(&self, peer: &str, reason: &str) -> Value {
        self.api.until(&path(peer), |object| object["status"]["authentication"]["reason"] == reason).await
    }
}

#[tokio::test]
async fn with_a_token_a_peer_lets_us_in_and_is_then_left_alone() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    let peer = home.until_state("peer", "ACCEPTED").await;

    let id = there.signer.identity().id().to_string();
    assert_eq!(peer["spec"]["clusterIdentity"], json!({"clusterID": id, "clusterName": "there"}));
    assert_eq!(peer["spec"]["authPin"], json!(there.pin));
    assert_eq!(peer["spec"]["trustMode"], "Untrusted");
    assert_eq!(peer["status"]["tenantNamespaces"]["remote"], "liqo-tenant-home-123456");
    assert_eq!(peer["status"]["apiServerUrl"], "https://192.0.2.7:6443");
    assert!(peer["status"]["contact"]["lastSeen"].is_string());
    assert!(peer["status"]["authentication"]["expirationTime"].is_string());

    let secret = home.api.get(&secret_path("peer")).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], peer["metadata"]["uid"]);
    let kept: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(kept, [keepsake::GRANT, keepsake::KEY]);
    let kept = keepsake::Keepsake::of(&serde_json::from_value(secret).unwrap());
    assert!(crate::remote::client(&kept).unwrap().is_some());

    // The peer was given a token for the way back, bound to it, and where to use it.
    let request = there.granted.lock().unwrap().pop().unwrap();
    assert!(request.return_token().is_some());
    assert_eq!(request.auth_url(), home.own.reach.auth.as_ref());
    assert!(home.api.get(&format!("{SECRETS}/{}", crate::tokens::NAME)).is_some());

    // Watches of kinds that this API does not have begin again now and then, which is nobody's work.
    let writes = || home.api.calls().into_iter().filter(|call| !call.starts_with("GET ")).collect::<Vec<_>>();
    let written = writes();
    assert!(written.len() <= 5, "{written:?}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(writes(), written, "at rest nothing is written");
}

#[tokio::test]
async fn without_a_token_we_wait_for_one_and_then_go_on_at_once() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    home.add("peer", &there.url.to_string());
    let refused = home.until_reason("peer", "EmptyTokenNotAllowed").await;
    assert_eq!(refused["status"]["authentication"]["state"], "REFUSED");
    home.give("peer", &TokenSecret::new([9; 32]));
    home.until_reason("peer", "InvalidToken").await;
    home.give("peer", &there.token(1));
    let accepted = home.until_state("peer", "ACCEPTED").await;
    assert!(accepted["status"]["authentication"].get("reason").is_none());
    let made = home.api.calls().iter().filter(|call| call.starts_with("POST")).count();
    assert_eq!(made, 2, "one Secret for the peer, one for tokens: {:?}", home.api.calls());
}

#[tokio::test]
async fn a_token_that_was_stored_first_is_shown_first_however_slow_a_watch_is() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    home.add("other", "https://127.0.0.1:1");
    home.until_reason("other", "Unreachable").await;
    home.api.silence(Some("secrets"));
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    home.api.until(&secret_path("peer"), |secret| secret["data"].get(keepsake::NEXT_KEY).is_some()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    home.api.silence(None);
    home.until_state("peer", "ACCEPTED").await;
    assert!(!home.api.was(&path("peer"), |peer| peer["status"]["authentication"]["state"] == "REFUSED"));
}

#[tokio::test]
async fn a_peer_that_hangs_or_is_wrong_delays_nobody_else() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    home.add("silent", &format!("https://{}", silent.local_addr().unwrap()));
    home.add("nobody", "https://127.0.0.1:1");
    home.add("rubbish", "https://");
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    home.until_state("peer", "ACCEPTED").await;
    let nobody = home.until_reason("nobody", "Unreachable").await;
    assert_eq!(nobody["status"]["authentication"]["state"], "PENDING");
    home.until_reason("rubbish", "BadSpec").await;
    home.until_reason("silent", "Unreachable").await;
}

#[tokio::test]
async fn a_key_or_cluster_that_is_not_the_expected_one_is_refused() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    home.add("pinned", &there.url.to_string());
    let pin = ferro_core::auth::Pin([7; 32]);
    home.api.merge(&path("pinned"), &json!({"spec": {"authPin": pin}}));
    let other = cluster("other").identity().id().to_string();
    home.add("named", &there.url.to_string());
    home.api.merge(&path("named"), &json!({"spec": {"clusterIdentity": {"clusterID": other}}}));
    let pinned = home.until_reason("pinned", "PinMismatch").await;
    assert_eq!(pinned["status"]["authentication"]["state"], "REFUSED");
    let named = home.until_reason("named", "AnotherCluster").await;
    assert_eq!(named["spec"]["clusterIdentity"]["clusterID"], json!(other));
}

#[tokio::test]
async fn a_new_key_is_believed_when_the_known_cluster_vouches_for_it() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    let id = there.signer.identity().id().to_string();
    let before = ferro_core::auth::Pin([7; 32]);
    let spec = json!({"authPin": before, "clusterIdentity": {"clusterID": id}});
    home.api.merge(&path("peer"), &json!({"spec": spec}));
    let peer = home.until_state("peer", "ACCEPTED").await;
    assert_eq!(peer["spec"]["authPin"], json!(there.pin));
}

#[tokio::test]
async fn one_cluster_has_one_entry_and_this_one_none() {
    let home = Requester::start();
    let there = Provider::start(cluster("there")).await;
    home.give("first", &there.token(1));
    home.add("first", &there.url.to_string());
    home.until_state("first", "ACCEPTED").await;
    home.add("second", &there.url.to_string());
    let second = home.until_reason("second", "Duplicate").await;
    assert_eq!(second["status"]["authentication"]["state"], "REFUSED");
    assert!(second["spec"].get("clusterIdentity").is_none());
    let message = second["status"]["authentication"]["message"].as_str().unwrap();
    assert!(message.contains("first"), "{message}");

    let [one, same] = twins("home");
    let home = Requester::start_with(FakeApi::new(), one);
    home.add("mirror", &Provider::start(same).await.url.to_string());
    home.until_reason("mirror", "Ourselves").await;
}

#[tokio::test]
async fn a_token_for_one_use_survives_a_lost_answer() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    there.cuts.store(1, Ordering::SeqCst);
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    home.until_state("peer", "ACCEPTED").await;
    let keys: BTreeSet<_> =
        there.granted.lock().unwrap().iter().map(|request| key_of(request.csr())).collect();
    assert_eq!((there.granted.lock().unwrap().len(), keys.len()), (2, 1), "asked twice, with one key");
}

fn key_of(csr: &str) -> String {
    ferro_core::auth::Csr::from_pem(csr).unwrap().key.to_string()
}

#[tokio::test]
async fn a_start_with_everything_in_place_writes_nothing() {
    let there = Provider::start(cluster("there")).await;
    let [before, after] = twins("home");
    let home = Requester::start_with(FakeApi::new(), before);
    home.give("peer", &there.token(1));
    home.add("peer", &there.url.to_string());
    home.until_state("peer", "ACCEPTED").await;
    home.let_in(&there);
    home.tasks.end().await;
    let writes = |api: &FakeApi| api.calls().iter().filter(|call| !call.starts_with("GET")).count();
    let before = writes(&home.api);
    let again = Requester::start_with(home.api.clone(), after);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(writes(&again.api), before, "{:?}", again.api.calls());
    assert_eq!(there.granted.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn who_merely_announces_itself_gets_no_token_until_it_is_wanted() {
    let (home, there) = (Requester::start(), Provider::start(cluster("there")).await);
    there.forgive.store(true, Ordering::SeqCst);
    home.add("peer", &there.url.to_string());
    home.api.merge(&path("peer"), &json!({"spec": {"discoveryType": "LAN"}}));
    home.until_state("peer", "ACCEPTED").await;
    let sent = |number: usize| there.granted.lock().unwrap()[number].return_token();
    assert_eq!(sent(0), None);
    home.api.merge(&path("peer"), &json!({"spec": {"join": true}}));
    home.api.until(&format!("{SECRETS}/{}", crate::tokens::NAME), |_| true).await;
    while there.granted.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(sent(1).is_some());
}
