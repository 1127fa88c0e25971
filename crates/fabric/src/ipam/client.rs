//! How to ask the address manager from another process: over HTTP/2, with certificates on both sides.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::proto::gateway::gateway_client::GatewayClient;
use ferro_api::proto::ipam::ipam_client::IpamClient;
use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::certificates;

/// The name under which the address manager proves itself, wherever it is reached.
pub(super) const SERVER: &str = "ferro-ipam";
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent connection is tried, and how long an echo may take.
const PING: Duration = Duration::from_secs(5);
/// All redirections come in one message: a hundred thousand are some 8 MB.
const LARGEST: usize = 64 * 1024 * 1024;

/// What requests go over.
pub type Channel = legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

/// A certificate with its key and the authority that signed both sides, all in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The authority.
    pub ca: String,
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// From a Secret with `ca.crt`, `tls.crt` and `tls.key`, such as [`super::GATEWAY`].
    pub fn from_secret(secret: &Secret) -> Result<Self> {
        let [ca, certificate, key] =
            ["ca.crt", "tls.crt", "tls.key"].map(|key| certificates::part(secret, key));
        Ok(Self { ca: ca?, certificate: certificate?, key: key? })
    }

    /// A new one under a name: `controller`, or the identifier of a peer, for which alone it may ask. For who may read
    /// the Secret of the authority.
    pub async fn issue(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        certificates::issue(client, namespace, name).await
    }

    pub(super) fn to_data(&self) -> BTreeMap<String, ByteString> {
        certificates::data([
            ("ca.crt", self.ca.clone()),
            ("tls.crt", self.certificate.clone()),
            ("tls.key", self.key.clone()),
        ])
    }

    pub(super) fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).context("ca.crt is no certificate")?)?;
        Ok(roots)
    }

    pub(super) fn pair(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().context("tls.crt is no certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        Ok((chain, key.ok().context("tls.key is no private key")?))
    }
}

/// To map and unmap with; `origin` is `https://ADDRESS:PORT`.
pub fn ipam(identity: &Identity, origin: Uri) -> Result<IpamClient<Channel>> {
    Ok(IpamClient::with_origin(channel(identity)?, origin))
}

/// To follow with, as a gateway does.
pub fn gateway(identity: &Identity, origin: Uri) -> Result<GatewayClient<Channel>> {
    let client = GatewayClient::with_origin(channel(identity)?, origin);
    Ok(client.max_decoding_message_size(LARGEST))
}

fn channel(identity: &Identity) -> Result<Channel> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = identity.pair()?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(identity.roots()?)
        .with_client_auth_cert(chain, key)
        .context("the certificate and its key do not fit")?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .with_server_name_resolver(FixedServerNameResolver::new(ServerName::try_from(SERVER)?))
        .enable_http2()
        .wrap_connector(tcp);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(true)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .build(connector))
}
