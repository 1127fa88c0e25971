//! Who is who between the address manager and those who ask it: an authority of its own, in a Secret.
//!
//! - Flow: the authority is made once; the certificate of the gateway goes into a Secret for it; the one that we serve
//!   with stays in memory. All are made anew at half of their time.
//! - Guarantees: a Secret that is good is not touched, whoever runs this and however often; private keys are not logged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::auth::Issued;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use tokio::sync::watch;
use tracing::{info, warn};

use super::client::{Identity, SERVER};
use super::server::configure;

/// The Secret with the authority; only the controller reads it.
pub const AUTHORITY: &str = "ferro-ipam-ca";
/// The Secret with the certificate of the gateway: `ca.crt`, `tls.crt`, `tls.key`.
pub const GATEWAY: &str = "ferro-ipam-gateway";

/// How long an authority, and a certificate, is valid; each is renewed at half of it.
const AUTHORITY_DAYS: i64 = 3650;
const DAYS: i64 = 30;
/// How often it is looked at, and how soon when something failed.
const LOOK: Duration = Duration::from_hours(1);
const SOON: Duration = Duration::from_secs(5);

/// Keeps all certificates as they should be, for ever, and tells how to serve.
pub(super) async fn keep(
    client: Client,
    namespace: String,
    serving: watch::Sender<Option<Arc<ServerConfig>>>,
) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    loop {
        let again = match refresh(&secrets, &namespace).await {
            Ok(config) => {
                serving.send_replace(Some(Arc::new(config)));
                LOOK
            }
            Err(error) => {
                let error = format!("{error:#}");
                warn!(
                    error,
                    "the certificates of the address manager are not up to date; will be tried again"
                );
                SOON
            }
        };
        tokio::time::sleep(again).await;
    }
}

async fn refresh(secrets: &Api<Secret>, namespace: &str) -> Result<ServerConfig> {
    let now = Timestamp::now();
    let authority = authority(secrets, now).await?;
    ensure(secrets, GATEWAY, |present| {
        let is_good = present.and_then(|secret| Identity::from_secret(secret).ok());
        let is_good = is_good.is_some_and(|it| it.ca == authority.pem && !is_due(&it.certificate, now));
        if is_good { Ok(None) } else { authority.client("gateway", now).map(|it| Some(it.to_data())) }
    })
    .await?;
    let names = [SERVER.to_owned(), format!("{SERVER}.{namespace}.svc")];
    configure(&authority.sign(SERVER, names.into(), ExtendedKeyUsagePurpose::ServerAuth, now)?)
}

/// A certificate for who asks under this name: `controller`, or the identifier of a peer.
pub(super) async fn issue(client: &Client, namespace: &str, name: &str) -> Result<Identity> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let now = Timestamp::now();
    authority(&secrets, now).await?.client(name, now)
}

/// The authority as it is, or as it is made now.
async fn authority(secrets: &Api<Secret>, now: Timestamp) -> Result<Authority> {
    let secret = ensure(secrets, AUTHORITY, |present| {
        let is_good = present.and_then(|secret| Authority::from_secret(secret).ok());
        if is_good.is_some_and(|authority| !is_due(&authority.pem, now)) {
            return Ok(None);
        }
        info!("made an authority for the address manager");
        Authority::make(now).map(Some)
    });
    Authority::from_secret(&secret.await?)
}

/// A Secret as it is, or as it must be; of two who write at once, one wins and both get that.
async fn ensure(
    secrets: &Api<Secret>,
    name: &str,
    make: impl Fn(Option<&Secret>) -> Result<Option<BTreeMap<String, ByteString>>>,
) -> Result<Secret> {
    let cannot = || format!("cannot use the Secret {name}");
    let present = secrets.get_opt(name).await.with_context(cannot)?;
    let Some(data) = make(present.as_ref())? else { return present.with_context(cannot) };
    let written = if let Some(present) = present {
        let next = Secret { data: Some(data), ..present };
        secrets.replace(name, &PostParams::default(), &next).await
    } else {
        let mut metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        labels::PART_OF.put_on(&mut metadata);
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        secrets.create(&PostParams::default(), &secret).await
    };
    match written {
        Err(kube::Error::Api(status)) if status.code == 409 => secrets.get(name).await.with_context(cannot),
        written => written.with_context(cannot),
    }
}

/// What signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn params(now: Timestamp) -> Result<CertificateParams> {
        let mut params = params("ferro-ipam-ca", Vec::new(), AUTHORITY_DAYS, now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(params)
    }

    fn make(now: Timestamp) -> Result<BTreeMap<String, ByteString>> {
        let key = KeyPair::generate()?;
        let pem = Self::params(now)?.self_signed(&key)?.pem();
        Ok(data([("ca.crt", pem), ("tls.key", key.serialize_pem())]))
    }

    fn from_secret(secret: &Secret) -> Result<Self> {
        let key = KeyPair::from_pem(&part(secret, "tls.key")?)
            .with_context(|| format!("the key in the Secret {} cannot be read", secret.name_any()))?;
        // Name and key are all that a signature shows of its authority.
        let issuer = Issuer::new(Self::params(Timestamp::now())?, key);
        Ok(Self { pem: part(secret, "ca.crt")?, issuer })
    }

    fn client(&self, name: &str, now: Timestamp) -> Result<Identity> {
        self.sign(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, now)
    }

    fn sign(
        &self,
        name: &str,
        names: Vec<String>,
        purpose: ExtendedKeyUsagePurpose,
        now: Timestamp,
    ) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let mut params = params(name, names, DAYS, now)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { ca: self.pem.clone(), certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str, names: Vec<String>, days: i64, now: Timestamp) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    // Clocks differ a little.
    let (year, month, day) = date(now, -1)?;
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = date(now, days)?;
    params.not_after = rcgen::date_time_ymd(year, month, day);
    Ok(params)
}

/// The day so many days from now.
fn date(now: Timestamp, days: i64) -> Result<(i32, u8, u8)> {
    let then = now.as_second().saturating_add(days.saturating_mul(86_400));
    let date = Timestamp::from_second(then).context("that is too far")?.to_zoned(TimeZone::UTC).date();
    let [month, day] = [date.month(), date.day()].map(i8::unsigned_abs);
    Ok((date.year().into(), month, day))
}

/// Whether half of its time is over, or it cannot be read.
fn is_due(pem: &str, now: Timestamp) -> bool {
    Issued::from_pem(pem).map_or(true, |issued| {
        let (from, to) = (issued.issued_at.as_second(), issued.expires_at.as_second());
        now.as_second() >= from + (to - from) / 2
    })
}

/// A part of a Secret, as text.
pub(super) fn part(secret: &Secret, key: &str) -> Result<String> {
    let bytes = secret.data.iter().flatten().find(|(name, _)| *name == key).map(|(_, bytes)| bytes.0.clone());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.with_context(|| format!("the Secret {} has no {key}", secret.name_any()))
}

/// The data of a Secret.
pub(super) fn data<const N: usize>(parts: [(&str, String); N]) -> BTreeMap<String, ByteString> {
    parts.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: BTreeMap<String, ByteString>) -> Secret {
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn a_certificate_carries_its_name_and_is_due_at_half_of_its_time() {
        let now = Timestamp::now();
        let authority = Authority::from_secret(&secret(Authority::make(now).unwrap())).unwrap();
        let identity = authority.client("gateway", now).unwrap();
        let issued = Issued::from_pem(&identity.certificate).unwrap();
        assert_eq!(issued.common_name, "gateway");
        assert!(!is_due(&identity.certificate, now) && !is_due(&authority.pem, now));
        let days = |days: u64| now + Duration::from_hours(24 * days);
        assert!(!is_due(&identity.certificate, days(13)) && is_due(&identity.certificate, days(16)));
        assert!(!is_due(&authority.pem, days(1800)) && is_due(&authority.pem, days(1900)));
        assert!(is_due("nothing", now));
        let again = Identity::from_secret(&secret(identity.to_data())).unwrap();
        assert_eq!(again.certificate, identity.certificate);
        assert!(!format!("{again:?}").contains("PRIVATE"), "keys are not shown");
    }
}
