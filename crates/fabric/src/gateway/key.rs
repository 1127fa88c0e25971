//! The key of this cluster's gateway: made once, in a Secret that nobody else reads.

use anyhow::{Context, Result, ensure};
use ferro_api::names::labels;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use crate::wireguard::PrivateKey;

/// The Secret.
const NAME: &str = "ferro-gateway";
const KEY: &str = "wireguard.key";

/// The key; made if there is none. A key that exists is never replaced.
pub(super) async fn ensure(client: &Client, namespace: &str) -> Result<PrivateKey> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let present = secrets.get_opt(NAME).await.context("cannot read the key of the gateway")?;
    let secret = match present {
        Some(secret) => secret,
        None => create(&secrets).await?,
    };
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEY));
    let bytes = bytes.with_context(|| format!("the Secret {NAME} has no {KEY}; delete it to begin anew"))?;
    ensure!(bytes.0.len() == 32, "{KEY} in the Secret {NAME} is no key; delete the Secret to begin anew");
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&bytes.0);
    Ok(PrivateKey::new(*key))
}

async fn create(secrets: &Api<Secret>) -> Result<Secret> {
    let mut key = vec![0; 32];
    SystemRandom::new().fill(&mut key).ok().context("the system gives no random bytes")?;
    let mut metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    let secret = Secret {
        metadata,
        immutable: Some(true),
        data: Some([(KEY.to_owned(), ByteString(key))].into()),
        ..Secret::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(secret) => Ok(secret),
        // Another one was faster: its key counts.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            secrets.get(NAME).await.context("cannot read the key of the gateway")
        }
        Err(error) => Err(error).context("cannot keep the key of the gateway"),
    }
}
