//! Authorities and certificates, and clients that show them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub(in super::super) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What signs.
pub(in super::super) struct Authority {
    pub(in super::super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What was signed, and its key, in PEM.
pub(in super::super) struct Pair {
    pub(in super::super) certificate: String,
    pub(in super::super) key: String,
}

impl Authority {
    pub(in super::super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(in super::super) fn client(&self, name: &str, groups: &[&str]) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    pub(in super::super) fn server(&self) -> Pair {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress(HERE)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Signs for a key that only somebody else has.
    pub(in super::super) fn sign_for(&self, key: &impl rcgen::PublicKeyData) -> String {
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(4000, 1, 1);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }

    /// How to talk to a server of this authority, perhaps with a certificate.
    pub(in super::super) fn connect_as(&self, client: Option<&Pair>) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(self.roots());
        match client {
            Some(pair) => builder.with_client_auth_cert(pair.chain(), pair.key()).unwrap(),
            None => builder.with_no_client_auth(),
        }
    }

    /// How a server of this authority takes connections of anybody.
    pub(in super::super) fn open(&self) -> ServerConfig {
        let (pair, provider) = (self.server(), Arc::new(rustls::crypto::ring::default_provider()));
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        builder.with_no_client_auth().with_single_cert(pair.chain(), pair.key()).unwrap()
    }
}

impl Pair {
    pub(in super::super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()]
    }

    pub(in super::super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}
