//! Tokens on their way from the controller, which makes them, to the auth service, which only hands them out.
//!
//! They lie in one Secret, each under the name of the request that it answers, for as long as that request is filed.
//! Where certificates are signed there is no such Secret.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::names::is_dns_label;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The Secret with the tokens.
pub const NAME: &str = "ferro-issued";

/// What a cluster gets that is let in without a certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Token {
    /// The tenant namespace.
    pub(crate) namespace: String,
    /// What it shows to the API server.
    #[serde(rename = "token")]
    pub(crate) text: String,
    /// When that ends.
    pub(crate) expires_at: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, text: _, expires_at } = self;
        to.debug_struct("Token")
            .field("namespace", namespace)
            .field("expires_at", expires_at)
            .finish_non_exhaustive()
    }
}

/// The token that answers a request; what cannot be read counts as missing.
pub(crate) fn of(secret: &Secret, request: &str) -> Option<Token> {
    let json = secret.data.as_ref()?.get(request)?;
    let token: Token = serde_json::from_slice(&json.0).ok()?;
    is_dns_label(&token.namespace).then_some(token)
}

/// Lays a token down for whoever waits for the answer to a request; makes the Secret if there is none.
pub(crate) async fn put(client: &Client, namespace: &str, request: &str, token: &Token) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot write the Secret {namespace}/{NAME}");
    let data = BTreeMap::from([(request.to_owned(), ByteString(serde_json::to_vec(token)?))]);
    let patch = Patch::Merge(json!({"data": data}));
    match secrets.patch(NAME, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let mut metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
            labels::PART_OF.put_on(&mut metadata);
            let secret = Secret { metadata, data: Some(data), ..Secret::default() };
            secrets.create(&PostParams::default(), &secret).await.map(drop).with_context(cannot)
        }
        patched => patched.map(drop).with_context(cannot),
    }
}

/// Takes away the tokens whose request is no longer filed, and with the last of them the Secret.
pub(crate) async fn clear(
    client: &Client,
    namespace: &str,
    present: &Secret,
    is_filed: impl Fn(&str) -> bool,
) -> Result<()> {
    let requests: Vec<&String> = present.data.iter().flat_map(BTreeMap::keys).collect();
    let gone: BTreeMap<&String, Value> =
        requests.iter().filter(|request| !is_filed(request)).map(|request| (*request, Value::Null)).collect();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let done = if gone.len() == requests.len() {
        secrets.delete(NAME, &as_it_is(&present.metadata)).await.map(drop)
    } else if gone.is_empty() {
        return Ok(());
    } else {
        let patch = Patch::Merge(json!({"data": gone}));
        secrets.patch(NAME, &PatchParams::default(), &patch).await.map(drop)
    };
    match done {
        // It is gone, or has changed: the watch shows that in a moment.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        done => done.with_context(|| format!("cannot clear the Secret {namespace}/{NAME}")),
    }
}

/// Deletes only what was looked at: a token that came since would be lost.
fn as_it_is(metadata: &ObjectMeta) -> DeleteParams {
    let preconditions =
        Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(namespace: &str) -> Token {
        Token { namespace: namespace.into(), text: "abc".into(), expires_at: Timestamp::UNIX_EPOCH }
    }

    fn secret(token: &Token) -> Secret {
        let json = ByteString(serde_json::to_vec(token).unwrap());
        Secret { data: Some([("ferro-1".to_owned(), json)].into()), ..Secret::default() }
    }

    #[test]
    fn a_token_is_found_by_its_request_and_no_other() {
        let laid = token("liqo-tenant-rome-123456");
        assert_eq!(of(&secret(&laid), "ferro-1"), Some(laid.clone()));
        assert_eq!(of(&secret(&laid), "ferro-2"), None);
        assert_eq!(of(&Secret::default(), "ferro-1"), None);
        assert_eq!(of(&secret(&token("../kube-system")), "ferro-1"), None);
    }

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", token("rome")).contains("abc"));
    }
}
