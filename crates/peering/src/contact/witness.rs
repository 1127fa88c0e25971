//! What a TLS server shows of itself: any chain is let pass, but the key is proved, noted, and held against the pin.
//!
//! Peers have certificates of their own making, so an authority cannot decide whom we talk to; the pin and the
//! endorsement of the key do. What the authorities say is noted, since people want to know.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use ferro_core::auth::{Pin, PinMismatch, Shown, trust};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// The authorities of this machine, and perhaps others; a machine without any is no error.
pub(crate) fn authorities(bundle: Option<&[u8]>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    add(&mut roots, bundle.unwrap_or_default())?;
    Ok(roots)
}

/// Adds the authorities of a text in PEM.
pub(crate) fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<()> {
    let before = roots.len();
    for authority in CertificateDer::pem_slice_iter(pem) {
        let authority = authority.context("the authorities are not certificates in PEM")?;
        roots.add(authority).context("an authority cannot be used")?;
    }
    ensure!(roots.len() > before || pem.trim_ascii().is_empty(), "there is no certificate in PEM");
    Ok(())
}

/// The cryptography that all connections use.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// By whom a chain is verified; nobody where no authority is known.
pub(super) fn verifier(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>> {
    if roots.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map(Some).context("the authorities cannot be used")
}

/// Notes what the server of one connection shows.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) authorities: Option<Arc<WebPkiServerVerifier>>,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) expected: Option<Pin>,
    pub(super) shown: OnceLock<Shown>,
}

impl Witness {
    /// The settings of a connection that this one witnesses. No connection takes up an earlier one, so that the key
    /// is proved every time.
    pub(super) fn config(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let verifier: Arc<dyn ServerCertVerifier> = Arc::<Self>::clone(self);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// The mismatch that ended the handshake, if one did.
    pub(super) fn mismatch(&self) -> Option<PinMismatch> {
        trust(self.expected.as_ref(), self.shown.get()).err()
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The key as it is read here is the one that the handshake's signature is verified with.
        let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let verify = |verifier: &Arc<WebPkiServerVerifier>| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        let chain_verified = self.authorities.as_ref().is_some_and(|verifier| verify(verifier).is_ok());
        let shown = *self.shown.get_or_init(|| Shown { pin: Pin::of_key(&key), chain_verified });
        match trust(self.expected.as_ref(), Some(&shown)) {
            Ok(_) => Ok(ServerCertVerified::assertion()),
            Err(mismatch) => Err(CertificateError::Other(OtherError(Arc::new(mismatch))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
