//! What this cluster keeps in order to show itself to one peer: a token, keys, and what the peer granted.
//!
//! All of it is one Secret for each `ForeignCluster`, so that it is written in one step and forgotten in one step.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_core::auth::{IdentityGrant, TokenSecret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

/// The token that the other side gave out.
pub const TOKEN: &str = "token";
/// The key of the certificate that was granted.
pub const KEY: &str = "key.pem";
/// The key of a request in flight.
pub const NEXT_KEY: &str = "next-key.pem";
/// What was granted.
pub const GRANT: &str = "grant.json";
const MANAGER: &str = "ferro";

/// What is kept for one peer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keepsake {
    /// The token that the other side gave out.
    pub token: Option<TokenSecret>,
    /// The key of the certificate that was granted.
    pub key: Option<String>,
    /// The key of a request in flight.
    pub next_key: Option<String>,
    /// What was granted.
    pub grant: Option<IdentityGrant>,
}

impl Keepsake {
    /// What the Secret holds; what cannot be read counts as missing, and is asked for again.
    pub fn of(secret: &Secret) -> Self {
        let part = |key: &str| secret.data.as_ref()?.get(key).map(|part| part.0.as_slice());
        let text = |key: &str| part(key).and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        Self {
            token: text(TOKEN).and_then(|text| serde_json::from_value(Value::String(text)).ok()),
            key: text(KEY),
            next_key: text(NEXT_KEY),
            grant: part(GRANT).and_then(|json| IdentityGrant::parse(json).ok()),
        }
    }
}

/// The name of the Secret for a peer, by the name of its `ForeignCluster`.
pub fn name(peer: &str) -> String {
    format!("ferro-peer-{peer}")
}

/// Writes parts of the Secret, or takes them away, in one step; makes it if there is none. It goes when the peer goes.
pub async fn put(
    client: &Client,
    namespace: &str,
    peer: &str,
    owner: Option<&ForeignCluster>,
    parts: &[(&str, Option<&str>)],
) -> Result<()> {
    let name = name(peer);
    let data: BTreeMap<&str, Value> = parts
        .iter()
        .map(|(key, text)| (*key, json!(text.map(|text| ByteString(text.as_bytes().to_vec())))))
        .collect();
    let owners = owner.and_then(|owner| owner.owner_ref(&())).map(|owner| vec![owner]);
    let mut metadata = json!({"name": name, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}});
    if let Some(owners) = owners {
        metadata["ownerReferences"] = json!(owners);
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot write the Secret {namespace}/{name}");
    let patch = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    match secrets.patch(&name, &how, &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let secret: Secret = serde_json::from_value(without_nulls(patch)).with_context(cannot)?;
            secrets.create(&kube::api::PostParams::default(), &secret).await.map(drop).with_context(cannot)
        }
        patched => patched.map(drop).with_context(cannot),
    }
}

/// The token as the Secret holds it.
pub fn token_text(token: &TokenSecret) -> Result<String> {
    match serde_json::to_value(token)? {
        Value::String(text) => Ok(text),
        _ => anyhow::bail!("a token is not a text"),
    }
}

/// Removes all that is kept for a peer.
pub async fn forget(client: &Client, namespace: &str, peer: &ForeignCluster) -> Result<()> {
    let name = name(&peer.name_any());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match secrets.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).with_context(|| format!("cannot delete the Secret {namespace}/{name}")),
    }
}

fn without_nulls(mut secret: Value) -> Value {
    if let Some(data) = secret["data"].as_object_mut() {
        data.retain(|_, value| !value.is_null());
    }
    secret
}
