//! A listener that speaks TLS, for servers that Kubernetes calls.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to say hello.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// TCP with TLS on top.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Listens with the certificate in that folder.
    pub(crate) async fn bind(listen: SocketAddr, folder: &Path) -> Result<Self> {
        let certificate = BufReader::new(open(&folder.join("tls.crt"))?);
        let chain = CertificateDer::pem_reader_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .context("tls.crt is no certificate")?;
        let key = PrivateKeyDer::from_pem_reader(BufReader::new(open(&folder.join("tls.key"))?))
            .context("tls.key is no key")?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let tcp = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        Ok(Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let accepted = async {
                let (stream, caller) = self.tcp.accept().await?;
                // One silent client must not keep the others waiting.
                let stream = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await??;
                Ok::<_, std::io::Error>((stream, caller))
            };
            match accepted.await {
                Ok(accepted) => return accepted,
                // A probe that opens and closes is not worth a word, but an exhausted socket table must not spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
