//! The API server of a peer: it upgrades and echoes, and has logs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use ferro_core::auth::{Credential, IdentityGrant};
use ferro_peering::keepsake::Keepsake;
use futures::StreamExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::keys::Authority;

/// So many bytes has the log of a container that says much.
pub(super) const MUCH: usize = 12 * 1024 * 1024;

/// What it was asked: method, path with query, heads.
type Asked = Arc<Mutex<Vec<(String, HeaderMap)>>>;

pub(super) struct Peer {
    authority: Authority,
    pub(super) address: SocketAddr,
    pub(super) asked: Asked,
    /// How many streams are open.
    pub(super) open: watch::Receiver<usize>,
}

/// Counts a stream as long as it is open.
struct Open(watch::Sender<usize>);

impl Open {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|open| *open += 1);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Peer {
    pub(super) async fn start() -> Self {
        let authority = Authority::new();
        let acceptor = TlsAcceptor::from(Arc::new(authority.open()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, (count, open)) = (Asked::default(), watch::channel(0));
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted, count) = (acceptor.clone(), Arc::clone(&noted), count.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let asked = format!("{} {}", request.method(), request.uri());
                        noted.lock().unwrap().push((asked, request.headers().clone()));
                        let count = count.clone();
                        async move {
                            if request.uri().query().unwrap_or_default().contains("container=mute") {
                                let _open = Open::new(&count);
                                std::future::pending::<()>().await;
                            }
                            Ok::<_, Infallible>(answer(request, &count))
                        }
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    _ = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        Self { authority, address, asked, open }
    }

    pub(super) fn keepsake(&self) -> Keepsake {
        let grant = IdentityGrant {
            namespace: "liqo-tenant-home-123456".into(),
            credential: Credential::BearerToken("granted".into()),
            api_server_url: format!("https://{}/clusters/7", self.address).parse().unwrap(),
            api_server_ca: self.authority.pem.clone(),
            expires_at: Timestamp::MAX,
        };
        Keepsake { grant: Some(grant), ..Keepsake::default() }
    }

    /// What it was asked last.
    pub(super) fn last(&self) -> (String, HeaderMap) {
        self.asked.lock().unwrap().last().unwrap().clone()
    }

    pub(super) async fn has_open(&self, count: usize) {
        let wait = async { self.open.clone().wait_for(|open| *open == count).await.map(drop) };
        tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap().unwrap();
    }
}

fn answer(mut request: Request<Incoming>, count: &watch::Sender<usize>) -> Response<Body> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
    if query.contains("container=forbidden") {
        let status = serde_json::json!({"kind": "Status", "message": "this cluster may not", "code": 403});
        return Response::builder().status(403).body(Body::from(status.to_string())).unwrap();
    }
    if query.contains("container=missing") {
        return Response::builder().status(404).body(Body::from("no such container")).unwrap();
    }
    if query.contains("container=silent") {
        let open = Open::new(count);
        let never = futures::stream::pending::<Result<Bytes, Infallible>>();
        let lines = futures::stream::iter([Ok(Bytes::from_static(b"one line\n"))]).chain(never);
        return Response::new(Body::from_stream(lines.map(move |line| {
            _ = &open;
            line
        })));
    }
    if path.ends_with("/pods/web-over-there") {
        return Response::new(Body::from(r#"{"kind": "Pod"}"#));
    }
    if path.ends_with("/shadowpods/web-over-there") {
        return Response::builder().status(404).body(Body::from("no such object")).unwrap();
    }
    if path.ends_with("/shadowpods/much-over-there") {
        return Response::new(Body::from(vec![b' '; MUCH]));
    }
    if path.ends_with("/shadowpods/barred-over-there") {
        return Response::builder().status(403).body(Body::from("this cluster may not")).unwrap();
    }
    if path.ends_with("/log") {
        let part = Bytes::from(vec![b'x'; MUCH / 12]);
        return Response::new(Body::from_stream(futures::stream::iter(
            (0..12).map(move |_| Ok::<_, Infallible>(part.clone())),
        )));
    }
    let protocol = request.headers()["upgrade"].clone();
    let (upgraded, open) = (hyper::upgrade::on(&mut request), Open::new(count));
    tokio::spawn(async move {
        let _open = open;
        echo(TokioIo::new(upgraded.await.unwrap())).await
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(Body::empty())
        .unwrap()
}

/// Gives back what it hears, and says goodbye when the other has said all; "!" ends it at once.
async fn echo(stream: TokioIo<hyper::upgrade::Upgraded>) -> std::io::Result<()> {
    let (mut reads, mut writes) = tokio::io::split(stream);
    let mut buffer = vec![0; 4096];
    loop {
        match reads.read(&mut buffer).await? {
            0 => break,
            read if buffer[..read].ends_with(b"!") => break,
            read => writes.write_all(&buffer[..read]).await?,
        }
        writes.flush().await?;
    }
    writes.write_all(b"goodbye").await?;
    writes.shutdown().await
}
