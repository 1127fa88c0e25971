//! The service account that a peer is where nobody signs its certificate, and the tokens for it.
//!
//! Its name has the generation in it, as the name of the user has. It goes before the rights go, and every token for it
//! ends then.

use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::auth::UserName;
use ferro_core::identity::ClusterId;
use ferro_core::names;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tracing::info;

use super::{BINDING, bindings, generation, of_ours, recorded, user_of};
use crate::handover::Token;

/// Kubernetes makes no token that ends sooner.
const SHORTEST: Duration = Duration::from_mins(10);

/// A token for a peer that has rights in this namespace as this user; none if it has them no more.
pub(crate) async fn issue(
    client: &Client,
    installation_namespace: &str,
    tenant_namespace: &str,
    user: &UserName,
    lifetime: Duration,
) -> Result<Option<Token>> {
    let cannot = || format!("cannot make a token for {} in {tenant_namespace}", user.cluster);
    let binding = bindings(client, tenant_namespace).get_opt(BINDING).await.with_context(cannot)?;
    if binding.as_ref().and_then(user_of) != Some(*user) {
        return Ok(None);
    }
    ensure(client, tenant_namespace, user).await.with_context(cannot)?;
    let token = request(client, tenant_namespace, user, lifetime).await.with_context(cannot)?;
    // Whoever revokes raises the generation first and looks for accounts then, and may have looked too early.
    if generation(client, installation_namespace, &user.cluster).await? != user.generation {
        forget(client, tenant_namespace, &user.cluster).await?;
        return Ok(None);
    }
    Ok(Some(token))
}

/// Removes the accounts of a peer.
pub(super) async fn forget(client: &Client, namespace: &str, id: &ClusterId) -> Result<()> {
    let accounts = accounts(client, namespace);
    let cannot = || format!("cannot remove the service accounts of {id} in {namespace}");
    let of_peer = format!("{},{}", labels::PART_OF.selector(), labels::REMOTE_ID.selector(&id.to_string()));
    let found = accounts.list(&ListParams::default().labels(&of_peer)).await.with_context(cannot)?;
    for account in found {
        match accounts.delete(&account.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.with_context(cannot)?),
        }
    }
    Ok(())
}

async fn ensure(client: &Client, namespace: &str, user: &UserName) -> Result<()> {
    let (accounts, name, id) = (accounts(client, namespace), user.account(), user.cluster.to_string());
    let account = ServiceAccount {
        metadata: of_ours(&name, &id),
        // It is for use from elsewhere, and for no pod.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let present = accounts.get(&name).await?;
            Ok(names::adopt(&name, recorded(&present.metadata), &id)?)
        }
        created => {
            created?;
            info!(account = name, namespace, "made the service account of a peer");
            Ok(())
        }
    }
}

async fn request(client: &Client, namespace: &str, user: &UserName, lifetime: Duration) -> Result<Token> {
    let spec = TokenRequestSpec {
        expiration_seconds: i64::try_from(lifetime.max(SHORTEST).as_secs()).ok(),
        ..TokenRequestSpec::default()
    };
    let wanted = TokenRequest { spec, ..TokenRequest::default() };
    let how = PostParams::default();
    let made = accounts(client, namespace).create_token_request(&user.account(), &how, &wanted).await?;
    let status = made.status.context("the API server gave no token")?;
    Ok(Token {
        namespace: namespace.to_owned(),
        text: status.token,
        expires_at: status.expiration_timestamp.0,
    })
}

fn accounts(client: &Client, namespace: &str) -> Api<ServiceAccount> {
    Api::namespaced(client.clone(), namespace)
}
