//! One connection: who asks, what, whether it may, and then the answer of the cluster where the pod runs.
//!
//! Guarantees: nothing is asked of a peer before the caller is known and allowed. One connection is one request, and all
//! that belongs to it is held by its task: when the client goes, the request over there goes with it, and the other way
//! round. A peer that does not answer takes no more places than its own.

mod absent;
mod found;
mod line;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Body;
use ferro_peering::remote::direct;
use ferro_runtime::places::{Place, Places};
use http_body_util::{BodyExt as _, Collected, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use self::absent::absent;
use self::found::find;
use self::line::Held;
use super::callers::{Callers, Right};
use super::question::{Ask, Page, Question, What};
use super::refusal::Refusal;
use super::splice::{LINGER, splice};
use super::upgrade::{self, Upgrade};
use super::usage::Counter;
use super::{Directory, Target};

/// How long a client may take to say hello, and then to ask.
const HELLO: Duration = Duration::from_secs(5);
/// The head of a request: a command may be as long as a URL can be.
const HEAD: usize = 96 * 1024;
/// How long the head of a peer's answer may take, and the sentence by which it refuses; and how much of that is read.
const ANSWER: Duration = Duration::from_mins(1);
const SENTENCE: Duration = Duration::from_secs(5);
const MOST_SENTENCE: usize = 64 * 1024;
/// How long an object of a peer may take to arrive, and how large it may be: more than an API server stores.
const OBJECT: Duration = Duration::from_secs(10);
const MOST_OBJECT: usize = 4 * 1024 * 1024;
/// Streams at once, and those of one node.
const STREAMS: usize = 1024;
const STREAMS_EACH: usize = 512;

/// What all visits share.
pub(super) struct Desk {
    directory: Arc<dyn Directory>,
    callers: Callers,
    streams: Places<String>,
}

impl Desk {
    pub(super) fn new(directory: Arc<dyn Directory>, callers: Callers) -> Self {
        Self { directory, callers, streams: Places::new(STREAMS, STREAMS_EACH) }
    }
}

/// One visit, from its first byte to its last. The place is for those of whom nothing is known yet.
pub(super) async fn attend(
    desk: Arc<Desk>,
    counter: Arc<Counter>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    place: Place<IpAddr>,
) -> Result<()> {
    line::keep_alive(&stream);
    let stream = tokio::time::timeout(HELLO, acceptor.accept(stream)).await.context("no hello")??;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
    let visit = Visit { desk, counter, certificate, place: Some(place).into(), joint: None.into() };
    let visit = Arc::new(visit);
    let service = hyper::service::service_fn(|request| {
        let visit = Arc::clone(&visit);
        async move { Ok::<_, Infallible>(visit.answer(request).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HELLO)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await?;
    let joint = visit.joint.lock().unwrap_or_else(PoisonError::into_inner).take();
    match joint {
        Some(joint) => joint.run().await,
        None => Ok(()),
    }
}

struct Visit {
    desk: Arc<Desk>,
    /// What pods of the node use at whose port this is.
    counter: Arc<Counter>,
    /// What the client showed, and was verified.
    certificate: Option<CertificateDer<'static>>,
    /// Until it is known who this is, and that it may ask.
    place: Mutex<Option<Place<IpAddr>>>,
    /// What becomes of the connection when the answer is written.
    joint: Mutex<Option<Joint>>,
}

/// A connection to a client and one to a peer, to be made into one.
struct Joint {
    near: OnUpgrade,
    far: Upgraded,
    _place: Place<String>,
}

impl Joint {
    async fn run(self) -> Result<()> {
        let near = self.near.await.context("the client does not go on")?;
        Ok(splice(TokioIo::new(near), TokioIo::new(self.far), LINGER).await?)
    }
}

impl Visit {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let was_upgrade = upgrade::is_wished(request.headers());
        let mut response = self.attempt(&mut request).await.unwrap_or_else(|refusal| {
            debug!(path = request.uri().path(), status = refusal.status.as_u16(), "a request is refused");
            refusal.into_response(was_upgrade)
        });
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // Who wants more comes again.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn attempt(&self, request: &mut Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let callers = &self.desk.callers;
        let caller = callers.identify(self.certificate.as_deref(), request.headers()).await?;
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let ask = match Question::parse(request.method(), path, query)? {
            Question::Health => {
                let subresources = &["healthz", "proxy"];
                callers.allow(&caller, Right { verb: "get", subresources, node: String::new() }).await?;
                return Ok(Response::new(Body::from("ok")));
            }
            Question::Usage(page) => {
                let (subresources, node) = (page.subresources(), self.counter.node.clone());
                callers.allow(&caller, Right { verb: "get", subresources, node }).await?;
                return self.usage(page).await;
            }
            Question::Pod(ask) => ask,
        };
        let target = find(self.desk.directory.as_ref(), &self.counter.node, &ask).await?;
        // Who may not ask does not learn which pods there are.
        let node = target.as_ref().map(|target| target.node.clone()).unwrap_or_default();
        callers.allow(&caller, Right { verb: ask.verb(), subresources: &["proxy"], node }).await?;
        let is_meant = |target: &Target| ask.uid.as_ref().is_none_or(|uid| *uid == target.uid);
        let target = target.filter(is_meant).ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, format!("pod {:?} does not exist on a virtual node", ask.pod))
        })?;
        let place = self.admit(&target.node)?;
        match ask.what {
            What::Log => log(&ask, &target, place).await,
            What::Shadow | What::Remote => object(&ask, &target).await,
            What::Exec | What::Attach | What::PortForward => self.join(request, &ask, &target, place).await,
        }
    }

    /// Gives up the place of a stranger for one of those who may ask.
    fn admit(&self, node: &str) -> Result<Place<String>, Refusal> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.desk.streams.take(node.to_owned()).ok_or_else(|| {
            let message = format!("too many streams from node {node} are open; try again later");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    async fn usage(&self, page: Page) -> Result<Response<Body>, Refusal> {
        let node = &self.counter.node;
        let _place = self.admit(node)?;
        let site = self.desk.directory.site(node).ok_or_else(|| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("nobody looks after node {node} yet"))
        })?;
        let (kind, text) = self.counter.page(&site, page).await;
        let mut answer = Response::new(Body::from(text));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(answer)
    }

    async fn join(
        &self,
        request: &mut Request<Incoming>,
        ask: &Ask,
        target: &Target,
        place: Place<String>,
    ) -> Result<Response<Body>, Refusal> {
        let wished = Upgrade::of(request.headers())?;
        let near = hyper::upgrade::on(&mut *request);
        let mut question = question(wished.method.clone(), ask, target)?;
        question.headers_mut().extend(wished.headers.clone());
        let (response, line) = far(target, question, Some(ANSWER)).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused(response, ask, target).await);
        }
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = wished.answer(response.headers())?;
        let far = hyper::upgrade::on(response).await;
        let far = far.map_err(|error| unreachable(&target.node, &error.into()))?;
        drop(line);
        let joint = Joint { near, far, _place: place };
        *self.joint.lock().unwrap_or_else(PoisonError::into_inner) = Some(joint);
        Ok(answer)
    }
}

async fn log(ask: &Ask, target: &Target, place: Place<String>) -> Result<Response<Body>, Refusal> {
    // A log that is followed has no head before it has a line.
    let patience = (!ask.may_be_silent).then_some(ANSWER);
    let (response, line) = far(target, question(Method::GET, ask, target)?, patience).await?;
    if response.status() != StatusCode::OK {
        return Err(refused(response, ask, target).await);
    }
    let mut answer = Response::new(Body::new(Held::new(response.into_body(), (line, place))));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(answer)
}

/// What there is over there, or `null`. Whatever else the peer answers is about the two clusters, and not about the request.
async fn object(ask: &Ask, target: &Target) -> Result<Response<Body>, Refusal> {
    let (response, _line) = far(target, question(Method::GET, ask, target)?, Some(OBJECT)).await?;
    let object = match response.status() {
        StatusCode::OK => {
            let body = Limited::new(response.into_body(), MOST_OBJECT).collect();
            let body = tokio::time::timeout(OBJECT, body).await.ok().and_then(Result::ok);
            let unread = || unreachable(&target.node, &anyhow::anyhow!("its answer is too long or too slow"));
            body.ok_or_else(unread)?.to_bytes()
        }
        StatusCode::NOT_FOUND => Bytes::from_static(b"null"),
        _ => {
            let Refusal { message, .. } = refused(response, ask, target).await;
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
        }
    };
    let mut answer = Response::new(Body::from(object));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn question(method: Method, ask: &Ask, target: &Target) -> Result<Request<Empty<Bytes>>, Refusal> {
    let Some(namespace) = &target.namespace else { return Err(homeless(ask, target)) };
    Request::builder()
        .method(method)
        .uri(ask.at_peer(namespace, &target.pod))
        .header(USER_AGENT, concat!("ferro/", env!("CARGO_PKG_VERSION")))
        .body(Empty::new())
        .map_err(|_| Refusal::new(StatusCode::URI_TOO_LONG, "the command is too long"))
}

async fn far(
    target: &Target,
    request: Request<Empty<Bytes>>,
    patience: Option<Duration>,
) -> Result<(Response<Incoming>, direct::Line), Refusal> {
    direct::ask(&target.keepsake, request, patience).await.map_err(|error| unreachable(&target.node, &error))
}

fn unreachable(node: &str, error: &anyhow::Error) -> Refusal {
    let message = format!("the cluster behind node {node} cannot be asked: {error:#}");
    Refusal::new(StatusCode::BAD_GATEWAY, message)
}

/// Why nothing can be asked about a pod whose namespace has no counterpart.
fn homeless(ask: &Ask, target: &Target) -> Refusal {
    if target.keepsake.grant.is_none() {
        return unreachable(&target.node, &anyhow::anyhow!("it has not let this one in yet"));
    }
    absent(ask, &target.here)
}

/// Why the peer does not do what it was asked. That the pod is not there does not mean that there is none.
async fn refused(response: Response<Incoming>, ask: &Ask, target: &Target) -> Refusal {
    let status = response.status();
    if status == StatusCode::NOT_FOUND {
        return absent(ask, &target.here);
    }
    let sentence = Limited::new(response.into_body(), MOST_SENTENCE).collect();
    let sentence = tokio::time::timeout(SENTENCE, sentence).await;
    let sentence = sentence.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    Refusal::of_peer(status, &sentence, &target.node)
}
