//! A client to the API server of a peer, from what the peer granted.
//!
//! As few HTTP/2 connections as it takes carry all watches and requests, because memory per peer counts and the usual client
//! opens one for each watch. The peer may be hostile: a request has to be answered in time, an answer has a most, as has
//! each event of a watch, and a connection that has gone silent is noticed by its pings.

pub mod direct;
mod lines;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_core::auth::{Credential, IdentityGrant};
use ferro_runtime::connections::{Connections, Placed, is_watch};
use http_body_util::{Either, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tower_service::Service;

use crate::contact;
use crate::keepsake::Keepsake;
use lines::Lines;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the head of an answer may take; the rest of a watch may take as long as it likes.
const ANSWER: Duration = Duration::from_secs(30);
/// How often a connection is tried while nothing comes, and how long an echo may take.
const PING: Duration = Duration::from_secs(20);
/// An answer that is longer is an error, and so is an event of a watch. A list is asked for in pages that are shorter.
pub const MOST: usize = 4 * 1024 * 1024;
/// So much may be under way to us for one request, and for all of them.
const WINDOW: u32 = 256 * 1024;
const ALL_WINDOWS: u32 = 1024 * 1024;

/// Makes of a client for a peer another one, which counts its requests, for example.
pub type Between = Arc<dyn Fn(Client) -> Client + Send + Sync>;

/// The client for a peer, with what it was granted; nothing while there is no grant.
pub fn client(keepsake: &Keepsake) -> Result<Option<(Client, IdentityGrant)>> {
    let Some(grant) = &keepsake.grant else { return Ok(None) };
    if matches!(grant.credential, Credential::Certificate(_)) && keepsake.key.is_none() {
        return Ok(None);
    }
    let url = grant.api_server_url.to_string();
    let uri = url.parse().with_context(|| format!("{url} cannot be the URL of an API server"))?;
    let service = Bounded { client: http(tls(grant, keepsake.key.as_deref())?), bearer: bearer(grant)? };
    let client = ClientBuilder::new(service, grant.namespace.clone())
        .with_layer(&kube::Config::new(uri).base_uri_layer())
        .with_valid_until(Some(grant.expires_at))
        .build();
    Ok(Some((client, grant.clone())))
}

fn tls(grant: &IdentityGrant, key: Option<&str>) -> Result<ClientConfig> {
    let roots = if grant.api_server_ca.trim().is_empty() {
        contact::authorities(None)?
    } else {
        let mut roots = RootCertStore::empty();
        contact::add(&mut roots, grant.api_server_ca.as_bytes())
            .context("the peer's API server has no usable authority")?;
        roots
    };
    let builder = ClientConfig::builder_with_provider(contact::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::new(roots));
    let Credential::Certificate(chain) = &grant.credential else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .context("the certificate that the peer granted cannot be read")?;
    let key = PrivateKeyDer::from_pem_slice(key.unwrap_or_default().as_bytes())
        .context("the key of the certificate that the peer granted cannot be read")?;
    builder
        .with_client_auth_cert(chain, key)
        .context("the certificate that the peer granted does not fit its key")
}

fn bearer(grant: &IdentityGrant) -> Result<Option<HeaderValue>> {
    let Credential::BearerToken(token) = &grant.credential else { return Ok(None) };
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .ok()
        .context("the token that the peer granted cannot be sent")?;
    header.set_sensitive(true);
    Ok(Some(header))
}

type Http = legacy::Client<HttpsConnector<HttpConnector>, Body>;

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // For servers that know only HTTP/1, which has no pings.
    tcp.set_keepalive(Some(PING));
    tcp.set_keepalive_interval(Some(PING));
    tcp.set_keepalive_retries(Some(2));
    tcp
}

fn http(tls: ClientConfig) -> Connections<Http> {
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let connector = https.enable_http1().enable_http2().wrap_connector(tcp());
    Connections::new(move || {
        legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(ALL_WINDOWS)
            .build(connector.clone())
    })
}

/// Requests whose answers are bounded, with the bearer token if there is one.
#[derive(Clone)]
struct Bounded {
    client: Connections<Http>,
    bearer: Option<HeaderValue>,
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

impl Service<Request<Body>> for Bounded {
    type Response = Response<Either<Lines<Placed<Incoming>>, Limited<Placed<Incoming>>>>;
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Problem>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Problem>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        let is_watch = is_watch(request.uri());
        let answer = self.client.call(request);
        Box::pin(async move {
            let response = tokio::time::timeout(ANSWER, answer).await.map_err(|_| {
                format!("the API server of the peer does not answer within {} s", ANSWER.as_secs())
            })??;
            // What is refused is read as a whole, whatever was asked for.
            let is_watch = is_watch && response.status().is_success();
            Ok(response.map(|body| {
                if is_watch {
                    Either::Left(Lines::new(body, MOST))
                } else {
                    Either::Right(Limited::new(body, MOST))
                }
            }))
        })
    }
}

#[cfg(test)]
mod tests;
