//! The key of this cluster's gateway: made once, in a Secret that nobody else reads.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use ferro_api::names::labels;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::{Zeroize as _, Zeroizing};

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
    read(secret)
}

/// The key in the Secret, whose own copy of it is wiped.
fn read(mut secret: Secret) -> Result<PrivateKey> {
    let bytes = secret.data.as_mut().and_then(|data| data.remove(KEY));
    let bytes = bytes.with_context(|| format!("the Secret {NAME} has no {KEY}; delete it to begin anew"))?;
    let bytes = Zeroizing::new(bytes.0);
    ensure!(bytes.len() == 32, "{KEY} in the Secret {NAME} is no key; delete the Secret to begin anew");
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&bytes);
    Ok(PrivateKey::new(*key))
}

async fn create(secrets: &Api<Secret>) -> Result<Secret> {
    let mut key = vec![0; 32];
    SystemRandom::new().fill(&mut key).ok().context("the system gives no random bytes")?;
    let mut metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    let mut secret = Secret {
        metadata,
        immutable: Some(true),
        data: Some([(KEY.to_owned(), ByteString(key))].into()),
        ..Secret::default()
    };
    let created = secrets.create(&PostParams::default(), &secret).await;
    secret.data.iter_mut().flat_map(BTreeMap::values_mut).for_each(|bytes| bytes.0.zeroize());
    match created {
        Ok(secret) => Ok(secret),
        // Another one was faster: its key counts.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            secrets.get(NAME).await.context("cannot read the key of the gateway")
        }
        Err(error) => Err(error).context("cannot keep the key of the gateway"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_key_is_one() {
        let secret = |key: &str, bytes: Vec<u8>| Secret {
            data: Some([(key.to_owned(), ByteString(bytes))].into()),
            ..Secret::default()
        };
        let key = read(secret(KEY, vec![7; 32])).unwrap();
        assert_eq!(key.public(), PrivateKey::new([7; 32]).public());
        assert!(read(secret(KEY, vec![7; 31])).is_err());
        assert!(read(secret("other", vec![7; 32])).is_err());
        assert!(read(Secret::default()).is_err());
    }
}
