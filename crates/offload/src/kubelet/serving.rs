//! The certificate that virtual nodes show to API servers: signed by the cluster, as that of any kubelet.
//!
//! - Flow: a request with the address of this process is filed, approved by ourselves, read when it is signed, and
//!   deleted. At half of its time it is made anew.
//! - Guarantees: the key is nowhere but in this process. Where nobody signs, there is a certificate of our own making:
//!   many API servers do not look at it, and it is tried again.

mod request;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The subject that the signer wants. The name is that of no node.
const ORGANIZATION: &str = "system:nodes";
const NAME: &str = "system:node:ferrofluid";
/// How long a signature may take.
const SIGN: Duration = Duration::from_secs(5);
/// How soon it is tried again where nobody signed, at first and at last.
const SOON: Duration = Duration::from_secs(15);
const LATE: Duration = Duration::from_hours(1);
/// How long one of our own making is valid.
const OWN: SignedDuration = SignedDuration::from_hours(24 * 365);
/// How often the clock is looked at.
const LOOK: Duration = Duration::from_mins(10);

/// A certificate and its key.
pub(super) struct Certificate {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// When it is made anew.
    due: Timestamp,
}

/// Keeps a certificate for this address, for ever. The first one is told within seconds, whatever happens.
pub(super) async fn keep(
    client: Client,
    address: IpAddr,
    tell: watch::Sender<Option<std::sync::Arc<Certificate>>>,
) -> Result<()> {
    let api = Api::all(client);
    let mut pause = SOON;
    loop {
        match signed(&api, address).await {
            Ok(certificate) => {
                let due = certificate.due;
                info!(%address, %due, "virtual nodes have a certificate of the cluster");
                tell.send_replace(Some(certificate.into()));
                pause = SOON;
                until(due).await;
            }
            Err(error) => {
                let error = format!("{error:#}");
                if tell.borrow().as_ref().is_none_or(|present| present.due <= Timestamp::now()) {
                    warn!(
                        error,
                        "virtual nodes have a certificate that no authority signed: logs and commands need an API server \
                         that does not verify kubelets; will be tried again"
                    );
                    tell.send_replace(Some(own(address)?.into()));
                } else {
                    warn!(error, "the certificate of virtual nodes is not made anew; will be tried again");
                }
                tokio::time::sleep(pause).await;
                pause = LATE.min(pause * 2);
            }
        }
    }
}

async fn until(due: Timestamp) {
    while Timestamp::now() < due {
        let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::time::sleep(LOOK.min(left + Duration::from_secs(1))).await;
    }
}

/// One that the cluster signs.
async fn signed(api: &Api<CertificateSigningRequest>, address: IpAddr) -> Result<Certificate> {
    let key = KeyPair::generate()?;
    let request = params(address)?.serialize_request(&key)?.pem()?;
    let object = request::object(&request);
    let create = PostParams::default();
    let made = tokio::time::timeout(SIGN, api.create(&create, &object)).await;
    let made = made.context("the API server does not answer")?;
    let made = made.context("cannot ask for a certificate")?;
    let signed = tokio::time::timeout(SIGN, sign(api, made)).await;
    // Whatever came of it, the request has served.
    let (name, params) = (object.name_any(), DeleteParams::default());
    match tokio::time::timeout(SIGN, api.delete(&name, &params)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => warn!(%error, name, "a request for a certificate stays"),
        Err(_) => warn!(name, "a request for a certificate stays"),
    }
    let pem = signed.with_context(|| format!("nobody signs within {} s", SIGN.as_secs()))??;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    read(chain.context("the certificate that was signed is none")?, &key)
}

async fn sign(api: &Api<CertificateSigningRequest>, made: CertificateSigningRequest) -> Result<Vec<u8>> {
    let name = made.name_any();
    let approved = request::approved(made);
    let mut present = api
        .replace_subresource("approval", &name, &PostParams::default(), &approved)
        .await
        .context("cannot approve the request for a certificate")?;
    let mut pause = Duration::from_millis(50);
    loop {
        if let Some(certificate) = request::certificate(&present)? {
            return Ok(certificate);
        }
        tokio::time::sleep(pause).await;
        pause = Duration::from_secs(1).min(pause * 2);
        present = api.get(&name).await.context("cannot look after the request for a certificate")?;
    }
}

/// One of our own making.
fn own(address: IpAddr) -> Result<Certificate> {
    let key = KeyPair::generate()?;
    let mut params = params(address)?;
    let now = u64::try_from(Timestamp::now().as_second()).context("the clock is before 1970")?;
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now);
    params.not_before = now - Duration::from_hours(1);
    params.not_after = now + OWN.unsigned_abs();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    read(vec![params.self_signed(&key)?.der().clone()], &key)
}

fn params(address: IpAddr) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.subject_alt_names = vec![SanType::IpAddress(address)];
    Ok(params)
}

/// What was made, provided that it is for this key and for now.
fn read(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Result<Certificate> {
    let Some(first) = chain.first() else { bail!("there is no certificate in what was signed") };
    let (_, certificate) = X509Certificate::from_der(first).ok().context("the certificate cannot be read")?;
    let validity = certificate.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let due = Timestamp::from_second(from + (to - from) / 2).context("the certificate has no time")?;
    ensure!(due > Timestamp::now(), "the certificate is too old already; is the clock right?");
    ensure!(
        certificate.public_key().raw == rcgen::PublicKeyData::subject_public_key_info(key),
        "the certificate is for another key"
    );
    let key = PrivateKeyDer::try_from(key.serialize_der()).ok().context("the key cannot be used")?;
    Ok(Certificate { chain, key, due })
}

#[cfg(test)]
mod tests;
