//! Serves both services on one port, over TLS with certificates on both sides.
//!
//! Everything is bounded: connections, what each may have under way, the size of messages, and how long one may be
//! silent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::proto::gateway::gateway_server::GatewayServer;
use ferro_api::proto::ipam::ipam_server::IpamServer;
use ferro_core::auth::Issued;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Client;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;
use tracing::{debug, info, warn};

use super::client::Identity;
use super::rights::Caller;
use super::service::{Services, Visit};
use super::{Handle, certificates};

/// The port of the address manager.
pub const PORT: u16 = 6000;

/// Connections at once; more wait in the kernel.
const MOST: usize = 256;
/// Requests at once on one connection.
const STREAMS: u32 = 1024;
/// The largest message that anybody has to send.
const LARGEST: usize = 4096;
/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// How often a connection is tried, and how long an echo may take: who is gone must not be waited for.
const PING: Duration = Duration::from_secs(2);
/// A connection over which nothing was asked for so long is closed.
const IDLE: Duration = Duration::from_mins(10);

/// Serves for ever, with certificates that it keeps in the namespace of the installation.
pub async fn serve(client: Client, namespace: String, listen: SocketAddr, handle: Handle) -> Result<()> {
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}; is the port taken?"))?;
    serve_on(listener, client, namespace, handle).await
}

async fn serve_on(listener: TcpListener, client: Client, namespace: String, handle: Handle) -> Result<()> {
    let (told, mut config) = watch::channel(None);
    let accept = async {
        config.wait_for(Option::is_some).await.context("the certificates are no longer kept")?;
        info!("the address manager serves");
        accept(&listener, config, Services(handle)).await
    };
    tokio::select! {
        result = certificates::keep(client, namespace, told) => result,
        result = accept => result,
    }
}

/// How to serve with a certificate, to those who show one of the same authority.
pub(super) fn configure(identity: &Identity) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(identity.roots()?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let (chain, key) = identity.pair()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .context("the certificate and its key do not fit")?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Every connection shows its certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn accept(
    listener: &TcpListener,
    config: watch::Receiver<Option<Arc<ServerConfig>>>,
    services: Services,
) -> Result<()> {
    let places = Arc::new(Semaphore::new(MOST));
    let mut visits = tokio::task::JoinSet::new();
    loop {
        while visits.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await?;
        match listener.accept().await {
            Ok((stream, from)) => {
                let config = config.borrow().clone();
                if let Some(config) = config {
                    visits.spawn(attend(TlsAcceptor::from(config), stream, from, services.clone(), place));
                }
            }
            Err(error) => {
                // Too many open files, as a rule: others must end first.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One connection; what goes wrong in it is the caller's affair.
async fn attend(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    services: Services,
    place: OwnedSemaphorePermit,
) {
    if let Err(error) = converse(acceptor, stream, services).await {
        debug!(%from, error = format!("{error:#}"), "a connection failed");
    }
    drop(place);
}

async fn converse(acceptor: TlsAcceptor, stream: TcpStream, services: Services) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HELLO, acceptor.accept(stream)).await.context("no hello")??;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = Issued::from_der(shown.context("no certificate")?)?;
    let caller = Caller::named(&shown.common_name);
    let (visit, asked) = (Visit(Arc::new(())), Arc::new(AtomicU64::new(0)));
    let service = {
        let (visit, asked) = (visit.clone(), Arc::clone(&asked));
        hyper::service::service_fn(move |mut request: Request<Incoming>| {
            asked.fetch_add(1, Ordering::Relaxed);
            request.extensions_mut().insert(caller.clone());
            request.extensions_mut().insert(visit.clone());
            answer(services.clone(), request)
        })
    };
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut before = 0;
    loop {
        tokio::select! {
            ended = &mut connection => return Ok(ended?),
            () = tokio::time::sleep(IDLE) => {
                let now = asked.load(Ordering::Relaxed);
                // The service has one, and we have the other.
                if now == before && Arc::strong_count(&visit.0) <= 2 {
                    connection.as_mut().graceful_shutdown();
                }
                before = now;
            }
        }
    }
}

async fn answer(
    services: Services,
    request: Request<Incoming>,
) -> Result<Response<tonic::body::Body>, Infallible> {
    if request.uri().path().starts_with("/gateway/") {
        GatewayServer::new(services).max_decoding_message_size(LARGEST).call(request).await
    } else {
        IpamServer::new(services).max_decoding_message_size(LARGEST).call(request).await
    }
}
