//! Authorities of our own for what speaks TLS inside a cluster, and the Secrets that hold them and what they sign.
//!
//! Guarantees: private keys are not logged; a Secret that is good is not touched, whoever keeps it and however often.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::admission::keys::BACKDATED;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How long an authority, and a certificate, is valid; each is made anew at half of it.
const AUTHORITY: Duration = Duration::from_hours(24 * 3650);
const CERTIFICATE: Duration = Duration::from_hours(24 * 30);

/// A certificate with its key and the authority that signed it, all in PEM.
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
    /// From a Secret with `ca.crt`, `tls.crt` and `tls.key`.
    pub fn from_secret(secret: &Secret) -> Result<Self> {
        let [ca, certificate, key] = ["ca.crt", "tls.crt", "tls.key"].map(|key| part(secret, key));
        Ok(Self { ca: ca?, certificate: certificate?, key: key? })
    }

    /// What a Secret has of it.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        data([
            ("ca.crt", self.ca.clone()),
            ("tls.crt", self.certificate.clone()),
            ("tls.key", self.key.clone()),
        ])
    }

    /// The authority, to verify others with.
    pub fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).context("ca.crt is no certificate")?)?;
        Ok(roots)
    }

    /// The certificate and its key, to show to others.
    pub fn pair(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().context("tls.crt is no certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        Ok((chain, key.ok().context("tls.key is no private key")?))
    }
}

/// What signs.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The certificate and the key of a new one, in PEM.
    pub fn make(name: &str, now: Timestamp) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let pem = Self::params(name, now)?.self_signed(&key)?.pem();
        Ok((pem, key.serialize_pem()))
    }

    /// The one that was made under this name.
    pub fn new(name: &str, pem: String, key: &str) -> Result<Self> {
        let key = KeyPair::from_pem(key).with_context(|| format!("the key of {name} cannot be read"))?;
        // Name and key are all that a signature shows of its authority.
        Ok(Self { pem, issuer: Issuer::new(Self::params(name, Timestamp::now())?, key) })
    }

    /// Its certificate in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// For who asks under this name.
    pub fn client(&self, name: &str, now: Timestamp) -> Result<Identity> {
        self.sign(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, now)
    }

    /// For who answers at these names, the first of which is its own.
    pub fn server(&self, names: &[String], now: Timestamp) -> Result<Identity> {
        let name = names.first().context("a server has a name")?;
        self.sign(name, names.to_vec(), ExtendedKeyUsagePurpose::ServerAuth, now)
    }

    fn params(name: &str, now: Timestamp) -> Result<CertificateParams> {
        let mut params = params(name, Vec::new(), AUTHORITY, now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(params)
    }

    fn sign(
        &self,
        name: &str,
        names: Vec<String>,
        purpose: ExtendedKeyUsagePurpose,
        now: Timestamp,
    ) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = params(name, names, CERTIFICATE, now)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { ca: self.pem.clone(), certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str, names: Vec<String>, life: Duration, now: Timestamp) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = Duration::from_secs(u64::try_from(now.as_second()).context("the clock is before 1970")?);
    let beginning = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = beginning + now.saturating_sub(BACKDATED);
    params.not_after = beginning + now + life;
    Ok(params)
}

/// A Secret as it is, or as it must be; of two who write at once, one wins and both get that.
pub async fn ensure(
    secrets: &Api<Secret>,
    name: &str,
    make: impl Fn(Option<&Secret>) -> Result<Option<BTreeMap<String, ByteString>>>,
) -> Result<Secret> {
    let cannot = || format!("cannot use the Secret {name}");
    let present = secrets.get_opt(name).await.with_context(cannot)?;
    let Some(data) = make(present.as_ref())? else { return present.with_context(cannot) };
    match store(secrets, name, present, data).await {
        Err(kube::Error::Api(status)) if status.code == 409 => secrets.get(name).await.with_context(cannot),
        written => written.with_context(cannot),
    }
}

/// Writes a Secret: onto the version that was read, or else as a new one. Who comes too late gets a conflict.
pub async fn store(
    secrets: &Api<Secret>,
    name: &str,
    present: Option<Secret>,
    data: BTreeMap<String, ByteString>,
) -> kube::Result<Secret> {
    if let Some(present) = present {
        let next = Secret { data: Some(data), ..present };
        return secrets.replace(name, &PostParams::default(), &next).await;
    }
    let mut metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    secrets.create(&PostParams::default(), &secret).await
}

/// A part of a Secret, as text.
pub fn part(secret: &Secret, key: &str) -> Result<String> {
    let bytes = secret.data.iter().flatten().find(|(name, _)| *name == key).map(|(_, bytes)| bytes.0.clone());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.with_context(|| format!("the Secret {} has no {key}", secret.name_any()))
}

/// The data of a Secret.
pub fn data<const N: usize>(parts: [(&str, String); N]) -> BTreeMap<String, ByteString> {
    parts.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use ferro_core::auth::Issued;

    use super::*;

    #[test]
    fn a_certificate_carries_its_name_and_is_due_at_half_of_its_time() {
        let now = Timestamp::now();
        let (pem, key) = Authority::make("ferro-test-ca", now).unwrap();
        let authority = Authority::new("ferro-test-ca", pem, &key).unwrap();
        let identity = authority.client("gateway", now).unwrap();
        let (issued, of_authority) =
            (Issued::from_pem(&identity.certificate).unwrap(), Issued::from_pem(authority.pem()).unwrap());
        assert_eq!(issued.common_name, "gateway");
        assert!(!issued.is_due(now) && !of_authority.is_due(now));
        let days = |days: u64| now + Duration::from_hours(24 * days);
        assert!(!issued.is_due(days(13)) && issued.is_due(days(16)));
        assert!(!of_authority.is_due(days(1800)) && of_authority.is_due(days(1900)));
        let secret = Secret { data: Some(identity.to_data()), ..Secret::default() };
        let again = Identity::from_secret(&secret).unwrap();
        assert_eq!(again.certificate, identity.certificate);
        assert!(!format!("{again:?}").contains("PRIVATE"), "keys are not shown");
    }
}
