//! Asking another service: names are resolved in Rust, each attempt is a connection of its own to another address.
//!
//! A static glibc cannot resolve names. A connection that is kept would stay with a replica that is gone, while a new one
//! is led to another by the Service, or here, where a name has several addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hickory_resolver::TokioResolver;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::{Answer, Instance, Reason, Refused};
use crate::retry::Patience;

/// The longest answer that is read.
const LONGEST: usize = 1 << 20;
/// How long a server of names may take, and how often it is asked.
const NAME_TIMEOUT: Duration = Duration::from_millis(400);
const NAME_ATTEMPTS: usize = 4;

/// Where the services are, and how to get there.
#[derive(Debug)]
pub(crate) struct Caller {
    resolver: Option<TokioResolver>,
    /// `HOST:PORT` of each service, several where it is known to have several.
    places: BTreeMap<String, Vec<String>>,
    /// Begins at another address with every request.
    turn: AtomicUsize,
}

/// One piece of work that takes several requests, and who had a part in it.
#[derive(Debug)]
pub(crate) struct Errand<'a> {
    caller: &'a Caller,
    /// Everybody asked so far.
    pub(crate) by: Vec<Instance>,
}

/// A request, to be sent as often as needed.
struct Wanted<'a> {
    service: &'a str,
    method: Method,
    path: &'a str,
    body: Bytes,
}

impl Caller {
    /// Services are found by their names, unless something else is said.
    pub(crate) fn new(places: BTreeMap<String, Vec<String>>) -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|mut builder| {
            builder.options_mut().timeout = NAME_TIMEOUT;
            builder.options_mut().attempts = NAME_ATTEMPTS;
            builder.build()
        });
        Self { resolver: resolver.ok(), places, turn: AtomicUsize::new(0) }
    }

    /// Begins a piece of work.
    pub(crate) fn errand(&self) -> Errand<'_> {
        Errand { caller: self, by: Vec::new() }
    }

    /// Asks until there is an answer, a refusal that will stay, or no time left.
    async fn ask(&self, wanted: &Wanted<'_>, patience: Patience) -> Result<Bytes, Refused> {
        let (begin, turn) = (Instant::now(), self.turn.fetch_add(1, Ordering::Relaxed));
        let mut last = Refused::unavailable(&"there was no time to ask");
        for attempts in 0.. {
            let Some((pause, time)) = patience.next(attempts, begin.elapsed()) else { break };
            tokio::time::sleep(pause).await;
            let number = turn.wrapping_add(attempts as usize);
            last = match timeout(time, self.attempt(wanted, number, patience)).await {
                Ok(Ok(Ok(answer))) => return Ok(answer),
                Ok(Ok(Err(refused))) if !refused.is_passing() => return Err(refused),
                Ok(Ok(Err(refused))) => refused,
                Ok(Err(error)) => Refused::unavailable(&format!("{}: {error:#}", wanted.service)),
                Err(_) => Refused::unavailable(&format!("{} does not answer", wanted.service)),
            };
        }
        Err(last)
    }

    async fn attempt(
        &self,
        wanted: &Wanted<'_>,
        number: usize,
        patience: Patience,
    ) -> Result<Result<Bytes, Refused>> {
        let addresses = self.addresses(wanted.service).await?;
        let address = addresses[number % addresses.len()];
        let stream = timeout(patience.connect, TcpStream::connect(address)).await;
        let stream = stream.with_context(|| format!("nobody picks up at {address}"))?;
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The connection ends when the exchange does, which has the only sender.
        let (exchanged, _) = tokio::join!(exchange(sender, wanted), connection);
        exchanged
    }

    /// All addresses of a service, at least one.
    async fn addresses(&self, service: &str) -> Result<Vec<SocketAddr>> {
        let by_name = [format!("{service}:80")];
        let places = self.places.get(service).map_or(&by_name[..], Vec::as_slice);
        let mut addresses = Vec::new();
        for place in places {
            match place.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => addresses.extend(self.resolve(place).await?),
            }
        }
        ensure!(!addresses.is_empty(), "{service} has no address");
        Ok(addresses)
    }

    async fn resolve(&self, place: &str) -> Result<Vec<SocketAddr>> {
        let (host, port) = place.rsplit_once(':').with_context(|| format!("{place} is not HOST:PORT"))?;
        let port: u16 = port.parse().with_context(|| format!("{place} is not HOST:PORT"))?;
        let resolver = self.resolver.as_ref().context("this machine has no resolver")?;
        let found = resolver.lookup_ip(host).await.with_context(|| format!("cannot resolve {host}"))?;
        Ok(found.iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

impl Errand<'_> {
    /// Reads something.
    pub(crate) async fn get<T: DeserializeOwned>(
        &mut self,
        service: &str,
        path: &str,
        patience: Patience,
    ) -> Result<T, Refused> {
        self.ask(&Wanted { service, method: Method::GET, path, body: Bytes::new() }, patience).await
    }

    /// Sets something, or asks for something with many words; doing so again changes nothing.
    pub(crate) async fn put<T: DeserializeOwned>(
        &mut self,
        service: &str,
        path: &str,
        body: &impl Serialize,
        patience: Patience,
    ) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).map_err(|error| Refused::conflict(&error))?;
        self.ask(&Wanted { service, method: Method::PUT, path, body: body.into() }, patience).await
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        wanted: &Wanted<'_>,
        patience: Patience,
    ) -> Result<T, Refused> {
        let bytes = self.caller.ask(wanted, patience).await?;
        let nonsense = |error| Refused::conflict(&format!("{} talks nonsense: {error}", wanted.service));
        let answer: Answer<T> = serde_json::from_slice(&bytes).map_err(nonsense)?;
        self.by.extend(answer.by);
        Ok(answer.said)
    }
}

async fn exchange(
    mut sender: http1::SendRequest<Full<Bytes>>,
    wanted: &Wanted<'_>,
) -> Result<Result<Bytes, Refused>> {
    let request = Request::builder()
        .method(wanted.method.clone())
        .uri(wanted.path)
        .header("host", wanted.service)
        .header("content-type", "application/json")
        .header("connection", "close")
        .body(Full::new(wanted.body.clone()))?;
    let response = sender.send_request(request).await.context("the connection broke")?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed).context("the answer broke off")?.to_bytes();
    Ok(if status == StatusCode::OK { Ok(body) } else { Err(refusal(status, &body)) })
}

fn refusal(status: StatusCode, body: &[u8]) -> Refused {
    let reason = serde_json::from_slice(body).map(|reason: Reason| reason.why);
    Refused { status, why: reason.unwrap_or_else(|_| status.to_string()) }
}
