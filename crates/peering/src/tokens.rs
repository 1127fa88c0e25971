//! The tokens that this cluster has given out, in a Secret: read, changed and written back in one step.
//!
//! Several write it (a person with `ferro token`, the controller), so every write names the version that it was made
//! from, and is done again from the next one when somebody else was faster.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::auth::{TokenSecret, TokenStore};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The Secret with the tokens.
pub const NAME: &str = "ferro-tokens";
const KEY: &str = "tokens.json";
/// So often somebody else may be faster.
const TRIES: usize = 10;

/// A secret that nobody can guess.
pub fn new_secret() -> Result<TokenSecret> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).ok().context("this machine gives no random numbers")?;
    Ok(TokenSecret::new(random))
}

/// The tokens as a Secret holds them.
pub fn of(secret: &Secret) -> Result<TokenStore> {
    let Some(json) = secret.data.as_ref().and_then(|data| data.get(KEY)) else {
        return Ok(TokenStore::default());
    };
    TokenStore::parse(&json.0)
        .with_context(|| format!("the Secret {NAME} is damaged; remove it, and give out new tokens"))
}

/// The tokens as they are now.
pub async fn read(client: &Client, namespace: &str) -> Result<TokenStore> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(NAME).await;
    let secret = secret.with_context(|| format!("cannot read the Secret {namespace}/{NAME}"))?;
    secret.as_ref().map_or_else(|| Ok(TokenStore::default()), of)
}

/// Forgets the tokens that expired long ago.
pub(crate) async fn sweep(client: &Client, namespace: &str) -> Result<()> {
    // Where there are none, no Secret is made for it.
    if read(client, namespace).await?.sweep(Timestamp::now()) {
        change(client, namespace, |store| Ok(store.sweep(Timestamp::now()))).await?;
    }
    Ok(())
}

/// Changes the tokens; what the change returns is returned once it is written. A change that fails writes nothing.
pub async fn change<T>(
    client: &Client,
    namespace: &str,
    mut change: impl FnMut(&mut TokenStore) -> Result<T>,
) -> Result<T> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot use the Secret {namespace}/{NAME}");
    for _ in 0..TRIES {
        let present = secrets.get_opt(NAME).await.with_context(cannot)?;
        let before = present.as_ref().map(of).transpose()?.unwrap_or_default();
        let mut store = before.clone();
        let result = change(&mut store)?;
        if store == before && present.is_some() {
            return Ok(result);
        }
        let written = match present {
            Some(secret) => secrets.replace(NAME, &PostParams::default(), &with(secret, &store)).await,
            None => secrets.create(&PostParams::default(), &with(blank(), &store)).await,
        };
        match written {
            Ok(_) => return Ok(result),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(cannot),
        }
    }
    anyhow::bail!("the Secret {namespace}/{NAME} is changed by others all the time; try again")
}

fn with(mut secret: Secret, store: &TokenStore) -> Secret {
    let json = store.to_json().to_string();
    secret.data = Some(BTreeMap::from([(KEY.to_owned(), ByteString(json.into_bytes()))]));
    secret
}

fn blank() -> Secret {
    let mut metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    Secret { metadata, ..Secret::default() }
}
