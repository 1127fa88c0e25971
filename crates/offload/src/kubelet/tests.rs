//! Visits from end to end: a client, our port, and the API server of a peer, each behind TLS.

mod home;
pub(super) mod keys;
mod peer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use ferro_core::usage::Lodger;
use ferro_peering::keepsake::Keepsake;
use ferro_runtime::places::Places;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::keys::{Authority, HERE, Pair};
use self::peer::{MUCH, Peer};
use super::callers::Callers;
use super::serving::Certificate;
use super::usage::Counter;
use super::visit::Desk;
use super::{Directory, Site, Target, accept, door};
pub(super) use home::FakeHome;

const EXEC: &str = "/exec/shop/web/app?input=1&output=1&command=cat";

/// A few pods of the namespace shop on the node liqo-turin, and the API server of its cluster.
struct FewPods(Target, FakeHome);

impl Directory for FewPods {
    fn find(&self, namespace: &str, pod: &str) -> Option<Target> {
        let is_there = namespace == "shop" && ["web", "much", "barred", "homeless"].contains(&pod);
        let there = self.0.namespace.clone().filter(|_| pod != "homeless");
        is_there.then(|| Target { namespace: there, pod: format!("{pod}-over-there"), ..self.0.clone() })
    }

    fn site(&self, node: &str) -> Option<Site> {
        let lodger = |name: &str, there: &str| Lodger {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            there: there.into(),
            containers: vec!["app".into()],
        };
        let lodgers = vec![lodger("web", "shop-rome"), lodger("barred", "barred-rome")];
        (node == "liqo-turin").then(|| Site { client: Some(self.1.client()), lodgers })
    }

    fn has_listed(&self, node: &str) -> bool {
        node == "liqo-turin"
    }
}

/// The metrics API of a cluster, which measures all the time.
fn metrics() -> FakeHome {
    let count = AtomicU32::new(0);
    FakeHome::new(move |call, _| {
        let stamp = count.fetch_add(1, Ordering::Relaxed).to_string();
        let is_ours = call == "GET /apis/metrics.k8s.io/v1beta1/namespaces/shop-rome/pods";
        let container = |name| json!({"name": name, "usage": {"cpu": "250m", "memory": "20Mi"}});
        let pod =
            |name| json!({"metadata": {"name": name}, "timestamp": stamp, "containers": [container("app")]});
        is_ours.then(|| json!({"items": [pod("web"), pod("of-somebody-else")]}))
    })
}

struct World {
    clients: Authority,
    servers: Authority,
    at: SocketAddr,
    home: FakeHome,
    peer: Peer,
    metrics: FakeHome,
    tasks: JoinSet<()>,
}

impl World {
    async fn start(home: FakeHome) -> Self {
        Self::start_with(home, |_| {}).await
    }

    /// With a change to what the peer granted.
    async fn start_with(home: FakeHome, change: impl FnOnce(&mut Keepsake)) -> Self {
        let (clients, servers, peer) = (Authority::new(), Authority::new(), Peer::start().await);
        let mut keepsake = peer.keepsake();
        change(&mut keepsake);
        let waits = json!({
            "name": "missing", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}},
        });
        let here = json!({"metadata": {"name": "web"}, "status": {"containerStatuses": [waits]}});
        let target = Target {
            node: "liqo-turin".into(),
            uid: "0a-1".into(),
            keepsake: Arc::new(keepsake),
            namespace: Some("shop-rome".into()),
            pod: "web-over-there".into(),
            here: Arc::new(serde_json::from_value(here).unwrap()),
        };
        let pair = servers.server();
        let config = door::configure(&Certificate::of(pair.chain(), pair.key()), &clients.pem).unwrap();
        let (_, acceptor) = watch::channel(Some(TlsAcceptor::from(Arc::new(config))));
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let metrics = metrics();
        let directory = Arc::new(FewPods(target, metrics.clone()));
        let desk = Arc::new(Desk::new(directory, Callers::new(home.client())));
        let (counter, places) = (Arc::new(Counter::new("liqo-turin")), Arc::new(Places::new(256, 128)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { accept(listener, acceptor, desk, counter, places).await.unwrap() });
        Self { clients, servers, at, home, peer, metrics, tasks }
    }

    fn api_server(&self) -> Pair {
        self.clients.client("apiserver", &["admins"])
    }

    /// Asks as the API server does.
    async fn ask(&self, request: Request<Body>) -> Visit {
        let config = self.servers.connect_as(Some(&self.api_server()));
        visit(self.at, config, request).await.unwrap()
    }

    async fn ask_with_token(&self, token: &str, path: &str) -> u16 {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        let request = request.body(Body::empty()).unwrap();
        visit(self.at, self.servers.connect_as(None), request).await.unwrap().response.status().as_u16()
    }
}

/// An answer, and the connection that it comes by.
struct Visit {
    response: Response<Incoming>,
    _drive: JoinSet<()>,
}

impl Visit {
    async fn body(self) -> Vec<u8> {
        self.response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    async fn refusal(self) -> (u16, String) {
        let status = self.response.status().as_u16();
        (status, String::from_utf8(self.body().await).unwrap())
    }

    async fn upgraded(self) -> TokioIo<hyper::upgrade::Upgraded> {
        assert_eq!(self.response.status().as_u16(), 101);
        TokioIo::new(hyper::upgrade::on(self.response).await.unwrap())
    }
}

async fn visit(at: SocketAddr, config: ClientConfig, request: Request<Body>) -> anyhow::Result<Visit> {
    let stream = TcpStream::connect(at).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(ServerName::from(HERE), stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut drive = JoinSet::new();
    drive.spawn(async move { _ = connection.with_upgrades().await });
    Ok(Visit { response: sender.send_request(request).await?, _drive: drive })
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn upgrade(path: &str) -> Request<Body> {
    Request::post(path)
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .header("x-forwarded-for", "192.0.2.1")
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn a_command_speaks_with_the_pod_over_there() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let visit = world.ask(upgrade(EXEC)).await;
    assert_eq!(visit.response.headers()["upgrade"], "SPDY/3.1");
    assert_eq!(visit.response.headers()["connection"], "Upgrade");
    assert_eq!(visit.response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let (asked, headers) = world.peer.last();
    let path = "/clusters/7/api/v1/namespaces/shop-rome/pods/web-over-there/exec";
    assert_eq!(asked, format!("POST {path}?container=app&stdin=true&stdout=true&command=cat"));
    assert_eq!(headers["authorization"], "Bearer granted");
    assert!(!headers.contains_key("x-forwarded-for"));
    let mut stream = visit.upgraded().await;
    let mut heard = [0; 5];
    for said in [b"hello", b"again"] {
        stream.write_all(said).await.unwrap();
        stream.flush().await.unwrap();
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, said);
    }
    // Who has said all hears the rest.
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"goodbye");
    world.peer.has_open(0).await;
}

#[tokio::test]
async fn much_goes_both_ways_through_one_connection() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let stream = world.ask(upgrade("/portForward/shop/web")).await.upgraded().await;
    let (mut reads, mut writes) = tokio::io::split(stream);
    let said: Vec<u8> = (0..5_000_000_u32).map(|at| 128 + u8::try_from(at % 101).unwrap()).collect();
    let tell = async {
        writes.write_all(&said).await.unwrap();
        writes.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let (read, ()) = tokio::join!(reads.read_to_end(&mut heard), tell);
    read.unwrap();
    assert_eq!(heard.len(), said.len() + b"goodbye".len());
    assert!(heard.starts_with(&said));
}

#[tokio::test]
async fn when_the_pod_ends_the_client_hears_it_and_when_the_client_goes_the_command_ends() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let mut stream = world.ask(upgrade(EXEC)).await.upgraded().await;
    stream.write_all(b"!").await.unwrap();
    stream.flush().await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"goodbye");
    let stream = world.ask(upgrade(EXEC)).await.upgraded().await;
    world.peer.has_open(1).await;
    drop(stream);
    world.peer.has_open(0).await;
}

#[tokio::test]
async fn what_the_other_cluster_refuses_is_told_with_its_reason() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let exec = EXEC.replace("/app", "/forbidden");
    let (status, body) = world.ask(upgrade(&exec)).await.refusal().await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["kind"], &body["code"]), (403, &"Status".into(), &403.into()));
    assert_eq!(body["message"], "this cluster may not");
    let refusal = world.ask(get("/containerLogs/shop/web/forbidden")).await.refusal().await;
    assert_eq!(refusal, (403, "this cluster may not".to_owned()));
}

#[tokio::test]
async fn a_pod_that_is_not_over_there_does_not_run_yet_and_is_not_unknown() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    for pod in ["web", "homeless"] {
        let refusal = world.ask(get(&format!("/containerLogs/shop/{pod}/missing"))).await.refusal().await;
        let waits = format!("container \"missing\" in pod {pod:?} is waiting to start: ImagePullBackOff");
        assert_eq!(refusal, (400, waits));
        let exec = EXEC.replace("/web/app", &format!("/{pod}/missing"));
        let (status, body) = world.ask(upgrade(&exec)).await.refusal().await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["code"]), (500, &500.into()));
        assert_eq!(body["message"], "container not found (\"missing\")");
    }
    assert_eq!(world.peer.asked.lock().unwrap().len(), 2, "of a pod without a namespace nothing is asked");
    let (status, body) = world.ask(upgrade("/portForward/shop/homeless")).await.refusal().await;
    assert!(status == 500 && body.contains("homeless_shop"), "{status} {body}");
    assert_eq!(world.ask(get("/shadowPod/shop/homeless")).await.refusal().await.0, 404);
}

#[tokio::test]
async fn a_command_needs_an_upgrade_and_a_pod_has_to_be_there() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    assert_eq!(world.ask(get(EXEC)).await.refusal().await, (400, "Upgrade request required".to_owned()));
    for path in ["/containerLogs/shop/other/app", "/containerLogs/other/web/app"] {
        assert_eq!(world.ask(get(path)).await.refusal().await.0, 404, "{path}");
    }
    let other = "/exec/shop/web/0b-2/app?output=1&command=ls";
    assert_eq!(world.ask(upgrade(other)).await.refusal().await.0, 404, "it is another pod of that name");
    let same = "/exec/shop/web/0a-1/app?output=1&command=ls";
    assert_eq!(world.ask(upgrade(same)).await.response.status().as_u16(), 101);
    assert_eq!(world.ask(get("/healthz")).await.refusal().await, (200, "ok".to_owned()));
    assert_eq!(world.ask(get("/pods")).await.refusal().await.0, 404);
}

#[tokio::test]
async fn a_log_has_no_most() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let visit = world.ask(get("/containerLogs/shop/web/app?tailLines=5")).await;
    assert_eq!(visit.response.status().as_u16(), 200);
    let body = visit.body().await;
    assert!(body.len() == MUCH && body.iter().all(|byte| *byte == b'x'), "{}", body.len());
    assert!(world.peer.last().0.ends_with("/log?container=app&tailLines=5"));
}

#[tokio::test]
async fn what_is_over_there_is_shown_as_it_is_and_what_is_not_as_nothing() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let visit = world.ask(get("/remotePod/shop/web")).await;
    assert_eq!(visit.response.headers()["content-type"], "application/json");
    assert_eq!(visit.refusal().await, (200, r#"{"kind": "Pod"}"#.to_owned()));
    assert!(world.peer.last().0.ends_with("/api/v1/namespaces/shop-rome/pods/web-over-there"));
    assert_eq!(world.ask(get("/shadowPod/shop/web")).await.refusal().await, (200, "null".to_owned()));
    let (status, message) = world.ask(get("/shadowPod/shop/much")).await.refusal().await;
    assert!(status == 502 && message.contains("too long"), "{status} {message}");
    let barred = world.ask(get("/shadowPod/shop/barred")).await.refusal().await;
    assert_eq!(barred, (502, "this cluster may not".to_owned()), "it is the cluster that may not");
}

#[tokio::test]
async fn what_pods_use_is_told_of_the_node_whose_port_is_asked() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let (status, page) = world.ask(get("/metrics/resource")).await.refusal().await;
    assert_eq!(status, 200);
    let series =
        "container_memory_working_set_bytes{container=\"app\",namespace=\"shop\",pod=\"web\"} 20971520 ";
    assert!(page.contains(series), "{page}");
    assert!(!page.contains("of-somebody-else") && !page.contains("barred"), "{page}");
    let asked = world.metrics.asked().len();
    assert_eq!(asked, 2, "one question for each namespace");
    let (_, summary) = world.ask(get("/stats/summary")).await.refusal().await;
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["node"]["nodeName"], "liqo-turin");
    assert_eq!(summary["pods"][0]["podRef"]["name"], "web");
    assert_eq!(world.metrics.asked().len(), asked, "and the answer holds for a while");
    let attributes = |subresource| {
        json!({
            "verb": "get", "version": "v1", "resource": "nodes", "subresource": subresource, "name": "liqo-turin",
        })
    };
    let reviewed = world.home.asked();
    let reviewed: Vec<_> =
        reviewed.iter().map(|(_, body)| body["spec"]["resourceAttributes"].clone()).collect();
    assert_eq!(reviewed, [attributes("metrics"), attributes("stats")]);
    assert!(world.peer.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn who_may_not_read_the_metrics_of_the_node_is_refused() {
    let world = World::start(FakeHome::reviews("liqo-turin")).await;
    let (status, message) = world.ask(get("/metrics/resource")).await.refusal().await;
    assert!(status == 403 && message.contains("nodes/metrics"), "{status} {message}");
    let nobody = visit(world.at, world.servers.connect_as(None), get("/stats/summary")).await.unwrap();
    assert_eq!(nobody.refusal().await.0, 401);
    assert!(world.metrics.asked().is_empty());
}

#[tokio::test]
async fn a_line_is_there_at_once_and_a_log_ends_with_whoever_follows_it() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let mut visit = world.ask(get("/containerLogs/shop/web/silent?follow=true")).await;
    let line = visit.response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(line, "one line\n");
    world.peer.has_open(1).await;
    drop(visit);
    world.peer.has_open(0).await;
}

#[tokio::test]
async fn who_goes_before_there_is_a_line_is_not_waited_for() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let request = get("/containerLogs/shop/web/mute?follow=true");
    let config = world.servers.connect_as(Some(&world.api_server()));
    let visit = tokio::spawn(visit(world.at, config, request));
    world.peer.has_open(1).await;
    visit.abort();
    world.peer.has_open(0).await;
}

#[tokio::test]
async fn a_stream_ends_with_the_process_that_leads() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let stream = world.ask(upgrade(EXEC)).await.upgraded().await;
    world.peer.has_open(1).await;
    let World { tasks, peer, .. } = world;
    drop(tasks);
    peer.has_open(0).await;
    drop(stream);
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_named() {
    // Nobody listens where the grant says.
    let free = TcpListener::bind((HERE, 0)).await.unwrap().local_addr().unwrap();
    let world = World::start_with(FakeHome::reviews("nothing"), |keepsake| {
        keepsake.grant.as_mut().unwrap().api_server_url = format!("https://{free}").parse().unwrap();
    })
    .await;
    let (status, message) = world.ask(get("/containerLogs/shop/web/app")).await.refusal().await;
    assert_eq!(status, 502);
    assert!(message.contains("liqo-turin") && message.contains("cannot connect"), "{message}");
}

#[tokio::test]
async fn a_cluster_that_let_nobody_in_yet_is_named() {
    let world = World::start_with(FakeHome::reviews("nothing"), |keepsake| keepsake.grant = None).await;
    // Without a way to the cluster no namespace on it is known, as a rule.
    for exec in [EXEC, &EXEC.replace("web", "homeless")] {
        let (status, message) = world.ask(upgrade(exec)).await.refusal().await;
        assert_eq!(status, 502);
        assert!(message.contains("liqo-turin") && message.contains("not let this one in"), "{message}");
    }
}

#[tokio::test]
async fn who_is_not_known_is_refused() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let log = "/containerLogs/shop/web/app";
    let nobody = visit(world.at, world.servers.connect_as(None), get(log)).await.unwrap();
    assert_eq!(nobody.refusal().await, (401, "Unauthorized".to_owned()));
    let foreign = Authority::new().client("apiserver", &["admins"]);
    assert!(visit(world.at, world.servers.connect_as(Some(&foreign)), get(log)).await.is_err());
    let nameless = world.clients.client("", &["admins"]);
    let nameless = visit(world.at, world.servers.connect_as(Some(&nameless)), get(log)).await.unwrap();
    assert_eq!(nameless.refusal().await.0, 401);
    assert_eq!(world.ask_with_token("bad", log).await, 401);
    assert_eq!(world.ask_with_token("good", log).await, 200);
    assert!(world.peer.asked.lock().unwrap().len() == 1, "only one of them was let through");
}

#[tokio::test]
async fn who_has_no_right_on_the_node_is_refused() {
    let world = World::start(FakeHome::reviews("liqo-turin")).await;
    let log = "/containerLogs/shop/web/app";
    assert_eq!(world.ask_with_token("good", log).await, 403);
    let (status, message) = world.ask(get(log)).await.refusal().await;
    assert_eq!(status, 403);
    assert!(message.contains("\"apiserver\"") && message.contains("nodes/proxy"), "{message}");
    assert!(world.peer.asked.lock().unwrap().is_empty());
    let stranger = world.clients.client("apiserver", &["others"]);
    let stranger = visit(world.at, world.servers.connect_as(Some(&stranger)), get(log)).await.unwrap();
    assert_eq!(stranger.refusal().await.0, 403);

    let world = World::start(FakeHome::reviews("create")).await;
    assert_eq!(world.ask_with_token("good", log).await, 200);
    assert_eq!(world.ask_with_token("good", EXEC).await, 403, "to read is not to act");
}

#[tokio::test]
async fn nobody_is_let_in_while_the_api_server_does_not_answer() {
    let world = World::start(FakeHome::new(|_, _| None)).await;
    assert_eq!(world.ask_with_token("good", "/containerLogs/shop/web/app").await, 500);
    assert_eq!(world.ask(get("/containerLogs/shop/web/app")).await.refusal().await.0, 500);
    assert!(world.peer.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_same_question_is_put_to_the_api_server_once_in_a_while() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    for _ in 0..3 {
        assert_eq!(world.ask_with_token("good", "/containerLogs/shop/web/app").await, 200);
    }
    let asked = world.home.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let attributes = &asked[1].1["spec"]["resourceAttributes"];
    let wanted = serde_json::json!({
        "verb": "get", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": "liqo-turin",
    });
    assert_eq!(*attributes, wanted);
}

#[tokio::test]
async fn who_never_asks_is_sent_away() {
    let world = World::start(FakeHome::reviews("nothing")).await;
    let mut silent = TcpStream::connect(world.at).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), silent.read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
}
