//! Who is who between the address manager and those who ask it: an authority of its own, in a Secret.
//!
//! - Flow: the authority is made once; the certificate of the gateway goes into a Secret for it; the one that we serve
//!   with stays in memory. All are made anew at half of their time.
//! - Guarantees: a Secret that is good is not touched, whoever runs this and however often; private keys are not logged.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_core::auth::Issued;
use ferro_runtime::certificates::{Authority, Identity, data, ensure, part};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use rustls::ServerConfig;
use tokio::sync::watch;
use tracing::{info, warn};

use super::client::SERVER;
use super::server::configure;

/// The Secret with the authority; only the controller reads it.
pub const AUTHORITY: &str = "ferro-ipam-ca";
/// The Secret with the certificate of the gateway: `ca.crt`, `tls.crt`, `tls.key`.
pub const GATEWAY: &str = "ferro-ipam-gateway";

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
        let is_good = is_good.is_some_and(|it| it.ca == authority.pem() && !is_due(&it.certificate, now));
        if is_good { Ok(None) } else { authority.client("gateway", now).map(|it| Some(it.to_data())) }
    })
    .await?;
    let names = [SERVER.to_owned(), format!("{SERVER}.{namespace}.svc")];
    configure(&authority.server(&names, now)?)
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
        let is_good = present.and_then(|secret| read(secret).ok());
        if is_good.is_some_and(|authority| !is_due(authority.pem(), now)) {
            return Ok(None);
        }
        info!("made an authority for the address manager");
        let (pem, key) = Authority::make(AUTHORITY, now)?;
        Ok(Some(data([("ca.crt", pem), ("tls.key", key)])))
    });
    read(&secret.await?)
}

fn read(secret: &Secret) -> Result<Authority> {
    Authority::new(AUTHORITY, part(secret, "ca.crt")?, &part(secret, "tls.key")?)
}

/// Whether half of its time is over, or it cannot be read.
fn is_due(pem: &str, now: Timestamp) -> bool {
    Issued::from_pem(pem).map_or(true, |issued| issued.is_due(now))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// To serve with, and to ask with under this name.
    pub(in super::super) fn identities(name: &str) -> (Identity, Identity) {
        let now = Timestamp::now();
        let (pem, key) = Authority::make(AUTHORITY, now).unwrap();
        let authority = Authority::new(AUTHORITY, pem, &key).unwrap();
        (authority.server(&[SERVER.into()], now).unwrap(), authority.client(name, now).unwrap())
    }

    #[test]
    fn what_cannot_be_read_is_made_anew() {
        let now = Timestamp::now();
        let (serving, _) = identities("controller");
        assert!(!is_due(&serving.certificate, now) && !is_due(&serving.ca, now));
        assert!(is_due("nothing", now));
    }
}
