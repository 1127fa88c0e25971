//! HTTPS with a certificate that may change while serving, for clients of whom nothing is known.
//!
//! Connections are bounded in number, in all and from each address, and each has a limited time to say hello and to ask.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::Secret;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;
use tracing::{debug, info, warn};

use crate::health::Pending;
use crate::places::{Place, Places};
use crate::watch::Watched;

/// Connections at once; more wait in the kernel.
pub const MOST: usize = 256;
/// How long a client may take to say hello, and then to ask.
const HELLO: Duration = Duration::from_secs(5);
/// How long a connection may last in all.
const VISIT: Duration = Duration::from_mins(1);

/// Where a request comes from, for those who count.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub IpAddr);

/// Serves the router with the certificate of the Secret, as it is at the beginning of each connection; ready once there is
/// one. `each` is how many connections one address may have at once; [`MOST`] where many stand behind one.
pub async fn serve(
    listener: TcpListener,
    mut certificate: Watched<Secret>,
    router: Router,
    each: usize,
    pending: Pending,
) -> Result<()> {
    certificate.ready().await?;
    let (changed, acceptor) = watch::channel(None);
    let follow = follow(&mut certificate, &changed, pending);
    let accept = accept(&listener, acceptor, router, Places::new(MOST, each));
    tokio::select! {
        result = follow => result,
        result = accept => result,
    }
}

/// Listens. Any address of IPv6 also means any of IPv4.
pub async fn listen(at: SocketAddr) -> Result<TcpListener> {
    let bound = match TcpListener::bind(at).await {
        // A kernel without IPv6.
        Err(_) if at.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("cannot listen on {at}; is the port taken?"))
}

/// Keeps the acceptor as the Secret says; a Secret that cannot be used changes nothing.
async fn follow(
    certificate: &mut Watched<Secret>,
    acceptor: &watch::Sender<Option<TlsAcceptor>>,
    pending: Pending,
) -> Result<()> {
    let mut pending = Some(pending);
    loop {
        match certificate.all().first().map(|secret| configure(secret)) {
            Some(Ok(config)) => {
                acceptor.send_replace(Some(TlsAcceptor::from(Arc::new(config))));
                drop(pending.take());
                info!("serving with the certificate of the Secret");
            }
            Some(Err(error)) => {
                warn!(error = format!("{error:#}"), "the certificate cannot be used; the last one stays");
            }
            None => info!("waiting for a certificate"),
        }
        certificate.changed().await?;
    }
}

/// How to serve with the certificate of a Secret, if it can be used.
pub fn configure(secret: &Secret) -> Result<ServerConfig> {
    let part = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        value.map(|value| value.0.as_slice()).with_context(|| format!("the Secret has no {key}"))
    };
    let chain = CertificateDer::pem_slice_iter(part("tls.crt")?)
        .collect::<Result<Vec<_>, _>>()
        .context("tls.crt is no certificate")?;
    let key = PrivateKeyDer::from_pem_slice(part("tls.key")?).context("tls.key is no private key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    versions
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate and its key do not fit")
}

async fn accept(
    listener: &TcpListener,
    acceptor: watch::Receiver<Option<TlsAcceptor>>,
    router: Router,
    shares: Places<IpAddr>,
) -> Result<()> {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        match listener.accept().await {
            Ok((stream, caller)) => {
                let acceptor = acceptor.borrow().clone();
                // Who has its share is sent away, so that it does not keep others waiting.
                if let (Some(acceptor), Some(share)) = (acceptor, shares.take(caller.ip())) {
                    tokio::spawn(attend(acceptor, stream, caller, router.clone(), (place, share)));
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

/// One visit; what goes wrong in it is the visitor's affair.
async fn attend(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    caller: SocketAddr,
    router: Router,
    place: (OwnedSemaphorePermit, Place<IpAddr>),
) {
    let visit = async {
        let stream = tokio::time::timeout(HELLO, acceptor.accept(stream)).await.context("no hello")??;
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let mut router = router.clone();
            request.extensions_mut().insert(Caller(caller.ip()));
            async move {
                Ok::<_, Infallible>(
                    router.call(request.map(Body::new)).await.unwrap_or_else(|never| match never {}),
                )
            }
        });
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HELLO)
            // Who wants more comes again: a connection is not a seat to keep.
            .keep_alive(false)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service)
            .await?;
        anyhow::Ok(())
    };
    match tokio::time::timeout(VISIT, visit).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%caller, error = format!("{error:#}"), "a visit failed"),
        Err(_) => debug!(%caller, "a visit took too long"),
    }
    drop(place);
}
