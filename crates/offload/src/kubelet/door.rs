//! How connections are taken: with the certificate of virtual nodes, and the authorities by which this cluster knows
//! clients. Both may change at any time, and hold from the next connection on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::serving::Certificate;

/// Where an API server says whom it trusts.
pub(super) const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";
/// How long it is waited for the authorities; without them clients can only show tokens.
const PATIENCE: Duration = Duration::from_secs(5);

/// Only that object.
pub(super) fn authorities() -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={NAME}"))
}

/// Keeps the acceptor as it should be, for ever. There is one as soon as there is a certificate, and the authorities are
/// known or are not to be had.
pub(super) async fn follow(
    mut certificates: watch::Receiver<Option<Arc<Certificate>>>,
    mut authorities: Watched<ConfigMap>,
    acceptor: watch::Sender<Option<TlsAcceptor>>,
) -> Result<()> {
    if tokio::time::timeout(PATIENCE, authorities.ready()).await.is_err() {
        warn!("cannot read the ConfigMap {NAMESPACE}/{NAME}: until that works, clients can only show tokens");
    }
    loop {
        let certificate = certificates.borrow_and_update().clone();
        if let Some(certificate) = certificate {
            let bundle = authorities.get(Some(NAMESPACE), NAME).and_then(|map| map.data.clone()?.remove(KEY));
            match configure(&certificate, bundle.as_deref().unwrap_or_default()) {
                Ok(config) => {
                    acceptor.send_replace(Some(TlsAcceptor::from(Arc::new(config))));
                    debug!(clients_by_certificate = bundle.is_some(), "virtual nodes answer API servers");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(error, "virtual nodes cannot answer as they should; what was before stays");
                }
            }
        }
        tokio::select! {
            changed = certificates.changed() => changed.context("nobody keeps the certificate")?,
            changed = authorities.changed() => changed?,
        }
    }
}

/// How to take connections. No connection takes up an earlier one, so that who is no longer trusted is not let in.
pub(super) fn configure(certificate: &Certificate, authorities: &str) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        let authority = authority.context("the authorities of clients are not certificates in PEM")?;
        roots.add(authority).context("an authority of clients cannot be used")?;
    }
    let builder = if roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.allow_unauthenticated().build();
        builder.with_client_cert_verifier(verifier.context("the authorities of clients cannot be used")?)
    };
    let mut config = builder
        .with_single_cert(certificate.chain.clone(), certificate.key.clone_key())
        .context("the certificate and its key do not fit")?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
