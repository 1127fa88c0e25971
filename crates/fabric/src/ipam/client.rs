//! How to ask the address manager from another process: over HTTP/2, with certificates on both sides.

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
use kube::Client;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use super::certificates;

pub use ferro_runtime::certificates::Identity;

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

/// A new one under a name: `controller`, or the identifier of a peer, for which alone it may ask. For who may read the
/// Secret of the authority.
pub async fn issue(client: &Client, namespace: &str, name: &str) -> Result<Identity> {
    certificates::issue(client, namespace, name).await
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
