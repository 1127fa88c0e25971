//! Serves both services on one port, over TLS with certificates on both sides.
//!
//! Everything is bounded: connections, what each may have under way, the size of messages, and how long one may be
//! silent. Whoever has not shown a certificate yet takes no place of those who have, and none has all places. The service
//! is for this cluster alone; pods of peers may reach the pod that it runs on, and are sent away.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::proto::gateway::gateway_server::GatewayServer;
use ferro_api::proto::ipam::ipam_server::IpamServer;
use ferro_core::auth::Issued;
use ferro_runtime::places::{Place, Places};
use ferro_runtime::tls;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Client;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;
use tracing::{debug, info, warn};

use super::client::Identity;
use super::rights::Caller;
use super::service::{Services, Visit};
use super::{Handle, certificates};

/// The port of the address manager.
pub const PORT: u16 = 6000;

/// Connections without a certificate at once, in all and from each address, where many callers may start at once; more
/// are closed.
const UNPROVEN: (usize, usize) = (256, 32);
/// Connections with one at once, in all and under each name.
const PROVEN: (usize, usize) = (256, 64);
/// Requests at once on one connection.
const STREAMS: u32 = 1024;
/// The largest message that anybody has to send, and the largest of a gateway, which tells of all its tunnels.
const LARGEST: usize = 4096;
const LARGEST_OF_GATEWAY: usize = 1024 * 1024;
/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(5);
/// How often a connection is tried, and how long an echo may take: who is gone must not be waited for.
const PING: Duration = Duration::from_secs(2);
/// A connection over which nothing was asked for so long is closed.
const IDLE: Duration = Duration::from_mins(10);

/// Serves for ever, with certificates that it keeps in the namespace of the installation.
pub async fn serve(client: Client, namespace: String, listen: SocketAddr, handle: Handle) -> Result<()> {
    serve_on(tls::listen(listen).await?, client, namespace, handle).await
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

/// The places of those who come.
struct Door {
    /// By where they come from.
    unproven: Places<IpAddr>,
    /// By the names in their certificates.
    proven: Places<String>,
}

async fn accept(
    listener: &TcpListener,
    config: watch::Receiver<Option<Arc<ServerConfig>>>,
    services: Services,
) -> Result<()> {
    let door = Arc::new(Door {
        unproven: Places::new(UNPROVEN.0, UNPROVEN.1),
        proven: Places::new(PROVEN.0, PROVEN.1),
    });
    let mut visits = tokio::task::JoinSet::new();
    loop {
        while visits.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                let config = config.borrow().clone();
                let place = admit(&door, &services, from.ip().to_canonical());
                if let (Some(config), Some(place)) = (config, place) {
                    let visit = Visitor { acceptor: TlsAcceptor::from(config), stream, place };
                    visits.spawn(attend(visit, from, Arc::clone(&door), services.clone()));
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

/// A place for somebody who has shown nothing yet, but where it comes from.
fn admit(door: &Door, services: &Services, from: IpAddr) -> Option<Place<IpAddr>> {
    if services.0.is_of_a_peer(from) {
        debug!(%from, "a connection out of a peer's network is closed");
        return None;
    }
    let place = door.unproven.take(from);
    if place.is_none() {
        debug!(%from, "too many connections show no certificate; one is closed");
    }
    place
}

/// Somebody who has come.
struct Visitor {
    acceptor: TlsAcceptor,
    stream: TcpStream,
    place: Place<IpAddr>,
}

/// One connection; what goes wrong in it is the caller's affair.
async fn attend(visitor: Visitor, from: SocketAddr, door: Arc<Door>, services: Services) {
    if let Err(error) = converse(visitor, &door, services).await {
        debug!(%from, error = format!("{error:#}"), "a connection failed");
    }
}

async fn converse(visitor: Visitor, door: &Door, services: Services) -> Result<()> {
    let Visitor { acceptor, stream, place } = visitor;
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HELLO, acceptor.accept(stream)).await.context("no hello")??;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = Issued::from_der(shown.context("no certificate")?)?;
    let proven = door.proven.take(shown.common_name.clone());
    let _proven = proven.with_context(|| format!("too many connections of {}", shown.common_name))?;
    drop(place);
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
        GatewayServer::new(services).max_decoding_message_size(LARGEST_OF_GATEWAY).call(request).await
    } else {
        IpamServer::new(services).max_decoding_message_size(LARGEST).call(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use ferro_api::config::Reach;
    use ferro_api::proto::ipam::BelongsRequest;
    use ferro_core::network::{Ipam, Offered, OwnNetworks};
    use k8s_openapi::jiff::Timestamp;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpSocket;
    use tokio::sync::mpsc;

    use super::super::certificates::tests::identities;
    use super::super::client;
    use super::super::followers::Followers;
    use super::*;

    /// An address manager that nobody answers for; a peer's pods have loopback addresses.
    fn handle() -> Handle {
        let own = OwnNetworks {
            pod: "10.0.0.0/16".parse().unwrap(),
            service: "10.96.0.0/16".parse().unwrap(),
            reserved: BTreeSet::new(),
            pools: vec!["127.64.0.0/10".parse().unwrap()],
            reach: Reach::Default,
        };
        let mut ipam = Ipam::new(own, 16).unwrap();
        let offered = Offered { pod: "127.100.0.0/16".parse().unwrap(), external: None };
        ipam.acquire("rome", offered, Timestamp::now()).unwrap();
        Handle {
            asks: mpsc::channel(1).0,
            state: watch::channel(Arc::new(ipam)).1,
            followers: Followers::new().unwrap(),
        }
    }

    async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// Whether it is closed before somebody would have had to say hello.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        let read = tokio::time::timeout(HELLO / 2, stream.read(&mut [0; 1])).await;
        read.is_ok_and(|read| read.map_or(true, |count| count == 0))
    }

    /// So many silent connections that one more is too much; none where it never is. The machine may be so slow that the
    /// first ones have been given up by then: they come again.
    async fn fill(hosts: std::ops::Range<u8>, more: [u8; 4], to: SocketAddr) -> Option<Vec<TcpStream>> {
        for _ in 0..10 {
            let mut silent = Vec::new();
            for host in hosts.clone() {
                for _ in 0..UNPROVEN.1 {
                    silent.push(connect([127, 0, 0, host], to).await);
                }
            }
            if is_closed(&mut connect(more, to).await).await {
                return Some(silent);
            }
        }
        None
    }

    #[tokio::test]
    async fn silent_connections_and_peers_keep_nobody_out() {
        let (serving, controller) = identities("controller");
        let (_told, config) = watch::channel(Some(Arc::new(configure(&serving).unwrap())));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { accept(&listener, config, Services(handle())).await });
        let origin: http::Uri = format!("https://{to}").parse().unwrap();

        assert!(is_closed(&mut connect([127, 100, 0, 9], to).await).await, "a pod of a peer is let in");
        let silent = fill(2..3, [127, 0, 0, 2], to).await;
        assert!(silent.is_some(), "one has all places");
        // Each with a connection of its own: who has shown a certificate takes no place of the others.
        let mut honest = Vec::new();
        for _ in 0..=UNPROVEN.1 {
            let mut client = client::ipam(&controller, origin.clone()).unwrap();
            let belongs = client.belongs_to_pod_cidr(BelongsRequest { ip: "10.0.0.7".into() }).await.unwrap();
            assert!(belongs.into_inner().belongs);
            honest.push(client);
        }
        let hosts = u8::try_from(UNPROVEN.0 / UNPROVEN.1).unwrap();
        let many = fill(3..3 + hosts, [127, 0, 1, 1], to).await;
        assert!(many.is_some(), "there is no end of places");
        let asked = honest[0].belongs_to_pod_cidr(BelongsRequest { ip: "10.1.0.7".into() }).await;
        assert!(!asked.unwrap().into_inner().belongs, "who was let in before is served");
        drop((silent, many));
        server.abort();
    }
}
